/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words of the register tiles as pairs of bf16, for AVX512-BF16. The names
 * are those of dot_f32.h, and of pairs:
 *   vw_pair(first, second)      words of two vectors of floats, rounded to nearest even
 *   vw_weigh(words, x, y)       the words with their first and second elements times x and y, rounded likewise
 *   vw_interleave(first, second)  words of VF_LEN bf16 each
 *   vw_of_first, vw_add_second  the same in two steps: words with a second element of 0 first
 *   vw_first, vw_second         the words with the other element set to 0
 *   vw_round                    stores a vector of floats, rounded likewise
 *   vw_ones                     words of two ones
 *   vw_negate                   the words with both signs flipped
 *
 * VDPBF16PS adds the product of the second elements, then that of the first,
 * each with one rounding to nearest even; it takes denormals for 0.
 */
#ifndef ATTN_DOT_H
#define ATTN_DOT_H

#if !defined(__AVX512BF16__)
#error "dot_bf16_avx512.h needs -mavx512bf16"
#endif

#include "simd/f8_bf16_avx512.h"
#include "simd/int4_bf16_avx512.h"
#include "simd/simd_avx512.h"

#include <string.h>

#define VF_PACK 2

typedef __m512i vw;

static inline vw vw_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

static inline vw vw_load_tail(const void *p, int n)
{
    return _mm512_maskz_loadu_epi32(vm_first(n), p);
}

static inline vw vw_set1(const void *p)
{
    int32_t word;
    memcpy(&word, p, sizeof word);
    return _mm512_set1_epi32(word);
}

static inline vf vf_dot(vw a, vw b, vf c)
{
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
}

static inline vw vw_pair(vf first, vf second)
{
    const vw halves = (vw)_mm512_cvtne2ps_pbh(second, first);
    const vw order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5,
                                      20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, halves);
}

static inline vw vw_weigh(vw words, vf first, vf second)
{
    const vf a = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
    const vf b = _mm512_castsi512_ps(_mm512_andnot_si512(_mm512_set1_epi32(0xffff), words));
    return vw_pair(vf_mul(a, first), vf_mul(b, second));
}

static inline vw vw_of_first(const uint16_t *first)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)first));
}

static inline vw vw_add_second(vw words, const uint16_t *second)
{
    const vw high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)second));
    return _mm512_or_si512(words, _mm512_slli_epi32(high, 16));
}

static inline vw vw_interleave(const uint16_t *first, const uint16_t *second)
{
    return vw_add_second(vw_of_first(first), second);
}

static inline vw vw_first(vw a)
{
    return _mm512_and_si512(a, _mm512_set1_epi32(0xffff));
}

static inline vw vw_second(vw a)
{
    return _mm512_andnot_si512(_mm512_set1_epi32(0xffff), a);
}

/** Words of two ones. */
static inline vw vw_ones(void)
{
    return _mm512_set1_epi32(0x3f803f80);
}

/** Both elements with the other sign. */
static inline vw vw_negate(vw a)
{
    return _mm512_xor_si512(a, _mm512_set1_epi32((int)0x80008000u));
}

/** VF_LEN floats rounded to bf16, one behind the other. */
static inline void vw_round(uint16_t *p, vf a)
{
    _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(a));
}

static inline void vw_store(void *p, vw a)
{
    _mm512_storeu_si512(p, a);
}

#endif
