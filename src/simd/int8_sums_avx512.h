/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words of four int8 and the sums of their products, on AVX-512: all but the
 * products. The names of every int8_sums_*.h:
 *   VS_PACK              channels in a word
 *   vq, vq_load, vq_set1 a vector of such words, from memory, from one word
 *   vs, vs_zero          a vector of VF_LEN sums, int32
 *   vs_set1, vs_add      of int32 lanes
 *   vs_sum               of all lanes
 *   vs_float             sums as floats
 *   vs_quantize          VF_LEN floats in [-127, 127] to the nearest int8, stored; returned as sums
 */
#ifndef ATTN_INT8_SUMS_H
#define ATTN_INT8_SUMS_H

#include "simd/simd_avx512.h"

#include <string.h>

#define VS_PACK 4

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

#endif
