/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of products over rows, of which the gradients of a linear layer are made, and projections along tokens. */
#ifndef ATTN_NN_GRADIENT_PRODUCTS_H
#define ATTN_NN_GRADIENT_PRODUCTS_H

#include "nn/memory.h"

/** The rows of a tensor, in any batch of it, or the rows of a matrix of weights with any strides. */
struct nn_factor {
    const attn_tensor *tensor; /**< NULL: every element is 1, for sums of the other factor alone */
    int is_weights;            /**< strides of its columns may be anything */
};

/**
 * to[j][c] = sum_r left[j][r] * right[r][c], or with turned sum_r left[r][j] * right[r][c]: in f32, 1024 terms in the
 * order of r, then the next 1024 from 0 and added, and so on.
 */
struct nn_gradient_product {
    struct nn_factor left, right;
    int turned;
    int64_t rows, columns, terms; /**< of to; of a sum */
    const attn_tensor *to;        /**< (B, 1, T, columns) with B * T = rows */
    int accumulate;               /**< adds to what it holds, which is f32 */
};

/** Workspace that a product can make use of with so many threads, and the least. */
struct nn_need nn_gradient_product_need(int threads);

/** Computes a product on up to threads threads, for which scratch has room. */
void nn_gradient_product(const struct nn_gradient_product *product, int threads, void *scratch, size_t size);

/** A product and room for its tensors, for a function that makes them up. */
struct nn_listed_product {
    struct nn_gradient_product product;
    attn_tensor left, right, to;
};

/** Products with as many rows and columns each, none of which reads what another one writes. */
struct nn_gradient_products {
    int64_t count;
    /** Fills in product n, which is zeroed; called again and again, from several threads at once. */
    void (*describe)(const void *context, int64_t n, struct nn_listed_product *product);
    const void *context;
    int64_t most_terms;  /**< of any */
    int isa;             /**< no instruction set above this row (dispatch.h); 0: the environment's */
    atomic_llong *begun; /**< counts tasks as they begin, or NULL */
};

/** The tasks that they are cut into, with as many threads and as much scratch. */
int64_t nn_gradient_product_tasks(const struct nn_gradient_products *products, int threads, size_t size);

/** Computes them together. The bits of a product are those that it has alone. */
void nn_gradient_products(const struct nn_gradient_products *products, int threads, void *scratch, size_t size);

#endif
