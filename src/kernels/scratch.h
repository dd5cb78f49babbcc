/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a kernel divides its scratch memory. One function computes both the size
 * (base NULL) and the pointers, so that the two cannot disagree.
 *
 * q, o, m, l, s and the masks have a strip's queries contiguous in each row
 * ("lanes are queries"); a strip's block starts at a multiple of its full
 * width. What is measured in words (simd/dot_f32.h) is declared as float, of
 * which a word has the size.
 */
#ifndef ATTN_SCRATCH_H
#define ATTN_SCRATCH_H

#include "kernels/kernels.h"

/** Bytes from key to key of a staged boolean mask: whole blocks of 16 x 16. */
#define ATTN_LIVE_PITCH(strip) (((strip) + 15) / 16 * 16)

/** Bytes that the copies of a block of K and V, and rotated rows, may have; larger heads have smaller blocks. */
#define ATTN_COPY_LIMIT (256 * 1024)

/** What the sizes follow from. Rows are counted in words of 4 bytes. */
struct attn_scratch_shape {
    int64_t strips, strip, lanes, key_block, dk, dv;
    int64_t channel_words;          /**< in a row of Q or K */
    int64_t key_words;              /**< in a block of keys */
    int copies_keys, copies_values; /**< blocks of K, V are not read where they lie */
    int int8_scores;
    int rotates, relative; /**< rope, disentangled terms */
};

struct attn_scratch {
    float *q;                      /**< [strips][words of dk][strip] queries, transposed */
    float *o;                      /**< [strips][dv][strip] output, transposed, not yet normalised */
    float *m;                      /**< [strips][strip] running maximum, base 2 */
    float *l;                      /**< [strips][strip] running sum */
    float *factor;                 /**< [strips][strip] what raw scores are multiplied by */
    float *s;                      /**< [key_block][strip] scores, then words of weights */
    float *validity;               /**< [strips][strip] of int8 scores: 1, or NaN */
    float *shift;                  /**< [strips][strip] of int8 scores: what they have lost, base 2 */
    float *ones;                   /**< [strip] the factor of scores that have had theirs */
    float *k_mean, *k_row, *zeros; /**< [dk] of int8 scores: the mean of K, a row less its mean, zeros */
    int8_t *q_row;                 /**< [dk] of int8 scores: a row */
    float *k_scale;                /**< [key_block] of int8 scores: the step of each key */
    int32_t *k_start;              /**< [key_block] of int8 scores: where the sum of each key starts */
    float *k;                      /**< [key_block][words of dk] a block of K; NULL when read in place */
    float *v;                      /**< [words of key_block][dv] a block of V; NULL when read in place */
    float *bias;                   /**< [key_block][strip] additive mask of one tile, base 2 */
    float *distances;              /**< [strip + key_block] biases by distance of one tile, base 2 */
    float *rotated;                /**< [lanes][dk] rotated rows of Q or K */
    float *relative_rows;          /**< [strip][dk] rows of a table, by distance */
    float *relative_q;             /**< [dk][strip] the same as queries, transposed */
    float *relative_s;             /**< [strip + key_block][strip] their scores */
    int key_block;                 /**< keys of a block */
    uint8_t *live;                 /**< [key_block][ATTN_LIVE_PITCH(strip)] boolean mask of one tile */
};

static inline int64_t attn_copied_bytes(const struct attn_scratch_shape *shape)
{
    return 4 * ((shape->copies_keys ? shape->key_block * shape->channel_words : 0) +
                (shape->copies_values ? shape->key_words * shape->dv : 0) +
                (shape->rotates ? shape->lanes * shape->dk : 0));
}

/**
 * K is read where it lies if it consists of the words that the tiles multiply, and so is V. The block of keys follows
 * from the kernels, head sizes, types and rotation alone, as its size shapes the bits of the result.
 */
static inline struct attn_scratch_shape attn_scratch_shape_of(const struct attn_kernels *kernels, int64_t strips,
                                                              int64_t dk, int64_t dv, attn_dtype k, attn_dtype v,
                                                              int rotates, int relative)
{
    const int channels = kernels->channels_per_word, keys = kernels->keys_per_word;
    struct attn_scratch_shape shape = {.strips = strips,
                                       .strip = kernels->strip,
                                       .lanes = kernels->lanes,
                                       .key_block = 2 * kernels->key_block,
                                       .dk = dk,
                                       .dv = dv,
                                       .channel_words = (dk + channels - 1) / channels,
                                       .copies_keys =
                                           channels == 1 ? k != ATTN_F32 || rotates : channels == 4 || dk % 2,
                                       .copies_values = keys != 1 || v != ATTN_F32,
                                       .int8_scores = channels == 4,
                                       .rotates = rotates,
                                       .relative = relative};
    do {
        shape.key_block /= 2;
        shape.key_words = (shape.key_block + keys - 1) / keys;
    } while (shape.key_block > 8 && attn_copied_bytes(&shape) > ATTN_COPY_LIMIT);
    return shape;
}

static inline size_t attn_scratch_layout(struct attn_scratch *scratch, void *base,
                                         const struct attn_scratch_shape *shape)
{
    const int64_t strips = shape->strips, strip = shape->strip, key_block = shape->key_block;
    const int64_t dk = shape->dk, dv = shape->dv;
    size_t used = 0;
#define ATTN_TAKE(member, count)                                                                                       \
    do {                                                                                                               \
        scratch->member = base ? (void *)((char *)base + used) : NULL;                                                 \
        used += ((size_t)(count) * sizeof *scratch->member + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN;                \
    } while (0)
    ATTN_TAKE(s, key_block * strip);
    ATTN_TAKE(m, strips * strip);
    ATTN_TAKE(l, strips * strip);
    ATTN_TAKE(factor, strips * strip);
    ATTN_TAKE(validity, strips * strip);
    ATTN_TAKE(shift, strips * strip);
    ATTN_TAKE(ones, strip);
    const int64_t row = shape->int8_scores ? (dk + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN : 0;
    ATTN_TAKE(k_mean, row);
    ATTN_TAKE(k_row, row);
    ATTN_TAKE(zeros, row);
    ATTN_TAKE(q_row, row);
    ATTN_TAKE(k_scale, shape->int8_scores ? key_block : 0);
    ATTN_TAKE(k_start, shape->int8_scores ? key_block : 0);
    ATTN_TAKE(q, strips * strip * shape->channel_words);
    ATTN_TAKE(o, strips * strip * dv);
    ATTN_TAKE(k,
              shape->copies_keys ? key_block * shape->channel_words + ATTN_ALIGN : 0); /* rows end in whole vectors */
    ATTN_TAKE(v, shape->copies_values ? shape->key_words * dv : 0);
    ATTN_TAKE(bias, key_block * strip);
    ATTN_TAKE(distances, strip + key_block);
    ATTN_TAKE(rotated, shape->rotates ? shape->lanes * dk : 0);
    ATTN_TAKE(relative_rows, shape->relative ? strip * dk : 0);
    ATTN_TAKE(relative_q, shape->relative ? dk * strip : 0);
    ATTN_TAKE(relative_s, shape->relative ? (strip + key_block) * strip : 0);
    ATTN_TAKE(live, key_block * ATTN_LIVE_PITCH(strip));
#undef ATTN_TAKE
    scratch->key_block = (int)key_block;
    if (!shape->copies_keys)
        scratch->k = NULL;
    if (!shape->copies_values)
        scratch->v = NULL;
    return used;
}

#endif
