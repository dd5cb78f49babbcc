/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of 4 bits as they lie in a row of ATTN_I4, made into words of bf16, which
 * has all of -8 to 7 exactly; and what their order asks for. A quarter of a vector,
 * 128 bits, is a group of 32 numbers, or four floats.
 *
 * An element of 16 bits has four numbers, t = 0 to 3 from its lowest bits on: of an
 * even byte those of the group's first and second half, then of the odd byte.
 */
#ifndef ATTN_INT4_H
#define ATTN_INT4_H

#include "simd/simd_avx512.h"

#if !defined(__AVX512BF16__)
#error "int4_bf16_avx512.h needs -mavx512bf16"
#endif

/** There are these operations. */
#define VW_INT4

/** Words whose elements are number t of each element: VPERMW looks at five bits of an index, and of them the fifth
 * belongs to the next number, so the table is there twice. */
static inline __m512i vw_int4(__m512i elements, const int t)
{
    const __m512i numbers =
        _mm512_set_epi16((short)0xbf80, (short)0xc000, (short)0xc040, (short)0xc080, (short)0xc0a0, (short)0xc0c0,
                         (short)0xc0e0, (short)0xc100, 0x40e0, 0x40c0, 0x40a0, 0x4080, 0x4040, 0x4000, 0x3f80, 0,
                         (short)0xbf80, (short)0xc000, (short)0xc040, (short)0xc080, (short)0xc0a0, (short)0xc0c0,
                         (short)0xc0e0, (short)0xc100, 0x40e0, 0x40c0, 0x40a0, 0x4080, 0x4040, 0x4000, 0x3f80, 0);
    const __m512i from = t == 0   ? elements
                         : t == 1 ? _mm512_srli_epi16(elements, 4)
                         : t == 2 ? _mm512_srli_epi16(elements, 8)
                                  : _mm512_srli_epi16(elements, 12);
    return _mm512_permutexvar_epi16(from, numbers);
}

/** The first four elements of each quarter of a and b in turns, and the last four. */
static inline void vw_zip_quarters(__m512i a, __m512i b, __m512i zipped[2])
{
    zipped[0] = _mm512_unpacklo_epi16(a, b);
    zipped[1] = _mm512_unpackhi_epi16(a, b);
}

/** Quarter i: the first n floats at p[i], which are 4 at most, and zeros. */
static inline vf vf_load_quarters(const float *const p[4], int n)
{
    if (n == 4) {
        const __m512 a = _mm512_castps128_ps512(_mm_loadu_ps(p[0]));
        const __m512 b = _mm512_insertf32x4(a, _mm_loadu_ps(p[1]), 1);
        const __m512 c = _mm512_insertf32x4(b, _mm_loadu_ps(p[2]), 2);
        return _mm512_insertf32x4(c, _mm_loadu_ps(p[3]), 3);
    }
    const __mmask8 first = (__mmask8)((1 << n) - 1);
    const __m512 a = _mm512_castps128_ps512(_mm_maskz_loadu_ps(first, p[0]));
    const __m512 b = _mm512_insertf32x4(a, _mm_maskz_loadu_ps(first, p[1]), 1);
    const __m512 c = _mm512_insertf32x4(b, _mm_maskz_loadu_ps(first, p[2]), 2);
    return _mm512_insertf32x4(c, _mm_maskz_loadu_ps(first, p[3]), 3);
}

/**
 * Multipliers of two pairs of rows: a's quarter k has those of row k, one for each of four groups, and p the weights of
 * the rows as four elements. pairs[i]: in all words of quarter g group g of rows 2i and 2i + 1, times their weights,
 * rounded to bf16.
 */
static inline void vw_weigh_quarters(vf a, uint64_t p, __m512i pairs[2])
{
    const __m512i each = _mm512_setr_epi32(0, 0, 0, 0, 1 << 16, 1 << 16, 1 << 16, 1 << 16, 2 << 16, 2 << 16, 2 << 16,
                                           2 << 16, 3 << 16, 3 << 16, 3 << 16, 3 << 16);
    const __m512i first = _mm512_setr_epi32(0x40000, 0x40000, 0x40000, 0x40000, 0x50001, 0x50001, 0x50001, 0x50001,
                                            0x60002, 0x60002, 0x60002, 0x60002, 0x70003, 0x70003, 0x70003, 0x70003);
    const __m512i weights = _mm512_maskz_permutexvar_epi16(0xaaaaaaaa, each, _mm512_set1_epi64((long long)p));
    const __m256i rounded = (__m256i)_mm512_cvtneps_pbh(vf_mul(a, _mm512_castsi512_ps(weights)));
    const __m512i products = _mm512_castsi256_si512(rounded);
    pairs[0] = _mm512_permutexvar_epi16(first, products);
    pairs[1] = _mm512_permutexvar_epi16(_mm512_add_epi16(first, _mm512_set1_epi16(8)), products);
}

/** Sums of 128 channels, from their order to that of the numbers: number t of the first or last four elements of each
 * quarter is to[t][0] or to[t][1]. */
static inline void vf_to_int4(const vf channels[8], vf to[4][2])
{
    for (int half = 0; half < 2; half++) { /* of each group */
        vf even[2], odd[2];
        for (int i = 0; i < 2; i++)
            vf_deinterleave(channels[4 * i + half], channels[4 * i + 2 + half], &even[i], &odd[i]);
        to[half][0] = _mm512_shuffle_f32x4(even[0], even[1], 0x88);
        to[half][1] = _mm512_shuffle_f32x4(even[0], even[1], 0xdd);
        to[2 + half][0] = _mm512_shuffle_f32x4(odd[0], odd[1], 0x88);
        to[2 + half][1] = _mm512_shuffle_f32x4(odd[0], odd[1], 0xdd);
    }
}

/** The way back. */
static inline void vf_from_int4(vf from[4][2], vf channels[8])
{
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i last = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    for (int half = 0; half < 2; half++) {
        const __m512i even0 = _mm512_castps_si512(from[half][0]), even1 = _mm512_castps_si512(from[half][1]);
        const __m512i odd0 = _mm512_castps_si512(from[2 + half][0]), odd1 = _mm512_castps_si512(from[2 + half][1]);
        for (int i = 0; i < 2; i++) {
            const __m512i order = i == 0 ? first : last;
            vf_interleave(_mm512_castsi512_ps(_mm512_permutex2var_epi64(even0, order, even1)),
                          _mm512_castsi512_ps(_mm512_permutex2var_epi64(odd0, order, odd1)), &channels[4 * i + half],
                          &channels[4 * i + 2 + half]);
        }
    }
}

#endif
