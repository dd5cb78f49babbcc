/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of products of bytes on AVX2 alone. The names are those of
 * score_int8_avx512.h, and so are the sums, to the last bit.
 *
 * VPMADDUBSW multiplies unsigned bytes by signed ones and keeps sums of two in
 * 16 bits: of a size and a number with the sign of both, neither above 127, they
 * fit.
 */
#ifndef ATTN_SCORE_SIMD_H
#define ATTN_SCORE_SIMD_H

#include "simd/simd_avx2.h"

#include <string.h>

#define VS_PACK   4
#define VS_OFFSET 0

typedef __m256i vq;
typedef __m256i vs;

static inline vq vq_load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline vq vq_set1(const void *p)
{
    int32_t word;
    memcpy(&word, p, sizeof word);
    return _mm256_set1_epi32(word);
}

static inline vs vs_zero(void)
{
    return _mm256_setzero_si256();
}

static inline vs vs_set1(int32_t x)
{
    return _mm256_set1_epi32(x);
}

static inline vs vs_add(vs a, vs b)
{
    return _mm256_add_epi32(a, b);
}

static inline int32_t vs_sum(vs a)
{
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    sum = _mm_add_epi32(sum, _mm_unpackhi_epi64(sum, sum));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x55));
    return _mm_cvtsi128_si32(sum);
}

static inline float vf_max_across(vf a)
{
    __m128 top = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    top = _mm_max_ps(top, _mm_movehl_ps(top, top));
    top = _mm_max_ss(top, _mm_movehdup_ps(top));
    return _mm_cvtss_f32(top);
}

static inline vf vf_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

static inline vf vs_float(vs a)
{
    return _mm256_cvtepi32_ps(a);
}

static inline vs vs_quantize(int8_t *p, vf x)
{
    const __m256i wide = _mm256_cvtps_epi32(x);
    const __m128i narrow = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    const __m128i bytes = _mm_packs_epi16(narrow, narrow);
    _mm_storel_epi64((__m128i *)p, bytes);
    return _mm256_cvtepi8_epi32(bytes);
}

static inline vs bytes_sum(__m256i pairs, vs c)
{
    return _mm256_add_epi32(c, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

static inline vs vs_dot(vq k, vq q, vs c)
{
    return bytes_sum(_mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(k, q)), c);
}

static inline vs vs_dot_nibbles(vq k, vq q, vs c)
{
    return bytes_sum(_mm256_maddubs_epi16(q, k), c);
}

#endif
