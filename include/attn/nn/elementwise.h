/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file elementwise.h
 * @brief Normalisation, activations and lookups: what stands between the products.
 *
 * Activations are f32, bf16 or f16, each tensor of its own type, with contiguous channels. Arithmetic is in f32: what
 * is narrower is widened, exactly, and a result is rounded once, so out in bf16 is the out in f32, rounded. out may be
 * x (of one type then), and must not otherwise overlap an input. num_threads is that of attn_params. Rows do not depend
 * on each other.
 */
#ifndef ATTN_NN_ELEMENTWISE_H
#define ATTN_NN_ELEMENTWISE_H

#include "attn/nn/linear.h"

#ifdef __cplusplus
extern "C" {
#endif

/** How rows are normalised. */
typedef enum attn_norm {
    ATTN_NORM_LAYER = 0, /**< (x - mean) / sqrt(variance + eps) * gamma + beta (Ba et al. 2016) */
    ATTN_NORM_RMS = 1    /**< x / sqrt(mean of squares + eps) * gamma (Zhang & Sennrich 2019) */
} attn_norm;

/**
 * Normalises every row of x over its C channels; the sums are taken about the mean, in two passes.
 *
 * @param norm which one
 * @param x     (B, 1, T, C)
 * @param gamma (1, 1, 1, C) f32, bf16 or f16; NULL: ones
 * @param beta  the same; NULL: zeros; not with ATTN_NORM_RMS
 * @param eps   finite, not negative
 * @param out   (B, 1, T, C)
 * @param num_threads as in attn_params
 * @since 0.1
 */
ATTN_API attn_status attn_normalise(attn_norm norm, const attn_tensor *x, const attn_tensor *gamma,
                                    const attn_tensor *beta, float eps, const attn_tensor *out, int num_threads);

/** out = activation(x), element by element. @since 0.1 */
ATTN_API attn_status attn_activate(attn_activation activation, const attn_tensor *x, const attn_tensor *out,
                                   int num_threads);

/**
 * Gated units (Shazeer 2020, "GLU variants improve transformer"): out = activation(gate) * up. With
 * ATTN_ACTIVATION_SILU this is SwiGLU. All three have one shape; out may be gate or up.
 * @since 0.1
 */
ATTN_API attn_status attn_gate(attn_activation activation, const attn_tensor *gate, const attn_tensor *up,
                               const attn_tensor *out, int num_threads);

/**
 * Rows of a table: out[b][t] = scale * table[ids[b*T + t]], added to what out holds if accumulate is not 0.
 *
 * @param table (1, 1, N, C) f32, bf16 or f16, any strides with contiguous channels
 * @param ids   [B*T], 0 to N-1; checked before anything is written
 * @param scale 0 means 1
 * @param accumulate whether to add to what out holds
 * @param out   (B, 1, T, C)
 * @param num_threads as in attn_params
 * @since 0.1
 */
ATTN_API attn_status attn_embed(const attn_tensor *table, const int32_t *ids, float scale, int accumulate,
                                const attn_tensor *out, int num_threads);

/**
 * Sinusoidal position encoding (Vaswani et al. 2017, section 3.5): row n has sin(p w_i) in channel 2i and cos(p w_i) in
 * channel 2i + 1, w_i = 10000^(-2i / channels), p = positions[n].
 *
 * @param positions [num] of either sign, or NULL for 0, 1, 2, ...
 * @param num       rows, 0 or more
 * @param channels  1 or more; with an odd number the last cosine is left out
 * @param table     [num][channels] floats, written; computed in double and rounded once
 * @since 0.1
 */
ATTN_API attn_status attn_sinusoidal(const int64_t *positions, int64_t num, int64_t channels, float *table);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_NN_ELEMENTWISE_H */
