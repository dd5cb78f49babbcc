/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a file that is to be drawn holds the weights of a softmax: rows of
 * numbers from 0 on that sum to 1, or to 0 where every key is hidden.
 */
#ifndef ATTN_TOOLS_FINDINGS_H
#define ATTN_TOOLS_FINDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct findings {
    int64_t rows, odd_rows, negative, not_finite;
    double odd_sum; /* of the first such row */
    int64_t odd_head, odd_query;
};

/* Looks at a row; -Inf stands for a hidden key. */
void findings_add(struct findings *findings, const float *row, int64_t columns, int64_t head, int64_t query);
/* Whether all was in order; otherwise says what was not, to follow "it holds". */
bool findings_none(const struct findings *findings, char *text, size_t size);

#endif
