/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sum may be off by a hundredth: weights in bf16 have a rounding error of one in 256 each, and in f16 those below
 * 3e-8 are lost.
 */
#include "findings.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

void findings_add(struct findings *findings, const float *row, int64_t columns, int64_t head, int64_t query)
{
    double sum = 0;
    for (int64_t j = 0; j < columns; j++) {
        if (row[j] == -INFINITY)
            continue;
        sum += (double)row[j];
        findings->not_finite += !isfinite(row[j]);
        findings->negative += row[j] < 0;
    }
    findings->rows++;
    if (!isfinite(sum) || sum == 0 || fabs(sum - 1) <= 0.01)
        return;
    if (findings->odd_rows++ == 0) {
        findings->odd_sum = sum;
        findings->odd_head = head;
        findings->odd_query = query;
    }
}

bool findings_none(const struct findings *f, char *text, size_t size)
{
    if (f->odd_rows == 0 && f->negative == 0 && f->not_finite == 0)
        return true;
    int used = 0;
    const char *comma = "";
    if (f->odd_rows > 0) {
        used += snprintf(text, size,
                         "%" PRId64 " of %" PRId64 " rows that do not sum to 1 (the first, head %" PRId64
                         ", query %" PRId64 ", sums to %.3g)",
                         f->odd_rows, f->rows, f->odd_head, f->odd_query, f->odd_sum);
        comma = ", ";
    }
    if (f->negative > 0) {
        used += snprintf(text + used, size - (size_t)used, "%s%" PRId64 " negative numbers", comma, f->negative);
        comma = ", ";
    }
    if (f->not_finite > 0)
        snprintf(text + used, size - (size_t)used, "%s%" PRId64 " NaN or infinities", comma, f->not_finite);
    return false;
}
