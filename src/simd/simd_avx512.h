/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors of 16 floats on AVX-512 F, BW, DQ and VL.
 *
 * Every simd_*.h defines the same names, so that a kernel is written once:
 *   vf            a vector of VF_LEN floats         vm     a mask of VF_LEN lanes
 *   VF_STRIP      vectors of queries in a strip, VF_KEYS and VF_CHANNELS the
 *                 rows of the two register tiles: VF_STRIP * VF_KEYS
 *                 accumulators, VF_STRIP operands and one broadcast fill the
 *                 register file.
 * NaN rules that kernels rely on: vf_max(a, b) is b when a is NaN;
 * comparisons with NaN are false.
 */
#ifndef ATTN_SIMD_H
#define ATTN_SIMD_H

#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || !defined(__AVX512VL__)
#error "simd_avx512.h needs -mavx512f -mavx512bw -mavx512dq -mavx512vl"
#endif

#include "simd/exp2_polynomial.h"
#include "simd/tanh_polynomial.h"

#include <immintrin.h>
#include <sleef.h>
#include <stdint.h>
#include <string.h>

#define VF_LEN      16
#define VF_STRIP    3
#define VF_KEYS     8
#define VF_CHANNELS 8

typedef __m512 vf;
typedef __mmask16 vm;

static inline vf vf_zero(void)
{
    return _mm512_setzero_ps();
}

static inline vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}

static inline vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline void vf_store(float *p, vf a)
{
    _mm512_storeu_ps(p, a);
}

static inline vm vm_first(int n)
{
    return (vm)((1u << n) - 1u);
}

/** The first n of VF_LEN floats, the rest 0; reads no byte behind them. */
static inline vf vf_load_tail(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(vm_first(n), p);
}

static inline void vf_store_tail(float *p, vf a, int n)
{
    _mm512_mask_storeu_ps(p, vm_first(n), a);
}

/** VF_LEN floats from as many bf16, exact. */
static inline vf vf_load_bf16(const uint16_t *p)
{
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

/** VF_LEN floats from as many f16, exact. */
static inline vf vf_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

/** Rounds to the nearest bf16, ties to even; a NaN stays one. */
static inline void vf_store_bf16(uint16_t *p, vf a)
{
    const __m512i bits = _mm512_castps_si512(a), odd = _mm512_srli_epi32(_mm512_slli_epi32(bits, 15), 31);
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __m512i kept = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), rounded, quiet);
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16)));
}

/** Rounds to the nearest f16, ties to even; a NaN stays one. */
static inline void vf_store_f16(uint16_t *p, vf a)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/** 0, 1, 2, ... */
static inline vf vf_iota(void)
{
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

static inline vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

static inline vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

static inline vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

static inline vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

/** a * b + c with one rounding. */
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vf vf_floor(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}

static inline vf vf_abs(vf a)
{
    return _mm512_abs_ps(a);
}

/** The larger; b when a is NaN. */
static inline vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

static inline vm vf_gt(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}

static inline vm vf_ge(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}

static inline vm vf_eq(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}

/** Lanes whose byte is not 0. */
static inline vm vm_from_bytes(const uint8_t *p)
{
    const __m128i b = _mm_loadu_si128((const __m128i *)p);
    return _mm_test_epi8_mask(b, b);
}

static inline int vm_any(vm a)
{
    return a != 0;
}

/** a where m, else b. */
static inline vf vf_select(vm m, vf a, vf b)
{
    return _mm512_mask_blend_ps(m, b, a);
}

/**
 * 2^x with the bits of Sleef_exp2f16_u10avx512f, for any x: at most 1.0 ULP.
 * The integer is x - r, exactly, which saves rounding a second time.
 */
static inline vf vf_exp2(vf x)
{
    const vf r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); /* 0 for -inf */
    vf p = vf_fma(vf_set1(EXP2_C6), r, vf_set1(EXP2_C5));
    p = vf_fma(p, r, vf_set1(EXP2_C4));
    p = vf_fma(p, r, vf_set1(EXP2_C3));
    p = vf_fma(p, r, vf_set1(EXP2_C2));
    p = vf_fma(p, r, vf_set1(EXP2_C1));
    p = vf_fma(p, r, vf_set1(1.0f));
    return _mm512_scalef_ps(p, vf_sub(x, r));
}

/** Natural logarithm by SLEEF. */
static inline vf vf_log(vf x)
{
    return Sleef_logf16_u10avx512f(x);
}

/** e^x by SLEEF, at most 1.0 ULP. */
static inline vf vf_exp(vf x)
{
    return Sleef_expf16_u10avx512f(x);
}

/** Hyperbolic tangent by SLEEF, at most 1.0 ULP. */
static inline vf vf_tanh(vf x)
{
    return Sleef_tanhf16_u10avx512f(x);
}

/** y = 2 log2(e) x within what vf_tanh_fast() (tanh.h) wants. NaN stays: it is the second operand. */
static inline vf tanh_clamp(vf y)
{
    return _mm512_min_ps(vf_set1(TANH_MOST), y);
}

/** 2^n and r of y = n + r. */
static inline vf tanh_split(vf y, vf *r)
{
    *r = _mm512_reduce_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm512_scalef_ps(vf_set1(1.0f), vf_sub(y, *r));
}

/** The elements of even and of odd index of a and b one behind the other. */
static inline void vf_deinterleave(vf a, vf b, vf *even, vf *odd)
{
    const __m512i first = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *even = _mm512_permutex2var_ps(a, first, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(first, _mm512_set1_epi32(1)), b);
}

/** The way back: a and b one behind the other have even and odd in turns. */
static inline void vf_interleave(vf even, vf odd, vf *a, vf *b)
{
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *a = _mm512_permutex2var_ps(even, first, odd);
    *b = _mm512_permutex2var_ps(even, _mm512_add_epi32(first, _mm512_set1_epi32(8)), odd);
}

/** Transposes a VF_LEN x VF_LEN block held in registers. */
static inline void vf_transpose(vf a[VF_LEN])
{
    vf t[VF_LEN];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        const __m512d p0 = _mm512_castps_pd(t[i]), p1 = _mm512_castps_pd(t[i + 1]);
        const __m512d p2 = _mm512_castps_pd(t[i + 2]), p3 = _mm512_castps_pd(t[i + 3]);
        a[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(p0, p2));
        a[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(p0, p2));
        a[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(p1, p3));
        a[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(p1, p3));
    }
    /* a[4g+c] now holds column 4*lane128+c of rows 4g..4g+3: gather the 128-bit lanes. */
    for (int c = 0; c < 4; c++) {
        t[c] = _mm512_shuffle_f32x4(a[c], a[c + 4], 0x88);
        t[c + 4] = _mm512_shuffle_f32x4(a[c], a[c + 4], 0xdd);
        t[c + 8] = _mm512_shuffle_f32x4(a[c + 8], a[c + 12], 0x88);
        t[c + 12] = _mm512_shuffle_f32x4(a[c + 8], a[c + 12], 0xdd);
    }
    for (int c = 0; c < 4; c++) {
        a[c] = _mm512_shuffle_f32x4(t[c], t[c + 8], 0x88);
        a[c + 8] = _mm512_shuffle_f32x4(t[c], t[c + 8], 0xdd);
        a[c + 4] = _mm512_shuffle_f32x4(t[c + 4], t[c + 12], 0x88);
        a[c + 12] = _mm512_shuffle_f32x4(t[c + 4], t[c + 12], 0xdd);
    }
}

/** Lane i of a quarter: the four lanes of that quarter of a[i] added up, (l0 + l2) + (l1 + l3). */
static inline vf vf_sum_quarters(const vf a[4])
{
    const __m512d x = _mm512_castps_pd(vf_add(_mm512_unpacklo_ps(a[0], a[1]), _mm512_unpackhi_ps(a[0], a[1])));
    const __m512d y = _mm512_castps_pd(vf_add(_mm512_unpacklo_ps(a[2], a[3]), _mm512_unpackhi_ps(a[2], a[3])));
    return vf_add(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}

/** Lane i of quarter k: lanes i of the four quarters of a[k] added up likewise. */
static inline vf vf_add_quarters(const vf a[4])
{
    const vf x = vf_add(_mm512_shuffle_f32x4(a[0], a[1], 0x44), _mm512_shuffle_f32x4(a[0], a[1], 0xee));
    const vf y = vf_add(_mm512_shuffle_f32x4(a[2], a[3], 0x44), _mm512_shuffle_f32x4(a[2], a[3], 0xee));
    return vf_add(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));
}

/** Lane i of quarter k becomes lane k of quarter i. */
static inline vf vf_turn_quarters(vf a)
{
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), a);
}

/**
 * Lane i: all lanes of a[i] added up, in one order. Of the four lanes of a quarter (l0 + l2) + (l1 + l3); of four
 * quarters likewise, of two their sum. a is overwritten.
 */
static inline vf vf_sum_across(vf a[VF_LEN])
{
    for (int i = 0; i < 4; i++)
        a[i] = vf_sum_quarters(a + 4 * i);
    return vf_add_quarters(a);
}

/** The largest of all lanes, none of which is NaN. */
static inline float vf_max_across(vf a)
{
    return _mm512_reduce_max_ps(a);
}

/** a[0..3] transposed in each of their 128-bit quarters: a[c] then holds columns c, 4 + c, 8 + c, 12 + c. */
static inline void transpose_quarters(vf a[4])
{
    const __m512d p0 = _mm512_castps_pd(_mm512_unpacklo_ps(a[0], a[1]));
    const __m512d p1 = _mm512_castps_pd(_mm512_unpackhi_ps(a[0], a[1]));
    const __m512d p2 = _mm512_castps_pd(_mm512_unpacklo_ps(a[2], a[3]));
    const __m512d p3 = _mm512_castps_pd(_mm512_unpackhi_ps(a[2], a[3]));
    a[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(p0, p2));
    a[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(p0, p2));
    a[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(p1, p3));
    a[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(p1, p3));
}

/** vf_transpose() of a block of which rows from 4 on are 0, whatever they hold. */
static inline void vf_transpose_from4(vf a[VF_LEN])
{
    transpose_quarters(a);
    for (int c = 0; c < 4; c++) {
        a[12 + c] = _mm512_zextps128_ps512(_mm512_extractf32x4_ps(a[c], 3));
        a[8 + c] = _mm512_zextps128_ps512(_mm512_extractf32x4_ps(a[c], 2));
        a[4 + c] = _mm512_zextps128_ps512(_mm512_extractf32x4_ps(a[c], 1));
        a[c] = _mm512_zextps128_ps512(_mm512_castps512_ps128(a[c]));
    }
}

/** vf_transpose() of which a[0..3] alone are wanted; the others are left undefined. */
static inline void vf_transpose_to4(vf a[VF_LEN])
{
    for (int c = 0; c < 4; c++) {
        a[c] = _mm512_insertf32x4(a[c], _mm512_castps512_ps128(a[4 + c]), 1);
        a[c] = _mm512_insertf32x4(a[c], _mm512_castps512_ps128(a[8 + c]), 2);
        a[c] = _mm512_insertf32x4(a[c], _mm512_castps512_ps128(a[12 + c]), 3);
    }
    transpose_quarters(a);
}

/** vf_transpose() of a block of which rows from 8 on are 0, whatever they hold. */
static inline void vf_transpose_from8(vf a[VF_LEN])
{
    transpose_quarters(a);
    transpose_quarters(a + 4);
    for (int c = 0; c < 4; c++) { /* column 4 * quarter + c: four rows of a[c], four of a[4 + c] */
        const __m256 low0 = _mm512_castps512_ps256(a[c]), low1 = _mm512_castps512_ps256(a[4 + c]);
        const __m256 high0 = _mm512_extractf32x8_ps(a[c], 1), high1 = _mm512_extractf32x8_ps(a[4 + c], 1);
        a[c] = _mm512_zextps256_ps512(_mm256_permute2f128_ps(low0, low1, 0x20));
        a[4 + c] = _mm512_zextps256_ps512(_mm256_permute2f128_ps(low0, low1, 0x31));
        a[8 + c] = _mm512_zextps256_ps512(_mm256_permute2f128_ps(high0, high1, 0x20));
        a[12 + c] = _mm512_zextps256_ps512(_mm256_permute2f128_ps(high0, high1, 0x31));
    }
}

/** vf_transpose() of which a[0..7] alone are wanted; the others are left undefined. */
static inline void vf_transpose_to8(vf a[VF_LEN])
{
    for (int c = 0; c < 4; c++) {
        const vf low = _mm512_insertf32x8(a[c], _mm512_castps512_ps256(a[4 + c]), 1);
        const vf high = _mm512_insertf32x8(a[8 + c], _mm512_castps512_ps256(a[12 + c]), 1);
        a[c] = _mm512_shuffle_f32x4(low, high, 0x88);
        a[4 + c] = _mm512_shuffle_f32x4(low, high, 0xdd);
    }
    transpose_quarters(a);
    transpose_quarters(a + 4);
}

/*
 * Unsigned integers, VF_LEN of 32 bits: for random numbers and bits of floats.
 *   vu_mul_wide   the upper and lower halves of products
 *   vu_at_least   all bits of the lanes where a >= b, none of the others
 *   vu_max, vu_max_halves   the larger ones of 32 bits, and of 16
 *   vu_choose     the bits of a where those of mask are set, else of b
 */
typedef __m512i vu;

static inline vu vu_set1(uint32_t x)
{
    return _mm512_set1_epi32((int)x);
}

static inline vu vu_iota(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

static inline vu vu_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

static inline void vu_store(void *p, vu a)
{
    _mm512_storeu_si512(p, a);
}

static inline vu vu_add(vu a, vu b)
{
    return _mm512_add_epi32(a, b);
}

static inline vu vu_and(vu a, vu b)
{
    return _mm512_and_si512(a, b);
}

static inline vu vu_or(vu a, vu b)
{
    return _mm512_or_si512(a, b);
}

static inline vu vu_xor(vu a, vu b)
{
    return _mm512_xor_si512(a, b);
}

/** The exclusive or of three. */
static inline vu vu_xor3(vu a, vu b, vu c)
{
    return _mm512_ternarylogic_epi32(a, b, c, 0x96);
}

static inline vu vu_at_least(vu a, vu b)
{
    return _mm512_movm_epi32(_mm512_cmpge_epu32_mask(a, b));
}

static inline vu vu_max(vu a, vu b)
{
    return _mm512_max_epu32(a, b);
}

static inline vu vu_max_halves(vu a, vu b)
{
    return _mm512_max_epu16(a, b);
}

static inline vu vu_choose(vu mask, vu a, vu b)
{
    return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
}

static inline void vu_mul_wide(vu a, vu b, vu *high, vu *low)
{
    const __m512i even = _mm512_mul_epu32(a, b),
                  odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32));
    *high = _mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB);
    *low = _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_CCAA);
}

#include "simd/bits_avx512.h"

#endif
