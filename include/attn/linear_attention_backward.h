/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file linear_attention_backward.h
 * @brief Gradients of linear attention: what training needs beside attn_linear_attention().
 *
 * @code
 *     attn_linear_attention(&q, &k, &v, &out, &p);
 *                                                          // the loss, and its gradient with respect to out
 *     attn_linear_attention_gradients g = attn_linear_attention_gradients_default();
 *     g.out = &d_out;                                      // read
 *     g.q = &d_q, g.k = &d_k, g.v = &d_v;                  // written
 *     g.decay = &d_decay;
 *     attn_linear_attention_backward(&q, &k, &v, NULL, &p, &g);
 * @endcode
 *
 * With S_t what a state holds once token t has written, and R_t the gradient of the loss
 * with respect to that,
 *
 *     R_t = scale q_t dO_t' + a_(t+1) R_(t+1),   R behind the last token: dS, that of state_out
 *     dq_t = scale S_t dO_t,   dk_t = R_t v_t,   dv_t = R_t' k_t
 *     ddecay_t = a_t S_(t-1) R_t summed over the columns, and for a decay of a head over the rows, too
 *
 * so each of dq, dk and dv is linear attention once more, forwards or from the last token back, in
 * chunks as before (Katharopoulos et al. 2020, section 3.3; Yang et al. 2024, "Gated linear
 * attention", section 3). Nothing is kept from the forward call but, with normalise, out.
 */
#ifndef ATTN_LINEAR_ATTENTION_BACKWARD_H
#define ATTN_LINEAR_ATTENTION_BACKWARD_H

#include "attn/linear_attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Gradients that attn_linear_attention_backward() reads and writes: of the loss, with respect to what the field is
 * named after. NULL is every field's default, except struct_size: start from
 * attn_linear_attention_gradients_default(). It grows at its end, as attn_params does.
 */
typedef struct attn_linear_attention_gradients {
    size_t struct_size; /**< sizeof(attn_linear_attention_gradients) as the caller compiled it */

    /** @name Read */
    /**@{*/
    const attn_tensor *out;       /**< (B, max(Hq, H), T, dv), required; channels side by side */
    const attn_tensor *state_out; /**< the shape of params->state_out, f32, columns side by side; NULL: 0 */
    /**@}*/

    /** @name Written: every element, with 0 where nothing depends on it; NULL: not wanted */
    /**@{*/
    const attn_tensor *q; /**< the shape of q; channels side by side. Summed over the states that have these queries */
    const attn_tensor *k; /**< the shape of k; the same */
    const attn_tensor *v; /**< the shape of v; channels side by side. Summed over the heads that read its state */
    const attn_tensor *decay;    /**< the shape of params->decay, any strides; of an axis of length 1 the sum. 0 where a
                                    decay is -inf */
    const attn_tensor *state_in; /**< the shape of params->state_in, f32, columns side by side */
    /**@}*/
} attn_linear_attention_gradients;

/** Gradients with struct_size set and everything else NULL. @since 0.1 */
static inline attn_linear_attention_gradients attn_linear_attention_gradients_default(void)
{
    attn_linear_attention_gradients g;
    memset(&g, 0, sizeof g);
    g.struct_size = sizeof g;
    return g;
}

/**
 * Gradients of a call of attn_linear_attention().
 *
 * @param q, k, v   as that has read them
 * @param out       with params->normalise what it has written, read here; else not looked at, and may be NULL
 * @param params    its options. state_in is S as it was then; state_out, which may have taken its place, has to be NULL
 * @param gradients what is read and written besides
 *
 * Each tensor is ATTN_F32, ATTN_BF16 or ATTN_F16, in any mix, states f32; sums are f32 whatever the types, and
 * gradients are rounded once, to nearest even. Rows of tokens behind lengths and cu_seqlens have the gradient 0, and
 * what stands there is not read. Features of ATTN_FEATURES_POSITIVE have gradients with respect to q and k; where one
 * of a key has been held at e^60 it has none. The projection has none.
 *
 * On one instruction set gradients of a sequence have the same bits for any number of threads and whatever else is in
 * the call. No output may share a byte with itself, with another output or with anything that is read.
 *
 * Memory beside the tensors, in f32: with gradients.decay dk numbers for each token and head of out, and for every
 * 64 of them a state; with a feature map twice the features of q and k, for each head of out; with normalise v and the
 * gradient of out once more; gradients of q, k and v that are sums over heads once more, unless they are f32.
 *
 * Rules with beta are ATTN_UNSUPPORTED.
 *
 * @return ATTN_OK or an error; on an error nothing has been written.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_linear_attention_backward(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                                    const attn_tensor *out, const attn_linear_attention_params *params,
                                                    const attn_linear_attention_gradients *gradients);

/**
 * Sets *size to the bytes of workspace that attn_linear_attention_backward_in() can use for tensors of these shapes and
 * types. Their data may be NULL.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_linear_attention_backward_workspace_size(const attn_tensor *q, const attn_tensor *k,
                                                                   const attn_tensor *v, const attn_tensor *out,
                                                                   const attn_linear_attention_params *params,
                                                                   const attn_linear_attention_gradients *gradients,
                                                                   size_t *size);

/**
 * attn_linear_attention_backward() in the caller's memory, of any alignment: allocates nothing.
 *
 * The size that attn_linear_attention_backward_workspace_size() has given for these shapes is always enough, for
 * however many threads: as many take part as the workspace has room for. ATTN_WORKSPACE_TOO_SMALL: there is no room for
 * one.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_linear_attention_backward_in(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                                       const attn_tensor *out,
                                                       const attn_linear_attention_params *params,
                                                       const attn_linear_attention_gradients *gradients,
                                                       void *workspace, size_t workspace_size);

/* ------------------------------------------------------------------- plans -- */

/** Gradients of one shape and set of options, as attn_backward_plan is of attention's: runs do not change it.
 * @since 0.1, experimental */
typedef struct attn_linear_attention_backward_plan attn_linear_attention_backward_plan;

/**
 * Makes a plan. It keeps the options, the dtypes and shapes of the tensors, and which of those in params and gradients
 * are given; data may be NULL, and strides are not looked at. The caller destroys *plan. On an error *plan is set to
 * NULL.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_linear_attention_backward_plan_create(attn_linear_attention_backward_plan **plan,
                                                                const attn_tensor *q, const attn_tensor *k,
                                                                const attn_tensor *v, const attn_tensor *out,
                                                                const attn_linear_attention_params *params,
                                                                const attn_linear_attention_gradients *gradients);

/** Frees a plan that no thread is running; NULL is fine. @since 0.1, experimental */
ATTN_API void attn_linear_attention_backward_plan_destroy(attn_linear_attention_backward_plan *plan);

/** Threads that a plan has scratch memory for: the most that may run shares. 0 for NULL. @since 0.1, experimental */
ATTN_API int attn_linear_attention_backward_plan_num_threads(const attn_linear_attention_backward_plan *plan);

/** Phases of a run, 0 where nothing is wanted; all shares of one end before a share of the next begins. 0 for NULL.
 * @since 0.1, experimental */
ATTN_API int attn_linear_attention_backward_plan_num_phases(const attn_linear_attention_backward_plan *plan);

/** Bytes of workspace that a run needs; SIZE_MAX for NULL. @since 0.1, experimental */
ATTN_API size_t attn_linear_attention_backward_plan_workspace_size(const attn_linear_attention_backward_plan *plan);

/**
 * Runs a plan in the caller's workspace, of any alignment, without any allocation. Everything that was not planned is
 * checked as attn_linear_attention_backward() does; what differs from the plan is an error, and nothing has been
 * written then. Several threads may run one plan at once, each with a workspace of its own.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_linear_attention_backward_plan_run(const attn_linear_attention_backward_plan *plan,
                                                             const attn_tensor *q, const attn_tensor *k,
                                                             const attn_tensor *v, const attn_tensor *out,
                                                             const attn_linear_attention_params *params,
                                                             const attn_linear_attention_gradients *gradients,
                                                             void *workspace, size_t workspace_size);

/**
 * Prepares a run for the caller's own threads: checks everything and lays the workspace out. Arrays that params points
 * to must stay until the last share has returned.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_linear_attention_backward_plan_begin(const attn_linear_attention_backward_plan *plan,
                                                               const attn_tensor *q, const attn_tensor *k,
                                                               const attn_tensor *v, const attn_tensor *out,
                                                               const attn_linear_attention_params *params,
                                                               const attn_linear_attention_gradients *gradients,
                                                               void *workspace, size_t workspace_size);

/**
 * Share ith of nth of a phase, as attn_plan_run_share() of attention: called once for each ith, in any order, on any
 * threads.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_linear_attention_backward_plan_run_share(const attn_linear_attention_backward_plan *plan,
                                                                   void *workspace, int phase, int ith, int nth);

/**
 * Writes a line about a plan to a buffer of size bytes, as attn_plan_describe() does. Returns its length.
 * @since 0.1, experimental
 */
ATTN_API size_t attn_linear_attention_backward_plan_describe(const attn_linear_attention_backward_plan *plan,
                                                             char *buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_LINEAR_ATTENTION_BACKWARD_H */
