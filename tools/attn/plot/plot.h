/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two kinds of pictures: heat maps of matrices and bar plots of rows, each
 * of one head or as a grid of heads that share their axes and their scale.
 */
#ifndef ATTN_TOOLS_PLOT_PLOT_H
#define ATTN_TOOLS_PLOT_PLOT_H

#include <stdint.h>

#include "canvas.h"
#include "scale.h"

/* As many labels as can be read; a longer one ends in an ellipsis. In units. */
#define LABEL_MOST 150.0

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
    int across;                /* panels side by side; 0: as many as look well */
    /* [across], [panels / across]: instead of panel_titles, the names of a grid's columns and rows; or NULL */
    char *const *grid_columns, *const *grid_rows;
    float *const *cells; /* [panels][bin_rows * bin_columns]; -Inf where all that a cell stands for is hidden */
    struct plot_labels row_labels, column_labels;
    struct scale scale;
    const double *panel_tops; /* [panels], or NULL: the scale is in fractions of these */
    bool ink;                 /* heat maps: from white to dark instead of viridis, and without a colour bar */
    double limit_bytes;
};

/*
 * How many cells to make for a matrix: its own lengths, or less when the longest
 * would exceed size pixels. size 0 stands for a default that fits the number of
 * panels.
 */
void plot_heatmap_bins(int64_t rows, int64_t columns, int panels, int size, int *bin_rows, int *bin_columns);
int plot_bar_bins(int64_t columns, int panels, int size);

/* The end of an axis of bars on which the greatest value leaves some room; low is where the axis begins. */
double plot_bar_top(double low, double greatest);

/*
 * Draws; the canvas is the caller's to free, whatever the result. size as above: with one above the default, text,
 * lines and gaps grow in the same measure.
 */
attn_status plot_heatmap(struct canvas *canvas, const struct plot *plot, int size);
attn_status plot_bars(struct canvas *canvas, const struct plot *plot, int size);

#endif
