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
    float *relative_dk; /**< [keys of a task][dk] what rows of rel_q give to a head's dK */
    float *key_ends;    /**< [2][keys of a task] of struct attn_relative_sums */
    float *skewed;      /**< [attn_skewed_size()] a tile with distances along an axis */
    uint8_t *seen;      /**< the same: what is seen of it */
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
    int relative; /**< there are terms by distance */
};

/** Keys that are skewed at once where distances take the place of queries: each has but a strip of them. */
#define ATTN_SKEWED_KEYS 16

/** From row to row of a skewed tile that has distances for lanes. */
static inline int64_t attn_skewed_pitch(int64_t strip)
{
    return strip + ATTN_SKEWED_KEYS;
}

/** Elements of a skewed tile, whichever axis it is. */
static inline int64_t attn_skewed_size(int64_t strip, int64_t key_block)
{
    return (strip + key_block + ATTN_SKEWED_KEYS) * attn_skewed_pitch(strip);
}

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

/**
 * Sums of the terms by distance; NULL: not wanted. An end is the sum of the gradients of scores of a query, or of a
 * key, over the pairs whose distance has the table's first row, [0], or its last one, [1].
 */
struct attn_relative_sums {
    float *dq;              /**< like that of the block, of rows of rel_k but for its first and its last */
    float *keys;            /**< [keys of the task][dk] the same of one head's dK and of rel_q */
    float *query_ends[2];   /**< [queries of the block] of rel_k */
    float *key_ends[2];     /**< [keys of the task] of rel_q */
    float *k_rows, *q_rows; /**< [2 * span][dk] of rows of rel_k and rel_q but for their first and last */
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
    struct attn_relative_sums relative; /**< with rows of tables: instead of dq, dk and dv, too */
};

/** Whether a block's pass is for tables of rows alone. */
static inline int attn_sums_rows(const struct attn_gradient_block *block)
{
    return block->relative.k_rows || block->relative.q_rows;
}

/** Where the sums of dQ of strip number i of a block begin, whose first query is first. */
static inline ptrdiff_t attn_strip_sums(const struct attn_work *work, const struct attn_gradient_block *block,
                                        int64_t first, int64_t i)
{
    return (ptrdiff_t)(block->dq_strip ? i * block->dq_strip
                                       : first * attn_value_channels(work->kernels->values, work->dk));
}

/** Whether nothing has been added to a row: then what it is multiplied by may be anything. */
static inline int attn_is_zero(const float *row, int64_t channels)
{
    int64_t c = 0;
    while (c < channels && row[c] == 0.0f)
        c++;
    return c == channels;
}

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

/** What an end holds as long as no pair that is seen has come to it: -0, which no sum that has begun is. */
#define ATTN_NO_PAIR (-0.0f)

/** A unit and what it meets. */
struct attn_relative_unit {
    const float *ds;    /**< [keys][lanes] gradients of its scores behind softcap, 0 where hidden */
    int64_t first, at;  /**< its first key, counted from the first live one, and from the task's first */
    float *dq;          /**< the strip's sums of rows of rel_k; NULL: not wanted */
    struct attn_rows q; /**< rows of the strip in f32, where rows of rel_k are wanted */
    const char *k;      /**< the first key's row in f32 */
    ptrdiff_t k_stride;
    int q_finite, k_finite;
    const struct attn_gradient_scratch *scratch;
};

/** Adds what the terms by distance get of a unit. */
void attn_add_relative_gradients(const struct pass *pass, const struct unit *unit, const struct attn_relative_unit *x,
                                 const struct attn_relative_sums *sums);

/** Ends first..first+n-1 before anything has come to them. */
void attn_clear_ends(float *const ends[2], int64_t first, int64_t n);

/** Adds the sums of a strip of so many queries from query first on, relative and ends, to those that it has of keys. */
void attn_join_relative_queries(const struct attn_work *work, int64_t first, int rows, int width,
                                const struct attn_relative_sums *sums, const float *relative, float *dq);

/**
 * Adds what a head's queries have given to keys by way of rel_q, times the factor of the head, to dk (NULL: not
 * wanted). dots[j] (NULL: not wanted) becomes the product of key j and these sums, which have their ends then.
 */
void attn_join_relative_keys(const struct attn_work *work, const struct attn_gradient_keys *keys,
                             const struct attn_relative_sums *sums, float factor, float *dk, float *dots);

/** Adds n rows of Q, or of K, times their ends, to the first and the last row of sums. row: memory for one, if rows are
 * not f32. */
void attn_add_ends_to_rows(const struct attn_work *work, const struct attn_rows *rows, int64_t n, float *const ends[2],
                           float *row, float *sums);

/** Writes n rows of dk or dv from sums, times a factor; turned back by the rows of a table, from key first on, if it
 * has data. */
void attn_key_gradients(const struct attn_work *work, const struct attn_rows *table, int64_t first, int64_t n,
                        float *sums, int64_t channels, float factor, const struct attn_gradient_scratch *scratch,
                        const struct attn_rows *rows);

#endif
