/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two kinds of pictures: heat maps of matrices and bar plots of rows, each
 * of one head or as a grid of heads that share their axes and their scale.
 */
#ifndef ATTN_TOOLS_PLOT_PLOT_H
#define ATTN_TOOLS_PLOT_PLOT_H

#include <stdint.h>

#include "canvas.h"

struct plot_labels {
    char *const *text; /* count of them, or NULL for numbers */
};

struct plot {
    const char *title, *subtitle;
    const char *row_name, *column_name; /* what the axes are */
    int64_t rows, columns;              /* of each matrix; bars: rows is 1 */
    int bin_rows, bin_columns;          /* cells that there are values for */
    int panels;
    char *const *panel_titles; /* NULL with a single panel */
    float *const *cells;       /* [panels][bin_rows * bin_columns] */
    struct plot_labels row_labels, column_labels;
    double low, high; /* of the scale; low < high */
    bool ink;         /* heat maps: from white to dark instead of viridis, and without a colour bar */
    double limit_bytes;
};

/*
 * How many cells to make for a matrix: its own lengths, or less when the longest
 * would exceed size pixels. size 0 stands for a default that fits the number of
 * panels.
 */
void plot_heatmap_bins(int64_t rows, int64_t columns, int panels, int size, int *bin_rows, int *bin_columns);
int plot_bar_bins(int64_t columns, int panels, int size);

/* Draws; the canvas is the caller's to free on success. size as above. */
attn_status plot_heatmap(struct canvas *canvas, const struct plot *plot, int size);
attn_status plot_bars(struct canvas *canvas, const struct plot *plot, int size);

#endif
