/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver hands to a pass: one block of queries of one head against
 * all live keys of its sequence.
 */
#ifndef ATTN_WORK_H
#define ATTN_WORK_H

#include "pass/scratch.h"

#include <stdatomic.h>

/** Strips of queries that one work item may have. */
#define ATTN_MAX_STRIPS 64

/** Further than any key can be from any query, and far from overflow: no limit. */
#define ATTN_FAR (INT64_MAX / 8)

/**
 * The labels of blocks of keys: their smallest and largest, and those of 8, 64,
 * ... blocks. So the next block that holds a label is found without a look at
 * every one (struct attn_view, labels).
 */
struct attn_label_range {
    int32_t smallest, largest;
};

/** What tasks have found at scales that nobody has looked at before. */
struct attn_looks {
    atomic_llong rows; /**< of k and v that have been looked at, */
    atomic_int wrong;  /**< of which one has a scale that is not finite */
};

/** Levels of blocks of blocks: 8 to the power of these times a block is more than there can be keys. */
#define ATTN_LABEL_LEVELS 12

/**
 * What hides keys from queries by their indices alone. Rows of the block of
 * queries are tokens of heads: row r is head r % heads of token t = r / heads. Token t
 * stands at position + t, key j at j; all counts are from the first live key.
 * The pointers are to the entries of token 0, or of key 0. Limits that no token
 * or key reaches are at ATTN_FAR, of either sign.
 */
struct attn_view {
    int64_t heads; /**< rows of a token: query heads that share the key head; 1: a row is a token */
    int64_t position;
    int64_t diagonal;                 /**< token t does not see the keys j > t + diagonal ... */
    int64_t prefix;                   /**< ... except for j < prefix */
    int64_t window_first;             /**< token t does not see the keys before t + window_first ... */
    int64_t window_last;              /**< ... or behind t + window_last ... */
    int64_t first_tokens;             /**< ... except for j < first_tokens */
    const int64_t *global;            /**< ... and for keys and tokens at these positions, which rise */
    int64_t num_global, global_shift; /**< position g of the list is key g - global_shift */
    int64_t pattern_size;             /**< tokens along a side of a pattern's blocks; 0: no pattern */
    int64_t pattern_row;              /**< tokens of the sequence before row 0; with a pattern heads is 1 */
    int64_t pattern_shift;            /**< key 0 is that many keys behind the start of its column */
    const int64_t *pattern_offsets;   /**< of the head */
    const int32_t *pattern_columns;
    const int32_t *q_labels, *k_labels;                             /**< of documents; NULL: none */
    const struct attn_label_range *label_levels[ATTN_LABEL_LEVELS]; /**< of the key blocks; unused ones are NULL */
    int64_t label_block;                                            /**< keys of a block of level 0 */
    const uint64_t *tree;                                           /**< [tokens][tree_words] NULL: no tree */
    int64_t tree_words, tree_first;                                 /**< bit 0 stands for key tree_first */
};

/** Biases that follow from the distance between query and key. */
struct attn_distance_bias {
    const float *slopes; /**< [heads of the view] of ALiBi, NULL: none */
    attn_buckets kind;
    int64_t buckets, max_distance;
    const float *table; /**< [heads of the view][buckets], NULL: none */
};

/** DeBERTa's terms. data NULL: absent. */
struct attn_relative_rows {
    struct attn_rows k, q; /**< [2 * span] f32 */
    int64_t span;
    attn_delta delta; /**< which way the distance counts for a row of q; for k it is query minus key */
};

/** Rows of cosines and sines for the tokens of q, of each head, and the rows of k. data NULL: no rotation. */
struct attn_rope_rows {
    struct attn_rows q, k; /**< f32 */
    int64_t pairs;
    attn_rope_layout layout;
};

/** From page to page of K or V. */
struct attn_page_step {
    ptrdiff_t bytes;
    ptrdiff_t scales; /**< of quantised rows: floats */
};

/** Where rows of K and V lie that are in pages. size 0: they are not, row j is at j. */
struct attn_pages {
    const int32_t *table; /**< of the sequence; entries of pages that no query sees may be anything */
    int64_t size;         /**< rows of a page */
    int64_t count;        /**< pages there are */
    int64_t first;        /**< rows of the first page before key 0 */
    struct attn_page_step k_step, v_step;
};

/** From head to head of a token, where heads are together. */
struct attn_head_steps {
    ptrdiff_t q, out, rope_q; /**< bytes */
    ptrdiff_t lse, mask;      /**< elements; mask: of the additive one, too */
};

/**
 * One block of queries of one (batch, head), or of some heads that share a key
 * head, against all live keys of that sequence. Rows are those of struct
 * attn_view: what has a row for each query says where head 0 of token 0 is, and
 * how far the next token; head_step says how far the next head. Key 0 is the
 * first live key: the driver has moved k, v, the masks and the weights there, so
 * that padding on the left changes no bit.
 */
struct attn_work {
    const struct attn_kernels *kernels;
    struct attn_rows q, k, v, out; /**< k and v in pages: rows of page 0 */
    struct attn_pages pages;
    int64_t num_queries, num_keys;
    int64_t known_keys; /**< of these, the first that the last query of the call sees, 0 if that takes more than
                           causality: no garbage there */
    int dk, dv;
    int far;            /**< rows of q, the first ones of k, and those of out come from memory, and are asked for */
    int free_sums;      /**< the queries are one strip of few, K is read in place or has been packed for all alike, and
                           scores_free() adds */
    float scale;        /**< multiplies q·k; base 2: the user's scale times log2(e) */
    float softcap;      /**< 0: none; natural units */
    const float *sinks; /**< [heads of the view] a logit without a value, -inf: none; natural units. NULL: none at
                           all */
    struct attn_view view;
    struct attn_head_steps head_step;
    struct attn_distance_bias distance_bias;
    struct attn_relative_rows relative;
    struct attn_rope_rows rope;
    struct attn_drop drop; /**< batch, head, and for row 0 query_index, for key 0 first: as the caller counts */
    attn_score_callback *callback;
    void *callback_user;
    attn_weight_callback *weight_callback;
    void *weight_callback_user;
    int gathers;           /**< global queries may have a strip of their own: there is scratch for one more */
    int64_t group;         /**< rows that a strip does not reach across the multiples of; 0: strips follow each other */
    struct attn_grid mask; /**< uint8_t, non-zero attends */
    struct attn_grid bias; /**< f32, bf16 or f16, natural units, added to the scaled score */
    float *lse;            /**< NULL when not wanted */
    ptrdiff_t lse_stride;

    /* What follows is of one head: then a row is a token.
     * Softmax rows and scores on request: row weight_rows[i] of the whole query axis (NULL: row i), where this block
     * starts at query first_query, goes to row i of weights, and of scores. */
    struct attn_grid weights, scores; /**< float */
    attn_score_stage score_stage;
    int64_t unmasked_keys; /**< num_keys, and those that a mask hides by ending before them */
    const int64_t *weight_rows;
    int64_t num_weight_rows, first_query;
    int64_t keys_before, keys_after; /**< padding around the live keys, where weights are 0 */

    /* Sum of the weights over the queries of this block is added here. NULL when not wanted. */
    float *key_sums;
    ptrdiff_t key_sums_stride;

    /* Splits of the keys: all of them and the results, or one part of parts and what each split gives, in the order of
     * those that the block sees. The last pass of such a block, attn_join_pass(), finds it there. */
    int64_t part, parts; /**< parts 0: all */
    char *partials;      /**< a partial for each split: m, l and o of the strips */
    size_t partial_size; /**< attn_partial_size() bytes */

    /* Keys that sequences share (attn_sums_row()): of a block without sums_keys the sums are left in sums, and nothing
     * else; a block with them goes on from there. Every query sees all these keys. */
    float *sums;       /**< [num_queries] rows; NULL: none */
    int64_t sums_keys; /**< a multiple of a block of keys, less than any query sees */

    struct attn_looks
        *looks; /**< few queries and ATTN_I4: what is found goes there; NULL: scales have been looked at */

    const struct attn_scratch_shape *shape; /**< of scratch: of as many strips at least */
    void *scratch;                          /**< ATTN_ALIGN-aligned, as many bytes as attn_scratch_layout() says */
};

/** Floats of a row of sums: m, l and o of all splits that have ended, and of the one that goes on. */
static inline int64_t attn_sums_row(int64_t dv)
{
    return 2 * (2 + dv);
}

/** Rows of a strip: groups are cut into equal strips of whole vectors. group 0: strips follow each other. */
static inline int64_t attn_strip_rows(int64_t strip, int64_t lanes, int64_t group)
{
    if (group == 0)
        return strip;
    const int64_t pieces = (group + strip - 1) / strip, rows = (group + pieces - 1) / pieces;
    return (rows + lanes - 1) / lanes * lanes;
}

/** Strips of a group. */
static inline int64_t attn_group_strips(int64_t strip, int64_t lanes, int64_t group)
{
    const int64_t rows = attn_strip_rows(strip, lanes, group);
    return group == 0 ? 1 : (group + rows - 1) / rows;
}

/** Strips that num_queries rows have. */
static inline int64_t attn_num_strips(int64_t strip, int64_t lanes, int64_t group, int64_t num_queries)
{
    const int64_t rows = attn_strip_rows(strip, lanes, group), whole = group ? num_queries / group : 0;
    const int64_t rest = num_queries - whole * group;
    return whole * attn_group_strips(strip, lanes, group) + (rest + rows - 1) / rows;
}

/** Attention of one block of queries: out, and what else is asked for; or a part of it; or sums alone. */
void attn_forward_pass(const struct attn_work *work);

/** Joins what the parts of a block of queries have left, and writes out and lse. */
void attn_join_pass(const struct attn_work *work);

#endif
