/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a pass divides its scratch memory. One function computes both the size
 * (base NULL) and the pointers, so that the two cannot disagree.
 *
 * What is kept of a strip has its queries contiguous in each row ("lanes are
 * queries"); a strip's part starts at a multiple of its full width.
 */
#ifndef ATTN_SCRATCH_H
#define ATTN_SCRATCH_H

#include "kernels/kernels.h"

/** Blocks of keys that may be there at once. */
#define ATTN_MAX_STRETCH 32

/** What the sizes follow from. Rows are counted in words of 4 bytes. */
struct attn_scratch_shape {
    int64_t strips, strip, lanes, key_block, dk, dv;
    int64_t channel_words;          /**< in a row of Q or K */
    int64_t value_channels;         /**< rows of o, words in a row of V */
    int64_t blocks;                 /**< of keys that are there at once */
    int walks;                      /**< over several of them without a pause */
    int joins;                      /**< there may be several splits of the keys */
    int64_t key_words;              /**< in a block of keys */
    int copies_keys, copies_values; /**< blocks of K, V are not read where they lie */
    int int8, raw;                  /**< of the scores */
    int int4;                       /**< exact pairs of ATTN_I4: queries in the order of its numbers */
    int64_t zero_row;               /**< attn_zero_row_size() of quantised values; 0: of others */
    int rotates, relative;          /**< rope, disentangled terms */
    int64_t piece_k, piece_v;       /**< bytes of rows in pages, brought together */
    int64_t piece_scales;           /**< and their scales */
};

/** Bytes of zeros that stand for a row of V, and for its scales, whatever it is quantised to. */
static inline int64_t attn_zero_row_size(int64_t dv)
{
    return attn_groups_of(dv) * ATTN_I4_GROUP;
}

struct attn_scratch {
    float *q;               /**< [strips][words of dk][strip] queries, transposed */
    float *o;               /**< [strips][dv][strip] output, transposed, not yet normalised */
    float *m;               /**< [strips][strip] running maximum, base 2 */
    float *l;               /**< [strips][strip] running sum */
    float *next_o;          /**< like o, [1 or strips]: of a split of the keys that is joined to o; NULL: none is */
    float *next_m, *next_l; /**< like m and l, the same */
    float *factor;          /**< [strips][strip] what raw scores are multiplied by; NULL: they come whole */
    float *s;               /**< [key_block][strip] scores, then words of weights */
    float *p;               /**< [words of key_block][strip] words of weights where blocks are walked over */
    float *reach;           /**< [strips][strip] bounds of the queries' scores for that; NULL: none */
    float *validity;        /**< [strips][strip] of int8 scores: 1, or NaN; NULL: all 1 */
    float *shift;           /**< [strips][strip] of int8 scores: what they have lost, base 2; NULL: nothing */
    struct attn_int8_memory int8; /**< of int8 scores */
    float *k_scale;               /**< [blocks * key_block] of int8 scores: the step of each key */
    int32_t *k_start;             /**< [blocks * key_block] of int8 scores: where the sum of each key starts */
    float *k;                     /**< [blocks][key_block][words of dk] blocks of K; NULL when read in place */
    float *v;                     /**< [blocks][words of key_block][dv] blocks of V; NULL when read in place */
    float *bias;                  /**< [key_block][strip] additive mask of one tile, base 2 */
    float *distances;             /**< [strip + key_block] biases by distance of one tile, base 2 */
    float *rotated;               /**< [lanes][dk] rotated rows of Q or K */
    float *relative_rows;         /**< [strip][dk] rows of a table, by distance */
    float *relative_q;            /**< [dk][strip] the same as queries, transposed */
    float *relative_s;            /**< [strip + key_block][strip] their scores */
    char *piece_k;       /**< [blocks, or 1 if they are made into words at once][key_block][dk] elements of K in
                            pages */
    char *piece_v;       /**< [key_block][dv] the same of V */
    float *piece_scales; /**< [key_block][of a row] the scales of such rows of K until they are words, then of V */
    char *zero_row;      /**< [attn_zero_row_size()] what stands for a quantised row of V that is not seen */
    int key_block;       /**< keys of a block */
    int blocks;          /**< of keys that are there at once */
    int next_strips;     /**< strips that next_o, next_m and next_l have room for */
    uint8_t *live;       /**< [key_block][attn_live_pitch(strip)] boolean mask of one tile */
};

/** The next count elements of size bytes each of a thread's memory, of which so much is used; NULL while only the size
 * is wanted (base NULL). */
static inline void *attn_take(char *base, size_t *used, int64_t count, size_t size)
{
    void *taken = base ? base + *used : NULL;
    *used += attn_aligned((size_t)count * size);
    return taken;
}

/** Bytes from key to key of a staged boolean mask: whole blocks of 16 x 16. */
static inline ptrdiff_t attn_live_pitch(int64_t strip)
{
    return (ptrdiff_t)((strip + 15) / 16 * 16);
}

/**
 * K is read where it lies if it consists of the words that the tiles multiply, and so is V. The block of keys follows
 * from the kernels, head sizes, types and rotation alone, as its size shapes the bits of the result. keys: how many a
 * sequence has at most. paged: rows of a block may lie in several pages.
 */
struct attn_scratch_shape attn_scratch_shape_of(const struct attn_kernels *kernels, int64_t strips, int64_t dk,
                                                int64_t dv, int64_t keys, attn_dtype k, attn_dtype v, int rotates,
                                                int relative, int paged);

/** Bytes that hold what a split of the keys has given to a block of queries, whose strips have so many lanes at most: a
 * multiple of ATTN_ALIGN for each strip. */
size_t attn_partial_size(const struct attn_scratch_shape *shape, int64_t lanes);

/** Fills in the pointers (base NULL: none) and returns the size. */
size_t attn_scratch_layout(struct attn_scratch *scratch, void *base, const struct attn_scratch_shape *shape);

#endif
