/* SPDX-License-Identifier: Apache-2.0 */
/* The backward pass of additive attention between the checks of those who call it and its run (additive_backward.c). */
#ifndef ATTN_NN_ADDITIVE_BACKWARD_DRIVER_H
#define ATTN_NN_ADDITIVE_BACKWARD_DRIVER_H

#include "nn/alignment.h"
#include "nn/memory.h"

/** Working memory; rows are the queries of all sequences, one after the other. */
struct nn_additive_gradient_pieces {
    float *v;                    /**< [inner] the vector of the score, by the temperature */
    float *turned;               /**< [d_query][inner]: w_q with rows and columns exchanged */
    float *q;                    /**< [rows][d_query], zeros for a query without a live key */
    float *part;                 /**< [rows][inner]: q W_qᵀ */
    float *d_part, *d_v;         /**< [rows][inner]: its gradient; what the row gives to that of the score's vector */
    struct nn_additive_row *row; /**< [rows] */
    void *labels;                /**< of documents, summed up; of a call that has them */
    void *scratch, *keys;        /**< of products; of a query's keys, for each thread */
    size_t scratch_size, keys_size;
};

/** A call with additive scores. */
struct nn_additive_gradient {
    const attn_alignment_config *config;
    const attn_params *params;                       /**< what nn_check_additive() allows, no outputs */
    const attn_tensor *q, *projected, *v, *d_out;    /**< (B, 1, ..) as in the forward pass */
    const attn_tensor *d_q, *d_projected, *d_values; /**< NULL: not wanted */
    const attn_tensor *d_w_q, *d_score_v;
    int accumulate;      /**< d_w_q and d_score_v are added to what they hold */
    int accumulate_q;    /**< d_q likewise */
    int accumulate_keys; /**< d_projected and d_values likewise */
    struct nn_additive_gradient_pieces pieces;
};

/** Takes its memory: two of an arena's calls. */
struct nn_additive_gradient_pieces nn_take_additive_gradient(struct nn_arena *arena,
                                                             const attn_alignment_config *config, int64_t batch,
                                                             int64_t q_tokens, int64_t k_tokens,
                                                             const attn_params *params);

void nn_run_additive_gradient(const struct nn_additive_gradient *call);

#endif
