/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What alignments, pooling and Bahdanau's step share: the layer itself, and its
 * checks.
 */
#ifndef ATTN_NN_ALIGNMENT_LAYER_H
#define ATTN_NN_ALIGNMENT_LAYER_H

#include "attn/nn/alignment.h"
#include "nn/kernels/nn_kernels.h"
#include "nn/memory.h"

struct attn_alignment {
    const struct attn_nn_kernels *kernels;
    attn_score score;
    int64_t d_query, d_key, d_projected;
    float temperature;
    attn_linear *w_q; /* ADDITIVE */
    attn_linear *w_k; /* ADDITIVE and GENERAL */
    float *v;         /* ADDITIVE: as nn_additive_vector() makes it */
};

/** Workspace of attn_alignment_forward() with an additive score; params are complete. SIZE_MAX after an error. */
struct nn_need nn_additive_alignment_need(const attn_alignment *alignment, int64_t batch, int64_t q_tokens,
                                          int64_t k_tokens, int64_t d_value, const attn_params *params);

/** A tensor with numbers for keys, whose last axis may have any stride, with that axis where the only head was. */
attn_tensor nn_by_elements(const attn_tensor *t);

/** A config whose weights are there and of the right shapes, in ours; name is what sentences call it. */
attn_status nn_take_alignment_config(attn_alignment_config *ours, const char *name,
                                     const attn_alignment_config *config);

/** The caller's options, with the scale and the temperature of the score function. */
attn_status nn_take_alignment_params(attn_params *ours, attn_score score, float temperature, const attn_params *params);

#endif
