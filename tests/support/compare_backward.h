/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares what attn_backward() has written with the reference, by the table in
 * tolerance.h.
 */
#ifndef TEST_COMPARE_BACKWARD_H
#define TEST_COMPARE_BACKWARD_H

#include "oracle_backward.h"
#include "tolerance.h"

#include <stddef.h>

/** Largest errors in units, and how much of a gradient was worth looking at. */
struct gradient_comparison {
    double error, allowed;
    int64_t elements, zeros, unknown; /**< all, those whose reference is 0, those that may be anything */
};

/**
 * Compares one gradient. Returns 1 when it is right; otherwise 0, and message names the worst element with what was
 * expected.
 */
int compare_gradient(const struct backward_reference *reference, enum gradient_of of, const attn_tensor *got,
                     struct gradient_comparison *comparison, char *message, size_t message_size);

/**
 * All gradients of a call by its arguments; got: NULL where one was not wanted. Computes naively only what is not
 * within the floors anyway.
 */
int compare_backward_call(const struct backward_inputs *inputs, const attn_tensor *const got[GRADIENTS],
                          struct gradient_comparison comparison[GRADIENTS], char *message, size_t message_size);

#endif
