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

/**
 * Functions applied to each element. SLEEF computes exp and tanh in them, to 1 ULP each. GELU has its digits for
 * negative x, too: it errs by at most 2 ULP for x > 0 and by 4 + x² ULP for x < 0.
 */
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
    const attn_tensor *residual; /**< NULL, or f32, bf16 or f16 of the only part's out's shape, added last; may be that
                                    out itself */
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

/** How a layer keeps its weights. */
typedef enum attn_weight_format {
    ATTN_WEIGHTS_AS_GIVEN = 0, /**< each part in the type that it came in: f32, bf16 or f16 */
    ATTN_WEIGHTS_F32 = 1,      /**< 4 bytes a weight */
    ATTN_WEIGHTS_BF16 = 2,     /**< 2 bytes, rounded to nearest even */
    ATTN_WEIGHTS_INT8 = 3,     /**< 1 byte, -127 to 127 times the scale of its output or group */
    ATTN_WEIGHTS_INT4 = 4      /**< half a byte, -8 to 7 times the scale of its group */
} attn_weight_format;

/** The last value of attn_weight_format. */
#define ATTN_WEIGHT_FORMAT_LAST ATTN_WEIGHTS_INT4

/** What a layer multiplies. Sums, bias and activation are f32 with each. */
typedef enum attn_multiply {
    /** f32: activations and weights are widened, exactly, as they are read. For every format of weights. */
    ATTN_MULTIPLY_F32 = 0,
    /**
     * bf16: activations in f32 and f16 are rounded to bf16 as they are read. For weights in bf16. By instructions
     * that multiply pairs of bf16 where these are faster than multiply-adds of f32; elsewhere both factors are
     * widened, which gives the same but for the rounding of sums.
     */
    ATTN_MULTIPLY_BF16 = 1,
    /**
     * int8: each row of activations is quantised as it is read, to -127 to 127 times a scale of its own, a 127th of its
     * largest size; with groups each group of its inputs. A row with NaN or an infinity becomes NaN. Sums of products
     * are exact integers, with groups those of a group. For weights in int8 and int4, with at most
     * ATTN_MULTIPLY_INT8_INPUTS inputs.
     */
    ATTN_MULTIPLY_INT8 = 2
} attn_multiply;

/** The last value of attn_multiply. */
#define ATTN_MULTIPLY_LAST ATTN_MULTIPLY_INT8

/** The most inputs of a layer that multiplies int8: their sums stay within 32 bits. */
#define ATTN_MULTIPLY_INT8_INPUTS 131072

/** What attn_linear_quantize() makes. Zero is every field's default except struct_size. */
typedef struct attn_linear_format {
    size_t struct_size;         /**< sizeof of this struct as the caller compiled it */
    attn_weight_format weights; /**< how weights are kept */
    attn_multiply multiply;     /**< what is multiplied */
    int64_t group;              /**< inputs that share a scale. int8: 0, a scale for each output, or 32, 64 or 128;
                                   int4: 0 or 32, both 32; otherwise 0 */
    const char *isa; /**< NULL: what attn_isa_active() names, and what it gains by. Else the name of an instruction set
                        (attn_isa_name()), which is used with all it has, even where less is faster */
} attn_linear_format;

/** A format with every field at its default, which is what attn_linear_create() makes. @since 0.1, experimental */
static inline attn_linear_format attn_linear_format_default(void)
{
    attn_linear_format f;
    memset(&f, 0, sizeof f);
    f.struct_size = sizeof f;
    return f;
}

/**
 * Packs weights for the instruction set that attn_isa_active() names, many of them on several threads: those of the
 * process's executor, or OpenMP's.
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
/**
 * The same with a choice of how weights are kept and what is multiplied.
 *
 * Weights in int8 and int4 are symmetric: a weight is an integer times the scale of its output or group, so that it is
 * off by at most half a scale. Scales of outputs are f32, those of groups bf16, rounded up. The last group of an output
 * may be shorter than the others. Biases stay what they are. Weights that are not finite cannot be quantised: the error
 * names the part, the row and the column.
 *
 * Combinations: weights as given or in f32 with products in f32; weights in bf16, or all given in bf16, with products
 * in f32 and bf16; weights in int8 and int4 with products in f32 and int8. Others are ATTN_UNSUPPORTED.
 *
 * @param linear     as for attn_linear_create()
 * @param format     NULL: the default, attn_linear_create()
 * @param num_parts, weights, biases as for attn_linear_create()
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_linear_quantize(attn_linear **linear, const attn_linear_format *format, int64_t num_parts,
                                          const attn_tensor *weights, const attn_tensor *biases);
/** Frees a layer; NULL is allowed. @since 0.1 */
ATTN_API void attn_linear_destroy(attn_linear *linear);
/** Columns of the weights. @since 0.1 */
ATTN_API int64_t attn_linear_inputs(const attn_linear *linear);
/** Rows of part's weights, 0 for a part that is not there. @since 0.1 */
ATTN_API int64_t attn_linear_outputs(const attn_linear *linear, int64_t part);
/**
 * Bytes that the weights and their scales take, with what fills their last vectors; biases are not counted.
 * @since 0.1, experimental
 */
ATTN_API int64_t attn_linear_weight_bytes(const attn_linear *linear);
/**
 * The instruction set whose products the layer uses, a static string: a name of attn_isa_name(), or the name of one
 * that brings integer products and extends it, such as "avx512_int8".
 * @since 0.1, experimental
 */
ATTN_API const char *attn_linear_isa(const attn_linear *linear);

/**
 * The product of a layer with one part.
 *
 * Activations in bf16 and f16 are widened, exactly, as they are read (attn_multiply has the exceptions). Sums, bias,
 * activation and residual are f32, and what goes out is rounded once. The types of x, out and residual may differ.
 *
 * @param linear the layer
 * @param x    f32, bf16 or f16 (B, 1, T, in), channels contiguous
 * @param out  f32, bf16 or f16 (B, 1, T, out), channels contiguous; must not overlap x
 * @param options NULL or options
 * @since 0.1
 */
ATTN_API attn_status attn_linear_forward(const attn_linear *linear, const attn_tensor *x, const attn_tensor *out,
                                         const attn_linear_options *options);

/** The same with several parts: outs[part] is its out, or NULL if it is not wanted; without residual. @since 0.1 */
ATTN_API attn_status attn_linear_forward_parts(const attn_linear *linear, const attn_tensor *x,
                                               const attn_tensor *const *outs, const attn_linear_options *options);

/** What attn_linear_backward() writes, each NULL where it is not wanted. Zero is every field's default. */
typedef struct attn_linear_gradients {
    size_t struct_size;                   /**< sizeof of this struct as the caller compiled it */
    const attn_tensor *x;                 /**< f32, bf16 or f16 (B, 1, T, in), channels contiguous */
    const attn_tensor *weights;           /**< f32 (1, 1, out, in), columns contiguous */
    const attn_tensor *bias;              /**< f32 (1, 1, 1, out), contiguous */
    int accumulate;                       /**< not 0: those of weights and bias are added to what they hold */
    int num_threads;                      /**< as in attn_params */
    const struct attn_executor *executor; /**< NULL: the process's (attn_set_executor()), else OpenMP */
    int accumulate_x;                     /**< not 0: x is f32, and added to what it holds */
} attn_linear_gradients;

/** Gradients with every field at its default; set at least one tensor. @since 0.1, experimental */
static inline attn_linear_gradients attn_linear_gradients_default(void)
{
    attn_linear_gradients g;
    memset(&g, 0, sizeof g);
    g.struct_size = sizeof g;
    return g;
}

/**
 * The gradients of a product y = x Wᵀ + b from that of y:
 *
 *     d_x = d_out W        d_weights = d_outᵀ x        d_bias = the sum of the rows of d_out
 *
 * Weights are read as they lie, not from a layer that has packed them, for training changes them between any two calls.
 * An activation behind the product has a backward pass of its own (attn_activate_backward()).
 *
 * Arithmetic is in f32, and a result is rounded once. Sums are those of 1024 terms each, in their order, added up: a
 * row of d_x depends on its row of d_out alone, and no gradient on the number of threads.
 *
 * @param weights   f32, bf16 or f16 (1, 1, out, in), any strides
 * @param x         f32, bf16 or f16 (B, 1, T, in), as in the forward pass, channels contiguous; NULL if the gradient of
 *                  the weights is not wanted
 * @param d_out     f32, bf16 or f16 (B, 1, T, out), channels contiguous
 * @param gradients what to write; none may overlap an input or another
 * @param workspace attn_linear_backward_workspace_size() bytes, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_linear_backward(const attn_tensor *weights, const attn_tensor *x, const attn_tensor *d_out,
                                          const attn_linear_gradients *gradients, void *workspace,
                                          size_t workspace_size);
/**
 * Bytes that attn_linear_backward() can make use of, whatever the shapes: some 550 KiB for each thread. SIZE_MAX after
 * an error. @since 0.1, experimental
 */
ATTN_API size_t attn_linear_backward_workspace_size(const attn_linear_gradients *gradients);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_NN_LINEAR_H */
