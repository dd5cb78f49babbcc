/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What attn heatmap draws: weights of one or several sources, each head of
 * which becomes the cells of a panel, and the scale that all panels have.
 */
#ifndef ATTN_TOOLS_HEATMAP_DATA_H
#define ATTN_TOOLS_HEATMAP_DATA_H

#include "findings.h"
#include "plot/plot.h"
#include "plot/reduce.h"
#include "progress.h"
#include "weights.h"

enum { HEATMAP_MOST_PANELS = 1024, HEATMAP_MOST_SOURCES = 256 };

/* What the top of the scale is. */
enum heatmap_top { TOP_ALL, TOP_PANEL, TOP_GIVEN };

struct heatmap_data {
    /* Set by the caller. */
    int64_t batch, head, row; /* head, row: -1 for all */
    int size;
    double limit_bytes;
    enum weights_hidden hidden;
    enum reduce_by reduce;
    enum scale_kind kind;
    enum heatmap_top top;
    double given_top;
    bool quiet;

    struct weights *sources;
    struct array_names names; /* of the tensors of a grid; zeros without a grid */
    int count;
    int64_t heads, rows, columns; /* of each source */
    struct plot plot;             /* all but titles, labels and names of axes */
    float **cells;
    double *tops;
    bool has_hidden, has_nan; /* among the cells */
    struct findings findings; /* of rows from files */
    struct progress progress;
};

/* Opens one source, or with grid all tensors that FILE:PATTERN names, which must have the same shape. */
attn_status heatmap_open_file(struct heatmap_data *data, const char *spec, bool grid);
attn_status heatmap_open_inputs(struct heatmap_data *data, const struct inputs *inputs);
/* Checks the selection against what is there. */
attn_status heatmap_check(struct heatmap_data *data);
/* Makes the cells and the scale. */
attn_status heatmap_collect(struct heatmap_data *data);
void heatmap_close(struct heatmap_data *data);

#endif
