/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of the score tile for pairs of bf16 in blocks of 2 x 2
 * (dot_bf16mm_neon.h). The names are those of score_i8mm_neon.h.
 */
#ifndef ATTN_SCORE_BF16MM_NEON_H
#define ATTN_SCORE_BF16MM_NEON_H

#include "simd/dot_bf16mm_neon.h"
#include "simd/score_dot.h"

#define VS_GROUP 2

static inline vq vq_rows(const void *first, const void *second)
{
    return vcombine_u32(vreinterpret_u32_u8(vld1_u8(first)), vreinterpret_u32_u8(vld1_u8(second)));
}

static inline vq vq_rows_word(const void *first, const void *second)
{
    return vcombine_u32(vget_low_u32(vq_set1(first)), vget_low_u32(vq_set1(second)));
}

static inline vq vq_load_twice(const void *p)
{
    const uint32x2_t words = vreinterpret_u32_u8(vld1_u8(p));
    return vcombine_u32(words, words);
}

static inline vs vs_mm(vq k, vq q, vs c)
{
    return vf_mm(k, q, c);
}

static inline void vs_halves(vs a, vs b, vs *low, vs *high)
{
    vf_halves(a, b, low, high);
}

#endif
