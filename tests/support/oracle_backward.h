/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle of the backward pass: gradients in double precision, each with its
 * unit, and a naive f32 computation beside it, as oracle.h has them for the
 * forward pass.
 *
 * attn_backward() is a function of out and lse as they are handed to it, rounded
 * to their types. So is the oracle where it is given them, and what their
 * rounding does to a gradient is no error of it. Without them it takes the exact
 * ones: then its gradients are the derivatives of the loss, and finite
 * differences of the forward oracle say so (tests/unit/test_oracle_backward.c).
 *
 * It also has the gradients of what else is learned: masks, slopes, tables,
 * sinks, factors of heads, rows by distance.
 */
#ifndef TEST_ORACLE_BACKWARD_H
#define TEST_ORACLE_BACKWARD_H

#include "oracle.h"

/** What a gradient is with respect to, and its shape, contiguous. */
enum gradient_of {
    GRADIENT_Q,             /**< the shape of q */
    GRADIENT_K,             /**< the shape of k */
    GRADIENT_V,             /**< the shape of v */
    GRADIENT_MASK,          /**< the shape of the mask, where it is additive */
    GRADIENT_ALIBI_SLOPES,  /**< [Hq] */
    GRADIENT_RELATIVE_BIAS, /**< [Hq][buckets] */
    GRADIENT_SINKS,         /**< [Hq] */
    GRADIENT_HEAD_SCALE,    /**< [Hq] */
    GRADIENT_REL_K,         /**< the shape of params->disentangled->rel_k */
    GRADIENT_REL_Q,         /**< the same of rel_q */
    GRADIENTS
};

/**
 * One gradient. An element that is not finite must not be finite in a result,
 * either; a unit that is infinite permits any number, as f32 says nothing there.
 */
struct gradient {
    int64_t count; /**< elements; 0 where params has no such thing */
    double *value, *unit, *slack;
    double *naive_error; /**< distance of the naive result from value, the largest of several orders */
};

struct backward_reference {
    int rounds_weights; /**< the library rounds P and dS to bf16 before it multiplies them */
    struct gradient of[GRADIENTS];
};

/** What a backward pass reads. */
struct backward_inputs {
    const attn_tensor *q, *k, *v;
    const attn_params *params; /**< outputs in it are not looked at */
    const attn_tensor *out;    /**< as the forward pass has written it, or NULL: exact */
    const attn_tensor *lse;    /**< the same */
    const attn_tensor *d_out;
    const attn_tensor *d_lse;               /**< or NULL: 0 */
    attn_score_gradient_callback *callback; /**< the partner of params->callback, or NULL without one */
    void *callback_user;
};

/** Computes everything; ends the program when memory is short. Free with backward_reference_free(). */
struct backward_reference backward_reference_compute(const struct backward_inputs *inputs);

/** The same without the naive computation, whose errors are 0. */
struct backward_reference backward_reference_compute_alone(const struct backward_inputs *inputs);
void backward_reference_free(struct backward_reference *reference);

/** Whether the library multiplies pairs of bf16 in this call. */
int backward_rounds_weights(const struct backward_inputs *inputs);

#endif
