/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors of 8 floats on AVX2, FMA and F16C. The names and their contracts are those
 * of simd_avx512.h. 3 x 4 accumulators, 3 operands and one broadcast fill the
 * 16 registers exactly.
 */
#ifndef ATTN_SIMD_H
#define ATTN_SIMD_H

#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "simd_avx2.h needs -mavx2 -mfma -mf16c"
#endif

#include "simd/exp2_polynomial.h"
#include "simd/tanh_polynomial.h"

#include <immintrin.h>
#include <sleef.h>
#include <stdint.h>

#define VF_LEN      8
#define VF_STRIP    3
#define VF_KEYS     4
#define VF_CHANNELS 4

typedef __m256 vf;
typedef __m256 vm; /* all bits of a lane set or clear */

static inline vf vf_zero(void)
{
    return _mm256_setzero_ps();
}

static inline vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}

static inline vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline void vf_store(float *p, vf a)
{
    _mm256_storeu_ps(p, a);
}

static inline __m256i vm_first(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vf vf_load_tail(const float *p, int n)
{
    return _mm256_maskload_ps(p, vm_first(n));
}

static inline void vf_store_tail(float *p, vf a, int n)
{
    _mm256_maskstore_ps(p, vm_first(n), a);
}

static inline vf vf_load_bf16(const uint16_t *p)
{
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static inline vf vf_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

static inline void vf_store_bf16(uint16_t *p, vf a)
{
    const __m256i bits = _mm256_castps_si256(a), odd = _mm256_srli_epi32(_mm256_slli_epi32(bits, 15), 31);
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7fff));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    const __m256i kept = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(kept, kept), 0x08);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(packed));
}

static inline void vf_store_f16(uint16_t *p, vf a)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline vf vf_iota(void)
{
    return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
}

static inline vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

static inline vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

static inline vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

static inline vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline vf vf_floor(vf a)
{
    return _mm256_floor_ps(a);
}

static inline vf vf_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

static inline vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

static inline vm vf_gt(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_GT_OQ);
}

static inline vm vf_ge(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_GE_OQ);
}

static inline vm vf_eq(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}

static inline vm vm_from_bytes(const uint8_t *p)
{
    const __m256i w = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(w, _mm256_setzero_si256()));
}

static inline int vm_any(vm a)
{
    return _mm256_movemask_ps(a) != 0;
}

static inline vf vf_select(vm m, vf a, vf b)
{
    return _mm256_blendv_ps(b, a, m);
}

/** 2^x with the bits of Sleef_exp2f8_u10avx2, for x <= 0 and NaN; exp2_polynomial.h says how. */
static inline vf vf_exp2(vf x)
{
    const vf magic = vf_set1(EXP2_MAGIC);
    const vf clamped = _mm256_max_ps(vf_set1(EXP2_LEAST), x); /* NaN stays: max returns its second operand */
    const vf shifted = vf_add(clamped, magic);
    const vf r = vf_sub(clamped, vf_sub(shifted, magic));
    vf p = vf_fma(vf_set1(EXP2_C6), r, vf_set1(EXP2_C5));
    p = vf_fma(p, r, vf_set1(EXP2_C4));
    p = vf_fma(p, r, vf_set1(EXP2_C3));
    p = vf_fma(p, r, vf_set1(EXP2_C2));
    p = vf_fma(p, r, vf_set1(EXP2_C1));
    p = vf_fma(p, r, vf_set1(1.0f));
    const vf power = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(shifted), 23));
    return vf_mul(vf_mul(p, power), vf_set1(EXP2_UNBIAS));
}

static inline vf vf_log(vf x)
{
    return Sleef_logf8_u10avx2(x);
}

static inline vf vf_exp(vf x)
{
    return Sleef_expf8_u10avx2(x);
}

static inline vf vf_tanh(vf x)
{
    return Sleef_tanhf8_u10avx2(x);
}

/** y = 2 log2(e) x within what vf_tanh_fast() (tanh.h) wants. NaN stays: minimum and maximum return their second
 * operand. */
static inline vf tanh_clamp(vf y)
{
    return _mm256_max_ps(vf_set1(-TANH_MOST), _mm256_min_ps(vf_set1(TANH_MOST), y));
}

/** 2^n and r of y = n + r. */
static inline vf tanh_split(vf y, vf *r)
{
    const vf magic = vf_set1(TANH_MAGIC);
    const vf shifted = vf_add(y, magic);
    *r = vf_sub(y, vf_sub(shifted, magic));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(shifted), 23));
}

/** The elements of even and of odd index of a and b one behind the other. */
static inline void vf_deinterleave(vf a, vf b, vf *even, vf *odd)
{
    const __m256d e = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88)); /* a0 a2 b0 b2, a4 a6 b4 b6 */
    const __m256d o = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xdd));
    *even = _mm256_castpd_ps(_mm256_permute4x64_pd(e, 0xd8));
    *odd = _mm256_castpd_ps(_mm256_permute4x64_pd(o, 0xd8));
}

static inline void vf_interleave(vf even, vf odd, vf *a, vf *b)
{
    const vf low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
    *a = _mm256_permute2f128_ps(low, high, 0x20);
    *b = _mm256_permute2f128_ps(low, high, 0x31);
}

static inline vf vf_sum_across(vf a[VF_LEN])
{
    for (int i = 0; i < 4; i++)
        a[i] = vf_add(_mm256_unpacklo_ps(a[2 * i], a[2 * i + 1]), _mm256_unpackhi_ps(a[2 * i], a[2 * i + 1]));
    for (int i = 0; i < 2; i++) {
        const __m256d x = _mm256_castps_pd(a[2 * i]), y = _mm256_castps_pd(a[2 * i + 1]);
        a[i] = vf_add(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)), _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
    }
    return vf_add(_mm256_permute2f128_ps(a[0], a[1], 0x20), _mm256_permute2f128_ps(a[0], a[1], 0x31));
}

static inline float vf_max_across(vf a)
{
    __m128 top = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    top = _mm_max_ps(top, _mm_movehl_ps(top, top));
    top = _mm_max_ss(top, _mm_movehdup_ps(top));
    return _mm_cvtss_f32(top);
}

static inline void vf_transpose(vf a[VF_LEN])
{
    vf t[VF_LEN];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        a[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        a[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        a[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        a[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int c = 0; c < 4; c++) {
        t[c] = _mm256_permute2f128_ps(a[c], a[c + 4], 0x20);
        t[c + 4] = _mm256_permute2f128_ps(a[c], a[c + 4], 0x31);
    }
    for (int c = 0; c < 8; c++)
        a[c] = t[c];
}

/** a[0..3] transposed in each of their 128-bit halves: a[c] then holds columns c and 4 + c. */
static inline void transpose_halves(vf a[4])
{
    const vf p0 = _mm256_unpacklo_ps(a[0], a[1]), p1 = _mm256_unpackhi_ps(a[0], a[1]);
    const vf p2 = _mm256_unpacklo_ps(a[2], a[3]), p3 = _mm256_unpackhi_ps(a[2], a[3]);
    a[0] = _mm256_shuffle_ps(p0, p2, 0x44);
    a[1] = _mm256_shuffle_ps(p0, p2, 0xee);
    a[2] = _mm256_shuffle_ps(p1, p3, 0x44);
    a[3] = _mm256_shuffle_ps(p1, p3, 0xee);
}

/** vf_transpose() of a block of which rows from 4 on are 0, whatever they hold. */
static inline void vf_transpose_from4(vf a[VF_LEN])
{
    transpose_halves(a);
    for (int c = 0; c < 4; c++) {
        a[4 + c] = _mm256_zextps128_ps256(_mm256_extractf128_ps(a[c], 1));
        a[c] = _mm256_zextps128_ps256(_mm256_castps256_ps128(a[c]));
    }
}

/** vf_transpose() of which a[0..3] alone are wanted; the others are left undefined. */
static inline void vf_transpose_to4(vf a[VF_LEN])
{
    for (int c = 0; c < 4; c++)
        a[c] = _mm256_insertf128_ps(a[c], _mm256_castps256_ps128(a[4 + c]), 1);
    transpose_halves(a);
}

typedef __m256i vu;

static inline vu vu_set1(uint32_t x)
{
    return _mm256_set1_epi32((int)x);
}

static inline vu vu_iota(void)
{
    return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}

static inline vu vu_load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline void vu_store(void *p, vu a)
{
    _mm256_storeu_si256((__m256i *)p, a);
}

static inline vu vu_add(vu a, vu b)
{
    return _mm256_add_epi32(a, b);
}

static inline vu vu_and(vu a, vu b)
{
    return _mm256_and_si256(a, b);
}

static inline vu vu_or(vu a, vu b)
{
    return _mm256_or_si256(a, b);
}

static inline vu vu_xor(vu a, vu b)
{
    return _mm256_xor_si256(a, b);
}

static inline vu vu_xor3(vu a, vu b, vu c)
{
    return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
}

static inline vu vu_at_least(vu a, vu b)
{
    return _mm256_cmpeq_epi32(_mm256_max_epu32(a, b), a);
}

static inline vu vu_max(vu a, vu b)
{
    return _mm256_max_epu32(a, b);
}

static inline vu vu_max_halves(vu a, vu b)
{
    return _mm256_max_epu16(a, b);
}

static inline vu vu_choose(vu mask, vu a, vu b)
{
    return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b));
}

static inline void vu_mul_wide(vu a, vu b, vu *high, vu *low)
{
    const __m256i even = _mm256_mul_epu32(a, b);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32));
    *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}

#include "simd/bits_avx2.h"

#endif
