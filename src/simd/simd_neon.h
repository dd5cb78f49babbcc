/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors of 4 floats on AArch64 Advanced SIMD. The names and their contracts
 * are those of simd_avx512.h. 4 x 6 accumulators, 4 operands and one broadcast
 * use 29 of the 32 registers.
 */
#ifndef ATTN_SIMD_H
#define ATTN_SIMD_H

#if !defined(__aarch64__) || !defined(__ARM_NEON)
#error "simd_neon.h needs AArch64 with Advanced SIMD"
#endif

#include "simd/exp2_polynomial.h"
#include "simd/tanh_polynomial.h"

#include <arm_neon.h>
#include <sleef.h>
#include <stdint.h>
#include <string.h>

#define VF_LEN      4
#define VF_STRIP    4
#define VF_KEYS     6
#define VF_CHANNELS 6

typedef float32x4_t vf;
typedef uint32x4_t vm;

static inline vf vf_zero(void)
{
    return vdupq_n_f32(0);
}

static inline vf vf_set1(float x)
{
    return vdupq_n_f32(x);
}

static inline vf vf_load(const float *p)
{
    return vld1q_f32(p);
}

static inline void vf_store(float *p, vf a)
{
    vst1q_f32(p, a);
}

static inline vf vf_load_tail(const float *p, int n)
{
    float t[4] = {0, 0, 0, 0};
    memcpy(t, p, (size_t)n * sizeof *t);
    return vld1q_f32(t);
}

static inline void vf_store_tail(float *p, vf a, int n)
{
    float t[4];
    vst1q_f32(t, a);
    memcpy(p, t, (size_t)n * sizeof *t);
}

static inline vf vf_load_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}

static inline vf vf_load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

static inline void vf_store_bf16(uint16_t *p, vf a)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(a), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, odd), vdupq_n_u32(0x7fff));
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    vst1_u16(p, vshrn_n_u32(vbslq_u32(vceqq_f32(a, a), rounded, quiet), 16));
}

static inline void vf_store_f16(uint16_t *p, vf a)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a)));
}

static inline vf vf_iota(void)
{
    static const float iota[4] = {0, 1, 2, 3};
    return vld1q_f32(iota);
}

static inline vf vf_add(vf a, vf b)
{
    return vaddq_f32(a, b);
}

static inline vf vf_sub(vf a, vf b)
{
    return vsubq_f32(a, b);
}

static inline vf vf_mul(vf a, vf b)
{
    return vmulq_f32(a, b);
}

static inline vf vf_div(vf a, vf b)
{
    return vdivq_f32(a, b);
}

static inline vf vf_fma(vf a, vf b, vf c)
{
    return vfmaq_f32(c, a, b);
}

/* By comparison, as FMAXNM gives a signalling NaN's quiet form instead of b. */
static inline vf vf_floor(vf a)
{
    return vrndmq_f32(a);
}

static inline vf vf_abs(vf a)
{
    return vabsq_f32(a);
}

static inline vf vf_max(vf a, vf b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

static inline vm vf_gt(vf a, vf b)
{
    return vcgtq_f32(a, b);
}

static inline vm vf_ge(vf a, vf b)
{
    return vcgeq_f32(a, b);
}

static inline vm vf_eq(vf a, vf b)
{
    return vceqq_f32(a, b);
}

static inline vm vm_from_bytes(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    const uint16x8_t wide = vmovl_u8(vcreate_u8(word));
    return vtstq_u32(vmovl_u16(vget_low_u16(wide)), vdupq_n_u32(0xff));
}

static inline int vm_any(vm a)
{
    return vmaxvq_u32(a) != 0;
}

static inline vf vf_select(vm m, vf a, vf b)
{
    return vbslq_f32(m, a, b);
}

/** 2^x with the bits of Sleef_exp2f4_u10advsimd, for x <= 0 and NaN; exp2_polynomial.h says how. */
static inline vf vf_exp2(vf x)
{
    const vf magic = vf_set1(EXP2_MAGIC);
    const vf clamped = vmaxq_f32(vf_set1(EXP2_LEAST), x); /* FMAX keeps NaN */
    const vf shifted = vf_add(clamped, magic);
    const vf r = vf_sub(clamped, vf_sub(shifted, magic));
    vf p = vf_fma(vf_set1(EXP2_C6), r, vf_set1(EXP2_C5));
    p = vf_fma(p, r, vf_set1(EXP2_C4));
    p = vf_fma(p, r, vf_set1(EXP2_C3));
    p = vf_fma(p, r, vf_set1(EXP2_C2));
    p = vf_fma(p, r, vf_set1(EXP2_C1));
    p = vf_fma(p, r, vf_set1(1.0f));
    const vf power = vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23));
    return vf_mul(vf_mul(p, power), vf_set1(EXP2_UNBIAS));
}

static inline vf vf_log(vf x)
{
    return Sleef_logf4_u10advsimd(x);
}

static inline vf vf_exp(vf x)
{
    return Sleef_expf4_u10advsimd(x);
}

static inline vf vf_tanh(vf x)
{
    return Sleef_tanhf4_u10advsimd(x);
}

/** y = 2 log2(e) x within what vf_tanh_fast() (tanh.h) wants. FMIN and FMAX keep NaN. */
static inline vf tanh_clamp(vf y)
{
    return vmaxq_f32(vf_set1(-TANH_MOST), vminq_f32(vf_set1(TANH_MOST), y));
}

/** 2^n and r of y = n + r. */
static inline vf tanh_split(vf y, vf *r)
{
    const vf magic = vf_set1(TANH_MAGIC);
    const vf shifted = vf_add(y, magic);
    *r = vf_sub(y, vf_sub(shifted, magic));
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23));
}

/** The elements of even and of odd index of a and b one behind the other. */
static inline void vf_deinterleave(vf a, vf b, vf *even, vf *odd)
{
    *even = vuzp1q_f32(a, b);
    *odd = vuzp2q_f32(a, b);
}

static inline void vf_interleave(vf even, vf odd, vf *a, vf *b)
{
    *a = vzip1q_f32(even, odd);
    *b = vzip2q_f32(even, odd);
}

static inline vf vf_sum_across(vf a[VF_LEN])
{
    const float64x2_t x = vreinterpretq_f64_f32(vaddq_f32(vzip1q_f32(a[0], a[1]), vzip2q_f32(a[0], a[1])));
    const float64x2_t y = vreinterpretq_f64_f32(vaddq_f32(vzip1q_f32(a[2], a[3]), vzip2q_f32(a[2], a[3])));
    return vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(x, y)), vreinterpretq_f32_f64(vzip2q_f64(x, y)));
}

static inline float vf_max_across(vf a)
{
    return vmaxvq_f32(a);
}

static inline void vf_transpose(vf a[VF_LEN])
{
    const float32x4x2_t p = vtrnq_f32(a[0], a[1]), q = vtrnq_f32(a[2], a[3]);
    a[0] = vcombine_f32(vget_low_f32(p.val[0]), vget_low_f32(q.val[0]));
    a[1] = vcombine_f32(vget_low_f32(p.val[1]), vget_low_f32(q.val[1]));
    a[2] = vcombine_f32(vget_high_f32(p.val[0]), vget_high_f32(q.val[0]));
    a[3] = vcombine_f32(vget_high_f32(p.val[1]), vget_high_f32(q.val[1]));
}

typedef uint32x4_t vu;

static inline vu vu_set1(uint32_t x)
{
    return vdupq_n_u32(x);
}

static inline vu vu_iota(void)
{
    static const uint32_t iota[4] = {0, 1, 2, 3};
    return vld1q_u32(iota);
}

static inline vu vu_load(const void *p)
{
    return vreinterpretq_u32_u8(vld1q_u8(p));
}

static inline void vu_store(void *p, vu a)
{
    vst1q_u8(p, vreinterpretq_u8_u32(a));
}

static inline vu vu_add(vu a, vu b)
{
    return vaddq_u32(a, b);
}

static inline vu vu_and(vu a, vu b)
{
    return vandq_u32(a, b);
}

static inline vu vu_or(vu a, vu b)
{
    return vorrq_u32(a, b);
}

static inline vu vu_xor(vu a, vu b)
{
    return veorq_u32(a, b);
}

static inline vu vu_xor3(vu a, vu b, vu c)
{
    return veorq_u32(veorq_u32(a, b), c);
}

static inline vu vu_at_least(vu a, vu b)
{
    return vcgeq_u32(a, b);
}

static inline vu vu_max(vu a, vu b)
{
    return vmaxq_u32(a, b);
}

static inline vu vu_max_halves(vu a, vu b)
{
    return vreinterpretq_u32_u16(vmaxq_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b)));
}

static inline vu vu_choose(vu mask, vu a, vu b)
{
    return vbslq_u32(mask, a, b);
}

static inline void vu_mul_wide(vu a, vu b, vu *high, vu *low)
{
    const uint32x4_t first = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(a), vget_low_u32(b)));
    const uint32x4_t second = vreinterpretq_u32_u64(vmull_high_u32(a, b));
    *high = vuzp2q_u32(first, second);
    *low = vuzp1q_u32(first, second);
}

#include "simd/bits_neon.h"

#endif
