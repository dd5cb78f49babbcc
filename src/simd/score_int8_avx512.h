/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of the score tile for int8, on AVX512-VNNI. The names are those of
 * score_dot.h and int8_sums_avx512.h, and:
 *   VS_OFFSET        what is added to the elements of Q: VPDPBUSD multiplies
 *                    unsigned bytes by signed ones, so the sum of a row of K
 *                    starts at -VS_OFFSET times the sum of its elements
 *   vs_dot_nibbles   vs_dot() of elements of Q from 0 to 15, as they are without an offset
 */
#ifndef ATTN_SCORE_SIMD_H
#define ATTN_SCORE_SIMD_H

#if !defined(__AVX512VNNI__)
#error "score_int8_avx512.h needs -mavx512vnni"
#endif

#include "simd/int8_sums_avx512.h"

#define VS_OFFSET 128

static inline vs vs_dot(vq k, vq q, vs c)
{
    return _mm512_dpbusd_epi32(c, q, k);
}

static inline vs vs_dot_nibbles(vq k, vq q, vs c)
{
    return _mm512_dpbusd_epi32(c, q, k);
}

#endif
