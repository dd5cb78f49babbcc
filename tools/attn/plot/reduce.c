/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a matrix smaller by area means. Along an axis of n elements and m bins, let an element be m long
 * and a bin n long: element j covers [j m, (j+1) m) and bin c [c n, (c+1) n), so
 * that every overlap is a whole number and their sum over a bin is exactly n.
 * An element shared by two bins counts in each with its share. When n = m every
 * mean is the element itself. A NaN makes the cells it touches NaN: hiding it
 * in a mean would hide a bug.
 */
#include "reduce.h"

#include <math.h>
#include <stdlib.h>

bool reduce_create(struct reduce *reduce, int64_t rows, int64_t columns, int bin_rows, int bin_columns)
{
    *reduce = (struct reduce){.rows = rows, .columns = columns, .bin_rows = bin_rows, .bin_columns = bin_columns};
    size_t cells = (size_t)bin_rows * (size_t)bin_columns;
    reduce->sums = calloc(cells > 0 ? cells : 1, sizeof *reduce->sums);
    reduce->line = calloc(bin_columns > 0 ? (size_t)bin_columns : 1, sizeof *reduce->line);
    if (reduce->sums != NULL && reduce->line != NULL)
        return true;
    reduce_free(reduce);
    return false;
}

void reduce_free(struct reduce *reduce)
{
    free(reduce->sums);
    free(reduce->line);
    reduce->sums = reduce->line = NULL;
}

/* The length that element and bin share, in the units of the file's introduction. */
static int64_t overlap(int64_t element, int64_t elements, int64_t bin, int64_t bins)
{
    int64_t from = element * bins > bin * elements ? element * bins : bin * elements;
    int64_t to = (element + 1) * bins < (bin + 1) * elements ? (element + 1) * bins : (bin + 1) * elements;
    return to - from;
}

void reduce_add(struct reduce *reduce, int64_t index, const float *row)
{
    for (int c = 0; c < reduce->bin_columns; c++) {
        int64_t first = c * reduce->columns / reduce->bin_columns;
        double sum = 0;
        for (int64_t j = first; j < reduce->columns; j++) {
            int64_t shared = overlap(j, reduce->columns, c, reduce->bin_columns);
            if (shared <= 0)
                break;
            sum += (double)shared * (double)row[j];
        }
        reduce->line[c] = sum;
    }
    for (int r = (int)(index * reduce->bin_rows / reduce->rows); r < reduce->bin_rows; r++) {
        int64_t shared = overlap(index, reduce->rows, r, reduce->bin_rows);
        if (shared <= 0)
            break;
        double *sums = reduce->sums + (size_t)r * (size_t)reduce->bin_columns;
        for (int c = 0; c < reduce->bin_columns; c++)
            sums[c] += (double)shared * reduce->line[c];
    }
}

void reduce_means(const struct reduce *reduce, float *cells)
{
    double area = (double)reduce->rows * (double)reduce->columns;
    size_t count = (size_t)reduce->bin_rows * (size_t)reduce->bin_columns;
    for (size_t i = 0; i < count; i++)
        cells[i] = (float)(reduce->sums[i] / area);
}

void reduce_maxima(const float *row, int64_t columns, int bins, float *cells)
{
    for (int c = 0; c < bins; c++) {
        int64_t end = (c + 1) * columns / bins;
        float greatest = -INFINITY;
        for (int64_t j = c * columns / bins; j < end; j++) {
            if (isnan(row[j]) || row[j] > greatest)
                greatest = row[j];
            if (isnan(greatest))
                break;
        }
        cells[c] = greatest;
    }
}
