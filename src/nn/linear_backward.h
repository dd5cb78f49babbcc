/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of products as other layers take them. */
#ifndef ATTN_NN_LINEAR_BACKWARD_H
#define ATTN_NN_LINEAR_BACKWARD_H

#include "nn/linear.h"
#include "nn/memory.h"

/** Workspace of nn_linear_backward(), whatever the shapes. */
struct nn_need nn_linear_backward_need(int num_threads);

/**
 * attn_linear_backward() of what the caller has checked, or made: there is nothing that can fail. The executor is that
 * in use, and scratch is what nn_linear_backward_need() asks for.
 */
void nn_linear_backward(const attn_tensor *weights, const attn_tensor *x, const attn_tensor *d_out,
                        const attn_linear_gradients *gradients, void *scratch, size_t size);

#endif
