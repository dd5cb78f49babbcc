/* SPDX-License-Identifier: Apache-2.0 */
/* Products as other layers run them. */
#ifndef ATTN_NN_LINEAR_INTERNAL_H
#define ATTN_NN_LINEAR_INTERNAL_H

#include "attn/nn/linear.h"

/** Options of which only the threads are chosen. */
static inline attn_linear_options nn_linear_threads(int num_threads)
{
    attn_linear_options options = attn_linear_options_default();
    options.num_threads = num_threads;
    return options;
}

/**
 * A product whose tensors and options the caller has checked, or made: there is nothing that can fail. outs has an
 * entry for each part, NULL where it is not wanted; a residual is allowed with one part.
 */
void nn_linear_run(const attn_linear *linear, const attn_tensor *x, const attn_tensor *const *outs,
                   const attn_linear_options *options);

#endif
