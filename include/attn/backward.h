/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file backward.h
 * @brief Gradients of attention: what training needs beside attn_forward().
 *
 * @code
 *     params.lse = &lse;                                   // (B, H, T, 1): kept between the two calls
 *     attn_forward(&q, &k, &v, &out, &params);
 *                                                          // the loss, and its gradient with respect to out
 *     attn_gradients g = attn_gradients_default();
 *     g.out = &d_out;                                      // read
 *     g.q = &d_q, g.k = &d_k, g.v = &d_v;                  // written
 *     attn_backward(&q, &k, &v, &out, &params, &g);
 * @endcode
 *
 * Weights are computed again from the log-sum-exp that the forward call has
 * left, tile by tile, so nothing of size Tq x Tk is stored (Dao et al. 2022,
 * "FlashAttention", appendix B). With S the scores, P their softmax and D the sum of
 * dO * O over a row's channels:
 *
 *     dV = P^T dO,   dS = P * (dO V^T - D + dLSE),   dQ = scale dS K,   dK = scale dS^T Q
 *
 * docs/training.md has the formulas of every option.
 */
#ifndef ATTN_BACKWARD_H
#define ATTN_BACKWARD_H

#include "attn/params.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Gradients of the scores of some queries and keys of one head, as attn_score_tile has the scores. */
typedef struct attn_score_gradient_tile {
    int64_t batch;       /**< index of the batch element, or of the ragged sequence */
    int64_t head;        /**< query head */
    int64_t first_query; /**< index of the first query */
    int64_t num_queries; /**< 1 or more */
    int64_t first_key;   /**< index of the first key */
    int64_t num_keys;    /**< 1 or more */
    int64_t key_stride;  /**< floats from one key's numbers to the next key's */
    const float *scores; /**< scores[j * key_stride + i] as params->callback has got them; -inf where a key is hidden */
    float *gradients;    /**< at the same places: of what it has made of them */
} attn_score_gradient_tile;

/**
 * The partner of params->callback: turns gradients with respect to what that gives into gradients with respect to what
 * it gets, in place. If the callback computes f(s), that is gradients *= f'(s); one that only adds numbers has a
 * partner that does nothing. Where a key is hidden, by a mask or by the callback, the gradient is 0 whatever is
 * written. Called from several threads at once, in any order, for tiles of any shape, and again for the same scores:
 * what it does may depend only on indices, score and gradient.
 */
typedef void attn_score_gradient_callback(const attn_score_gradient_tile *tile, void *user);

/**
 * Gradients that attn_backward() reads and writes: of the loss, with respect to
 * what the field is named after. NULL is every field's default, except
 * struct_size: start from attn_gradients_default(). It grows at its end, as
 * attn_params does.
 */
typedef struct attn_gradients {
    size_t struct_size; /**< sizeof(attn_gradients) as the caller compiled it */

    /** @name Read */
    /**@{*/
    const attn_tensor *out; /**< (B, Hq, Tq, dv), required; channels side by side */
    const attn_tensor *lse; /**< f32 (B, Hq, Tq, 1) or NULL, where the loss depends on lse, too; any strides */
    /**@}*/

    /** @name Written: every element, with 0 where nothing depends on it; NULL: not wanted */
    /**@{*/
    const attn_tensor *q; /**< the shape of q; channels side by side */
    const attn_tensor *k; /**< the shape of k; channels side by side. Summed over the query heads of a key head */
    const attn_tensor *v; /**< the shape of v; the same */
    /**@}*/

    /**
     * @name Written likewise, of options that are set: sums over all queries that have the number
     * A further pass over the keys makes those that are marked *, at two fifths of the work of q, k and v; those of
     * tables of rows (rel_k, rel_q) have one to themselves, with a product more for each.
     */
    /**@{*/
    float *head_scale;       /**< [Hq] of params->head_scale */
    float *sinks;            /**< [Hq] of params->sinks */
    float *alibi_slopes;     /**< [Hq] of params->alibi_slopes * */
    float *relative_bias;    /**< [Hq][buckets] of params->relative_bias->table * */
    const attn_tensor *mask; /**< f32, the shape of an additive params->mask, any strides * */
    /**@}*/

    attn_score_gradient_callback *callback; /**< the partner of params->callback: required with it, else NULL */
    void *callback_user;                    /**< handed to callback; only valid with it */

    /**
     * @name Written, of the tables of params->disentangled that are set: sums over all pairs at a row's distances
     * f32, the shape of the table: (1, Hq, 2*span, dk), or (1, 1, 2*span, dk) where all heads share it, whose sums it
     * then has; channels side by side.
     */
    /**@{*/
    const attn_tensor *rel_k; /**< of params->disentangled->rel_k * */
    const attn_tensor *rel_q; /**< of params->disentangled->rel_q * */
    /**@}*/
} attn_gradients;

/** Gradients with struct_size set and everything else NULL. @since 0.1 */
static inline attn_gradients attn_gradients_default(void)
{
    attn_gradients g;
    memset(&g, 0, sizeof g);
    g.struct_size = sizeof g;
    return g;
}

/**
 * Gradients of a forward call.
 *
 * @param q, k, v  as attn_forward() has read them
 * @param out      (B, Hq, Tq, dv) as it has written it; read here
 * @param params   its options. Its log-sum-exp, params->lse, is required, and read here
 * @param gradients what is read and written besides
 *
 * Each tensor is ATTN_F32, ATTN_BF16 or ATTN_F16, in any mix; sums are f32 whatever
 * the types, and gradients are rounded once, to nearest even.
 *
 * Rows without a live key have the gradient 0. What stands in a slot that is
 * hidden (NaN, Inf, uninitialised memory), of k and v, of rows of q, out and
 * gradients->out that see no key, or of rows of tables that only hidden pairs have, reaches no gradient; what is seen
 * by some queries reaches none by way of others. Where it is a callback that hides all keys of a row with a sink,
 * gradients->out has to be finite. On one instruction set gradients of a sequence have the same bits for any number of
 * threads, and whatever else is in the call.
 *
 * Memory beside the tensors: up to 2 MiB a thread, dq once more in f32, two numbers for
 * each query and head, and for gradients.alibi_slopes and relative_bias as much as dq at most, or one set of them in
 * double. With params->disentangled dq
 * twice, two numbers more for each query and head, up to three for each key and head, and gradients.rel_k and
 * rel_q once more for each query head.
 *
 * Where q, k, v and the gradient of out are all bf16, without rope, disentangled and head_scale, and the
 * kernels that run multiply pairs of bf16 (the sets avx512_bf16 and neon_bf16, and amx_bf16
 * where k and v have at most 2048 channels together), weights and gradients of scores are
 * rounded to bf16 before they are multiplied. Otherwise bf16 and f16 are widened, exactly, to
 * f32. attn_backward_plan_describe() says which set runs.
 *
 * What has no gradient, or none yet, is ATTN_UNSUPPORTED: block_table, quantised k and
 * v, ATTN_QK_INT8, weight_callback. Outputs on request other than lse, and
 * gradients of options that are not set, are ATTN_INVALID_ARGUMENT. inputs and sums are
 * permissions, of which no use is made.
 *
 * @return ATTN_OK or an error; on an error nothing has been written.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_backward(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                   const attn_tensor *out, const attn_params *params, const attn_gradients *gradients);

/**
 * Sets *size to the bytes of workspace that attn_backward_in() can use for tensors
 * of these shapes and types. Their data may be NULL.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_backward_workspace_size(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                                  const attn_tensor *out, const attn_params *params,
                                                  const attn_gradients *gradients, size_t *size);

/**
 * attn_backward() in the caller's memory, of any alignment: allocates nothing.
 *
 * The size that attn_backward_workspace_size() has given for these shapes is always
 * enough, for however many threads: as many take part as the workspace has room for.
 * ATTN_WORKSPACE_TOO_SMALL: there is no room for one.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_backward_in(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                      const attn_tensor *out, const attn_params *params,
                                      const attn_gradients *gradients, void *workspace, size_t workspace_size);

/* ------------------------------------------------------------------- plans -- */

/** The backward pass of one shape and set of options, as attn_plan is of the forward pass: runs do not change it.
 * @since 0.1, experimental */
typedef struct attn_backward_plan attn_backward_plan;

/**
 * Makes a plan. It keeps the options, the dtypes and shapes of the tensors, and which gradients are wanted; data may be
 * NULL, and strides are not looked at. The caller destroys *plan. On an error *plan is set to NULL.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_backward_plan_create(attn_backward_plan **plan, const attn_tensor *q, const attn_tensor *k,
                                               const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                                               const attn_gradients *gradients);

/** Frees a plan that no thread is running; NULL is fine. @since 0.1, experimental */
ATTN_API void attn_backward_plan_destroy(attn_backward_plan *plan);

/** Threads that a plan has scratch memory for: the most that may run shares. 0 for NULL. @since 0.1, experimental */
ATTN_API int attn_backward_plan_num_threads(const attn_backward_plan *plan);

/** Phases of a run; all shares of one end before a share of the next begins. 0 for NULL. @since 0.1, experimental */
ATTN_API int attn_backward_plan_num_phases(const attn_backward_plan *plan);

/** Bytes of workspace that a run needs; SIZE_MAX for NULL. @since 0.1, experimental */
ATTN_API size_t attn_backward_plan_workspace_size(const attn_backward_plan *plan);

/**
 * Runs a plan in the caller's workspace, of any alignment, without any allocation. Everything that was not planned is
 * checked as attn_backward() does; what differs from the plan is an error, and nothing has been written then. Several
 * threads may run one plan at once, each with a workspace of its own.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_backward_plan_run(const attn_backward_plan *plan, const attn_tensor *q, const attn_tensor *k,
                                            const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                                            const attn_gradients *gradients, void *workspace, size_t workspace_size);

/**
 * Prepares a run for the caller's own threads: checks everything and lays the workspace out. Arrays that params points
 * to must stay until the last share has returned.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_backward_plan_begin(const attn_backward_plan *plan, const attn_tensor *q,
                                              const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                                              const attn_params *params, const attn_gradients *gradients,
                                              void *workspace, size_t workspace_size);

/**
 * Share ith of nth of a phase, as attn_plan_run_share() of the forward pass: called once for each ith, in any order, on
 * any threads. A share may wait for others of its phase that have begun, never for one that has not.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_backward_plan_run_share(const attn_backward_plan *plan, void *workspace, int phase, int ith,
                                                  int nth);

/**
 * Writes a line about a plan to a buffer of size bytes, as attn_plan_describe() does. Returns its length.
 * @since 0.1, experimental
 */
ATTN_API size_t attn_backward_plan_describe(const attn_backward_plan *plan, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_BACKWARD_H */
