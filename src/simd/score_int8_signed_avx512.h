/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of products of signed int8 on AVX-512 without a product of its own: words
 * are multiplied on matrix registers (matrix_dot_int8 of matrix_*.h), and here
 * for bounds alone. The names are those of score_int8_avx512.h; nothing is added
 * to Q.
 */
#ifndef ATTN_SCORE_SIMD_H
#define ATTN_SCORE_SIMD_H

#include "simd/int8_sums_avx512.h"

#define VS_OFFSET 0

static inline vs vs_dot(vq k, vq q, vs c)
{
    const __m512i even_k = _mm512_srai_epi16(_mm512_slli_epi16(k, 8), 8), odd_k = _mm512_srai_epi16(k, 8);
    const __m512i even_q = _mm512_srai_epi16(_mm512_slli_epi16(q, 8), 8), odd_q = _mm512_srai_epi16(q, 8);
    return vs_add(c, vs_add(_mm512_madd_epi16(even_k, even_q), _mm512_madd_epi16(odd_k, odd_q)));
}

static inline vs vs_dot_nibbles(vq k, vq q, vs c)
{
    return vs_dot(k, q, c);
}

#endif
