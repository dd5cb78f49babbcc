/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of products of bytes on Advanced SIMD without SDOT. The names are those of
 * score_int8_avx512.h, and so are the sums, to the last bit.
 *
 * Sums of two products of numbers not above 127 fit into 16 bits.
 */
#ifndef ATTN_SCORE_SIMD_H
#define ATTN_SCORE_SIMD_H

#include "simd/int8_sums_neon.h"

#define VS_OFFSET 0

static inline vs vs_dot(vq k, vq q, vs c)
{
    const int16x8_t low = vmull_s8(vget_low_s8(k), vget_low_s8(q)), high = vmull_high_s8(k, q);
    return vpadalq_s16(c, vpaddq_s16(low, high));
}

static inline vs vs_dot_nibbles(vq k, vq q, vs c)
{
    return vs_dot(k, q, c);
}

#endif
