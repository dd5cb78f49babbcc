/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of the score tile for int8, on AVX-VNNI: vectors of 256 bits. The names
 * are those of score_int8_avx512.h, and so is the offset.
 *
 * The instruction has two encodings, for which processors report two features:
 * VEX (AVX-VNNI) is the one that the library is built with, EVEX (AVX512-VNNI
 * and VL) is for a test on processors that have only that one. The operation
 * is the same.
 */
#ifndef ATTN_SCORE_SIMD_H
#define ATTN_SCORE_SIMD_H

#if defined(__AVXVNNI__)
#define VS_DPBUSD _mm256_dpbusd_avx_epi32
#elif defined(__AVX512VNNI__) && defined(__AVX512VL__)
#define VS_DPBUSD _mm256_dpbusd_epi32
#else
#error "score_int8_avx2.h needs -mavxvnni, or -mavx512vnni -mavx512vl"
#endif

#include "simd/int8_sums_avx2.h"

#define VS_OFFSET 128

static inline vs vs_dot(vq k, vq q, vs c)
{
    return VS_DPBUSD(c, q, k);
}

static inline vs vs_dot_nibbles(vq k, vq q, vs c)
{
    return VS_DPBUSD(c, q, k);
}

#endif
