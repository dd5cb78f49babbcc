/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 2^y for weights in pairs of bf16, by a table of bytes (AVX512-VBMI).
 *
 * A weight is made in 16 bits, where bf16 has its exponent and 7 bits of its
 * fraction. x = round(256 y) + EXP2_TABLE_BIAS is y in fixed point with 8 bits
 * of fraction, moved by the exponent's bias: read as a number, half of it is a
 * straight line between neighbouring powers of two, which lies above 2^y by a
 * few units. The upper six bits of the fraction look up what brings it to 2^y,
 * and a mean that rounds halves it: (x + table[x / 4 % 64] + 1) / 2 are the bits
 * of the weight. The bias is 26 below the exponent's, so that no entry is
 * negative.
 *
 * The entries are those with the least squared relative error over the four x
 * that share one. Over all fractions the error of a weight has a mean of 4e-5
 * and a root mean square of 1.91e-3, 6.1e-3 at most; rounding the exact number
 * to bf16 has 0, 1.66e-3 and 3.9e-3. tests/check/check_exp.c holds them to that.
 *
 * A number t in [2^23, 2^24) is a whole one, so x stands in the lower 16 bits of
 * fma(y, 256, EXP2_TABLE_ORIGIN), whose other bits two weights do not need.
 */
#ifndef ATTN_EXP2_TABLE_H
#define ATTN_EXP2_TABLE_H

#if !defined(__AVX512VBMI__)
#error "exp2_table_avx512.h needs -mavx512vbmi"
#endif

#include "simd/simd_avx512.h"

#define EXP2_TABLE_STEP   256.0f
#define EXP2_TABLE_BIAS   (127 * 256 - 26)
#define EXP2_TABLE_ZERO   12582912.0f                                /* t of x = 0, 1.5 * 2^23: a weight of 0 */
#define EXP2_TABLE_ORIGIN (EXP2_TABLE_ZERO + (float)EXP2_TABLE_BIAS) /* t of y = 0 */
#define EXP2_TABLE_NAN    (EXP2_TABLE_ZERO + (float)(0x7fc0 * 2))    /* t of a weight that is NaN */

static inline __m512i exp2_table(void)
{
    static const uint8_t entries[64] __attribute__((aligned(64))) = {
        18, 17, 16, 15, 14, 13, 12, 11, 11, 10, 9,  9,  8,  7,  7,  7,  6,  5,  5,  5,  5, 4,
        4,  4,  4,  4,  3,  3,  3,  4,  4,  4,  4,  4,  5,  5,  5,  6,  6,  7,  7,  8,  9, 9,
        10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 21, 22, 24, 25, 25, 23, 22, 21, 20, 19,
    };
    return _mm512_load_si512(entries);
}

/** Two t to words of two bf16. */
static inline __m512i exp2_table_pair(__m512i table, vf first, vf second)
{
    const __m512i order = _mm512_set_epi16(30, 30, 28, 28, 26, 26, 24, 24, 22, 22, 20, 20, 18, 18, 16, 16, 14, 14, 12,
                                           12, 10, 10, 8, 8, 6, 6, 4, 4, 2, 2, 0, 0);
    const __m512i x =
        _mm512_mask_permutexvar_epi16(_mm512_castps_si512(first), 0xaaaaaaaau, order, _mm512_castps_si512(second));
    /* VPERMB looks at the lower six bits of each byte; those of upper bytes are cleared. */
    const __m512i entry = _mm512_maskz_permutexvar_epi8(0x5555555555555555u, _mm512_srli_epi16(x, 2), table);
    return _mm512_avg_epu16(x, entry);
}

#endif
