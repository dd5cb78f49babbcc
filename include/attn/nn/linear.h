/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file linear.h
 * @brief y = activation(x Wᵀ + b) + residual, with weights packed once.
 *
 * A linear layer may have several parts, matrices that are applied to the same x: query, key and value, say. All of
 * them are one product. A row of the result depends on its row of x alone, to the last bit: neither the other rows, the
 * batch nor the number of threads changes it.
 */
#ifndef ATTN_NN_LINEAR_H
#define ATTN_NN_LINEAR_H

#include "attn/nn/tensors.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Functions applied to each element. SLEEF computes their transcendental parts, to 1 ULP each. */
typedef enum attn_activation {
    ATTN_ACTIVATION_NONE = 0,      /**< x */
    ATTN_ACTIVATION_RELU = 1,      /**< max(x, 0); NaN stays */
    ATTN_ACTIVATION_GELU = 2,      /**< x (1 + erf(x / sqrt 2)) / 2 (Hendrycks & Gimpel 2016) */
    ATTN_ACTIVATION_GELU_TANH = 3, /**< its approximation x (1 + tanh(sqrt(2/pi) (x + 0.044715 x³))) / 2 */
    ATTN_ACTIVATION_SILU = 4,      /**< x / (1 + exp(-x)) */
    ATTN_ACTIVATION_TANH = 5,      /**< tanh x */
    ATTN_ACTIVATION_SIGMOID = 6    /**< 1 / (1 + exp(-x)) */
} attn_activation;

/** The last value of attn_activation. */
#define ATTN_ACTIVATION_LAST ATTN_ACTIVATION_SIGMOID

/** Packed weights; immutable, for any number of threads at once. */
typedef struct attn_linear attn_linear;

struct attn_executor; /* in attn/attn.h */

/** Options of a product. Zero is every field's default except struct_size, and NULL stands for the defaults. */
typedef struct attn_linear_options {
    size_t struct_size;          /**< sizeof of this struct as the caller compiled it */
    attn_activation activation;  /**< of every part */
    const attn_tensor *residual; /**< NULL or f32, shape of the only part's out, added last; may be that out itself */
    int num_threads;             /**< as in attn_params */
    const struct attn_executor *executor; /**< NULL: the process's (attn_set_executor()), else OpenMP */
} attn_linear_options;

/** Options with every field at its default. @since 0.1 */
static inline attn_linear_options attn_linear_options_default(void)
{
    attn_linear_options o;
    memset(&o, 0, sizeof o);
    o.struct_size = sizeof o;
    return o;
}

/**
 * Packs weights for the instruction set that attn_isa_active() names.
 *
 * @param linear     set to the layer, NULL on an error; the caller destroys it
 * @param num_parts  1 or more
 * @param weights    [num_parts] (1, 1, out, in) f32, bf16 or f16, any strides; the same in for all. Copied in their
 *                   own type, so they may go away afterwards. A product has the bits that the same weights in
 *                   f32 give: what is narrow is widened, exactly, while it is read.
 * @param biases     [num_parts] (1, 1, 1, out), or data NULL for no bias; NULL: none at all
 * @since 0.1
 */
ATTN_API attn_status attn_linear_create(attn_linear **linear, int64_t num_parts, const attn_tensor *weights,
                                        const attn_tensor *biases);
/** Frees a layer; NULL is allowed. @since 0.1 */
ATTN_API void attn_linear_destroy(attn_linear *linear);
/** Columns of the weights. @since 0.1 */
ATTN_API int64_t attn_linear_inputs(const attn_linear *linear);
/** Rows of part's weights, 0 for a part that is not there. @since 0.1 */
ATTN_API int64_t attn_linear_outputs(const attn_linear *linear, int64_t part);

/**
 * The product of a layer with one part.
 *
 * @param linear the layer
 * @param x    f32 (B, 1, T, in), channels contiguous
 * @param out  f32 (B, 1, T, out), channels contiguous; must not overlap x
 * @param options NULL or options
 * @since 0.1
 */
ATTN_API attn_status attn_linear_forward(const attn_linear *linear, const attn_tensor *x, const attn_tensor *out,
                                         const attn_linear_options *options);

/** The same with several parts: outs[part] is its out, or NULL if it is not wanted; without residual. @since 0.1 */
ATTN_API attn_status attn_linear_forward_parts(const attn_linear *linear, const attn_tensor *x,
                                               const attn_tensor *const *outs, const attn_linear_options *options);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_NN_LINEAR_H */
