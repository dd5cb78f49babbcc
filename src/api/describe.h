/* SPDX-License-Identifier: Apache-2.0 */
/* The line about a problem that plans and ATTN_VERBOSE give. */
#ifndef ATTN_DESCRIBE_H
#define ATTN_DESCRIBE_H

#include "driver/driver.h"

/** What attn_plan_describe() writes. Of what options point to, only its presence counts. */
size_t attn_describe(const struct attn_problem *problem, const struct attn_geometry *geometry, char *buffer,
                     size_t size);

struct attn_backward;

/** What attn_backward_plan_describe() writes. */
size_t attn_describe_backward(const struct attn_backward *backward, char *buffer, size_t size);

struct attn_linear_attention;

/** What attn_linear_attention_plan_describe() writes. */
size_t attn_describe_linear_attention(const struct attn_linear_attention *call, char *buffer, size_t size);

struct attn_linear_backward;

/** The same of a call for its gradients. */
size_t attn_describe_linear_backward(const struct attn_linear_backward *call, char *buffer, size_t size);

#endif
