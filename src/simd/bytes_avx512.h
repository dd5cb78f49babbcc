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

#include "simd/simd_avx512.h"

#include <string.h>

#define VS_PACK   4
#define VS_OFFSET 0

typedef __m512i vq;
typedef __m512i vs;

static inline vq vq_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

static inline vq vq_set1(const void *p)
{
    int32_t word;
    memcpy(&word, p, sizeof word);
    return _mm512_set1_epi32(word);
}

static inline vs vs_zero(void)
{
    return _mm512_setzero_si512();
}

static inline vs vs_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}

static inline vs vs_add(vs a, vs b)
{
    return _mm512_add_epi32(a, b);
}

static inline int32_t vs_sum(vs a)
{
    return _mm512_reduce_add_epi32(a);
}

static inline float vf_max_across(vf a)
{
    return _mm512_reduce_max_ps(a);
}

static inline vf vf_abs(vf a)
{
    return _mm512_abs_ps(a);
}

static inline vf vs_float(vs a)
{
    return _mm512_cvtepi32_ps(a);
}

static inline vs vs_quantize(int8_t *p, vf x)
{
    const __m128i bytes = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x));
    _mm_storeu_si128((__m128i *)p, bytes);
    return _mm512_cvtepi8_epi32(bytes);
}

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
