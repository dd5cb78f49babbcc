/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of a Llama share: llama.c loads one and runs sessions, of as
 * many tokens for each sequence; llama_step.c runs steps of an attn_cache.
 */
#ifndef ATTN_NN_LLAMA_H
#define ATTN_NN_LLAMA_H

#include "attn/nn/models.h"

#include "nn/block.h"

struct attn_llama {
    attn_llama_config config; /* completed; its rope is the next one */
    attn_rope_config rope;    /* completed */
    attn_tensor embedding;    /* (vocabulary, d_model), of the type that it came in */
    struct nn_norm norm;
    attn_linear *head;
    attn_block *blocks[];
};

/** The last norm, in place, and the product with the output matrix, of rows (B, 1, T, d_model). */
attn_status nn_llama_logits(const attn_llama *llama, const attn_tensor *hidden, const attn_tensor *logits,
                            int num_threads);

#endif
