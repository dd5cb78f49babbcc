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

/** The words of a panel: lanes are outputs, a word holds one input of its output or more, in rising order. */
enum nn_panel {
    NN_PANEL_F32,    /**< one input, 4 bytes */
    NN_PANEL_F16,    /**< one, 2 bytes */
    NN_PANEL_PAIRS,  /**< two bf16, the first in the lower half */
    NN_PANEL_INT8,   /**< one, a byte */
    NN_PANEL_QUADS,  /**< four int8, the first in the lowest byte; int8_offset is added to each */
    NN_PANEL_NIBBLES /**< eight int4 plus 8: the low halves of the bytes hold the first four, the high halves the others
                      */
};

/** Inputs in a word. */
static inline int nn_panel_inputs(enum nn_panel panel)
{
    return panel == NN_PANEL_PAIRS ? 2 : panel == NN_PANEL_QUADS ? 4 : panel == NN_PANEL_NIBBLES ? 8 : 1;
}

/** Bytes of a word. */
static inline int nn_panel_word(enum nn_panel panel)
{
    return panel == NN_PANEL_F16 ? 2 : panel == NN_PANEL_INT8 ? 1 : 4;
}

/** Rows that one call of linear takes at most: what of them is unfinished lies in L1. */
#define NN_LINEAR_ROWS 128

/** Panels that it takes at most. */
#define NN_LINEAR_RUN 8

/** Rows of x as integers. */
struct nn_integer_rows {
    /** A row: [inputs rounded up to ATTN_ALIGN] integers, zeros behind the last, then starts, then scales of groups. */
    int8_t *bytes;
    ptrdiff_t pitch;  /**< from row to row */
    ptrdiff_t starts; /**< from a row's integers to its int32 starts, one a group: where sums begin */
    ptrdiff_t scales; /**< and to the floats that its groups' integers are multiples of; without groups not there */
    float scale[NN_LINEAR_ROWS]; /**< of each row, with groups 1; NaN for one that is not finite */
};

struct nn_quantize_work {
    struct attn_rows x;
    int64_t rows, inputs;
    int64_t group;  /**< inputs with one start and one scale; 0: all */
    int32_t offset; /**< what is added to each weight: starts are -offset times the sum of a group's integers */
    struct nn_integer_rows *to;
};

/** Rows of x times a run of panels of packed weights (nn/linear_create.c has the layout). */
struct nn_linear_work {
    struct attn_rows x;
    int round_x;                          /**< to bf16, before it is multiplied */
    const struct nn_integer_rows *quants; /**< x for products of integers, else NULL */
    int64_t rows;                         /**< at most NN_LINEAR_ROWS */
    int fetches_ahead;                    /**< of one row, weights need not be asked for (cpu/cpu.h) */
    int widens_beside;                    /**< narrow weights may be widened in registers for any rows */
    int64_t inputs;                       /**< columns of x */
    enum nn_panel kind;
    int panels;                         /**< of the run; if more than one, all are full */
    ptrdiff_t panel_bytes, scale_bytes; /**< from one to the next */
    const void *panel;                  /**< the first: [words of inputs][vectors * lanes] words */
    int64_t group;                      /**< inputs of a group with a scale of its own; 0: none */
    const void *scale; /**< its bf16 [groups][vectors * lanes]; with group 0 f32 [vectors * lanes], or NULL */
    const float *bias; /**< [panels][vectors * lanes] */
    int vectors;       /**< in a row of a panel: 1 to panel_vectors */
    int outputs;       /**< live columns of a panel: more than (vectors - 1) * lanes */
    attn_activation activation;
    struct attn_rows residual; /**< data NULL: none; may be out */
    struct attn_rows out;
    /** Of the base set, of a run of one: bias and so on for some rows, whose sums it spoils. */
    void (*finish)(const struct nn_linear_work *work, int64_t first, int64_t rows, float *sums);
};

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

/** Gradients of element-wise work: rows of n elements, each tensor of a type of its own; data NULL where not wanted. */
struct nn_gradient_work {
    struct attn_rows x;      /**< what the forward pass was given; gate: the first factor */
    struct attn_rows up;     /**< gate: the second */
    struct attn_rows d_out;  /**< the gradient of what it gave */
    struct attn_rows d_x;    /**< may be any of those that are read, but in normalise x */
    struct attn_rows d_up;   /**< gate: the same */
    float *d_gamma, *d_beta; /**< normalise: [n], added to */
    int64_t rows, n;
    attn_activation activation;
    attn_norm norm;
    float eps;
    struct nn_vector gamma;
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

/** out = residual + dropout(x + bias) for one row (kernels/drop.h). */
struct nn_drop_work {
    const void *x;
    void *out;            /**< may be x, of one type then */
    const float *bias;    /**< added before; NULL: none */
    const void *residual; /**< added afterwards, of the type of out, which it may be; NULL: none */
    attn_dtype dtype, out_dtype;
    int64_t batch, token, n;
    uint32_t key[2], threshold;
    float scale; /**< of what is kept */
};

/** Queries that a call of additive() takes at most: where they see the same keys, these have their values loaded once.
 */
#define NN_ADDITIVE_ROWS 4

/** Keys of a step of the online softmax of additive scores at most; ATTN_KEY_BLOCK is a multiple of it. */
#define NN_ADDITIVE_STEP 64

/** Floats that have room for a vector of any set. */
#define NN_ADDITIVE_LANES (ATTN_ALIGN / (int)sizeof(float))

/** A query of additive attention while blocks of keys pass by. */
struct nn_additive_query {
    const float *q; /**< [channels] W_q q */
    float *o;       /**< [values] sums of weighted values, in units of 2^m */
    float m;        /**< the largest score so far, base 2; -inf: none */
    float *l;   /**< [NN_ADDITIVE_LANES] sums of the weights in units of 2^m, as many as there are lanes, and zeros */
    int lo, hi; /**< keys of the block outside of which it sees none; lo == hi: it sees none */
    const float
        *bias;     /**< [ATTN_KEY_BLOCK] what is added to scores, base 2; -inf hides. NULL: it sees all of lo..hi-1 */
    float *scores; /**< where scores of the block's keys are kept, NULL: nowhere */
    ptrdiff_t score_stride;
};

/**
 * e^2x of the channels x of projected keys and queries: tanh(a + b) is 1 - 2 / (1 + e^2a e^2b), so that queries share
 * the exponentials of a key. Rows of which a channel is larger than TANH_TAME (simd/tanh_polynomial.h) are wild and
 * have none.
 */
struct nn_additive_exps {
    float *k;        /**< [ATTN_KEY_BLOCK][pitch] */
    float *q;        /**< [NN_ADDITIVE_ROWS][pitch] */
    float *size;     /**< [ATTN_KEY_BLOCK] of the largest channel of a key */
    ptrdiff_t pitch; /**< channels, up to whole vectors */
    int from, end;   /**< keys of the block that have been looked at; the caller sets both to 0 for a new block */
};

/** Some queries of additive attention and a block of up to ATTN_KEY_BLOCK keys (kernels/additive.h). */
struct nn_additive_work {
    struct nn_additive_query *queries;
    int num_queries;          /**< up to NN_ADDITIVE_ROWS */
    struct attn_rows k;       /**< W_k k + b, from the first key of the block on; f32, bf16 or f16, as v */
    struct attn_rows v;       /**< values */
    const float *score;       /**< [channels] the vector v of the score, in base 2: times log2(e) / temperature */
    int64_t channels, values; /**< of a projected key, of a value */
    struct nn_additive_exps *exps;
};

/** The row of a query that all its keys have passed (kernels/additive_finish.h). */
struct nn_additive_result {
    const struct nn_additive_query *query;
    void *out; /**< [values] */
    attn_dtype dtype;
    int64_t values;
    float *lse;     /**< NULL: not wanted */
    float *weights; /**< scores of the live keys, -inf: hidden, replaced by weights; NULL: not wanted */
    ptrdiff_t weight_stride;
    int64_t keys, keys_before, keys_after; /**< live ones, and padding around them, where weights are 0 */
};

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

/** One row of the backward pass of an LSTM's cell (kernels/cell_backward.h): [n] floats, unless it says more. */
struct nn_cell_gradient_work {
    /** [4][n]. lstm_gates(): their sums without bias, replaced by the gates; lstm_cell_backward(): these, replaced by
     * the gradients of the sums. */
    float *gates;
    const float *bias;      /**< [4][n], for lstm_gates() */
    const float *c_before;  /**< c of the step before */
    float *c;               /**< written by lstm_gates() */
    struct nn_vector d_out; /**< of the layer above; data NULL: zeros */
    const float *d_h;       /**< the gradient of h that the step behind gives */
    float *d_c;             /**< that of c, replaced by what this step gives to the one before */
    int64_t n;
};

/** One row of the backward pass of a GRU's cell (kernels/cell_backward.h). */
struct nn_gru_gradient_work {
    float *x, *h;                 /**< [3][n] sums of the gates without biases, replaced by their gradients */
    const float *bias_x, *bias_h; /**< [3][n] */
    const float *state;           /**< [n] h before the step */
    float *d_state; /**< [n] the gradient of h behind it, replaced by what goes past the gates to that before it */
    int64_t n;
};

/** What the softmax of a query's scores has found: the largest, the sum of exp(score - top), and sum_j p_j d_p_j. */
struct nn_additive_row {
    float top;
    double sum, mean;
};

/** The backward pass of additive attention for one query (kernels/additive_backward.h), by its steps. */
struct nn_additive_gradient_work {
    struct nn_rows k;    /**< W_k k of each key, and b unless it is in bias; read in the first step alone */
    struct nn_rows x;    /**< the values */
    const int64_t *live; /**< [keys] which rows of these the keys are; NULL: 0, 1, 2, ... */
    const float *bias;   /**< [inner] what the query adds: W_q q, for a pool b */
    const float *v;      /**< [inner] the vector of the score, by the temperature */
    const float *d_out;  /**< [channels] */
    float *u;            /**< [keys][inner] for tanh, then for gradients before it; without live it may be k */
    float *p, *d_s;      /**< [keys] what masks add to scores, then weights; gradients of scores */
    struct nn_additive_row *row;
    int is_known;        /**< row is; else the first step writes it */
    float *d_bias, *d_v; /**< [inner] sums over these keys, written by the second step; NULL: not wanted */
    float v_scale;       /**< of d_v: one over the temperature */
    struct nn_rows d_k;  /**< added to by the third step; data NULL: not wanted */
    struct nn_rows d_x;  /**< likewise; without adds_to_x it is written, and may be x */
    int adds_to_x;
    int64_t keys, inner, channels;
};

/** A row of logits, its targets, and where its gradient goes. */
struct nn_loss_work {
    const void *x;
    attn_dtype dtype, out_dtype; /**< without out the same */
    int64_t n;                   /**< classes, 1 or more */
    int64_t label;
    double other, more; /**< the target of each class; what that of the label is more */
    double factor;      /**< of the gradient */
    void *out;          /**< the gradient; may be x, if of one type; NULL: not wanted */
};

/**
 * The kernels of an instruction set. A set that extends another one has the products that it brings, and NULL for all
 * else.
 */
struct attn_nn_kernels {
    int lanes;                                               /**< floats in a vector */
    int panel_vectors;                                       /**< vectors in a full panel of a linear layer */
    void (*linear)(const struct nn_linear_work *work);       /**< of floats: all kinds of panels but quads */
    void (*linear_pairs)(const struct nn_linear_work *work); /**< of pairs of bf16; NULL: linear() with round_x */
    void (*linear_int8)(const struct nn_linear_work *work);  /**< of integers: quads and nibbles */
    void (*quantize)(const struct nn_quantize_work *work);   /**< for linear_int8() */
    int32_t int8_offset;                                     /**< of quads */
    void (*finish)(const struct nn_linear_work *work, int64_t first, int64_t rows, float *sums);
    void (*normalise)(const struct nn_row_work *work);
    void (*activate)(const struct nn_row_work *work);
    void (*gate)(const struct nn_row_work *work);
    void (*embed)(const struct nn_embed_work *work);
    void (*drop)(const struct nn_drop_work *work);
    void (*normalise_backward)(const struct nn_gradient_work *work);
    void (*activate_backward)(const struct nn_gradient_work *work);
    void (*gate_backward)(const struct nn_gradient_work *work);
    void (*additive)(const struct nn_additive_work *work);
    /** Joins the sums of a split to those of the splits before it. */
    void (*additive_join)(const struct nn_additive_query *next, int64_t values, struct nn_additive_query *query);
    void (*additive_finish)(const struct nn_additive_result *result);
    double (*cross_entropy)(const struct nn_loss_work *work); /**< the loss of the row */
    void (*lstm_cell)(const struct nn_cell_work *work);
    void (*gru_cell)(const struct nn_cell_work *work);
    void (*lstm_gates)(const struct nn_cell_gradient_work *work);
    void (*lstm_cell_backward)(const struct nn_cell_gradient_work *work);
    void (*gru_cell_backward)(const struct nn_gru_gradient_work *work);
    void (*additive_scores_backward)(const struct nn_additive_gradient_work *work);
    void (*additive_projections_backward)(const struct nn_additive_gradient_work *work);
    void (*additive_keys_backward)(const struct nn_additive_gradient_work *work);
};

/** The kernels for attn_isa_active(). */
const struct attn_nn_kernels *attn_nn_kernels_active(void);

/** What a linear layer uses. */
struct nn_products {
    const char *isa;                      /**< whose products they are */
    const struct attn_nn_kernels *base;   /**< lanes, finish(), linear() */
    const struct attn_nn_kernels *extend; /**< the products that are asked for; base, or a set that extends it */
};

/**
 * The kernels for a layer. isa NULL: those for attn_isa_active(), with products of pairs if that is a set of them, and
 * with the best ones of int8 that extend it, or its base where groups of inputs have scales. Else the set of that name,
 * and what it extends. Returns 0 if there is no such set, -1 if this processor does not run it.
 */
int attn_nn_products_choose(struct nn_products *products, const char *isa, attn_multiply multiply, int grouped);

/** Writes the names for attn_nn_products_choose() to a buffer: "one, two or three". */
void attn_nn_isa_list(char *buffer, size_t size);

#endif
