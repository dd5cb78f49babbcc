/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver hands to the pass of a single tile. */
#ifndef ATTN_SINGLE_H
#define ATTN_SINGLE_H

#include "kernels/kernels.h"

/**
 * All queries of a head against all keys that one of them sees. Every query sees
 * the first key. Words are floats, K and V are read where they lie, and scores
 * come whole.
 */
struct attn_single {
    const struct attn_kernels *kernels;
    /* Working memory, [width] lanes in each row. */
    float *q_words;                /**< [dk] */
    float *o;                      /**< [dv] */
    float *s;                      /**< [keys] */
    float *m, *l;                  /**< [1] */
    struct attn_rows q, k, v, out; /**< of the head */
    float *lse;                    /**< of the head; NULL when not wanted */
    ptrdiff_t lse_stride;
    int rows, keys;   /**< 1 or more; at most a strip, and a block of keys */
    int nv, width;    /**< vectors and lanes of the strip */
    int dk, dv;       /**< 1 or more */
    float scale;      /**< multiplies q·k; base 2 */
    int64_t diagonal; /**< row r sees the keys up to r + diagonal */
};

/** Attention of the head: out, and lse. */
void attn_single_pass(const struct attn_single *x);

#endif
