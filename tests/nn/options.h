/* SPDX-License-Identifier: Apache-2.0 */
/* Random options of attention, with the arrays and tensors that they point to. */
#ifndef TEST_NN_OPTIONS_H
#define TEST_NN_OPTIONS_H

#include "memory.h"

/** What options are for. */
struct options_for {
    int64_t batch, heads, kv_heads, tq, tk, dk;
    int additive_scores; /**< only what ADDITIVE alignment takes */
};

struct options {
    attn_params params;
    int64_t *kv_len; /**< params.kv_len, or NULL */
    attn_tensor mask, weights, rope_q, rope_k;
    attn_rope_tables rope;
    attn_dropout dropout;
    attn_window window;
    attn_relative_bias bias;
};

/** Belongs to the memory. weights are asked for now and then: params.weights. */
struct options *random_options(struct memory *m, const struct options_for *of);

/** Workspace of exactly size bytes before a page that may not be touched; freed with the memory. */
void *place_workspace(struct memory *m, size_t size);

#endif
