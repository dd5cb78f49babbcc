/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words of the register tiles as pairs of bf16, for the BFMMLA of Armv8.6
 * (FEAT_BF16), which multiplies two words of two rows with two words of two
 * columns: a block of 2 x 2 sums. It is defined as two BFDOT one after the
 * other, so that sums have the bits of dot_bf16_neon.h. Beside its names:
 *   VF_GROUP             words that are multiplied together: they lie side by side, see words.h
 *   vf_mm(a, b, c)       c[2i + j] plus the products of words 2i, 2i + 1 of a with words 2j, 2j + 1 of b
 *   vf_halves            the lower halves of a and b one behind the other, and the upper ones: rows of sums from two
 *                        blocks, and blocks from two rows
 *   vw_zip, vw_unzip     groups of words from a row of first and one of second words, and back
 *   vw_evens(a)          words 0, 0, 2, 2: the first words of the rows of a block, for vf_dot()
 *   vw_evens_twice(a)    words 0, 2, 0, 2: those of its columns
 */
#ifndef ATTN_DOT_BF16MM_NEON_H
#define ATTN_DOT_BF16MM_NEON_H

#include "simd/dot_bf16_neon.h"

#define VF_GROUP 2

static inline vf vf_mm(vw a, vw b, vf c)
{
    return vbfmmlaq_f32(c, vreinterpretq_bf16_u32(a), vreinterpretq_bf16_u32(b));
}

static inline void vf_halves(vf a, vf b, vf *low, vf *high)
{
    const uint64x2_t x = vreinterpretq_u64_f32(a), y = vreinterpretq_u64_f32(b);
    *low = vreinterpretq_f32_u64(vzip1q_u64(x, y));
    *high = vreinterpretq_f32_u64(vzip2q_u64(x, y));
}

static inline void vw_zip(vw first, vw second, vw *low, vw *high)
{
    *low = vzip1q_u32(first, second);
    *high = vzip2q_u32(first, second);
}

static inline void vw_unzip(vw low, vw high, vw *first, vw *second)
{
    *first = vuzp1q_u32(low, high);
    *second = vuzp2q_u32(low, high);
}

static inline vw vw_evens(vw a)
{
    return vtrn1q_u32(a, a);
}

static inline vw vw_evens_twice(vw a)
{
    return vuzp1q_u32(a, a);
}

#endif
