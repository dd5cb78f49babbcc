/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backward pass over a block of queries and some keys, and the ends of its
 * sums. What a block of queries is, which keys its rows see and how scores are
 * made is what the forward pass says (pass/work.h).
 */
#ifndef ATTN_PASS_GRADIENTS_H
#define ATTN_PASS_GRADIENTS_H

#include "attn/backward.h"
#include "pass/work.h"

struct pass;
struct unit;

/** A thread's working memory beside that of struct attn_scratch; NULL: not wanted. */
struct attn_gradient_scratch {
    float *dp;          /**< [key_block][strip] gradients of weights, then of scores */
    float *kept;        /**< [key_block][strip] weights of the softmax where dropout clears some */
    float *capped;      /**< [key_block][strip] scores behind softcap */
    float *called;      /**< [key_block][strip] scores that a callback is given */
    uint16_t *by_query; /**< [key_block][strip] a tile as words of queries, where these are no floats */
    float *dout;        /**< [words of dv][strip] rows of dO, transposed */
    float *q_rows;      /**< [words of strip][dk_sums] rows of Q, turned and scaled */
    float *do_rows;     /**< [words of strip][dv_sums] rows of dO */
    float *table;       /**< [2 * pairs] a row of cosines and sines */
    float *k, *v;       /**< [keys of a task][words of dk, dv] rows of K and V as words of channels */
    float *k_sums;      /**< [words of keys of a task][dq_channels] rows of K as words of keys */
    float *dk, *dv;     /**< [keys of a task][dk_sums, dv_sums] */
};

/** What the sizes follow from. */
struct attn_gradient_shape {
    int64_t strip, key_block, keys; /**< keys: of a task */
    int64_t dk, dv, pairs;          /**< pairs: of rope */
    int64_t k_words, v_words;       /**< of rows of K and V */
    int64_t query_words;            /**< of queries of a strip */
    int64_t dk_sums, dv_sums;       /**< floats in rows of sums over queries, words in rows of words of queries */
    int64_t dq_channels;            /**< rows of a strip's dq, words in rows of K as words of keys */
    int per_word;                   /**< queries or keys in a word */
    int drops, caps, calls_back, copies_q, copies_dout, copies_k, copies_v;
};

/** Fills in the pointers (base NULL: none) and returns the size, a multiple of ATTN_ALIGN. */
size_t attn_gradient_layout(struct attn_gradient_scratch *scratch, void *base, const struct attn_gradient_shape *shape);

/** The keys of a task, as words. */
struct attn_gradient_keys {
    int64_t first, end;       /**< counted from the first live one */
    const char *k, *v, *sums; /**< row first of K and V as words of channels, and of K as words of keys */
    ptrdiff_t k_stride, v_stride, sums_stride;
    int finite; /**< whether no element of K is NaN or Inf; -1: not looked at yet */
};

/** The keys from first to end - 1, made ready for all blocks of queries of a key head; work is one of them. */
struct attn_gradient_keys attn_gradient_keys_of(const struct attn_work *work, int64_t first, int64_t end,
                                                const struct attn_gradient_scratch *scratch);

/** Gradients of what is added to scores, of which tiles become part one after the other. */
struct attn_bias_gradients {
    int distances;         /**< slope and table are wanted */
    double slope;          /**< of ALiBi */
    double *table;         /**< [buckets] NULL: not wanted */
    struct attn_grid mask; /**< floats, from the block's first query and the first live key on; data NULL: not wanted */
};

/** A block of queries in the backward pass. */
struct attn_gradient_block {
    struct attn_rows dout; /**< rows of dO */
    const float *delta;    /**< [queries] rowsum(dO * O) less the gradient of lse */
    float *dq;             /**< its sums, strip by strip in lane order; NULL: not wanted */
    int64_t dq_strip;      /**< floats from strip to strip where strips are not full; 0: they are */
    float factor;          /**< of the head: what rows of Q are multiplied by in dK */
    const struct attn_gradient_scratch *scratch; /**< dk or dv NULL: not wanted */
    attn_score_gradient_callback *callback;      /**< the partner of the forward call's; NULL without one */
    void *callback_user;
    struct attn_bias_gradients *biases; /**< instead of dq, dk and dv; NULL: these */
};

/**
 * Adds what a block of queries and some keys give to dq, dk and dv. work->lse is read. Rows of dk and dv are those of
 * the keys, of dq in the lanes of strips; all of them are still to be multiplied by the scale, dv by that of dropout.
 */
void attn_gradient_pass(const struct attn_work *work, const struct attn_gradient_block *block,
                        struct attn_gradient_keys *keys);

/** delta[i] = rowsum(dO * O) of the block's queries, 0 of those that have no live key; dlse (NULL: 0) taken away. */
void attn_delta_pass(const struct attn_work *work, const struct attn_rows *dout, const float *dlse,
                     ptrdiff_t dlse_stride, float *delta);

/** Writes the block's rows of dq (data NULL: not wanted) from its sums, times a factor; turned back where q was turned.
 * dots[i] (NULL: not wanted) becomes the product of row i of q and that of the sums. */
void attn_query_gradients(const struct attn_work *work, const struct attn_gradient_block *block,
                          const struct attn_rows *dq, float factor, float *dots);

/** Adds a unit's gradients of scores, before softcap has a part in them, to those of biases. first: its first key. */
void attn_add_bias_gradients(const struct pass *pass, const struct unit *unit, int64_t first, const float *ds,
                             struct attn_bias_gradients *biases);

/** Writes n rows of dk or dv from sums, times a factor; turned back by the rows of a table, from key first on, if it
 * has data. */
void attn_key_gradients(const struct attn_work *work, const struct attn_rows *table, int64_t first, int64_t n,
                        float *sums, int64_t channels, float factor, const struct attn_gradient_scratch *scratch,
                        const struct attn_rows *rows);

#endif
