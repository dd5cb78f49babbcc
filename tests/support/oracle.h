/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle: attention in double precision, written for reading.
 *
 * It takes the same tensors and parameters as attn_forward() and computes
 * every output, each with a "unit": the error that a single rounding to f32
 * (2^-24) somewhere in the inputs of the softmax can cause in that number. An
 * error divided by its unit says how many roundings' worth it is, whatever the
 * sizes of the logits and values, so one tolerance serves all inputs.
 *
 * Alongside stands a naive f32 computation (scores, max, expf, sum, PV), whose
 * error is what the library's is measured against. One computation of a small
 * case is exact by luck now and then, so it is done in four orders of summation,
 * and once with q scaled first as the library does (naive.c), and the largest
 * error counts.
 *
 * Inputs of bf16 and f16 are the numbers that they stand for, in the oracle and
 * in the naive computation. Both give out as it is before it is rounded to its
 * type; how the comparison sees through that rounding is in tolerance.h. Where
 * the library multiplies pairs of bf16, it rounds weights, and takes denormals
 * of q, k and v for 0, as the processor does: then they are 0 here too, and
 * what the rounding can do to each number is its "slack", see oracle.c.
 *
 * oracle_visible.c knows what hides keys, oracle_score.c the terms of a score,
 * oracle_philox.c dropout, oracle.c the softmax, the sums and the units.
 */
#ifndef TEST_ORACLE_H
#define TEST_ORACLE_H

#include "attn/attn.h"
#include "attn/backward.h"

#include <stdint.h>

/** All outputs, contiguous. A result that must not be finite has the unit 0, 1 or Inf, see oracle.c. */
struct reference {
    int64_t batch, heads, tq, tk, dv;
    int rounds_weights;                                /**< the library rounds weights to bf16 here, */
    int takes_exact_pairs;                             /**< products of weights and scales are rounded likewise */
    int uses_table;                                    /**< by a table: the top one, too, */
    double weight_rounding;                            /**< by this part of them at most */
    double *out, *out_unit, *out_slack;                /**< [batch][heads][tq][dv] */
    double *lse, *lse_unit, *lse_slack;                /**< [batch][heads][tq] */
    double *weights, *weights_unit, *weights_slack;    /**< [batch][heads][tq][tk] */
    double *key_sums, *key_sums_unit, *key_sums_slack; /**< [batch][heads][tk] */
    double *scores, *scores_unit, *scores_slack;       /**< [batch][heads][tq][tk] where params.scores asks for them */
    /** Largest distance of a naive result from the exact one. */
    double *naive_out_error, *naive_lse_error, *naive_weights_error, *naive_key_sums_error, *naive_scores_error;
};

/** To what the naive computation rounds. */
struct naive_types {
    attn_dtype steps; /**< scores and weights */
    attn_dtype out;
};

/** Nothing but f32: the yardstick of the tests. */
#define NAIVE_F32 ((struct naive_types){ATTN_F32, ATTN_F32})

/** Computes everything; ends the program when memory is short. Free with reference_free(). */
struct reference reference_compute(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                   const attn_params *params, struct naive_types naive_types);
/**
 * The same in about half of the time, without the naive computation: its errors are 0. What is within the floors alone
 * passes whatever those errors are.
 */
struct reference reference_compute_alone(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                         const attn_params *params);
void reference_free(struct reference *ref);

/**
 * Whether the library multiplies pairs of bf16 in this call: all three are, the
 * instruction set has the means, and no option wants products in f32.
 */
int reference_rounds_weights(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                             const attn_params *params);

/**
 * Whether it multiplies ATTN_I4 or ATTN_F8_E4M3 in pairs as it lies: few queries of bf16 whose sums are free, with a k
 * and v of f32 that stand for such numbers, as params->k_scale, which is not looked at otherwise, says.
 */
int reference_takes_exact_pairs(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                const attn_params *params);

/** By what part of them at most; 0 where they are not rounded. */
double reference_weight_rounding(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                 const attn_params *params);

/**
 * A query, and what its options' indices refer to: the batch element or the
 * ragged sequence that it belongs to, whose keys are first_key to first_key +
 * num_keys - 1 of k's axis. Of those, start to end - 1 are not padding.
 */
struct oracle_query {
    int64_t b, h, token;         /**< where it stands in q */
    int64_t tq, tk;              /**< tokens of q and of k */
    int64_t sequence, index;     /**< of what it is a query, and which one of it */
    int64_t first_key, num_keys; /**< tokens of k; none for a token behind the last ragged sequence */
    int64_t start, end;          /**< live keys, from the sequence's first key */
    __int128 position;           /**< among the keys of the sequence */
    int64_t prefix;              /**< keys before this one, from first_key, are not hidden by causality */
    int outside;                 /**< a token behind the last ragged sequence */
};

/** The query (b, h, token). tq and tk are the lengths of q's and of k's axes. */
struct oracle_query oracle_query_at(const attn_params *params, int64_t tq, int64_t tk, int64_t b, int64_t h,
                                    int64_t token);

/** Whether a query sees key j of its sequence, as far as can be said without its score (by the callback, that is). */
int oracle_sees(const attn_params *params, const struct oracle_query *query, int64_t j);

/** Whether query (b, h, i) sees key j, the indices being those of q's and k's axes. Not asked of a callback either. */
int oracle_key_is_live(const attn_params *params, int64_t tq, int64_t tk, int64_t b, int64_t h, int64_t i, int64_t j);

/** The additive mask's element for (b, h, i, j), 0 without one. */
float oracle_bias(const attn_params *params, int64_t b, int64_t h, int64_t i, int64_t j);

/** The bucket of key j of the query's sequence. */
int64_t oracle_relative_bucket(const attn_relative_bias *bias, const struct oracle_query *query, int64_t j);

/** The element of relative_bias for key j of the query's sequence, 0 without one. */
float oracle_relative_bias(const attn_params *params, const struct oracle_query *query, int64_t j);

/** The row of rel_k (smaller for a key after the query) or rel_q for a distance, key minus query. */
int64_t oracle_content_row(int64_t span, int64_t distance);
int64_t oracle_position_row(const attn_disentangled *d, int64_t distance);

/** Key minus query; INT64_MIN or MAX where that has more than 63 bits. */
int64_t oracle_distance(const struct oracle_query *query, int64_t j);

/** What the callback makes of one score. It must not magnify differences of scores (oracle_score.c says why). */
float oracle_callback(const attn_params *params, const struct oracle_query *query, int64_t j, float score);

/** What the partner of the callback makes of a gradient of 1 at one score; it must be proportional to the gradient. */
float oracle_callback_slope(attn_score_gradient_callback *partner, void *user, const struct oracle_query *query,
                            int64_t j, float score);

/** What the callback of weights makes of one, as above. It must not magnify differences either. */
float oracle_weight_callback(const attn_params *params, const struct oracle_query *query, int64_t j, float weight);

/** The factor of q·k that params stand for, for all heads. */
double oracle_scale(const attn_params *params, int64_t dk);

/** The same times the head's own factor. */
double oracle_head_scale(const attn_params *params, int64_t dk, int64_t h);

/** 4 words of Philox4x32-10. */
void oracle_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t words[4]);

/** Whether dropout keeps a weight; keeps all without dropout. */
int oracle_keeps(const attn_params *params, const struct oracle_query *query, int64_t j);

#endif
