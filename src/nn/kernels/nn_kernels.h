/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the layers' kernels are handed, and the table that an instruction set
 * exports. Kernels compute on pointers that have been checked: no allocation,
 * no threads, no globals, no errors. Strides of nn_rows count floats, those of
 * attn_rows bytes.
 */
#ifndef ATTN_NN_KERNELS_H
#define ATTN_NN_KERNELS_H

#include "attn/nn.h"
#include "kernels/kernels.h"

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
    struct attn_rows x;
    int64_t rows;      /**< at most NN_LINEAR_ROWS */
    int64_t inputs;    /**< columns of x */
    attn_dtype dtype;  /**< of panel: f32, bf16 or f16 */
    const void *panel; /**< [inputs][vectors * lanes] */
    const float *bias; /**< [vectors * lanes] */
    int vectors;       /**< in a row of the panel: 1 to panel_vectors */
    int outputs;       /**< live columns of the panel: more than (vectors - 1) * lanes */
    attn_activation activation;
    struct attn_rows residual; /**< data NULL: none; may be out */
    struct attn_rows out;
};

/** Rows that one call of linear takes at most: what of them is unfinished lies in L1. */
#define NN_LINEAR_ROWS 128

/** Element-wise work on rows of n elements, each tensor of a type of its own. */
struct nn_row_work {
    struct attn_rows x, out; /**< may be the same */
    struct attn_rows up;     /**< gate: the second factor */
    int64_t rows, n;
    attn_activation activation;
    attn_norm norm;
    float eps;
    struct nn_vector gamma, beta;
};

/** out = scale * row, and what is added to it, rounded once. */
struct nn_embed_work {
    struct nn_vector row;
    float scale;
    int accumulate;            /**< adds what out holds */
    struct nn_vector place[2]; /**< of the position, of the kind of token: their sum is added; data NULL: none */
    int64_t n;
    void *out;
    attn_dtype out_dtype;
};

/** Additive attention of some queries of one sequence; key 0 is the first live one. */
struct nn_additive_work {
    struct nn_rows q;   /**< W_q q; a stride of 0 repeats a row */
    struct nn_rows k;   /**< W_k k + b */
    struct nn_rows v;   /**< values */
    struct nn_rows out; /**< apart from all that is read */
    const float *score; /**< [channels] the vector v of the score, in base 2: times log2(e) / temperature */
    int64_t queries;    /**< at most NN_ADDITIVE_QUERIES */
    int64_t keys;
    int64_t channels, values; /**< of a projected key, of a value */
    int64_t diagonal;         /**< row r does not see the keys j > r + diagonal; no overflow on the way there */
    struct attn_grid mask;    /**< bytes, not 0 attends, or numbers that are added; data NULL: none */
    float *lse;               /**< NULL when not wanted */
    ptrdiff_t lse_stride;
    struct attn_grid weights;        /**< floats; data NULL: not wanted */
    int64_t keys_before, keys_after; /**< padding around the live keys, where weights are 0 */
};

/** Queries that share a block of keys while it is in a near cache. */
#define NN_ADDITIVE_QUERIES 16

/** One row of a recurrent cell (kernels/cell.h). */
struct nn_cell_work {
    const float *x; /**< sums of the gates, [4][n] for an LSTM; for a GRU [3][n], the part that x gives */
    const float *h; /**< GRU: the part that h gives */
    float *c;       /**< LSTM: the cell, replaced */
    void *state;    /**< h, replaced */
    void *out;      /**< LSTM: h once more */
    /** LSTM: what h is rounded to in its two places; in a GRU they are f32. */
    attn_dtype state_dtype, out_dtype;
    int64_t n;
};

/** The kernels of an instruction set. */
struct attn_nn_kernels {
    int lanes;         /**< floats in a vector */
    int panel_vectors; /**< vectors in a full panel of a linear layer */
    void (*linear)(const struct nn_linear_work *work);
    void (*normalise)(const struct nn_row_work *work);
    void (*activate)(const struct nn_row_work *work);
    void (*gate)(const struct nn_row_work *work);
    void (*embed)(const struct nn_embed_work *work);
    void (*additive)(const struct nn_additive_work *work);
    void (*lstm_cell)(const struct nn_cell_work *work);
    void (*gru_cell)(const struct nn_cell_work *work);
};

/** The kernels for attn_isa_active(). */
const struct attn_nn_kernels *attn_nn_kernels_active(void);

#endif
