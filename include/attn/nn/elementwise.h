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
#include "attn/params.h"

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

/**
 * Dropout of activations (Srivastava et al. 2014): each element is multiplied by 0 with probability p, else by
 * 1 / (1 - p). Which ones are dropped follows from seed, offset and the element's indices alone, on every instruction
 * set and for any number of threads: element (b, 0, t, c) is kept where attn_dropout_keeps(dropout, b, 0, t, c). The
 * backward pass is the same call with the gradient of out as x. A dropped element is 0 whatever it was, NaN included.
 *
 * @param dropout p, seed and offset: another offset for each place in a model and each step. NULL: nothing is dropped
 * @param x       f32, bf16 or f16 (B, 1, T, C), channels contiguous
 * @param out     f32, bf16 or f16 (B, 1, T, C); may be x, of one type then
 * @param num_threads as in attn_params
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_drop_activations(const attn_dropout *dropout, const attn_tensor *x, const attn_tensor *out,
                                           int num_threads);

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

/** @name Backward passes
 * Gradients of what the functions above compute, from that of out (d_out) and from what they were given. d_out is f32,
 * bf16 or f16 as well, and each tensor has a type of its own. Nothing of the forward call needs to be kept but its
 * inputs: statistics of rows are computed again. Sums over rows do not depend on the number of threads, to the last
 * bit. A product with d_out is one of IEEE 754: where that is infinite, 0 times it is NaN.
 */
/**@{*/
/**
 * d_x = d_out * activation'(x). The derivative has its limit where x is large or infinite; that of ReLU at 0 is 0.
 *
 * @param activation of the forward call
 * @param x     (B, 1, T, C) that it was given
 * @param d_out (B, 1, T, C)
 * @param d_x   (B, 1, T, C), written; may be d_out or x (of one type then), else apart from both
 * @param num_threads as in attn_params
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_activate_backward(attn_activation activation, const attn_tensor *x, const attn_tensor *d_out,
                                            const attn_tensor *d_x, int num_threads);

/**
 * d_gate = d_out * up * activation'(gate) and d_up = d_out * activation(gate). All have one shape.
 *
 * @param d_gate, d_up written; either may be NULL if it is not wanted. Each may be gate, up or d_out (of one type
 *                     then), and is apart from the other one
 * @param activation, gate, up, d_out, num_threads as in attn_activate_backward()
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_gate_backward(attn_activation activation, const attn_tensor *gate, const attn_tensor *up,
                                        const attn_tensor *d_out, const attn_tensor *d_gate, const attn_tensor *d_up,
                                        int num_threads);

/**
 * Which gradients attn_normalise_backward() computes: those that are not NULL, at least one. Zero is every field's
 * default except struct_size.
 */
typedef struct attn_norm_gradients {
    size_t struct_size;       /**< sizeof of this struct as the caller compiled it */
    const attn_tensor *x;     /**< (B, 1, T, C) f32, bf16 or f16; may be d_out (of one type then) */
    const attn_tensor *gamma; /**< (1, 1, 1, C) f32; also without gamma, which then is that of ones */
    const attn_tensor *beta;  /**< the same; not with ATTN_NORM_RMS */
    int accumulate;           /**< whether gamma's and beta's are added to what they hold, which they replace else */
    int num_threads;          /**< as in attn_params */
} attn_norm_gradients;

/** Gradients with every field at its default. @since 0.1, experimental */
static inline attn_norm_gradients attn_norm_gradients_default(void)
{
    attn_norm_gradients g;
    memset(&g, 0, sizeof g);
    g.struct_size = sizeof g;
    return g;
}

/**
 * Gradients of attn_normalise(). Those of gamma and beta are sums over all rows: of at most 64 equal parts of them,
 * each in the order of its rows, and then over the parts.
 *
 * @param norm, x, gamma, eps of the forward call
 * @param d_out     (B, 1, T, C)
 * @param gradients where to put what is wanted
 * @param workspace of attn_normalise_backward_workspace_size() bytes, or NULL
 * @param workspace_size its size
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_normalise_backward(attn_norm norm, const attn_tensor *x, const attn_tensor *gamma, float eps,
                                             const attn_tensor *d_out, const attn_norm_gradients *gradients,
                                             void *workspace, size_t workspace_size);

/**
 * Bytes of workspace for gradients of batch sequences of so many tokens; of gradients only matters which are NULL.
 * SIZE_MAX on an error. @since 0.1, experimental
 */
ATTN_API size_t attn_normalise_backward_workspace_size(int64_t batch, int64_t tokens, int64_t channels,
                                                       const attn_norm_gradients *gradients);

/**
 * Gradient of the table of attn_embed(): d_table[n] = scale * sum of the rows of d_out whose id is n, each multiplied
 * and added in the order of the tokens. Rows that no id names become 0, or stay as they are if accumulate is not 0.
 *
 * @param ids     [B*T], 0 to N-1; checked before anything is written
 * @param scale   of the forward call; 0 means 1
 * @param d_out   (B, 1, T, C)
 * @param d_table (1, 1, N, C) f32, contiguous channels, written
 * @param accumulate whether to add to what d_table holds
 * @param num_threads as in attn_params
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_embed_backward(const int32_t *ids, float scale, const attn_tensor *d_out,
                                         const attn_tensor *d_table, int accumulate, int num_threads);
/**@}*/

#ifdef __cplusplus
}
#endif

#endif /* ATTN_NN_ELEMENTWISE_H */
