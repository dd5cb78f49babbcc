/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file linear_attention.h
 * @brief Linear attention with a state: time and memory that grow with T, not with T squared.
 *
 * Instead of a softmax over all keys, each head keeps a matrix S of dk rows and dv
 * columns, into which every token writes and from which it reads:
 *
 *     S = a_t S                      decay: what has been written fades, a_t = exp(decay_t)
 *     u = v_t                        or, with beta, what S does not say yet: u = beta_t (v_t - S' k_t)
 *     S = S + k_t u'                 (a prime turns a row into a column)
 *     out_t = scale S' q_t
 *
 * Which of decay and beta are given chooses the rule:
 *
 *     decay  beta    rule (as the ONNX operator LinearAttention calls it)
 *     -      -       linear        Katharopoulos et al. 2020, "Transformers are RNNs"
 *     given  -       gated         RetNet (Sun et al. 2023), GLA (Yang et al. 2024), Mamba-2's scalar gates (Dao & Gu
 * 2024)
 *     -      given   delta         DeltaNet (Schlag et al. 2021; Yang et al. 2024)
 *     given  given   gated_delta   Gated DeltaNet (Yang et al. 2025), Kimi Delta Attention (2025)
 *
 * @code
 *     attn_linear_attention_params p = attn_linear_attention_params_default();
 *     p.decay = &decay;                                    // (B, H, T, 1) or (B, H, T, dk), numbers up to 0
 *     p.beta = &beta;                                      // (B, H, T, 1)
 *     p.state_in = p.state_out = &state;                   // (B, H, dk, dv): goes on from call to call
 *     attn_linear_attention(&q, &k, &v, &out, &p);
 * @endcode
 *
 * A prompt is computed in chunks of 64 tokens, as products of matrices
 * (docs/linear-attention.md), a few tokens one by one.
 */
#ifndef ATTN_LINEAR_ATTENTION_H
#define ATTN_LINEAR_ATTENTION_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Tokens of a chunk. Chunks are counted from the first token of a sequence in a
 * call, and from each token that resets the state. So a call for all tokens has the
 * bits of several calls for some, each going on from the state of the one before, if
 * each but the last has a multiple of so many tokens; it has other bits, with errors
 * of the same size, where it is cut elsewhere. So may the last tokens of a call that ends within
 * a chunk, beside the same tokens of a longer one.
 */
#define ATTN_LINEAR_ATTENTION_CHUNK 64

/** What is made of q and k before anything else, channel by channel or by a projection. */
typedef enum attn_feature_map {
    ATTN_FEATURES_NONE = 0, /**< nothing */
    ATTN_FEATURES_ELU = 1,  /**< elu(x) + 1: x + 1 above 0, e^x below (Katharopoulos et al. 2020, equation 7) */
    /**
     * FAVOR+ (Choromanski et al. 2021, "Rethinking attention with Performers", lemma 1): m features e^(w_r·x - x·x / 2)
     * of x = sqrt(scale) q, or k, with the rows w_r of a projection. With attn_linear_attention_params.normalise the
     * result is an estimate of attention with the softmax of scale q·k. Features of keys are no more than e^60;
     * a key of which x·x is above 170 or so has none.
     */
    ATTN_FEATURES_POSITIVE = 2
} attn_feature_map;

/**
 * Options of linear attention. Zero is every field's default, except struct_size:
 * start from attn_linear_attention_params_default(). It grows at its end, as
 * attn_params does.
 */
typedef struct attn_linear_attention_params {
    size_t struct_size; /**< sizeof(attn_linear_attention_params) as the caller compiled it */

    /**
     * NULL, or the logarithm of what S is multiplied by before a token writes: (B|1, H|1, T|1, 1), a number for a head,
     * or (B|1, H|1, T|1, dk), one for each row of S. f32, bf16 or f16; any strides. H is the heads
     * of S. Numbers are up to 0; -inf clears, but for what is not finite. A NaN, or a number above 0, is
     * ATTN_INVALID_ARGUMENT; those of tokens behind lengths and cu_seqlens are not looked at.
     */
    const attn_tensor *decay;
    /** NULL, or how much of its error a token corrects: (B|1, H|1, T|1, 1) f32, bf16 or f16; any strides, any numbers.
     * Keys should have the length 1 then: S grows without bounds where beta times the square of a key's length is
     * above 2. */
    const attn_tensor *beta;
    float scale; /**< of the output; 0: 1 / sqrt(dk). With normalise only POSITIVE has one, of its scores: above 0 */

    /**
     * f32 (N, H, dk, dv), N the batch or ragged sequences: S before the first token; columns side by side. NULL: 0.
     * POSITIVE has a row for each feature instead of each channel; with normalise there is a column more, the sum of
     * keys.
     */
    const attn_tensor *state_in;
    /** The same shape, columns side by side: S after the last token. NULL: not wanted. May be state_in, the very
     * same view; must not otherwise overlap anything. */
    const attn_tensor *state_out;

    /**
     * NULL, or ATTN_BOOL (B|1, H|1, T, 1), any strides: where it is not 0, S is cleared before the token, whatever it
     * holds: a document begins.
     */
    const attn_tensor *resets;

    /**
     * NULL, or [num_sequences + 1]: a ragged batch. B is 1, and sequence s has the tokens cu_seqlens[s] to
     * cu_seqlens[s + 1] - 1, with a state of its own. Rising, from 0 on, to T at most; out is 0 behind the last.
     */
    const int64_t *cu_seqlens;
    int64_t num_sequences; /**< 0 or more; only valid with cu_seqlens */
    /** NULL, or [B]: the tokens that each batch element has, 0 to T. Nothing of those behind is read, and their out is
     * 0. Not with cu_seqlens. */
    const int64_t *lengths;

    attn_feature_map map; /**< POSITIVE: with projection and normalise, without beta and decays of rows */
    /** POSITIVE: f32 (1, H|1, m, dk), channels side by side; of attn_draw_features(), or the caller's own. Else NULL.
     */
    const attn_tensor *projection;
    /**
     * Not 0: out_t is divided by the sum over what it reads of q_t·k, so that it is an average of values; 0 where
     * that is 0, or less than the smallest normal float in size. Such sums should be positive, as features are. Not
     * with beta.
     */
    int normalise;
    /** Not 0: each token reads what all tokens of its sequence write, up to resets, and state_in. Not with decay, beta.
     */
    int bidirectional;

    int num_threads; /**< 0: ATTN_NUM_THREADS, else what the executor or OpenMP has; ATTN_MAX_THREADS at most */
    const char *isa; /**< NULL, or the name of an instruction set, as in attn_params */
    const attn_executor *executor; /**< NULL: the process's (attn_set_executor()), else OpenMP */
} attn_linear_attention_params;

/** Options with struct_size set and everything else at its default. @since 0.1 */
static inline attn_linear_attention_params attn_linear_attention_params_default(void)
{
    attn_linear_attention_params p;
    memset(&p, 0, sizeof p);
    p.struct_size = sizeof p;
    return p;
}

/**
 * Computes linear attention in one call.
 *
 * @param q   (B, Hq, T, dk) queries
 * @param k   (B, Hk, T, dk) keys
 * @param v   (B, H, T, dv) values; there is a state S for each of these heads
 * @param out (B, max(Hq, H), T, dv) written
 * @param params options, or NULL for the defaults
 *
 * Hq is a multiple of H: then Hq / H neighbouring heads of q, up to 4096, read one state; or a divisor of
 * it. Hk is H, or a divisor: then H / Hk neighbouring states have the same keys (Gated DeltaNet has
 * such heads). Each tensor is ATTN_F32, ATTN_BF16 or ATTN_F16, in any mix; everything
 * in between is f32, and out is rounded once, to nearest even. Channels of q, k, v and out
 * lie side by side. Sizes may be 0; head sizes go up to 4096.
 *
 * Causal: a token reads what it and those before it have written, and nothing of
 * later ones reaches it, NaN neither; with bidirectional what is not finite in one token reaches all. What is not
 * finite stays in S from then on, as the formulas say, until it is reset.
 *
 * No output may share a byte with itself, with another output or with anything
 * that is read, but for state_out and state_in. On one instruction set a sequence has the same bits for any
 * number of threads and whatever else is in the call; see ATTN_LINEAR_ATTENTION_CHUNK for calls that are cut.
 *
 * @return ATTN_OK or an error; on an error nothing has been written.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_linear_attention(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                           const attn_tensor *out, const attn_linear_attention_params *params);

/**
 * Sets *size to the bytes of workspace that attn_linear_attention_in() can use for
 * tensors of these shapes and types. Their data may be NULL.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_linear_attention_workspace_size(const attn_tensor *q, const attn_tensor *k,
                                                          const attn_tensor *v, const attn_tensor *out,
                                                          const attn_linear_attention_params *params, size_t *size);

/**
 * attn_linear_attention() in the caller's memory, of any alignment: allocates
 * nothing.
 *
 * The size that attn_linear_attention_workspace_size() has given for these shapes is
 * always enough, for however many threads: as many take part as the workspace has
 * room for. ATTN_WORKSPACE_TOO_SMALL: there is no room for one.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_linear_attention_in(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                              const attn_tensor *out, const attn_linear_attention_params *params,
                                              void *workspace, size_t workspace_size);

/**
 * Draws a projection for ATTN_FEATURES_POSITIVE: blocks of dk rows, each of which are orthogonal directions, as long
 * as dk independent standard normal numbers; such features err less than independent ones (Choromanski et al. 2021,
 * section 2.4). Another offset is another draw: features may be drawn anew at any time, before S begins.
 *
 * @param projection f32 (1, heads, m, dk), written; channels side by side
 * @param seed, offset choose the numbers, the same on every machine up to rounding
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_draw_features(const attn_tensor *projection, uint64_t seed, uint64_t offset);

/* ------------------------------------------------------------------- plans -- */

/** Linear attention of one shape and set of options, as attn_plan is of attention: runs do not change it.
 * @since 0.1, experimental */
typedef struct attn_linear_attention_plan attn_linear_attention_plan;

/**
 * Makes a plan. It keeps the options, the dtypes and shapes of the tensors, and which of those in params are given;
 * data may be NULL, and strides are not looked at. The caller destroys *plan. On an error *plan is set to NULL.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_linear_attention_plan_create(attn_linear_attention_plan **plan, const attn_tensor *q,
                                                       const attn_tensor *k, const attn_tensor *v,
                                                       const attn_tensor *out,
                                                       const attn_linear_attention_params *params);

/** Frees a plan that no thread is running; NULL is fine. @since 0.1, experimental */
ATTN_API void attn_linear_attention_plan_destroy(attn_linear_attention_plan *plan);

/** Threads that a plan has scratch memory for: the most that may run shares. 0 for NULL. @since 0.1, experimental */
ATTN_API int attn_linear_attention_plan_num_threads(const attn_linear_attention_plan *plan);

/** Phases of a run; all shares of one end before a share of the next begins. 0 for NULL. @since 0.1, experimental */
ATTN_API int attn_linear_attention_plan_num_phases(const attn_linear_attention_plan *plan);

/** Bytes of workspace that a run needs; SIZE_MAX for NULL. @since 0.1, experimental */
ATTN_API size_t attn_linear_attention_plan_workspace_size(const attn_linear_attention_plan *plan);

/**
 * Runs a plan in the caller's workspace, of any alignment, without any allocation. Everything that was not planned is
 * checked as attn_linear_attention() does; what differs from the plan is an error, and nothing has been written then.
 * Several threads may run one plan at once, each with a workspace of its own.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_linear_attention_plan_run(const attn_linear_attention_plan *plan, const attn_tensor *q,
                                                    const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                                                    const attn_linear_attention_params *params, void *workspace,
                                                    size_t workspace_size);

/**
 * How far a run of the plan in that workspace is, as attn_plan_progress() says of attention: of all tasks of the run,
 * those that have begun. A task is a head of a sequence, or some of its channels of v, so there may be few; any thread
 * may ask, and a workspace in which no run has begun must have been filled with zeros.
 *
 * @param plan            the run's
 * @param workspace       the run's; it is only read
 * @param workspace_size  attn_linear_attention_plan_workspace_size(plan) or more bytes
 * @param begun           tasks that have begun: 0 before the run, *tasks at its end
 * @param tasks           all tasks of the run
 * @return ATTN_OK, ATTN_INVALID_ARGUMENT for a NULL, or ATTN_WORKSPACE_TOO_SMALL
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_linear_attention_plan_progress(const attn_linear_attention_plan *plan, const void *workspace,
                                                         size_t workspace_size, int64_t *begun, int64_t *tasks);

/**
 * Prepares a run for the caller's own threads: checks everything and lays the workspace out. Arrays that params points
 * to must stay until the last share has returned.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_linear_attention_plan_begin(const attn_linear_attention_plan *plan, const attn_tensor *q,
                                                      const attn_tensor *k, const attn_tensor *v,
                                                      const attn_tensor *out,
                                                      const attn_linear_attention_params *params, void *workspace,
                                                      size_t workspace_size);

/**
 * Share ith of nth of a phase, as attn_plan_run_share() of attention: called once for each ith, in any order, on
 * any threads.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_linear_attention_plan_run_share(const attn_linear_attention_plan *plan, void *workspace,
                                                          int phase, int ith, int nth);

/**
 * Writes a line about a plan to a buffer of size bytes, as attn_plan_describe() does. Returns its length.
 * @since 0.1, experimental
 */
ATTN_API size_t attn_linear_attention_plan_describe(const attn_linear_attention_plan *plan, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_LINEAR_ATTENTION_H */
