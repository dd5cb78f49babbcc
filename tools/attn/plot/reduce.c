/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For maxima each element belongs to the one cell that its beginning is in. For means let an element along an axis of
 * n elements and m bins be m long and a bin n long: element j covers [j m, (j+1) m) and bin c [c n, (c+1) n), so that
 * every overlap is a whole number, and an element that two bins share counts in each with its share. When n = m every
 * cell is the element itself, either way. A NaN makes the cells it touches NaN: hiding it would hide a bug.
 */
#include "reduce.h"

#include <math.h>
#include <stdlib.h>

bool reduce_create(struct reduce *reduce, enum reduce_by by, int64_t rows, int64_t columns, int bin_rows,
                   int bin_columns)
{
    *reduce =
        (struct reduce){.by = by, .rows = rows, .columns = columns, .bin_rows = bin_rows, .bin_columns = bin_columns};
    size_t cells = (size_t)bin_rows * (size_t)bin_columns;
    reduce->values = calloc(cells > 0 ? cells : 1, sizeof *reduce->values);
    if (by == REDUCE_MEAN)
        reduce->areas = calloc(cells > 0 ? cells : 1, sizeof *reduce->areas);
    if (reduce->values == NULL || (by == REDUCE_MEAN && reduce->areas == NULL)) {
        reduce_free(reduce);
        return false;
    }
    for (size_t i = 0; by == REDUCE_MAX && i < cells; i++)
        reduce->values[i] = -INFINITY;
    return true;
}

void reduce_free(struct reduce *reduce)
{
    free(reduce->values);
    free(reduce->areas);
    reduce->values = NULL;
    reduce->areas = NULL;
}

/* What element and bin have in common. */
static int64_t overlap(int64_t element, int64_t elements, int64_t bin, int64_t bins)
{
    int64_t from = element * bins > bin * elements ? element * bins : bin * elements;
    int64_t to = (element + 1) * bins < (bin + 1) * elements ? (element + 1) * bins : (bin + 1) * elements;
    return to - from;
}

static void add_maxima(struct reduce *reduce, int64_t index, const float *row)
{
    double *values = reduce->values + (size_t)(index * reduce->bin_rows / reduce->rows) * (size_t)reduce->bin_columns;
    for (int64_t j = 0; j < reduce->columns; j++) {
        double *value = &values[j * reduce->bin_columns / reduce->columns];
        /* A NaN is not below anything, and nothing is above it. */
        if (!((double)row[j] <= *value))
            *value = isnan(*value) ? *value : (double)row[j];
    }
}

static void add_means(struct reduce *reduce, int64_t index, const float *row)
{
    const int first_row = (int)(index * reduce->bin_rows / reduce->rows);
    for (int c = 0; c < reduce->bin_columns; c++) {
        double sum = 0, area = 0;
        for (int64_t j = c * reduce->columns / reduce->bin_columns; j < reduce->columns; j++) {
            int64_t shared = overlap(j, reduce->columns, c, reduce->bin_columns);
            if (shared <= 0)
                break;
            if (row[j] == -INFINITY)
                continue;
            sum += (double)shared * (double)row[j];
            area += (double)shared;
        }
        for (int r = first_row; r < reduce->bin_rows; r++) {
            int64_t shared = overlap(index, reduce->rows, r, reduce->bin_rows);
            if (shared <= 0)
                break;
            size_t cell = (size_t)r * (size_t)reduce->bin_columns + (size_t)c;
            reduce->values[cell] += (double)shared * sum;
            reduce->areas[cell] += (double)shared * area;
        }
    }
}

void reduce_add(struct reduce *reduce, int64_t index, const float *row)
{
    if (reduce->by == REDUCE_MAX)
        add_maxima(reduce, index, row);
    else
        add_means(reduce, index, row);
}

void reduce_cells(const struct reduce *reduce, float *cells)
{
    size_t count = (size_t)reduce->bin_rows * (size_t)reduce->bin_columns;
    for (size_t i = 0; i < count; i++) {
        double value = reduce->values[i];
        if (reduce->by == REDUCE_MEAN)
            value = reduce->areas[i] > 0 ? value / reduce->areas[i] : -INFINITY;
        cells[i] = (float)value;
    }
}
