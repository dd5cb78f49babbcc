/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call that is worth several threads: the library computes small ones, such
 * as the fixture's, on the calling thread whatever it is asked for, so tests
 * about threads need this one. Causal, with a log-sum-exp.
 */
#ifndef UNIT_LARGE_H
#define UNIT_LARGE_H

#include "attn/attn.h"

enum { LARGE_HEADS = 8, LARGE_TOKENS = 160, LARGE_CHANNELS = 32 };

struct large {
    float q_data[LARGE_HEADS * LARGE_TOKENS * LARGE_CHANNELS], k_data[LARGE_HEADS * LARGE_TOKENS * LARGE_CHANNELS];
    float v_data[LARGE_HEADS * LARGE_TOKENS * LARGE_CHANNELS], out_data[LARGE_HEADS * LARGE_TOKENS * LARGE_CHANNELS];
    float lse_data[LARGE_HEADS * LARGE_TOKENS];
    attn_tensor q, k, v, out, lse;
    attn_params params;
};

/** Fills in the call; the outputs hold a pattern. */
void large_initialize(struct large *l, int num_threads);

/** Makes q, k, v and out tensors of another type. */
void large_narrow(struct large *l, attn_dtype dtype);

attn_status large_forward(const struct large *l);

/** Whether the outputs of two calls have the same bits. */
int large_equal(const struct large *a, const struct large *b);

/** Whether nothing has been written to the outputs. */
int large_untouched(const struct large *l);

#endif
