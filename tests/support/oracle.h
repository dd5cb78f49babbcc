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
 */
#ifndef TEST_ORACLE_H
#define TEST_ORACLE_H

#include "attn/attn.h"

#include <stdint.h>

/** All outputs, contiguous. A result that must not be finite has the unit 0 or 1, see oracle.c. */
struct reference {
    int64_t batch, heads, tq, tk, dv;
    double *out, *out_unit;           /**< [batch][heads][tq][dv] */
    double *lse, *lse_unit;           /**< [batch][heads][tq] */
    double *weights, *weights_unit;   /**< [batch][heads][tq][tk] */
    double *key_sums, *key_sums_unit; /**< [batch][heads][tk] */
    /** Largest distance of a naive result from the exact one. */
    double *naive_out_error, *naive_lse_error, *naive_weights_error, *naive_key_sums_error;
};

/** Computes everything; ends the program when memory is short. Free with reference_free(). */
struct reference reference_compute(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                   const attn_params *params);
void reference_free(struct reference *ref);

/** Whether query (b, h, i) sees key j. */
int oracle_key_is_live(const attn_params *params, int64_t tq, int64_t tk, int64_t b, int64_t h, int64_t i, int64_t j);

/** The additive mask's element for (b, h, i, j), 0 without one. */
float oracle_bias(const attn_params *params, int64_t b, int64_t h, int64_t i, int64_t j);

/** The factor of q·k that params stand for. */
double oracle_scale(const attn_params *params, int64_t dk);

/** Element offset of (b, h, t, c) in a tensor whose axes of size 1 broadcast. */
int64_t tensor_offset(const attn_tensor *t, int64_t b, int64_t h, int64_t token, int64_t c);

/** Orders of summation in which naive_row() can work. */
#define NAIVE_ORDERS 4

/**
 * One row of the naive computation, in f32 throughout. Writes dv values, the
 * lse and tk weights. Bit 0 of order: keys from the last to the first; bit 1:
 * channels likewise.
 */
void naive_row(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_params *params, int64_t b,
               int64_t h, int64_t i, int order, float *out, float *lse, float *weights);

#endif
