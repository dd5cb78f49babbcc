/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of linear attention. */
#ifndef ATTN_CHECK_LINEAR_ATTENTION_H
#define ATTN_CHECK_LINEAR_ATTENTION_H

#include "api/check.h"
#include "driver/linear_attention.h"

/** Checks a request and fills call, or returns the status of the first thing that is wrong. */
attn_status attn_check_linear_attention(struct attn_linear_attention *call, const attn_tensor *q, const attn_tensor *k,
                                        const attn_tensor *v, const attn_tensor *out,
                                        const attn_linear_attention_params *params, enum check_depth depth);

/** That decays of a call, which has passed every other check, are up to 0. */
attn_status attn_check_decays(const struct attn_linear_attention *call);

/** That a run asks for what was planned. No pointer of was is followed. */
attn_status attn_check_planned_linear_attention(const struct attn_linear_attention *now,
                                                const struct attn_linear_attention *was);

#endif
