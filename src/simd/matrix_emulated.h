/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matrix registers of matrix_amx.h by AVX-512, some hundred times slower,
 * for tests on processors without AMX: the same bits, down to what becomes of
 * denormals. (Which of several NaN comes out is not promised.)
 */
#ifndef ATTN_MATRIX_SIMD_H
#define ATTN_MATRIX_SIMD_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define MATRIX_ROWS  16
#define MATRIX_WORDS 16

static _Thread_local struct {
    int entered;
    uint8_t bytes[8][MATRIX_ROWS][64] __attribute__((aligned(64)));
} matrix;

/** An instruction without a configuration ends a process; so does this. */
static uint8_t (*matrix_register(int r))[64]
{
    if (!matrix.entered)
        __builtin_trap();
    return matrix.bytes[r];
}

static void matrix_enter(void)
{
    memset(&matrix, 0, sizeof matrix);
    matrix.entered = 1;
}

static void matrix_leave(void)
{
    matrix.entered = 0;
}

static inline void matrix_load(int r, const void *p, int64_t stride)
{
    uint8_t(*to)[64] = matrix_register(r);
    for (int i = 0; i < MATRIX_ROWS; i++)
        memcpy(to[i], (const char *)p + i * stride, 64);
}

static inline void matrix_stream(int r, const void *p, int64_t stride)
{
    matrix_load(r, p, stride);
}

static inline void matrix_store(int r, void *p, int64_t stride)
{
    uint8_t(*from)[64] = matrix_register(r);
    for (int i = 0; i < MATRIX_ROWS; i++)
        memcpy((char *)p + i * stride, from[i], 64);
}

static inline void matrix_zero(int r)
{
    memset(matrix_register(r), 0, sizeof matrix.bytes[r]);
}

/** The first and the second elements of 16 pairs. */
static inline __m512 matrix_first(const void *pairs)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_load_si512(pairs), 16));
}

static inline __m512 matrix_second(const void *pairs)
{
    const __m512i upper = _mm512_set1_epi32((int32_t)0xffff0000u);
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_load_si512(pairs), upper));
}

/** c += a b as MXCSR has it: a function that is not inlined, so that nothing of it is done before that has been set. */
static __attribute__((noinline)) void matrix_multiply(int c, int a, int b)
{
    uint8_t(*const sums)[64] = matrix_register(c), (*const left)[64] = matrix.bytes[a];
    __m512 first[MATRIX_WORDS], second[MATRIX_WORDS];
    float x[2][MATRIX_WORDS] __attribute__((aligned(64)));
    for (int u = 0; u < MATRIX_WORDS; u++) {
        first[u] = matrix_first(matrix.bytes[b][u]);
        second[u] = matrix_second(matrix.bytes[b][u]);
    }
    for (int i = 0; i < MATRIX_ROWS; i++) {
        _mm512_store_ps(x[0], matrix_first(left[i]));
        _mm512_store_ps(x[1], matrix_second(left[i]));
        __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
        for (int u = 0; u < MATRIX_WORDS; u++) {
            even = _mm512_fmadd_ps(_mm512_set1_ps(x[0][u]), first[u], even);
            odd = _mm512_fmadd_ps(_mm512_set1_ps(x[1][u]), second[u], odd);
        }
        _mm512_store_ps(sums[i], _mm512_add_ps(_mm512_load_ps(sums[i]), _mm512_add_ps(even, odd)));
    }
}

/**
 * To nearest even, denormals 0 before and after: the processor's own modes do that, which ask after rounding to 24 bits
 * whether a result is denormal. To round first and look then would keep numbers that round up to the smallest normal.
 */
static inline void matrix_dot_bf16(int c, int a, int b)
{
    const unsigned modes = _mm_getcsr(), masked = 0x1f80, flush_results = 0x8000, flush_inputs = 0x0040;
    _mm_setcsr(masked | flush_results | flush_inputs);
    matrix_multiply(c, a, b);
    _mm_setcsr(modes);
}

/** The first and third, and the second and fourth of fours of int8, as pairs of int16. */
static inline __m512i matrix_even(__m512i fours)
{
    return _mm512_srai_epi16(_mm512_slli_epi16(fours, 8), 8);
}

static inline __m512i matrix_odd(__m512i fours)
{
    return _mm512_srai_epi16(fours, 8);
}

static inline void matrix_dot_int8(int c, int a, int b)
{
    uint8_t(*const sums)[64] = matrix_register(c), (*const left)[64] = matrix.bytes[a];
    for (int i = 0; i < MATRIX_ROWS; i++) {
        __m512i sum = _mm512_load_si512(sums[i]);
        for (int u = 0; u < MATRIX_WORDS; u++) {
            int32_t word;
            memcpy(&word, left[i] + 4 * u, sizeof word);
            const __m512i x = _mm512_set1_epi32(word), y = _mm512_load_si512(matrix.bytes[b][u]);
            sum = _mm512_add_epi32(sum, _mm512_madd_epi16(matrix_even(x), matrix_even(y)));
            sum = _mm512_add_epi32(sum, _mm512_madd_epi16(matrix_odd(x), matrix_odd(y)));
        }
        _mm512_store_si512(sums[i], sum);
    }
}

#endif
