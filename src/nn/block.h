/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a Transformer layer holds; block_load.c fills it, block.c runs it.
 */
#ifndef ATTN_NN_BLOCK_INTERNAL_H
#define ATTN_NN_BLOCK_INTERNAL_H

#include "attn/nn/block.h"
#include "nn/memory.h"
#include "nn/names.h"

/** A normalisation's weights as floats; NULL: none. */
struct nn_norm {
    float *gamma, *beta;
};

struct attn_block {
    attn_block_config config;  /**< completed; its attention is the next one */
    attn_mha_config attention; /**< completed */
    attn_mha *self, *cross;
    attn_linear *up; /**< one part, or gate and up */
    attn_linear *down;
    struct nn_norm self_norm, cross_norm, ff_norm; /**< that of each sublayer */
    struct nn_norm self_post_norm, ff_post_norm;   /**< those behind sublayers, with post_norms */
};

/** A config with its defaults filled in, and that of its self-attention, or what is wrong with it. */
attn_status nn_complete_block_config(attn_block_config *completed, attn_mha_config *attention,
                                     const attn_block_config *config);

/**
 * Workspace of attn_block_forward() for x of a type and batch x tokens; what inputs point to is checked as far as
 * shapes go.
 */
struct nn_need nn_block_need(const attn_block *block, attn_dtype dtype, int64_t batch, int64_t tokens,
                             const attn_block_inputs *inputs);

/** attn_block_load() for a loader that reads more; everything behind prefix has to be the layer's. */
attn_status nn_block_load(attn_block **block, const attn_block_config *config, struct nn_reader *reader,
                          const char *prefix, attn_naming naming);

#endif
