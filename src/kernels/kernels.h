/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver hands to a kernel, and the table that a kernel set exports.
 *
 * A kernel computes one work item on the pointers it is given. It allocates
 * nothing, starts no threads and returns no errors: the api layer has checked
 * everything, and what a kernel relies on it asserts.
 */
#ifndef ATTN_KERNELS_H
#define ATTN_KERNELS_H

#include "attn/attn.h"

#include <stddef.h>
#include <stdint.h>

/** Alignment of scratch memory: a cache line, and the widest vector. */
#define ATTN_ALIGN 64

/** Strips of queries that one work item may have. */
#define ATTN_MAX_STRIPS 32

/** Further than any key can be from any query, and far from overflow: no limit. */
#define ATTN_FAR (INT64_MAX / 8)

/** A strided matrix of f32, bf16 or f16 whose columns are contiguous. */
struct attn_rows {
    void *data;
    ptrdiff_t stride; /**< in bytes */
    attn_dtype dtype;
};

/** A strided matrix of any element, (query, key). data is NULL when absent. */
struct attn_grid {
    void *data;
    ptrdiff_t query_stride, key_stride; /**< in elements */
    attn_dtype dtype;
};

/**
 * What hides keys from queries by their indices alone. Row r of the block of
 * queries stands at position + r, key j at j; all counts are from the first
 * live key. The pointers are to the entries of row 0, or of key 0. Limits that
 * no row or key reaches are at ATTN_FAR, of either sign.
 */
struct attn_view {
    int64_t position;
    int64_t diagonal;                 /**< row r does not see the keys j > r + diagonal ... */
    int64_t prefix;                   /**< ... except for j < prefix */
    int64_t window_first;             /**< row r does not see the keys before r + window_first ... */
    int64_t window_last;              /**< ... or behind r + window_last ... */
    int64_t first_tokens;             /**< ... except for j < first_tokens */
    const int64_t *global;            /**< ... and for keys and rows at these positions, which rise */
    int64_t num_global, global_shift; /**< position g of the list is key g - global_shift */
    int64_t block_size;               /**< 0: no pattern */
    int64_t block_row;                /**< rows of the sequence before row 0 */
    int64_t block_shift;              /**< key 0 is that many keys behind the start of block column 0 */
    const int64_t *block_offsets;     /**< of the head */
    const int32_t *block_columns;
    const int32_t *q_segments, *k_segments; /**< NULL: no segments */
    const uint64_t *tree;                   /**< [rows][tree_words] NULL: no tree */
    int64_t tree_words, tree_first;         /**< bit 0 stands for key tree_first */
};

/** Biases that follow from the distance between query and key. */
struct attn_distance_bias {
    float slope; /**< of ALiBi, 0: none */
    attn_buckets kind;
    int64_t buckets, max_distance;
    const float *table; /**< [buckets] of the head, NULL: none */
};

/** DeBERTa's terms. data NULL: absent. */
struct attn_relative_rows {
    struct attn_rows k, q; /**< [2 * span] f32 */
    int64_t span;
};

/** Rows of cosines and sines for the rows of q and k. data NULL: no rotation. */
struct attn_rotations {
    struct attn_rows q, k; /**< f32 */
    int64_t pairs;
    attn_rope_layout layout;
};

/** Dropout. */
struct attn_drop {
    int wanted;
    uint32_t key[2];    /**< of Philox4x32-10 */
    uint32_t threshold; /**< a word below it drops the weight */
    float keep_scale;   /**< 1 / (1 - p) */
};

/**
 * One block of queries of one (batch, head) against all live keys of that
 * sequence. Key 0 is the first live key: the driver has moved k, v, the masks
 * and the weights there, so that padding on the left changes no bit.
 */
struct attn_work {
    struct attn_rows q, k, v, out;
    int64_t num_queries, num_keys;
    int64_t known_keys; /**< of these, the first that the last query of the call sees, 0 if that takes more than
                           causality: no garbage there */
    int dk, dv;
    float scale;   /**< multiplies q·k; base 2: the user's scale times log2(e) */
    float softcap; /**< 0: none; natural units */
    float sink;    /**< a logit without a value, -inf: none; natural units */
    struct attn_view view;
    struct attn_distance_bias distance_bias;
    struct attn_relative_rows relative;
    struct attn_rotations rotations;
    struct attn_drop drop;
    attn_score_callback *callback;
    void *callback_user;
    /* Indices as the caller counts them, for dropout and callback. */
    int64_t batch, head, query_index, key_index; /**< of the whole block, of row 0, of key 0 */
    int64_t segment;       /**< rows that a strip does not reach across the multiples of; 0: strips follow each other */
    struct attn_grid mask; /**< uint8_t, non-zero attends */
    struct attn_grid bias; /**< f32, bf16 or f16, natural units, added to the scaled score */
    float *lse;            /**< NULL when not wanted */
    ptrdiff_t lse_stride;

    /* Softmax rows on request: row weight_rows[i] of the whole query axis (NULL: row i), where this block
     * starts at query first_query, goes to row i of weights. */
    struct attn_grid weights; /**< float */
    const int64_t *weight_rows;
    int64_t num_weight_rows, first_query;
    int64_t keys_before, keys_after; /**< padding around the live keys, where weights are 0 */

    /* Sum of the weights over the queries of this block is added here. NULL when not wanted. */
    float *key_sums;
    ptrdiff_t key_sums_stride;

    void *scratch; /**< ATTN_ALIGN-aligned, as many bytes as attn_scratch_layout() says */
};

/** Rows to be turned by a table of cosines and sines: row i of x by row i of the table. */
struct attn_rotation {
    struct attn_rows x, out; /**< out of x's type or f32; the same rows, or rows without a byte in common */
    const float *table;      /**< pairs cosines, then pairs sines */
    ptrdiff_t table_stride;  /**< in floats; 0: one row for all */
    int64_t num_rows;
    int64_t pairs, width; /**< channels behind 2 * pairs are copied */
    attn_rope_layout layout;
};

/**
 * Some rows of a merge (attn_merge()), of all rows in the order batch, head,
 * token. No row has been read or written before; out and lse may lie on a part.
 */
struct attn_merge_work {
    int64_t num_parts;               /**< 1 or more */
    const attn_tensor *parts, *lses; /**< [num_parts] */
    const attn_tensor *out, *lse;    /**< lse: NULL when not wanted */
    int64_t first_row, num_rows;
};

/** One instruction set: its kernels, and their block sizes as data. */
struct attn_kernels {
    attn_isa isa;
    attn_qk qk; /**< how scores are multiplied */
    /* Elements in a word of 32 bits (kernels/words.h). */
    int channels_per_word; /**< of Q and K: 1 f32, 2 bf16, 4 int8 */
    int keys_per_word;     /**< of V and P: 1 f32, 2 bf16 */
    int lanes;             /**< queries of a vector */
    int strip;             /**< queries that one register tile covers */
    int query_block;       /**< queries of a work item, when there are enough of them */
    int key_block;         /**< keys per step of the online softmax; fixed, as it shapes every bit of the result */
    void (*forward[2])(const struct attn_work *work); /**< by attn_exp */
    void (*rotate)(const struct attn_rotation *work);
    void (*merge)(const struct attn_merge_work *work);
    void (*exp2[2])(float *dst, const float *src, int64_t n); /**< by attn_exp: what the kernels use, for tests */
};

/** Rows of a strip: segments are cut into equal strips of whole vectors. */
static inline int64_t attn_strip_rows(int64_t strip, int64_t lanes, int64_t segment)
{
    if (segment == 0)
        return strip;
    const int64_t pieces = (segment + strip - 1) / strip, rows = (segment + pieces - 1) / pieces;
    return (rows + lanes - 1) / lanes * lanes;
}

/** Strips of a segment. */
static inline int64_t attn_segment_strips(int64_t strip, int64_t lanes, int64_t segment)
{
    const int64_t rows = attn_strip_rows(strip, lanes, segment);
    return segment == 0 ? 1 : (segment + rows - 1) / rows;
}

/** Strips that num_queries rows have. */
static inline int64_t attn_num_strips(int64_t strip, int64_t lanes, int64_t segment, int64_t num_queries)
{
    const int64_t rows = attn_strip_rows(strip, lanes, segment), whole = segment ? num_queries / segment : 0;
    const int64_t rest = num_queries - whole * segment;
    return whole * attn_segment_strips(strip, lanes, segment) + (rest + rows - 1) / rows;
}

#endif
