/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares what attn_linear_attention() has written with the reference, by the
 * table in tolerance.h.
 */
#ifndef TEST_COMPARE_LINEAR_H
#define TEST_COMPARE_LINEAR_H

#include "oracle_linear.h"
#include "tolerance.h"

#include <stddef.h>

/** Largest errors in units, and how much of an output was worth looking at. */
struct linear_comparison {
    double error, allowed;
    /** All elements; those whose reference is 0, those that may be anything, and those that must not be finite. */
    int64_t elements, zeros, unknown, not_finite;
};

/** Compares one output, whose numbers are contiguous, with what is expected of it. Returns 1, or 0 and a message. */
int compare_linear_numbers(const struct linear_numbers *numbers, const struct tolerance *tolerance,
                           const attn_tensor *got, struct linear_comparison *comparison, char *message,
                           size_t message_size);

/**
 * Compares out, and the states unless state is NULL; comparison: of each. Returns 1 when all of it is right; otherwise
 * 0, and message names the worst element with what was expected. Computes naively only what is not within the floors
 * anyway.
 */
int compare_linear_call(const struct linear_inputs *inputs, const attn_tensor *out, const attn_tensor *state,
                        struct linear_comparison comparison[LINEAR_OUTPUTS], char *message, size_t message_size);

#endif
