/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file alignment.h
 * @brief Attention with a choice of score functions: dot products, Luong's general one, Bahdanau's additive one.
 *
 *     scaled dot   score = q·k / sqrt(d)                      (Vaswani et al. 2017)
 *     dot          score = q·k                                (Luong et al. 2015, equation 8)
 *     general      score = q·(W_k k)                          (Luong et al. 2015, "multiplicative")
 *     additive     score = v·tanh(W_q q + W_k k + b)          (Bahdanau et al. 2015, appendix A.1.2)
 *
 * then softmax(score / temperature) over the keys and the weighted sum of the values. What depends on the keys alone is
 * computed once and used in every decoding step. All run over blocks of keys with an online softmax; no T×T matrix is
 * stored.
 */
#ifndef ATTN_NN_ALIGNMENT_H
#define ATTN_NN_ALIGNMENT_H

#include "attn/attn.h"
#include "attn/nn/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The score function. */
typedef enum attn_score {
    ATTN_SCORE_SCALED_DOT = 0,
    ATTN_SCORE_DOT = 1,
    ATTN_SCORE_GENERAL = 2,
    ATTN_SCORE_ADDITIVE = 3
} attn_score;

/** Sizes and weights of a score function; weights are f32, bf16 or f16 and are copied. */
typedef struct attn_alignment_config {
    size_t struct_size;  /**< sizeof of this struct as the caller compiled it */
    attn_score score;    /**< which function */
    int64_t d_query;     /**< channels of a query */
    int64_t d_key;       /**< channels of a key; equal to d_query for the two dot products */
    int64_t d_attention; /**< ADDITIVE: channels under the tanh; else 0 */
    float temperature;   /**< scores are divided by it; 0 means 1; not negative */
    attn_tensor w_q;     /**< ADDITIVE: (1, 1, d_attention, d_query); else data NULL */
    attn_tensor w_k;     /**< ADDITIVE: (1, 1, d_attention, d_key); GENERAL: (1, 1, d_query, d_key); else data NULL */
    attn_tensor bias;    /**< ADDITIVE: (1, 1, 1, d_attention) or data NULL */
    attn_tensor v;       /**< ADDITIVE: (1, 1, 1, d_attention) */
} attn_alignment_config;

/** A config with every field at its default. @since 0.1 */
static inline attn_alignment_config attn_alignment_config_default(void)
{
    attn_alignment_config c;
    memset(&c, 0, sizeof c);
    c.struct_size = sizeof c;
    return c;
}

/** A score function with its packed weights; immutable. */
typedef struct attn_alignment attn_alignment;

/** Makes one; *alignment is NULL on an error. @since 0.1 */
ATTN_API attn_status attn_alignment_create(attn_alignment **alignment, const attn_alignment_config *config);
/** Frees one; NULL is allowed. @since 0.1 */
ATTN_API void attn_alignment_destroy(attn_alignment *alignment);
/** Channels of a projected key: d_attention for ADDITIVE, else d_query. @since 0.1 */
ATTN_API int64_t attn_alignment_projected(const attn_alignment *alignment);

/**
 * The part of the scores that the keys give: W_k k + b (ADDITIVE), W_k k (GENERAL), a copy for the dot products.
 *
 * @param alignment the score function
 * @param keys      f32, bf16 or f16 (B, 1, Tk, d_key)
 * @param projected f32, bf16 or f16 (B, 1, Tk, attn_alignment_projected()), written; must not overlap keys
 * @param num_threads as in attn_params
 * @since 0.1
 */
ATTN_API attn_status attn_alignment_project(const attn_alignment *alignment, const attn_tensor *keys,
                                            const attn_tensor *projected, int num_threads);

/**
 * Bytes that attn_alignment_forward() can make use of for these sizes and options; SIZE_MAX if that overflows, or if
 * the sizes or options are refused. ADDITIVE: 4 * d_attention for each query, up to 128 * (16 + d_value) for each
 * thread, one for every 14 keys with segments, and where threads share the keys of few queries up to 8 MiB for each of
 * them; with fewer bytes, down to those of one thread, fewer threads take part.
 * @since 0.1
 */
ATTN_API size_t attn_alignment_workspace_size(const attn_alignment *alignment, int64_t batch, int64_t q_tokens,
                                              int64_t k_tokens, int64_t d_value, const attn_params *params);

/**
 * Attention with projected keys. The two dot products and GENERAL run the core.
 *
 * ADDITIVE has a kernel of its own. Scores are computed in f32 with a tanh of 4 ULP at most, whose error is lost in
 * their sum, and never stored for all pairs. Softmax starts anew at every 256th key from the first live one on, in any
 * call, and what such splits give is joined in the order of the keys; so threads can share the keys of few queries, and
 * a row's bits depend neither on the number of threads nor on what else is in the call: other queries, sequences,
 * padding.
 *
 * @param alignment the score function
 * @param q         (B, 1, Tq, d_query); each tensor is f32, bf16 or f16, whatever the others are
 * @param projected (B, 1, Tk, attn_alignment_projected()) from attn_alignment_project()
 * @param v         (B, 1, Tk, dv): the values, often the keys before projection
 * @param out       (B, 1, Tq, dv), rounded once; must not overlap an input
 * @param params    NULL or options with one head. scale, temperature and head_scale belong to the score function and
 *                  must be 0 here. ADDITIVE takes everything that says which keys a query sees (causal with
 *                  query_offset, kv_len, kv_start, prefix_len, window, block_mask, segments, tree, mask), ragged
 *                  batches, weights (all rows), lse, num_threads and executor, and refuses the rest with
 *                  ATTN_UNSUPPORTED, but for inputs and sums, which permit what it makes no use of. The others take
 *                  all of the core's.
 * @param workspace attn_alignment_workspace_size() bytes, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 * @since 0.1
 */
ATTN_API attn_status attn_alignment_forward(const attn_alignment *alignment, const attn_tensor *q,
                                            const attn_tensor *projected, const attn_tensor *v, const attn_tensor *out,
                                            const attn_params *params, void *workspace, size_t workspace_size);

/**
 * What attn_alignment_backward() writes, each NULL where it is not wanted. Zero is every field's default. All are f32;
 * channels are contiguous, weights without gaps.
 */
typedef struct attn_alignment_gradients {
    size_t struct_size;           /**< sizeof of this struct as the caller compiled it */
    const attn_tensor *q;         /**< (B, 1, Tq, d_query) */
    const attn_tensor *projected; /**< (B, 1, Tk, attn_alignment_projected()) */
    const attn_tensor *v;         /**< (B, 1, Tk, dv): of the values */
    const attn_tensor *w_q;       /**< ADDITIVE: (1, 1, d_attention, d_query); else NULL */
    const attn_tensor *score_v;   /**< ADDITIVE: (1, 1, 1, d_attention), of config->v; else NULL */
    int accumulate;               /**< not 0: those of w_q and score_v are added to what they hold */
    int accumulate_keys;          /**< not 0: those of projected and v are, for several calls with the same keys */
} attn_alignment_gradients;

/** Gradients with every field at its default; set at least one tensor. @since 0.1, experimental */
static inline attn_alignment_gradients attn_alignment_gradients_default(void)
{
    attn_alignment_gradients g;
    memset(&g, 0, sizeof g);
    g.struct_size = sizeof g;
    return g;
}

/**
 * The gradients of attn_alignment_forward(). With weights p = softmax(s), d_p_ij = d_out_i·v_j and
 * d_s_ij = p_ij (d_p_ij - sum_k p_ik d_p_ik), d_v_j = sum_i p_ij d_out_i, and for ADDITIVE with the temperature T,
 * u_ij = tanh(W_q q_i + k_j), k the projected keys, and w = config->v
 *
 *     d_z_ij = d_s_ij w (1 - u_ij²) / T        d_w = sum_ij d_s_ij u_ij / T
 *     d_k_j = sum_i d_z_ij,  d_W_q = sum_ij d_z_ij q_iᵀ,  d_q_i = W_qᵀ sum_j d_z_ij
 *
 * The other scores run attn_backward(). All of it is computed from the operands: nothing has to be kept in the forward
 * pass, and no number for each pair of a query and a key is stored.
 *
 * Keys are those that attn_alignment_project() has projected. A decoder goes through its steps backwards, adds to the
 * gradients of projected and v in each (accumulate_keys), and goes through the projection once, with
 * attn_linear_backward(): config->w_k as its weights, the keys as its x and the gradient of projected as its d_out give
 * those of w_k, of the bias (ADDITIVE) and of the keys, and with accumulate_x the last is added to that of v, where
 * keys are values. For the two dot products the gradient of projected is that of the keys.
 *
 * Rows without a live key have the gradient 0. What stands in a key or value that no query sees, in a query that sees
 * no key, or in its row of d_out, reaches no gradient; what some queries see reaches none by way of others. No gradient
 * depends on the number of threads, and those of q, projected and v depend on their own sequence alone.
 *
 * @param config    as for attn_alignment_create(); weights are read as they lie
 * @param q, projected, v as in the forward pass, f32
 * @param params    as in the forward pass, without outputs on request. ADDITIVE refuses what it refuses there; the
 *                  others what attn_backward() refuses
 * @param d_out     f32 (B, 1, Tq, dv)
 * @param gradients what to write; none may overlap an input or another
 * @param workspace attn_alignment_backward_workspace_size() bytes, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 * @return ATTN_OK or an error; on an error nothing has been written.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_alignment_backward(const attn_alignment_config *config, const attn_tensor *q,
                                             const attn_tensor *projected, const attn_tensor *v,
                                             const attn_params *params, const attn_tensor *d_out,
                                             const attn_alignment_gradients *gradients, void *workspace,
                                             size_t workspace_size);
/**
 * Bytes that attn_alignment_backward() can make use of for these sizes and options. ADDITIVE: for each query some
 * 4 * (d_query + 3 * d_attention), and for each thread 4 * (d_attention + 4) for each key of a sequence and 550 KiB,
 * with segments a byte for every 14 keys;
 * the others out, lse, what attn_backward() takes, and with accumulate_keys gradients of projected and v. SIZE_MAX if
 * that overflows, or after an error.
 * @since 0.1, experimental
 */
ATTN_API size_t attn_alignment_backward_workspace_size(const attn_alignment_config *config, int64_t batch,
                                                       int64_t q_tokens, int64_t k_tokens, int64_t d_value,
                                                       const attn_params *params,
                                                       const attn_alignment_gradients *gradients);

/* ------------------------------------------------------- attention pooling -- */

/**
 * Attention pooling (Yang et al. 2016, "Hierarchical attention networks", equations 5 to 7): one learned query v for
 * all positions, out = sum_t softmax_t(v·tanh(W x_t + b)) x_t. An ADDITIVE alignment without w_q.
 */
typedef struct attn_pool attn_pool;

/** Makes a pool. w (1, 1, A, C), bias (1, 1, 1, A) or NULL, v (1, 1, 1, A); all copied. @since 0.1 */
ATTN_API attn_status attn_pool_create(attn_pool **pool, const attn_tensor *w, const attn_tensor *bias,
                                      const attn_tensor *v);
/** Frees a pool; NULL is allowed. @since 0.1 */
ATTN_API void attn_pool_destroy(attn_pool *pool);
/** Bytes that attn_pool_forward() needs; SIZE_MAX if that overflows. @since 0.1 */
ATTN_API size_t attn_pool_workspace_size(const attn_pool *pool, int64_t batch, int64_t tokens);
/**
 * Pools each sequence to one row.
 *
 * @param pool the pool
 * @param x       f32 (B, 1, T, C)
 * @param lengths [B] live tokens, 0 to T, or NULL: T. A sequence without any gives zeros.
 * @param out     f32 (B, 1, 1, C)
 * @param weights NULL or f32 (B, 1, 1, T), written: the weight of each token, 0 behind the length
 * @param num_threads as in attn_params
 * @param workspace attn_pool_workspace_size() bytes, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 * @since 0.1
 */
ATTN_API attn_status attn_pool_forward(const attn_pool *pool, const attn_tensor *x, const int64_t *lengths,
                                       const attn_tensor *out, const attn_tensor *weights, int num_threads,
                                       void *workspace, size_t workspace_size);

/** What attn_pool_backward() writes, each NULL where it is not wanted. Zero is every field's default. */
typedef struct attn_pool_gradients {
    size_t struct_size;      /**< sizeof of this struct as the caller compiled it */
    const attn_tensor *x;    /**< f32 (B, 1, T, C), channels contiguous; rows behind a length become 0 */
    const attn_tensor *w;    /**< f32 (1, 1, A, C), contiguous */
    const attn_tensor *bias; /**< f32 (1, 1, 1, A), contiguous */
    const attn_tensor *v;    /**< f32 (1, 1, 1, A), contiguous */
    int accumulate;          /**< not 0: those of w, bias and v are added to what they hold */
    int num_threads;         /**< as in attn_params */
} attn_pool_gradients;

/** Gradients with every field at its default; set at least one tensor. @since 0.1, experimental */
static inline attn_pool_gradients attn_pool_gradients_default(void)
{
    attn_pool_gradients g;
    memset(&g, 0, sizeof g);
    g.struct_size = sizeof g;
    return g;
}

/**
 * The gradients of attention pooling. With u_t = tanh(W x_t + b), weights p = softmax(v·u) and d_p_t = d_out·x_t,
 *
 *     d_s_t = p_t (d_p_t - sum_j p_j d_p_j)            d_z_t = d_s_t v (1 - u_t²)
 *     d_v = sum_t d_s_t u_t,  d_W = sum_t d_z_t x_tᵀ,  d_b = sum_t d_z_t,  d_x_t = p_t d_out + Wᵀ d_z_t
 *
 * All of it is computed from x: nothing has to be kept in the forward pass. Tokens behind the lengths are not read. No
 * gradient depends on the number of threads, and one of x depends on its own sequence alone. A sequence without a live
 * token has no part in any.
 *
 * @param w, bias, v as for attn_pool_create()
 * @param x       f32 (B, 1, T, C), as in the forward pass
 * @param lengths as in the forward pass
 * @param d_out   f32 (B, 1, 1, C)
 * @param gradients what to write; none may overlap an input or another
 * @param workspace attn_pool_backward_workspace_size() bytes, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_pool_backward(const attn_tensor *w, const attn_tensor *bias, const attn_tensor *v,
                                        const attn_tensor *x, const int64_t *lengths, const attn_tensor *d_out,
                                        const attn_pool_gradients *gradients, void *workspace, size_t workspace_size);
/**
 * Bytes that attn_pool_backward() can make use of for x of (B, 1, T, channels) and w of A = inner rows: 4 * (channels +
 * inner + 2) for each token, and some 550 KiB for each thread. SIZE_MAX if that overflows, or after an error.
 * @since 0.1, experimental
 */
ATTN_API size_t attn_pool_backward_workspace_size(int64_t channels, int64_t inner, int64_t batch, int64_t tokens,
                                                  const attn_pool_gradients *gradients);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_NN_ALIGNMENT_H */
