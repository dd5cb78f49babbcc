/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients as one would write them down in f32: the yardstick of the backward
 * pass (naive_backward.c).
 */
#ifndef TEST_NAIVE_BACKWARD_H
#define TEST_NAIVE_BACKWARD_H

#include "oracle_backward.h"
#include "oracle_score.h"

/**
 * Computes every gradient naively, in every order, and puts the largest distances from values into naive_error. inputs
 * are those of in as f32, rotated; row is space for a query.
 */
void naive_backward(const struct backward_inputs *in, const struct oracle_inputs *inputs, const attn_tensor *d_out,
                    struct oracle_row *row, struct backward_reference *result);

#endif
