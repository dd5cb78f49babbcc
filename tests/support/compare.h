/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares what attn_forward() has written with the reference, by the table in
 * tolerance.h.
 */
#ifndef TEST_COMPARE_H
#define TEST_COMPARE_H

#include "oracle.h"
#include "tolerance.h"

#include <stddef.h>

/** Largest errors in units, and how much of the outputs was worth looking at. */
struct comparison {
    double error[TEST_OUTPUTS], naive_error[TEST_OUTPUTS], allowed[TEST_OUTPUTS];
    int64_t elements, zeros; /**< of out: all, and those whose reference is 0 */
};

/**
 * Compares out and whatever params asks for. Returns 1 when all of it is right;
 * otherwise 0, and message names the worst element with what was expected.
 */
int compare_with_reference(const struct reference *ref, const attn_tensor *out, const attn_params *params,
                           struct comparison *comparison, char *message, size_t message_size);

/** The same of a call by its arguments. Computes naively only what is not within the floors anyway. */
int compare_call(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                 const attn_params *params, char *message, size_t message_size);

#endif
