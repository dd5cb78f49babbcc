/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients for random cases of linear attention: what a backward call reads and
 * writes beside what the forward case has, in any type and layout, between guard
 * pages.
 */
#ifndef CHECK_LINEAR_GRADIENTS_H
#define CHECK_LINEAR_GRADIENTS_H

#include "linear_case.h"
#include "oracle_linear_backward.h"

struct linear_gradient_case {
    struct linear_case forward; /**< without beta, state_out and planted numbers */
    struct guard read[2], written[LINEAR_GRADIENTS], workspace;
    attn_tensor d_out, d_state, d[LINEAR_GRADIENTS];
    attn_linear_attention_gradients gradients;
    unsigned char *before[2]; /**< copies of what is read */
    size_t capacity[2];
};

void linear_gradient_case_initialize(struct linear_gradient_case *c);

/** Makes case index of the run that seed started. */
void linear_gradient_case_generate(struct linear_gradient_case *c, uint64_t seed, uint64_t index, const char *isa);

/** The gradient that a call was asked for; NULL: it was not. */
const attn_tensor *linear_gradient_of(const struct linear_gradient_case *c, enum linear_gradient of);

/** Whether the inputs are unchanged and nothing outside the gradients was written; else names what was. */
int linear_gradient_case_check_memory(const struct linear_gradient_case *c, char *message, size_t size);

#endif
