/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words of four int8 and the sums of their products, on AVX2: all but the
 * products. The names are those of int8_sums_avx512.h.
 */
#ifndef ATTN_INT8_SUMS_H
#define ATTN_INT8_SUMS_H

#include "simd/simd_avx2.h"

#include <string.h>

#define VS_PACK 4

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

#endif
