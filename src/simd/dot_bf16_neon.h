/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words of the register tiles as pairs of bf16, for the BFDOT of Armv8.6
 * (FEAT_BF16). The names are those of dot_bf16_avx512.h, and
 *   vf_exp2_bf16  2^x for x <= 0, good enough for what is rounded to bf16
 *
 * BFDOT adds the two products to each other first, with a rounding of its own
 * (to odd, unless FEAT_EBF16 is switched on), and takes denormals for 0.
 */
#ifndef ATTN_DOT_H
#define ATTN_DOT_H

#if !defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#error "dot_bf16_neon.h needs -march=armv8.2-a+bf16"
#endif

#include "simd/simd_neon.h"

#include <string.h>

#define VF_PACK 2

typedef uint32x4_t vw;

static inline vw vw_load(const void *p)
{
    return vreinterpretq_u32_u8(vld1q_u8(p));
}

static inline vw vw_load_tail(const void *p, int n)
{
    uint32_t t[4] = {0, 0, 0, 0};
    memcpy(t, p, (size_t)n * sizeof *t);
    return vld1q_u32(t);
}

static inline vw vw_set1(const void *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return vdupq_n_u32(word);
}

static inline vf vf_dot(vw a, vw b, vf c)
{
    return vbfdotq_f32(c, vreinterpretq_bf16_u32(a), vreinterpretq_bf16_u32(b));
}

static inline vw vw_pair(vf first, vf second)
{
    const uint16x4_t low = vreinterpret_u16_bf16(vcvt_bf16_f32(first));
    const uint16x4_t high = vreinterpret_u16_bf16(vcvt_bf16_f32(second));
    const uint16x4x2_t zipped = vzip_u16(low, high);
    return vreinterpretq_u32_u16(vcombine_u16(zipped.val[0], zipped.val[1]));
}

static inline void vw_round(uint16_t *p, vf a)
{
    vst1_u16(p, vreinterpret_u16_bf16(vcvt_bf16_f32(a)));
}

static inline vw vw_of_first(const uint16_t *first)
{
    return vmovl_u16(vld1_u16(first));
}

static inline vw vw_add_second(vw words, const uint16_t *second)
{
    return vorrq_u32(words, vshll_n_u16(vld1_u16(second), 16));
}

static inline vw vw_interleave(const uint16_t *first, const uint16_t *second)
{
    const uint16x4x2_t zipped = vzip_u16(vld1_u16(first), vld1_u16(second));
    return vreinterpretq_u32_u16(vcombine_u16(zipped.val[0], zipped.val[1]));
}

static inline vw vw_first(vw a)
{
    return vandq_u32(a, vdupq_n_u32(0xffffu));
}

static inline vw vw_second(vw a)
{
    return vandq_u32(a, vdupq_n_u32(0xffff0000u));
}

/** gcc 12 makes a known vector of bf16 ones by FMOV with the bits of an f16 one: it must not see the value. */
static inline vw vw_ones(void)
{
    vw ones = vdupq_n_u32(0x3f803f80u);
    __asm__("" : "+w"(ones));
    return ones;
}

/** Both elements with the other sign. */
static inline vw vw_negate(vw a)
{
    return veorq_u32(a, vdupq_n_u32(0x80008000u));
}

static inline void vw_store(void *p, vw a)
{
    vst1q_u8(p, vreinterpretq_u8_u32(a));
}

/** The method is that of vf_exp2(), with a shorter polynomial. */
static inline vf vf_exp2_bf16(vf x)
{
    const vf magic = vf_set1(0x1.8p23f + 127.0f);
    const vf clamped = vmaxq_f32(vf_set1(-127.0f), x); /* FMAX keeps NaN */
    const vf shifted = vf_add(clamped, magic);
    const vf r = vf_sub(clamped, vf_sub(shifted, magic));
    vf p = vf_fma(vf_set1(EXP2_BF16_C3), r, vf_set1(EXP2_BF16_C2));
    p = vf_fma(p, r, vf_set1(EXP2_BF16_C1));
    p = vf_fma(p, r, vf_set1(EXP2_BF16_C0));
    return vf_mul(p, vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23)));
}

#endif
