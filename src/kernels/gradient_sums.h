/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of the backward pass that an instruction set exports beside those of
 * kernels.h, which the pass shares with the forward one: sums over queries, and what
 * they are handed.
 */
#ifndef ATTN_GRADIENT_SUMS_H
#define ATTN_GRADIENT_SUMS_H

#include "kernels/kernels.h"

/** Weights of a tile, or gradients of its scores, and the rows of dO or Q that they meet. */
struct attn_row_sums {
    const char *p; /**< [keys] words of queries, pitch bytes apart */
    ptrdiff_t pitch;
    int keys, rows;   /**< rows: queries, the first lanes */
    int64_t diagonal; /**< lane r meets key j when j <= r + diagonal; ATTN_NO_DIAGONAL: all do */
    const char *x;    /**< first word's row */
    ptrdiff_t x_stride;
    int64_t channels;
    float *sum; /**< [keys][channels, attn_sum_channels() of them] */
};

/** A diagonal that hides nothing of a tile. */
#define ATTN_NO_DIAGONAL ((int64_t)1 << 40)

/** How weights become words of queries, and their sums. */
struct attn_gradient_kernels {
    int queries_per_word;
    int word_step; /**< words of queries are a multiple of it, the rest 0: of a row of a tile, and rows of words; 0: any
                      number */
    int channel_step; /**< sums, and words in a row of words of queries, are there for a multiple of it of channels; 0:
                         for those that there are */
    int row_step; /**< rows of a tile of words can be read for a multiple of it of keys; 0: for those that there are */
    int64_t most_channels; /**< of a row of K and one of V together: a thread has room for no more; 0: any number */
    /** n rows of dO or Q, the first queries of a strip, as words of queries. */
    void (*pack_rows)(float *dst, const struct attn_rows *src, int n, int64_t channels);
    /** A tile of n keys by nv vectors, rows lanes of which have a query, rounded: [keys][words of queries], and as
     * words of keys (NULL: not wanted; may be tile), groups of which are whole. NULL: words are floats. */
    void (*round_tile)(int nv, int rows, int n, const float *tile, uint16_t *by_query, float *by_key);
    /** Adds the products; with a word_step those of one step of words at most, in which a strip begins. */
    void (*add_rows)(const struct attn_row_sums *x);
    /** add_rows() for rows that are not all finite: adds to each key only the queries that see it. */
    void (*add_rows_seen)(const struct attn_tile_mask *mask, int nv, const struct attn_row_sums *x);
};

/** Words of queries in a row of a tile of so many lanes, and their rows of words. */
static inline int64_t attn_query_words(const struct attn_gradient_kernels *gradients, int64_t lanes)
{
    const int per_word = gradients->queries_per_word;
    return attn_in_steps((lanes + per_word - 1) / per_word, gradients->word_step);
}

/** Floats in a row of sums over queries, and words in a row of words of queries. */
static inline int64_t attn_sum_channels(const struct attn_gradient_kernels *gradients, int64_t channels)
{
    return attn_in_steps(channels, gradients->channel_step);
}

#endif
