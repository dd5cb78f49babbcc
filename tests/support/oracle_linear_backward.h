/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle of gradients of linear attention: S and its gradient R of every token, in
 * double precision, and the formulas of linear_attention_backward.h; with a unit
 * for each number, as oracle_linear.h has them.
 *
 * Without feature maps, beta and normalise.
 */
#ifndef TEST_ORACLE_LINEAR_BACKWARD_H
#define TEST_ORACLE_LINEAR_BACKWARD_H

#include "attn/linear_attention_backward.h"
#include "oracle_linear.h"

/** What a call writes, contiguous: dq, dk and dv in the shapes of q, k and v, decays and states in theirs. */
enum linear_gradient { LINEAR_DQ, LINEAR_DK, LINEAR_DV, LINEAR_DDECAY, LINEAR_DSTATE, LINEAR_GRADIENTS };

struct linear_gradients_reference {
    struct linear_numbers of[LINEAR_GRADIENTS]; /**< no naive_error */
};

/** Of inputs->out there is only the shape, d_out is its gradient; d_state may be NULL. Free with the next function. */
struct linear_gradients_reference linear_gradients_compute(const struct linear_inputs *inputs, const attn_tensor *d_out,
                                                           const attn_tensor *d_state);
void linear_gradients_free(struct linear_gradients_reference *reference);

#endif
