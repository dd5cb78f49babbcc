/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the layers' kernels are handed, and the table that an instruction set
 * exports. Kernels compute on pointers that have been checked: no allocation,
 * no threads, no globals, no errors. Strides count floats.
 */
#ifndef ATTN_NN_KERNELS_H
#define ATTN_NN_KERNELS_H

#include "attn/nn.h"

/** Rows of floats. */
struct nn_rows {
    float *data;
    ptrdiff_t stride;
};

/** A vector of weights in its own type; data NULL if there is none. */
struct nn_vector {
    const void *data;
    attn_dtype dtype;
};

/** Rows of x times one panel of packed weights (nn/linear.c has the layout). */
struct nn_linear_work {
    struct nn_rows x;
    int64_t rows;       /**< at most NN_LINEAR_ROWS */
    int64_t inputs;     /**< columns of x */
    const float *panel; /**< [inputs][vectors * lanes] */
    const float *bias;  /**< [vectors * lanes] */
    int vectors;        /**< in a row of the panel: 1 to panel_vectors */
    int outputs;        /**< live columns of the panel: more than (vectors - 1) * lanes */
    attn_activation activation;
    struct nn_rows residual; /**< data NULL: none; may be out */
    struct nn_rows out;
};

/** Rows that one call of linear takes at most: what of them is unfinished lies in L1. */
#define NN_LINEAR_ROWS 128

/** Element-wise work on rows of n floats. */
struct nn_row_work {
    struct nn_rows x, out; /**< may be the same */
    struct nn_rows up;     /**< gate: the second factor */
    int64_t rows, n;
    attn_activation activation;
    attn_norm norm;
    float eps;
    struct nn_vector gamma, beta;
};

/** out = scale * row, or out += scale * row. */
struct nn_embed_work {
    const void *row;
    attn_dtype dtype;
    float scale;
    int accumulate;
    int64_t n;
    float *out;
};

/** The kernels of an instruction set. */
struct attn_nn_kernels {
    attn_isa isa;
    int lanes;         /**< floats in a vector */
    int panel_vectors; /**< vectors in a full panel of a linear layer */
    void (*linear)(const struct nn_linear_work *work);
    void (*normalise)(const struct nn_row_work *work);
    void (*activate)(const struct nn_row_work *work);
    void (*gate)(const struct nn_row_work *work);
    void (*embed)(const struct nn_embed_work *work);
};

/** The kernels for attn_isa_active(). */
const struct attn_nn_kernels *attn_nn_kernels_active(void);

#endif
