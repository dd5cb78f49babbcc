/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of activations (B, 1, T, C) as work that is cut by rows sees them: a
 * grid of batch x tokens, joined to one long axis where the strides of every
 * tensor that takes part allow it, so that many short sequences are like one.
 */
#ifndef ATTN_NN_TENSOR_ROWS_H
#define ATTN_NN_TENSOR_ROWS_H

#include "nn/kernels/nn_kernels.h"

#include <string.h>

/** Copies n elements, from one type to another. */
static inline void nn_copy_row(const struct attn_nn_kernels *kernels, void *to, attn_dtype to_dtype, const void *from,
                               attn_dtype from_dtype, int64_t n)
{
    if (to_dtype == from_dtype)
        memcpy(to, from, (size_t)(n * attn_element_size(to_dtype)));
    else
        kernels->embed(&(struct nn_embed_work){
            .row = {from, from_dtype},
            .scale = 1,
            .n = n,
            .out = to,
            .out_dtype = to_dtype,
        });
}

struct nn_row_grid {
    int64_t batch, tokens;
    int64_t sequences, length; /* before joining */
};

/** Rows of one tensor in a grid, strides in bytes. */
struct nn_grid_rows {
    char *data;
    int64_t batch_stride, token_stride;
    attn_dtype dtype;
};

/** Where the row of a token of activations lies. */
static inline void *nn_row_address(const attn_tensor *t, int64_t batch, int64_t token)
{
    const int64_t at = (t->shape[0] > 1 ? batch * t->stride[0] : 0) + (t->shape[2] > 1 ? token * t->stride[2] : 0);
    return (char *)t->data + at * attn_element_size(t->dtype);
}

/** Whether rows of all sequences lie at one distance. */
static inline int nn_rows_join(const attn_tensor *t)
{
    return t->shape[0] <= 1 || t->shape[2] <= 1 || t->stride[0] == t->shape[2] * t->stride[2];
}

static inline struct nn_row_grid nn_grid_of(const attn_tensor *t)
{
    struct nn_row_grid grid = {t->shape[0], t->shape[2], t->shape[0], t->shape[2]};
    if (nn_rows_join(t)) {
        grid.tokens *= grid.batch;
        grid.batch = 1;
    }
    return grid;
}

/** Another tensor of as many rows takes part. */
static inline void nn_grid_fit(struct nn_row_grid *grid, const attn_tensor *t)
{
    if (!nn_rows_join(t)) {
        grid->batch = grid->sequences;
        grid->tokens = grid->length;
    }
}

static inline struct nn_grid_rows nn_rows_in_grid(const struct nn_row_grid *grid, const attn_tensor *t)
{
    const int64_t size = attn_element_size(t->dtype);
    const int64_t batch = t->shape[0] > 1 ? t->stride[0] * size : 0;
    const int64_t token = t->shape[2] > 1 ? t->stride[2] * size : batch;
    return (struct nn_grid_rows){t->data, grid->batch > 1 ? batch : 0, token, t->dtype};
}

/** Rows from one on. */
static inline struct attn_rows nn_rows_from(const struct nn_grid_rows *rows, int64_t batch, int64_t token)
{
    return (struct attn_rows){rows->data + batch * rows->batch_stride + token * rows->token_stride,
                              (ptrdiff_t)rows->token_stride, rows->dtype, NULL, 0};
}

#endif
