/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of E4M3 made into words of bf16, which has all of them exactly, NaN as NaN:
 * the lower and the upper byte of a number's 16 bits, without its sign, are entries of
 * two tables of 128.
 */
#ifndef ATTN_F8_BF16_H
#define ATTN_F8_BF16_H

#include "simd/simd_avx512.h"

#if !defined(__AVX512VBMI__)
#error "f8_bf16_avx512.h needs -mavx512vbmi"
#endif

/** There are these operations. */
#define VW_F8

/** bf16 of the number of E4M3 with these bits, of which the sign is 0: seven bits after the exponent, biased by 120
 * more. */
#define F8_AS_BF16(x)          ((x) == 127 ? 0x7fc0 : (x) >= 8 ? 0x3c00 + ((x) << 4) : F8_DENORMAL_AS_BF16(x))
#define F8_DENORMAL_AS_BF16(x) ((x) == 0 ? 0 : (x) == 1 ? 0x3b00 : (x) < 4 ? 0x3b00 + 64 * (x) : 0x3b80 + 32 * (x))
#define F8_BYTE(x, shift)      (uint8_t)(F8_AS_BF16(x) >> (shift))
#define F8_BYTES_4(x, shift)                                                                                           \
    F8_BYTE(x, shift), F8_BYTE((x) + 1, shift), F8_BYTE((x) + 2, shift), F8_BYTE((x) + 3, shift)
#define F8_BYTES_16(x, shift)                                                                                          \
    F8_BYTES_4(x, shift), F8_BYTES_4((x) + 4, shift), F8_BYTES_4((x) + 8, shift), F8_BYTES_4((x) + 12, shift)
#define F8_BYTES_64(x, shift)                                                                                          \
    F8_BYTES_16(x, shift), F8_BYTES_16((x) + 16, shift), F8_BYTES_16((x) + 32, shift), F8_BYTES_16((x) + 48, shift)

/** [lower, upper][number without its sign] */
static const uint8_t f8_bytes_of_bf16[2][128]
    __attribute__((aligned(64))) = {{F8_BYTES_64(0, 0), F8_BYTES_64(64, 0)}, {F8_BYTES_64(0, 8), F8_BYTES_64(64, 8)}};

/** words[i]: what the first or last eight numbers of each quarter are. */
static inline void vw_of_f8(__m512i numbers, __m512i words[2])
{
    const __m512i lower = _mm512_permutex2var_epi8(_mm512_load_si512(f8_bytes_of_bf16[0]), numbers,
                                                   _mm512_load_si512(f8_bytes_of_bf16[0] + 64));
    const __m512i upper = _mm512_permutex2var_epi8(_mm512_load_si512(f8_bytes_of_bf16[1]), numbers,
                                                   _mm512_load_si512(f8_bytes_of_bf16[1] + 64));
    /* upper | (numbers & 0x80) */
    const __m512i with_sign = _mm512_ternarylogic_epi64(upper, numbers, _mm512_set1_epi8((char)0x80), 0xf8);
    words[0] = _mm512_unpacklo_epi8(lower, with_sign);
    words[1] = _mm512_unpackhi_epi8(lower, with_sign);
}

/** The first n bytes at p, 64 at most, and zeros. */
static inline __m512i f8_load(const void *p, int n)
{
    return n >= 64 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi8(((__mmask64)1 << n) - 1, p);
}

/** Two vectors of words: the first n numbers of a row in their order, 64 at most, and zeros. */
static inline void vw_load_f8(const void *row, int n, __m512i words[2])
{
    const __m512i halves_in_turns = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    vw_of_f8(_mm512_permutexvar_epi64(halves_in_turns, f8_load(row, n)), words);
}

/** Four vectors of words: the first n numbers, 64 at most, of two rows, and zeros. A word has one of each. second:
 * NULL: zeros. */
static inline void vw_zip_f8(const void *first, const void *second, int n, __m512i words[4])
{
    const __m512i fourths_in_turns = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i a = _mm512_permutexvar_epi32(fourths_in_turns, f8_load(first, n));
    const __m512i b = second ? _mm512_permutexvar_epi32(fourths_in_turns, f8_load(second, n)) : _mm512_setzero_si512();
    vw_of_f8(_mm512_unpacklo_epi8(a, b), words);
    vw_of_f8(_mm512_unpackhi_epi8(a, b), words + 2);
}

#undef F8_AS_BF16
#undef F8_DENORMAL_AS_BF16
#undef F8_BYTE
#undef F8_BYTES_4
#undef F8_BYTES_16
#undef F8_BYTES_64

#endif
