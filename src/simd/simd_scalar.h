/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "Vectors" of one float in portable C, for processors without a better
 * instruction set. The names and their contracts are those of simd_avx512.h,
 * with one exception that the name of the set announces: the baseline of
 * x86-64 has no fused multiply-add, so vf_fma rounds twice here. The compiler
 * may not contract it (-ffp-contract=off), so the bits are the same on every
 * machine.
 */
#ifndef ATTN_SIMD_H
#define ATTN_SIMD_H

#include "simd/exp2_polynomial.h"
#include "simd/tanh_polynomial.h"
#include "simd/half.h"

#include <math.h>
#include <sleef.h>
#include <stdint.h>
#include <string.h>

#define VF_LEN      1
#define VF_STRIP    4
#define VF_KEYS     2
#define VF_CHANNELS 2

typedef float vf;
typedef int vm;

static inline vf vf_zero(void)
{
    return 0.0f;
}

static inline vf vf_set1(float x)
{
    return x;
}

static inline vf vf_load(const float *p)
{
    return *p;
}

static inline void vf_store(float *p, vf a)
{
    *p = a;
}

static inline vf vf_load_tail(const float *p, int n)
{
    return n > 0 ? *p : 0.0f;
}

static inline void vf_store_tail(float *p, vf a, int n)
{
    if (n > 0)
        *p = a;
}

static inline vf vf_load_bf16(const uint16_t *p)
{
    return bf16_to_f32(*p);
}

static inline vf vf_load_f16(const uint16_t *p)
{
    return f16_to_f32(*p);
}

static inline void vf_store_bf16(uint16_t *p, vf a)
{
    *p = bf16_from_f32(a);
}

static inline void vf_store_f16(uint16_t *p, vf a)
{
    *p = f16_from_f32(a);
}

static inline vf vf_iota(void)
{
    return 0.0f;
}

static inline vf vf_add(vf a, vf b)
{
    return a + b;
}

static inline vf vf_sub(vf a, vf b)
{
    return a - b;
}

static inline vf vf_mul(vf a, vf b)
{
    return a * b;
}

static inline vf vf_div(vf a, vf b)
{
    return a / b;
}

static inline vf vf_fma(vf a, vf b, vf c)
{
    return a * b + c;
}

static inline vf vf_floor(vf a)
{
    return floorf(a);
}

static inline vf vf_abs(vf a)
{
    return fabsf(a);
}

static inline vf vf_max(vf a, vf b)
{
    return a > b ? a : b;
}

static inline vm vf_gt(vf a, vf b)
{
    return a > b;
}

static inline vm vf_ge(vf a, vf b)
{
    return a >= b;
}

static inline vm vf_eq(vf a, vf b)
{
    return a == b;
}

static inline vm vm_from_bytes(const uint8_t *p)
{
    return *p != 0;
}

static inline int vm_any(vm a)
{
    return a;
}

static inline vf vf_select(vm m, vf a, vf b)
{
    return m ? a : b;
}

/**
 * 2^x with the bits of Sleef_exp2f1_u10purec, for x <= 0 and NaN. Without a fused multiply-add SLEEF rounds each
 * step of its polynomial but the last, whose product and sum it keeps in two floats each.
 */
static inline vf vf_exp2(vf x)
{
    const float magic = EXP2_MAGIC, clamped = x < EXP2_LEAST ? EXP2_LEAST : x; /* NaN stays */
    const float shifted = clamped + magic, r = clamped - (shifted - magic);
    float p = EXP2_C6 * r + EXP2_C5, power;
    p = p * r + EXP2_C4;
    p = p * r + EXP2_C3;
    p = p * r + EXP2_C2;
    p = p * r + EXP2_C1;
    const float product = p * r, rest = (float)((double)p * (double)r - (double)product);
    const float sum = 1.0f + product, part = sum - 1.0f;
    p = sum + ((1.0f - (sum - part)) + (product - part) + rest);
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits <<= 23;
    memcpy(&power, &bits, sizeof power);
    return p * power * EXP2_UNBIAS;
}

static inline vf vf_log(vf x)
{
    return Sleef_logf1_u10purec(x);
}

static inline vf vf_exp(vf x)
{
    return Sleef_expf1_u10purec(x);
}

static inline vf vf_tanh(vf x)
{
    return Sleef_tanhf1_u10purec(x);
}

/** y = 2 log2(e) x within what vf_tanh_fast() (tanh.h) wants. NaN stays. */
static inline vf tanh_clamp(vf y)
{
    const float below = y > TANH_MOST ? TANH_MOST : y;
    return below < -TANH_MOST ? -TANH_MOST : below;
}

/** 2^n and r of y = n + r. */
static inline vf tanh_split(vf y, vf *r)
{
    const float shifted = y + TANH_MAGIC;
    uint32_t bits;
    float power;
    memcpy(&bits, &shifted, sizeof bits);
    bits <<= 23;
    memcpy(&power, &bits, sizeof power);
    *r = y - (shifted - TANH_MAGIC);
    return power;
}

/** The elements of even and of odd index of a and b one behind the other. */
static inline void vf_deinterleave(vf a, vf b, vf *even, vf *odd)
{
    *even = a;
    *odd = b;
}

static inline void vf_interleave(vf even, vf odd, vf *a, vf *b)
{
    *a = even;
    *b = odd;
}

static inline vf vf_sum_across(vf a[VF_LEN])
{
    return a[0];
}

static inline float vf_max_across(vf a)
{
    return a;
}

static inline void vf_transpose(vf a[VF_LEN])
{
    (void)a;
}

typedef uint32_t vu;

static inline vu vu_set1(uint32_t x)
{
    return x;
}

static inline vu vu_iota(void)
{
    return 0;
}

static inline vu vu_load(const void *p)
{
    vu a;
    memcpy(&a, p, sizeof a);
    return a;
}

static inline void vu_store(void *p, vu a)
{
    memcpy(p, &a, sizeof a);
}

static inline vu vu_add(vu a, vu b)
{
    return a + b;
}

static inline vu vu_and(vu a, vu b)
{
    return a & b;
}

static inline vu vu_or(vu a, vu b)
{
    return a | b;
}

static inline vu vu_xor(vu a, vu b)
{
    return a ^ b;
}

static inline vu vu_xor3(vu a, vu b, vu c)
{
    return a ^ b ^ c;
}

static inline vu vu_at_least(vu a, vu b)
{
    return a >= b ? UINT32_MAX : 0;
}

static inline vu vu_max(vu a, vu b)
{
    return a > b ? a : b;
}

static inline vu vu_max_halves(vu a, vu b)
{
    return vu_max(a & 0xffff0000u, b & 0xffff0000u) | vu_max(a & 0xffffu, b & 0xffffu);
}

static inline vu vu_choose(vu mask, vu a, vu b)
{
    return (mask & a) | (~mask & b);
}

static inline void vu_mul_wide(vu a, vu b, vu *high, vu *low)
{
    const uint64_t product = (uint64_t)a * b;
    *high = (uint32_t)(product >> 32);
    *low = (uint32_t)product;
}

#include "simd/bits_scalar.h"

#endif
