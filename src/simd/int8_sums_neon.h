/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words of four int8 and the sums of their products, on Advanced SIMD: all but the
 * products. The names are those of int8_sums_avx512.h.
 */
#ifndef ATTN_INT8_SUMS_H
#define ATTN_INT8_SUMS_H

#include "simd/simd_neon.h"

#include <string.h>

#define VS_PACK 4

typedef int8x16_t vq;
typedef int32x4_t vs;

static inline vq vq_load(const void *p)
{
    return vld1q_s8(p);
}

static inline vq vq_set1(const void *p)
{
    int32_t word;
    memcpy(&word, p, sizeof word);
    return vreinterpretq_s8_s32(vdupq_n_s32(word));
}

static inline vs vs_zero(void)
{
    return vdupq_n_s32(0);
}

static inline vs vs_set1(int32_t x)
{
    return vdupq_n_s32(x);
}

static inline vs vs_add(vs a, vs b)
{
    return vaddq_s32(a, b);
}

static inline int32_t vs_sum(vs a)
{
    return vaddvq_s32(a);
}

static inline vf vs_float(vs a)
{
    return vcvtq_f32_s32(a);
}

static inline vs vs_quantize(int8_t *p, vf x)
{
    const int16x4_t narrow = vqmovn_s32(vcvtnq_s32_f32(x));
    const int8x8_t bytes = vqmovn_s16(vcombine_s16(narrow, narrow));
    vst1_lane_s32((int32_t *)(void *)p, vreinterpret_s32_s8(bytes), 0);
    return vmovl_s16(vget_low_s16(vmovl_s8(bytes)));
}

#endif
