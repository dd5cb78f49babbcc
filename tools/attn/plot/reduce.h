/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a matrix small enough for a picture, row by row, so that the matrix
 * itself is never held. A cell is the greatest value of its area, so that a
 * single diagonal or a thin band stays visible, or the mean of what is not
 * hidden. -Inf stands for a hidden value; a cell of hidden values alone is -Inf.
 */
#ifndef ATTN_TOOLS_PLOT_REDUCE_H
#define ATTN_TOOLS_PLOT_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

enum reduce_by { REDUCE_MAX, REDUCE_MEAN };

struct reduce {
    enum reduce_by by;
    int64_t rows, columns;     /* of the matrix */
    int bin_rows, bin_columns; /* of the picture; 1 to rows, 1 to columns */
    double *values;            /* [bin_rows * bin_columns]: maxima, or sums */
    double *areas;             /* the same: what the sums are of; NULL for maxima */
};

bool reduce_create(struct reduce *reduce, enum reduce_by by, int64_t rows, int64_t columns, int bin_rows,
                   int bin_columns);
/* Adds row number index; each row once, in any order. */
void reduce_add(struct reduce *reduce, int64_t index, const float *row);
/* Writes bin_rows times bin_columns cells. */
void reduce_cells(const struct reduce *reduce, float *cells);
void reduce_free(struct reduce *reduce);

#endif
