/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of linear attention. */
#ifndef ATTN_CHECK_LINEAR_ATTENTION_H
#define ATTN_CHECK_LINEAR_ATTENTION_H

#include "api/check.h"
#include "attn/linear_attention_backward.h"
#include "driver/linear_attention.h"

/** Checks a request and fills call, or returns the status of the first thing that is wrong. With reads_out, out is the
 * gradient of out, which is read, and nothing is looked for that is about what a forward call writes. */
attn_status attn_check_linear_attention(struct attn_linear_attention *call, const attn_tensor *q, const attn_tensor *k,
                                        const attn_tensor *v, const attn_tensor *out,
                                        const attn_linear_attention_params *params, int reads_out,
                                        enum check_depth depth);

/** A state, input or written, as a call that is otherwise checked has it. Copies it; NULL: none. */
attn_status attn_check_linear_state(const char *name, const attn_tensor *t, const struct attn_linear_attention *call,
                                    attn_tensor *kept, int written, enum check_depth depth);

/** That an output lies on nothing that a call reads; out is for the caller to look at. */
attn_status attn_check_linear_inputs(const struct attn_linear_attention *call, const char *name, const attn_tensor *t);

struct attn_linear_backward;
/** Checks a request for gradients and fills call. */
attn_status attn_check_linear_backward(struct attn_linear_backward *call, const attn_tensor *q, const attn_tensor *k,
                                       const attn_tensor *v, const attn_tensor *out,
                                       const attn_linear_attention_params *params,
                                       const attn_linear_attention_gradients *gradients, enum check_depth depth);

/** That decays of a call, which has passed every other check, are up to 0. */
attn_status attn_check_decays(const struct attn_linear_attention *call, enum check_depth depth);

/** That a run asks for what was planned. No pointer of was is followed. */
attn_status attn_check_planned_linear_attention(const struct attn_linear_attention *now,
                                                const struct attn_linear_attention *was);
attn_status attn_check_planned_linear_backward(const struct attn_linear_backward *now,
                                               const struct attn_linear_backward *was);

#endif
