/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of the score tile for int8, on the SMMLA of Armv8.6 (FEAT_I8MM), which
 * multiplies two words of two rows of K with two words of two queries: a block
 * of 2 x 2 sums. Beside the names of score_int8_neon.h:
 *   VS_GROUP              words that are multiplied together: those of Q lie side by side, see words.h
 *   vq_rows(k, l)         two words of each of two rows
 *   vq_rows_word(k, l)    words k[0], k[0], l[0], l[0], for vs_dot()
 *   vq_load_twice(p)      words p[0], p[1], p[0], p[1]
 *   vs_mm(k, q, c)        c[2i + j] plus the products of words 2i, 2i + 1 of k with words 2j, 2j + 1 of q
 *   vs_halves             the lower halves of a and b one behind the other, and the upper ones
 */
#ifndef ATTN_SCORE_I8MM_NEON_H
#define ATTN_SCORE_I8MM_NEON_H

#if !defined(__ARM_FEATURE_MATMUL_INT8)
#error "score_i8mm_neon.h needs -march=armv8.2-a+dotprod+i8mm"
#endif

#include "simd/score_int8_neon.h"

#define VS_GROUP 2

static inline vq vq_rows(const void *first, const void *second)
{
    return vcombine_s8(vld1_s8(first), vld1_s8(second));
}

static inline vq vq_rows_word(const void *first, const void *second)
{
    return vcombine_s8(vget_low_s8(vq_set1(first)), vget_low_s8(vq_set1(second)));
}

static inline vq vq_load_twice(const void *p)
{
    const int8x8_t words = vld1_s8(p);
    return vcombine_s8(words, words);
}

static inline vs vs_mm(vq k, vq q, vs c)
{
    return vmmlaq_s32(c, k, q);
}

static inline void vs_halves(vs a, vs b, vs *low, vs *high)
{
    const int64x2_t x = vreinterpretq_s64_s32(a), y = vreinterpretq_s64_s32(b);
    *low = vreinterpretq_s32_s64(vzip1q_s64(x, y));
    *high = vreinterpretq_s32_s64(vzip2q_s64(x, y));
}

#endif
