/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of training, on weights as they lie, and what follows them in a
 * forward pass: a bias, dropout and a residual in one step, rounded once.
 */
#ifndef ATTN_NN_PRODUCT_ROWS_H
#define ATTN_NN_PRODUCT_ROWS_H

#include "attn/params.h"

/** Where products are made: threads as in attn_params, scratch of nn_linear_backward_need(). */
struct nn_product_place {
    int num_threads;
    void *scratch;
    size_t size;
};

/** Writes checked weights in f32 with rows and columns exchanged, to[columns][rows]. */
void nn_turn_weights(const attn_tensor *weights, float *to, int num_threads);

/** to = rows Wᵀ, or += with accumulate, f32; turned has room for W. */
void nn_multiply_rows(const struct nn_product_place *place, const attn_tensor *rows, const attn_tensor *w,
                      float *turned, const attn_tensor *to, int accumulate);
/** to = d W, or += with accumulate, f32. */
void nn_multiply_back(const struct nn_product_place *place, const attn_tensor *d, const attn_tensor *w,
                      const attn_tensor *to, int accumulate);

/** to = residual + dropout(from + bias), row by row. */
struct nn_finish {
    const attn_tensor *from, *to; /**< (B, 1, T, C) f32, bf16 or f16; may be one tensor */
    const float *bias;            /**< [C]; NULL: none */
    const attn_dropout *dropout;  /**< NULL: nothing is dropped */
    const attn_tensor *residual;  /**< NULL: none; of the type of to, which it may be */
};

void nn_finish_rows(const struct nn_finish *finish, int num_threads);

/** The elements of a bias, 0 where it has no data. */
void nn_take_bias(float *to, const attn_tensor *bias, int64_t n);

#endif
