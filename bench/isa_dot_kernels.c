/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The peak of instructions that multiply pairs of bf16 and add both products to
 * a float, compiled once per instruction set that has them; see isa_kernels.h.
 *
 * Each of ACCUMULATORS registers is updated as acc = acc + a0 * b0 + a1 * b1,
 * four operations for a lane; BFMMLA takes two such steps at once. Sixteen
 * independent chains are enough for two pipes and a latency of eight cycles. The
 * elements of a and b come from volatile variables: the loop has no memory
 * traffic, and nothing to fold. They
 * are 3/4 and 1/4, which bf16 holds, so the sums stay below 2^24, where another
 * product no longer changes them: far from denormals, which VDPBF16PS takes for
 * 0, and from infinities.
 *
 * The loop with loads is that of isa_kernels.c, with a pair of bf16 where that
 * has a float.
 */
#include "isa_kernels.h"

#if defined(BENCH_ISA_AVX512_BF16)
#include <immintrin.h>
#if !defined(__AVX512BF16__)
#error "this instruction set needs -mavx512bf16"
#endif
#define ISA                 "avx512_bf16"
#define TABLE               bench_dot_kernels_avx512_bf16
#define LANES               16
#define TILE_ROWS           8
#define TILE_VECTORS        3
#define DOT_STEP(acc, a, b) _mm512_dpbf16_ps(acc, a, b)
#define BROADCAST(p)        ((__m512bh)_mm512_set1_epi32(*(p)))
typedef __m512 vec;
typedef __m512bh pairs;
#elif defined(BENCH_ISA_NEON_BF16)
#include <arm_neon.h>
#define ISA                 "neon_bf16"
#define TABLE               bench_dot_kernels_neon_bf16
#define LANES               4
#define TILE_ROWS           6
#define TILE_VECTORS        4
#define DOT_STEP(acc, a, b) vbfdotq_f32(acc, a, b)
#define BROADCAST(p)        vreinterpretq_bf16_s32(vld1q_dup_s32(p))
typedef float32x4_t vec;
typedef bfloat16x8_t pairs;
#elif defined(BENCH_ISA_NEON_BF16MM)
#include <arm_neon.h>
#define ISA                 "neon_bf16mm"
#define TABLE               bench_dot_kernels_neon_bf16mm
#define LANES               4
#define PRODUCTS            4
#define ROW_WORDS           4
#define DEPTH               16
#define TILE_ROWS           8
#define TILE_VECTORS        3
#define DOT_STEP(acc, a, b) vbfmmlaq_f32(acc, a, b)
#define BROADCAST(p)        vreinterpretq_bf16_s32(vld1q_s32(p))
typedef float32x4_t vec;
typedef bfloat16x8_t pairs;
#else
#error "define BENCH_ISA_AVX512_BF16, BENCH_ISA_NEON_BF16 or BENCH_ISA_NEON_BF16MM"
#endif

/* Products that a lane adds in a step, and words of a row that it takes: one, broadcast, or the operand of a block. */
#ifndef PRODUCTS
#define PRODUCTS  2
#define ROW_WORDS 1
#endif

#define ACCUMULATORS 16

/* Steps along the inner dimension: of 64 channels. */
#ifndef DEPTH
#define DEPTH 32
#endif

#include "isa_vectors.h"

/* Twice x, of which bf16 keeps the upper half. */
static inline int32_t pair_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits & 0xffff0000u) | bits >> 16;
    int32_t pair;
    memcpy(&pair, &bits, sizeof pair);
    return pair;
}

static inline pairs pairs_load(const int32_t *p)
{
    pairs v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline pairs pairs_set(float x)
{
    int32_t elements[LANES];
    for (int i = 0; i < LANES; i++)
        elements[i] = pair_of(x);
    return pairs_load(elements);
}

static float loads_loop(int64_t steps)
{
    volatile float factor = 0.75f, other = 0.25f;
    _Alignas(64) int32_t rows[TILE_ROWS * DEPTH * ROW_WORDS], vectors[DEPTH * TILE_VECTORS * LANES];
    for (int i = 0; i < TILE_ROWS * DEPTH * ROW_WORDS; i++)
        rows[i] = pair_of(factor);
    for (int i = 0; i < DEPTH * TILE_VECTORS * LANES; i++)
        vectors[i] = pair_of(other);
    vec acc[TILE_ROWS * TILE_VECTORS];
#pragma GCC unroll 32
    for (int i = 0; i < TILE_ROWS * TILE_VECTORS; i++)
        acc[i] = vec_set((float)i * factor);
    for (int64_t s = 0; s < steps; s++) {
        for (int c = 0; c < DEPTH; c++) {
            pairs b[TILE_VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < TILE_VECTORS; v++)
                b[v] = pairs_load(vectors + (c * TILE_VECTORS + v) * LANES);
#pragma GCC unroll 8
            for (int r = 0; r < TILE_ROWS; r++) {
                const pairs a = BROADCAST(rows + (r * DEPTH + c) * ROW_WORDS);
#pragma GCC unroll 4
                for (int v = 0; v < TILE_VECTORS; v++)
                    acc[r * TILE_VECTORS + v] = DOT_STEP(acc[r * TILE_VECTORS + v], a, b[v]);
            }
        }
    }
    float total = 0.0f;
#pragma GCC unroll 32
    for (int i = 0; i < TILE_ROWS * TILE_VECTORS; i++)
        total += vec_sum(acc[i]);
    return total;
}

static float registers_loop(int64_t steps)
{
    volatile float factor = 0.75f, other = 0.25f;
    const pairs a = pairs_set(factor), b = pairs_set(other);
    vec acc[ACCUMULATORS];
#pragma GCC unroll 16
    for (int i = 0; i < ACCUMULATORS; i++)
        acc[i] = vec_set((float)i * factor);
    for (int64_t s = 0; s < steps; s++) {
#pragma GCC unroll 16
        for (int i = 0; i < ACCUMULATORS; i++)
            acc[i] = DOT_STEP(acc[i], a, b);
    }
    float total = 0.0f;
#pragma GCC unroll 16
    for (int i = 0; i < ACCUMULATORS; i++)
        total += vec_sum(acc[i]);
    return total;
}

const struct bench_isa_kernels TABLE = {
    .isa = ISA,
    .factors = "bf16",
    .registers = {.flops_per_step = 2 * PRODUCTS * LANES * ACCUMULATORS, .run = registers_loop},
    .loads = {.flops_per_step = 2 * PRODUCTS * LANES * TILE_ROWS * TILE_VECTORS * DEPTH, .run = loads_loop},
};
