/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of attention weights on demand, from a file that holds them or computed
 * from queries and keys, so that a picture never needs the whole matrix.
 */
#ifndef ATTN_TOOLS_WEIGHTS_H
#define ATTN_TOOLS_WEIGHTS_H

#include "inputs.h"

/* Which keys count as hidden from a query. */
enum weights_hidden {
    HIDDEN_KNOWN, /* those that the options hide; in a file as HIDDEN_ZERO, as it does not say */
    HIDDEN_ZERO,  /* those whose weight is exactly 0 */
    HIDDEN_NONE
};

struct weights {
    enum weights_hidden hidden;  /* the caller's to set; HIDDEN_KNOWN at first */
    struct array_file file;      /* open when inputs is NULL */
    const struct inputs *inputs; /* loaded q and k */
    int64_t batch, heads, rows, columns;
};

attn_status weights_from_file(struct weights *weights, const char *spec);
attn_status weights_from_inputs(struct weights *weights, const struct inputs *inputs);
void weights_close(struct weights *weights);

/* Writes count rows from row first of one head, count times columns values; -Inf for hidden keys. */
attn_status weights_rows(const struct weights *weights, int64_t batch, int64_t head, int64_t first, int64_t count,
                         float *dst);

#endif
