/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What attn_backward() reads and writes beside the tensors of a problem, and some rows of its
 * gradients in double precision, by which it is checked.
 */
#ifndef BENCH_GRADIENTS_H
#define BENCH_GRADIENTS_H

#include "problem.h"
#include "rows.h"

/** Rows of one gradient by its definition. */
struct bench_gradient_rows {
    int64_t at[BENCH_SAMPLED_ROWS];  /**< where a row is in the gradient, counted through its memory */
    double size[BENCH_SAMPLED_ROWS]; /**< what the terms of its sum come to when none of them cancel */
    double *expected;                /**< [BENCH_SAMPLED_ROWS][channels] */
};

struct bench_gradients {
    attn_tensor out;                    /**< with respect to out, standard normal, in the type of the case */
    attn_tensor wide;                   /**< the same values in f32 */
    attn_tensor lse;                    /**< f32 (B, H, Tq, 1), which a forward call writes */
    attn_tensor of[3];                  /**< with respect to q, k and v, in the types of the case */
    struct bench_gradient_rows rows[3]; /**< of these */
};

/** Allocates everything and draws the gradient of out. 0, or -1 after a sentence on stderr. */
int bench_gradients_create(struct bench_gradients *g, const struct bench_problem *p);

void bench_gradients_destroy(struct bench_gradients *g);

/**
 * What a result in that type may differ by: the log-sum-exp, as it is, and rows of the output and of gradients,
 * relative to their sizes.
 */
double bench_gradients_tolerance(attn_dtype dtype);

/** Fills what the library writes with NaN: a gradient that is never written must not look right. */
void bench_gradients_spoil(struct bench_gradients *g);

/**
 * Computes the rows, of what p->out and g->lse hold, so after a forward call. Forms may hide pairs and do nothing
 * else. Returns the largest difference of the log-sum-exp of these queries from its definition; NaN if there is any.
 */
double bench_gradients_expect(struct bench_gradients *g, const struct bench_problem *p);

/**
 * How the gradients differ from the rows, of_row relative to the rows' sizes; both are NaN if any element of any
 * gradient is.
 */
struct bench_difference bench_gradients_difference(const struct bench_gradients *g);

#endif
