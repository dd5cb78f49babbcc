/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a matrix small enough for a picture, row by row, so that the matrix
 * itself is never held: each cell is the mean over the area that it covers.
 */
#ifndef ATTN_TOOLS_PLOT_REDUCE_H
#define ATTN_TOOLS_PLOT_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

struct reduce {
    int64_t rows, columns;     /* of the matrix */
    int bin_rows, bin_columns; /* of the picture; 1 to rows, 1 to columns */
    double *sums;
    double *line;
};

bool reduce_create(struct reduce *reduce, int64_t rows, int64_t columns, int bin_rows, int bin_columns);
/* Adds row number index; each row once, in any order. */
void reduce_add(struct reduce *reduce, int64_t index, const float *row);
/* Writes bin_rows times bin_columns means. */
void reduce_means(const struct reduce *reduce, float *cells);
void reduce_free(struct reduce *reduce);

/* The greatest value of each of bins parts of a row; a part with a NaN gives NaN. */
void reduce_maxima(const float *row, int64_t columns, int bins, float *cells);

#endif
