/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of the score tile for int8, on the SDOT of AArch64 (FEAT_DotProd),
 * which multiplies signed bytes by signed ones. The names are those of
 * score_int8_avx512.h.
 */
#ifndef ATTN_SCORE_SIMD_H
#define ATTN_SCORE_SIMD_H

#if !defined(__ARM_FEATURE_DOTPROD)
#error "score_int8_neon.h needs -march=armv8.2-a+dotprod"
#endif

#include "simd/int8_sums_neon.h"

#define VS_OFFSET 0

static inline vs vs_dot(vq k, vq q, vs c)
{
    return vdotq_s32(c, k, q);
}

static inline vs vs_dot_nibbles(vq k, vq q, vs c)
{
    return vdotq_s32(c, k, q);
}

#endif
