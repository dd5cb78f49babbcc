/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients against differences of an oracle's forward pass in double; and the weights of layers that have some. */
#ifndef ATTN_TESTS_NN_DIFFERENCES_H
#define ATTN_TESTS_NN_DIFFERENCES_H

#include "options.h"

/** What a loss depends on, and its gradient. */
struct varied {
    const char *name;
    double *values; /**< that loss reads; NULL: there are none */
    const attn_tensor *gradient;
};

/** A function of the values that gradients are those of. */
typedef double loss_fn(void *context);

/** A limit of differences: of each element, relative to itself and what is usual. */
struct closeness {
    double rounding;
    double least; /**< what is usual at least */
};

/** Checks some elements of each. */
void assert_differences(struct memory *m, const struct varied *all, size_t count, loss_fn *loss, void *context,
                        struct closeness tolerance);

double root_mean_square(const double *x, int64_t n);

/** f32 gradients of a matrix of weights. */
attn_tensor place_sums(struct memory *m, int64_t rows, int64_t columns);
/** Random weights of any type, a bias among them or not, and their gradients; and the oracle's. */
struct oracle_dense random_dense(struct memory *m, int64_t out, int64_t in, attn_tensor *w, attn_tensor *b,
                                 attn_tensor *d_w, attn_tensor *d_b);

#endif
