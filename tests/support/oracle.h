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
 * case is exact by luck now and then, so it is done in four orders of summation
 * and the largest error counts.
 *
 * Inputs of bf16 and f16 are the numbers that they stand for, in the oracle and
 * in the naive computation. Both give out as it is before it is rounded to its
 * type; how the comparison sees through that rounding is in tolerance.h. Where
 * the library multiplies pairs of bf16, it rounds weights, and takes denormals
 * of q, k and v for 0, as the processor does: then they are 0 here too, and
 * what the rounding can do to each number is its "slack", see oracle.c.
 */
#ifndef TEST_ORACLE_H
#define TEST_ORACLE_H

#include "attn/attn.h"

#include <stdint.h>

/** All outputs, contiguous. A result that must not be finite has the unit 0 or 1, see oracle.c. */
struct reference {
    int64_t batch, heads, tq, tk, dv;
    int rounds_weights;                                /**< the library works on pairs of bf16 here */
    double *out, *out_unit, *out_slack;                /**< [batch][heads][tq][dv] */
    double *lse, *lse_unit, *lse_slack;                /**< [batch][heads][tq] */
    double *weights, *weights_unit, *weights_slack;    /**< [batch][heads][tq][tk] */
    double *key_sums, *key_sums_unit, *key_sums_slack; /**< [batch][heads][tk] */
    /** Largest distance of a naive result from the exact one. */
    double *naive_out_error, *naive_lse_error, *naive_weights_error, *naive_key_sums_error;
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
void reference_free(struct reference *ref);

/** Whether the library multiplies pairs of bf16 in this call: all three are, and the instruction set has the means. */
int reference_rounds_weights(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                             const attn_params *params);

/** Whether query (b, h, i) sees key j. */
int oracle_key_is_live(const attn_params *params, int64_t tq, int64_t tk, int64_t b, int64_t h, int64_t i, int64_t j);

/** The additive mask's element for (b, h, i, j), 0 without one. */
float oracle_bias(const attn_params *params, int64_t b, int64_t h, int64_t i, int64_t j);

/** The factor of q·k that params stand for. */
double oracle_scale(const attn_params *params, int64_t dk);

/** Orders of summation in which naive_row() can work. */
#define NAIVE_ORDERS 4

/**
 * One row of the naive computation on tensors of f32, in f32 but for the
 * rounding of scores and of finished weights to steps. Writes dv values, the
 * lse and tk weights. Bit 0 of order: keys from the last to the first; bit 1:
 * channels likewise.
 */
void naive_row(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_params *params,
               attn_dtype steps, int64_t b, int64_t h, int64_t i, int order, float *out, float *lse, float *weights);

#endif
