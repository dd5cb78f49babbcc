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

#include "simd/int8_sums_avx2.h"

#define VS_OFFSET 0

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
