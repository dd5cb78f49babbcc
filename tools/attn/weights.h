/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of attention weights on demand, from a file that holds them or computed
 * from queries and keys, so that a picture never needs the whole matrix.
 */
#ifndef ATTN_TOOLS_WEIGHTS_H
#define ATTN_TOOLS_WEIGHTS_H

#include "inputs.h"

struct weights {
    struct array_file file;      /* open when inputs is NULL */
    const struct inputs *inputs; /* loaded q and k */
    int64_t batch, heads, rows, columns;
};

attn_status weights_from_file(struct weights *weights, const char *spec);
attn_status weights_from_inputs(struct weights *weights, const struct inputs *inputs);
void weights_close(struct weights *weights);

/* Writes count rows from row first of one head, count times columns values. */
attn_status weights_rows(const struct weights *weights, int64_t batch, int64_t head, int64_t first, int64_t count,
                         float *dst);

#endif
