/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file mha.h
 * @brief Multi-head attention with its projections (Vaswani et al. 2017, section 3.2.2).
 *
 *     Q = x W_qᵀ + b_q,  K = m W_kᵀ + b_k,  V = m W_vᵀ + b_v      m = x for self-attention
 *     out = concat_h(attention(Q_h, K_h, V_h)) W_oᵀ + b_o
 *
 * For self-attention the three products are one. They write [token][head][channel] rows, which the core reads by
 * strides; nothing is transposed or copied. Keys and values can be projected once and used again: cross-attention over
 * a fixed memory, or a cache that grows by a token a step.
 */
#ifndef ATTN_NN_MHA_H
#define ATTN_NN_MHA_H

#include "attn/attn.h"
#include "attn/backward.h"
#include "attn/nn/linear.h"
#include "attn/nn/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Sizes of a layer. Zero is the default of all but struct_size, d_model and heads. */
typedef struct attn_mha_config {
    size_t struct_size; /**< sizeof of this struct as the caller compiled it */
    int64_t d_model;    /**< channels of x */
    int64_t heads;      /**< query heads */
    int64_t kv_heads;   /**< heads of keys and values, a divisor of heads; 0 means heads */
    int64_t head_dim;   /**< channels of a query and key head; 0 means d_model / heads, which must then be whole */
    int64_t value_dim;  /**< channels of a value head; 0 means head_dim */
    int64_t d_memory;   /**< channels of the memory that keys and values are made from; 0 means d_model */
    int64_t d_out;      /**< channels of out; 0 means d_model */
    /**
     * How the four matrices are kept and multiplied; NULL: as they are given, in f32. Only looked at while the layer is
     * made. @since 0.1, experimental
     */
    const attn_linear_format *format;
} attn_mha_config;

/** A config with every field at its default; set d_model and heads. @since 0.1 */
static inline attn_mha_config attn_mha_config_default(void)
{
    attn_mha_config c;
    memset(&c, 0, sizeof c);
    c.struct_size = sizeof c;
    return c;
}

/** Weights in PyTorch's orientation, f32, bf16 or f16; biases may have data NULL. Copied by attn_mha_create(). */
typedef struct attn_mha_weights {
    size_t struct_size; /**< sizeof of this struct as the caller compiled it */
    attn_tensor w_q;    /**< (1, 1, heads*head_dim, d_model) */
    attn_tensor b_q;    /**< (1, 1, 1, heads*head_dim) */
    attn_tensor w_k;    /**< (1, 1, kv_heads*head_dim, d_memory) */
    attn_tensor b_k;    /**< (1, 1, 1, kv_heads*head_dim) */
    attn_tensor w_v;    /**< (1, 1, kv_heads*value_dim, d_memory) */
    attn_tensor b_v;    /**< (1, 1, 1, kv_heads*value_dim) */
    attn_tensor w_o;    /**< (1, 1, d_out, heads*value_dim) */
    attn_tensor b_o;    /**< (1, 1, 1, d_out) */
} attn_mha_weights;

/** Weights without data; set the four matrices. @since 0.1 */
static inline attn_mha_weights attn_mha_weights_default(void)
{
    attn_mha_weights w;
    memset(&w, 0, sizeof w);
    w.struct_size = sizeof w;
    return w;
}

/** A layer with its packed weights; immutable. */
typedef struct attn_mha attn_mha;

/** Makes a layer; *mha is NULL on an error. @since 0.1 */
ATTN_API attn_status attn_mha_create(attn_mha **mha, const attn_mha_config *config, const attn_mha_weights *weights);

/**
 * Makes a layer from the names of PyTorch's nn.MultiheadAttention behind prefix: in_proj_weight and in_proj_bias, or
 * q_proj_weight, k_proj_weight, v_proj_weight where widths differ; out_proj.weight and out_proj.bias. Biases may be
 * missing, all of a kind together. Any other name behind prefix is an error, as attn/nn/weights.h has it; bias_k and
 * bias_v (add_bias_kv) cannot be ignored.
 * @since 0.1
 */
ATTN_API attn_status attn_mha_load(attn_mha **mha, const attn_mha_config *config, const attn_weights *weights,
                                   const char *prefix);
/** Frees a layer; NULL is allowed. @since 0.1 */
ATTN_API void attn_mha_destroy(attn_mha *mha);

/**
 * Writes the sizes of a layer, defaults filled in, and format NULL. sizes->struct_size, the caller's, says how many
 * fields there are.
 * @since 0.1
 */
ATTN_API attn_status attn_mha_sizes(const attn_mha *mha, attn_mha_config *sizes);

/**
 * Bytes that attn_mha_forward() and attn_mha_attend() need for x of batch x q_tokens and k_tokens keys under params
 * (NULL: defaults), whatever the types; SIZE_MAX if that overflows, or after an error. With params->block_table
 * k_tokens is not looked at.
 * @since 0.1
 */
ATTN_API size_t attn_mha_workspace_size(const attn_mha *mha, int64_t batch, int64_t q_tokens, int64_t k_tokens,
                                        const attn_params *params);

/**
 * Self-attention (memory NULL) or cross-attention.
 *
 * The type of x is that of everything in between: queries, keys, values and heads are rounded to it once each, and the
 * attention is that of the core on this type. Products, statistics and sums are f32. memory and out may have other
 * types. With params->inputs ATTN_INPUTS_MAY_BE_BF16 queries, keys and values of f32 wait in bf16 where the core would
 * round them to it, which gives the same bits in half the memory; with ATTN_QK_INT8 q and k are rounded twice then.
 *
 * @param mha the layer
 * @param x       f32, bf16 or f16 (B, 1, Tq, d_model)
 * @param memory  f32, bf16 or f16 (B, 1, Tk, d_memory) or NULL for x
 * @param out     f32, bf16 or f16 (B, 1, Tq, d_out); must not overlap x or memory
 * @param params  NULL or the core's options: masks, causality, dropout, rope, ragged, weights on request,
 *                num_threads, ...; tensors in them have this layer's heads
 * @param workspace  attn_mha_workspace_size() bytes, not shared with a concurrent call, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 * @since 0.1
 */
ATTN_API attn_status attn_mha_forward(const attn_mha *mha, const attn_tensor *x, const attn_tensor *memory,
                                      const attn_tensor *out, const attn_params *params, void *workspace,
                                      size_t workspace_size);

/**
 * Projects keys and values, side by side: kv (B, 1, Tk, kv_heads*(head_dim + value_dim)) f32, bf16 or f16 has in each
 * token's row first the keys of all heads, then the values. A slice of a longer cache is a view like any other.
 * @since 0.1
 */
ATTN_API attn_status attn_mha_project_kv(const attn_mha *mha, const attn_tensor *memory, const attn_tensor *kv,
                                         int num_threads);

/** The keys of a kv tensor as (B, kv_heads, Tk, head_dim), a view. @since 0.1 */
ATTN_API attn_tensor attn_mha_keys(const attn_mha *mha, const attn_tensor *kv);
/** The values of a kv tensor as (B, kv_heads, Tk, value_dim), a view. @since 0.1 */
ATTN_API attn_tensor attn_mha_values(const attn_mha *mha, const attn_tensor *kv);

/**
 * attn_mha_forward() with keys and values that attn_mha_project_kv() has made. With params->block_table kv is a pool of
 * pages, (pages, 1, page_size, kv_heads*(head_dim + value_dim)). @since 0.1
 */
ATTN_API attn_status attn_mha_attend(const attn_mha *mha, const attn_tensor *x, const attn_tensor *kv,
                                     const attn_tensor *out, const attn_params *params, void *workspace,
                                     size_t workspace_size);

/**
 * Bytes that attn_mha_train() can keep for batch x q_tokens of a type and k_tokens keys; SIZE_MAX if that overflows, or
 * after an error. @since 0.1, experimental
 */
ATTN_API size_t attn_mha_kept_size(const attn_mha_config *config, attn_dtype dtype, int64_t batch, int64_t q_tokens,
                                   int64_t k_tokens);

/**
 * The forward pass in training: attn_mha_forward() on weights as they lie, for training changes them between any two
 * calls. No bit depends on the number of threads, or on what is kept.
 *
 * All rows of x and memory are multiplied, those that lengths hide, too: they have to be finite.
 *
 * @param config  as of attn_mha_create(), without format
 * @param weights with any strides
 * @param x       f32, bf16 or f16 (B, 1, Tq, d_model): its type is that of queries, keys, values and heads
 * @param memory  NULL or f32, bf16 or f16 (B, 1, Tk, d_memory)
 * @param params  NULL or options, without outputs on request; num_threads and executor are those of all parts
 * @param out     f32, bf16 or f16 (B, 1, Tq, d_out); must not overlap an input
 * @param kept    attn_mha_kept_size() bytes for attn_mha_gradients.kept: queries, keys, values, heads and their
 *                log-sum-exp; NULL: nothing is kept
 * @param kept_size bytes of it
 * @param workspace attn_mha_train_workspace_size() bytes, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_mha_train(const attn_mha_config *config, const attn_mha_weights *weights,
                                    const attn_tensor *x, const attn_tensor *memory, const attn_params *params,
                                    const attn_tensor *out, void *kept, size_t kept_size, void *workspace,
                                    size_t workspace_size);
/**
 * Bytes that attn_mha_train() can make use of, whatever the types; keeps: whether there is memory for what is kept.
 * SIZE_MAX if that overflows, or after an error. @since 0.1, experimental
 */
ATTN_API size_t attn_mha_train_workspace_size(const attn_mha_config *config, int64_t batch, int64_t q_tokens,
                                              int64_t k_tokens, const attn_params *params, int keeps);

/** What attn_mha_backward() writes, each NULL where it is not wanted. Zero is every field's default. */
typedef struct attn_mha_gradients {
    size_t struct_size;        /**< sizeof of this struct as the caller compiled it */
    const attn_tensor *x;      /**< f32, bf16 or f16 (B, 1, Tq, d_model), channels contiguous */
    const attn_tensor *memory; /**< f32, bf16 or f16 (B, 1, Tk, d_memory), channels contiguous; with memory alone */
    /** Those of weights: f32, contiguous, of the same shapes; data NULL where one is not wanted. */
    const attn_mha_weights *weights;
    /** Those of options in params, of which out, lse, q, k and v are NULL. They replace what was there. */
    const attn_gradients *options;
    int accumulate; /**< not 0: those of weights are added to what they hold */
    /**
     * What attn_mha_train() has kept for these arguments, read; NULL: it is computed again, with the same result bit
     * for bit. @since 0.1, experimental
     */
    const void *kept;
    size_t kept_size; /**< bytes of it */
} attn_mha_gradients;

/** Gradients with every field at its default; set at least one. @since 0.1, experimental */
static inline attn_mha_gradients attn_mha_gradients_default(void)
{
    attn_mha_gradients g;
    memset(&g, 0, sizeof g);
    g.struct_size = sizeof g;
    return g;
}

/**
 * The gradients of multi-head attention from that of out: attn_backward() between the backward passes of the
 * projections (attn_linear_backward()).
 *
 * Without gradients.kept queries, keys, values, heads and their log-sum-exp are computed again from x and memory, in
 * the type of x. Weights are read as they lie, not from a layer that has packed them, for
 * training changes them between any two calls. Gradients between the steps are f32, and a result is rounded once. No
 * gradient depends on the number of threads.
 *
 * All rows of x, memory and d_out are multiplied, those that lengths hide, too: they have to be finite, and a row of
 * d_out that belongs to no token has to be 0.
 *
 * @param config  as of attn_mha_create(), without format
 * @param weights with any strides
 * @param x, memory as in the forward pass
 * @param params  as in the forward pass, without outputs on request; num_threads and executor are those of all parts.
 *                What attn_backward() has no gradient for is refused.
 * @param d_out   f32, bf16 or f16 (B, 1, Tq, d_out)
 * @param gradients what to write; none may overlap an input or another
 * @param workspace attn_mha_backward_workspace_size() bytes, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_mha_backward(const attn_mha_config *config, const attn_mha_weights *weights,
                                       const attn_tensor *x, const attn_tensor *memory, const attn_params *params,
                                       const attn_tensor *d_out, const attn_mha_gradients *gradients, void *workspace,
                                       size_t workspace_size);
/**
 * Bytes that attn_mha_backward() can make use of for batch x q_tokens and k_tokens keys under params (NULL: defaults),
 * whatever the types. SIZE_MAX if that overflows, or after an error.
 * @since 0.1, experimental
 */
ATTN_API size_t attn_mha_backward_workspace_size(const attn_mha_config *config, int64_t batch, int64_t q_tokens,
                                                 int64_t k_tokens, const attn_params *params,
                                                 const attn_mha_gradients *gradients);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_NN_MHA_H */
