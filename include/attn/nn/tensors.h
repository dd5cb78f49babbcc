/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file tensors.h
 * @brief How the layers see the core's four-axis tensors.
 *
 * Activations are (batch, 1, token, channel), weights (1, 1, row, column), biases and other vectors (1, 1, 1, n). A
 * ragged batch has all its tokens behind each other: (1, 1, tokens, channel) with attn_params.ragged. Views own
 * nothing.
 */
#ifndef ATTN_NN_TENSORS_H
#define ATTN_NN_TENSORS_H

#include "attn/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Contiguous f32 activations [batch][token][channel]. @since 0.1 */
static inline attn_tensor attn_btc(const void *data, int64_t batch, int64_t tokens, int64_t channels)
{
    return attn_bthd(data, batch, tokens, 1, channels);
}

/** A contiguous f32 matrix [rows][columns], PyTorch's nn.Linear.weight when rows are outputs. @since 0.1 */
static inline attn_tensor attn_matrix(const void *data, int64_t rows, int64_t columns)
{
    return attn_bhtd(data, 1, 1, rows, columns);
}

/** A contiguous f32 vector [n]. @since 0.1 */
static inline attn_tensor attn_vector(const void *data, int64_t n)
{
    return attn_bhtd(data, 1, 1, 1, n);
}

#ifdef __cplusplus
}
#endif

#endif /* ATTN_NN_TENSORS_H */
