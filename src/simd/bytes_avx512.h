/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of products of bytes on AVX-512 without VNNI. The names are those of
 * score_int8_avx512.h, and so are the sums, to the last bit.
 *
 * Bytes of even and of odd index become numbers of 16 bits, of which VPMADDWD
 * adds the products of two.
 */
#ifndef ATTN_SCORE_SIMD_H
#define ATTN_SCORE_SIMD_H

#include "simd/int8_sums_avx512.h"

#define VS_OFFSET 0

static inline __m512i bytes_even(__m512i a)
{
    return _mm512_srai_epi16(_mm512_slli_epi16(a, 8), 8);
}

static inline vs vs_dot(vq k, vq q, vs c)
{
    const __m512i even = _mm512_madd_epi16(bytes_even(k), bytes_even(q));
    const __m512i odd = _mm512_madd_epi16(_mm512_srai_epi16(k, 8), _mm512_srai_epi16(q, 8));
    return _mm512_add_epi32(c, _mm512_add_epi32(even, odd));
}

/** Sums of two products fit into 16 bits. */
static inline vs vs_dot_nibbles(vq k, vq q, vs c)
{
    return _mm512_add_epi32(c, _mm512_madd_epi16(_mm512_maddubs_epi16(q, k), _mm512_set1_epi16(1)));
}

#endif
