/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What alignments, pooling and Bahdanau's step share: the layer itself, and the
 * driver of the additive kernel with its checks.
 */
#ifndef ATTN_NN_ALIGNMENT_LAYER_H
#define ATTN_NN_ALIGNMENT_LAYER_H

#include "attn/nn/alignment.h"
#include "nn/kernels/nn_kernels.h"

struct attn_alignment {
    const struct attn_nn_kernels *kernels;
    attn_score score;
    int64_t d_query, d_key, d_projected;
    float temperature;
    attn_linear *w_q; /* ADDITIVE */
    attn_linear *w_k; /* ADDITIVE and GENERAL */
    float *v;         /* ADDITIVE: as nn_additive_vector() makes it */
};

/** Additive attention that has been checked. */
struct nn_additive {
    const struct attn_nn_kernels *kernels;
    const float *score;   /**< from nn_additive_vector() */
    const attn_tensor *q; /**< (B, 1, Tq, d_attention) W_q q; strides of 0 repeat rows */
    const attn_tensor *k; /**< (B, 1, Tk, d_attention) W_k k + b */
    const attn_tensor *v, *out;
    const attn_params *params; /**< what nn_check_additive() allows */
};

/** Runs it; the caller's threads are params->num_threads. */
void nn_additive_run(const struct nn_additive *call);

/**
 * The vector v of the additive score as the kernel wants it: times log2(e) / temperature. The caller frees *score. name
 * is that of v, which has been checked.
 */
attn_status nn_additive_vector(float **score, const char *name, const attn_tensor *v, float temperature);

/** A tensor with numbers for keys, whose last axis may have any stride, with that axis where the only head was. */
attn_tensor nn_by_elements(const attn_tensor *t);

/** A config whose weights are there and of the right shapes, in ours; name is what sentences call it. */
attn_status nn_take_alignment_config(attn_alignment_config *ours, const char *name,
                                     const attn_alignment_config *config);

/** The caller's options, with the scale and the temperature of the score function. */
attn_status nn_take_alignment_params(attn_params *ours, attn_score score, float temperature, const attn_params *params);

/** The last key that query 0 of a sequence sees, as causality has it; end is that of its live keys. */
int64_t nn_additive_diagonal(const attn_params *params, int64_t batch, int64_t queries, int64_t end);

/** Options and outputs on request of an additive call with these operands, which have been checked. */
attn_status nn_check_additive(const attn_params *params, const attn_tensor *q, const attn_tensor *k,
                              const attn_tensor *v, const attn_tensor *out);

#endif
