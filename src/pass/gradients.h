/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backward pass over a block of queries and some keys, and the ends of its
 * sums. What a block of queries is, which keys its rows see and how scores are
 * made is what the forward pass says (pass/work.h).
 */
#ifndef ATTN_PASS_GRADIENTS_H
#define ATTN_PASS_GRADIENTS_H

#include "pass/work.h"

/** A thread's working memory beside that of struct attn_scratch; NULL: not wanted. */
struct attn_gradient_scratch {
    float *dp;      /**< [key_block][strip] gradients of weights, then of scores */
    float *kept;    /**< [key_block][strip] weights of the softmax where dropout clears some */
    float *capped;  /**< [key_block][strip] scores behind softcap */
    float *dout;    /**< [words of dv][strip] rows of dO, transposed */
    float *q_rows;  /**< [strip][dk] rows of Q as floats, turned and scaled */
    float *do_rows; /**< [strip][dv] rows of dO as floats */
    float *table;   /**< [2 * pairs] a row of cosines and sines */
    float *dk, *dv; /**< [keys of a task][channels] */
};

/** What the sizes follow from. */
struct attn_gradient_shape {
    int64_t strip, key_block, keys; /**< keys: of a task */
    int64_t dk, dv, pairs;          /**< pairs: of rope */
    int drops, caps, copies_q, copies_dout;
};

/** Fills in the pointers (base NULL: none) and returns the size, a multiple of ATTN_ALIGN. */
size_t attn_gradient_layout(struct attn_gradient_scratch *scratch, void *base, const struct attn_gradient_shape *shape);

/** A block of queries in the backward pass. */
struct attn_gradient_block {
    struct attn_rows dout; /**< rows of dO */
    const float *delta;    /**< [queries] rowsum(dO * O) less the gradient of lse */
    float *dq;             /**< its sums, strip by strip in lane order; NULL: not wanted */
    int64_t dq_strip;      /**< floats from strip to strip where strips are not full; 0: they are */
    int64_t first, end;    /**< keys, counted from the first live one */
    float factor;          /**< of the head: what rows of Q are multiplied by in dK */
    const struct attn_gradient_scratch *scratch; /**< dk or dv NULL: not wanted */
};

/**
 * Adds what the block's queries and keys first..end-1 give to dq, dk and dv. work->lse is read. Rows of dk and dv are
 * those of key first on, of dq in the lanes of strips; all of them are still to be multiplied by the scale, dv by that
 * of dropout.
 */
void attn_gradient_pass(const struct attn_work *work, const struct attn_gradient_block *block);

/** delta[i] = rowsum(dO * O) of the block's queries, 0 of those that have no live key; dlse (NULL: 0) taken away. */
void attn_delta_pass(const struct attn_work *work, const struct attn_rows *dout, const float *dlse,
                     ptrdiff_t dlse_stride, float *delta);

/** Writes the block's rows of dq from its sums, times a factor; turned back where q was turned. */
void attn_query_gradients(const struct attn_work *work, const struct attn_gradient_block *block,
                          const struct attn_rows *dq, float factor);

/** Writes n rows of dk or dv from sums, times a factor; turned back by the rows of a table, from key first on, if it
 * has data. */
void attn_key_gradients(const struct attn_work *work, const struct attn_rows *table, int64_t first, int64_t n,
                        float *sums, int64_t channels, float factor, const struct attn_gradient_scratch *scratch,
                        const struct attn_rows *rows);

#endif
