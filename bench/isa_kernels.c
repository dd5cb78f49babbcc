/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peak, read, write and softmax loops, compiled once per instruction set with that
 * set's flags and BENCH_ISA_<SET> defined; see isa_kernels.h.
 *
 * Peak. Each of ACCUMULATORS registers is updated as acc = acc * a + b. Every
 * such chain is serial, and chains are independent: a core with two pipes and
 * a latency of four cycles needs eight of them, one with four pipes sixteen.
 * Accumulators and the two operands together just fill the register file, so
 * that the loop has no memory traffic. a and b come from volatile variables;
 * with a = 3/4 and b = 1/4 all values approach 1, far from denormals and
 * infinities, which some processors handle slowly. NEON's instruction can only
 * overwrite the addend, so there a step is acc = acc + a * b, whose sums stay
 * below 2^24, where another a * b no longer changes them.
 *
 * Peak with loads. What a product of matrices does at best: a register tile of
 * TILE_ROWS x TILE_VECTORS sums takes, for each step along the inner dimension,
 * TILE_ROWS broadcasts of single elements and TILE_VECTORS vectors from memory
 * that L1 holds. The tile is the largest that the registers hold, which is the
 * one that any good product uses, the library's among them. Where the loads
 * lower the clock, or take part of the multiply-adds' time, it shows here.
 *
 * The scalar table stands for a processor's baseline. On x86-64 that is SSE2,
 * which has no fused multiply-add: there a step is a multiplication and an
 * addition on four lanes, the most that baseline code can do.
 */
#include "isa_kernels.h"

#include <math.h>
#include <sleef.h>

#if defined(BENCH_ISA_AVX512)
#include <immintrin.h>
#define ISA                    "avx512"
#define TABLE                  bench_kernels_avx512
#define LANES                  16
#define ACCUMULATORS           30
#define TILE_ROWS              8
#define TILE_VECTORS           3
#define STEP(acc, a, b)        _mm512_fmadd_ps(acc, a, b)
#define ADD_PRODUCT(acc, a, b) _mm512_fmadd_ps(a, b, acc)
#define BROADCAST(p)           _mm512_set1_ps(*(p))
#define MAXIMUM(a, b)          _mm512_max_ps(a, b)
#define EXP2(a)                Sleef_exp2f16_u10avx512f(a)
#define STREAM(p, x)           _mm512_stream_ps(p, x)
typedef __m512 vec;
#elif defined(BENCH_ISA_AVX2)
#include <immintrin.h>
#define ISA                    "avx2"
#define TABLE                  bench_kernels_avx2
#define LANES                  8
#define ACCUMULATORS           14
#define TILE_ROWS              4
#define TILE_VECTORS           3
#define STEP(acc, a, b)        _mm256_fmadd_ps(acc, a, b)
#define ADD_PRODUCT(acc, a, b) _mm256_fmadd_ps(a, b, acc)
#define BROADCAST(p)           _mm256_broadcast_ss(p)
#define MAXIMUM(a, b)          _mm256_max_ps(a, b)
#define EXP2(a)                Sleef_exp2f8_u10avx2(a)
#define STREAM(p, x)           _mm256_stream_ps(p, x)
typedef __m256 vec;
#elif defined(BENCH_ISA_NEON) || (defined(BENCH_ISA_SCALAR) && defined(__aarch64__))
#include <arm_neon.h>
#if defined(BENCH_ISA_NEON)
#define ISA   "neon"
#define TABLE bench_kernels_neon
#else
#define ISA   "scalar"
#define TABLE bench_kernels_scalar
#endif
#define LANES                  4
#define ACCUMULATORS           30
#define TILE_ROWS              6
#define TILE_VECTORS           4
#define STEP(acc, a, b)        vfmaq_f32(acc, a, b)
#define ADD_PRODUCT(acc, a, b) vfmaq_f32(acc, a, b)
#define BROADCAST(p)           vld1q_dup_f32(p)
#define MAXIMUM(a, b)          vmaxq_f32(a, b)
#define EXP2(a)                Sleef_exp2f4_u10advsimd(a)
typedef float32x4_t vec;
#elif defined(BENCH_ISA_SCALAR) && defined(__x86_64__)
#include <emmintrin.h>
#define ISA                    "scalar"
#define TABLE                  bench_kernels_scalar
#define LANES                  4
#define ACCUMULATORS           14
#define TILE_ROWS              2
#define TILE_VECTORS           4
#define STEP(acc, a, b)        ((acc) * (a) + (b))
#define ADD_PRODUCT(acc, a, b) ((acc) + (a) * (b))
#define BROADCAST(p)           _mm_set1_ps(*(p))
#define MAXIMUM(a, b)          _mm_max_ps(a, b)
#define EXP2(a)                Sleef_exp2f4_u10sse2(a)
#define STREAM(p, x)           _mm_stream_ps(p, x)
typedef __m128 vec;
#elif defined(BENCH_ISA_SCALAR)
#define ISA                    "scalar"
#define TABLE                  bench_kernels_scalar
#define LANES                  1
#define ACCUMULATORS           14
#define TILE_ROWS              2
#define TILE_VECTORS           4
#define STEP(acc, a, b)        ((acc) * (a) + (b))
#define ADD_PRODUCT(acc, a, b) ((acc) + (a) * (b))
#define BROADCAST(p)           (*(p))
#define MAXIMUM(a, b)          fmaxf(a, b)
#define EXP2(a)                Sleef_exp2f_u10(a)
typedef float vec;
#else
#error "define BENCH_ISA_SCALAR, BENCH_ISA_AVX2, BENCH_ISA_AVX512 or BENCH_ISA_NEON"
#endif

/* Steps along the inner dimension, the head size of most models: 14 KiB of operands on AVX-512. */
#define DEPTH 64

/*
 * Places that the read loop reads from in turn, and independent sums of each. What is fetched ahead is decided for each
 * stream, so that one of them need not use all of a core's bandwidth.
 */
#define READ_STREAMS 4
#define READ_SUMS    2

#include "isa_vectors.h"

static inline float vec_largest(vec v)
{
    float lanes[LANES], largest = -INFINITY;
    vec_store(lanes, v);
    for (int i = 0; i < LANES; i++)
        largest = lanes[i] > largest ? lanes[i] : largest;
    return largest;
}

static float registers_loop(int64_t steps)
{
    volatile float factor = 0.75f, addend = 0.25f;
    const vec a = vec_set(factor), b = vec_set(addend);
    vec acc[ACCUMULATORS];
#pragma GCC unroll 32
    for (int i = 0; i < ACCUMULATORS; i++)
        acc[i] = vec_set((float)i * factor);
    for (int64_t s = 0; s < steps; s++) {
#pragma GCC unroll 32
        for (int i = 0; i < ACCUMULATORS; i++)
            acc[i] = STEP(acc[i], a, b);
    }
    vec total = acc[0];
#pragma GCC unroll 32
    for (int i = 1; i < ACCUMULATORS; i++)
        total = total + acc[i];
    return vec_sum(total);
}

/* Factors of 3/4 and 1/4, so that sums stay below 2^24, where another product no longer changes them. */
static float loads_loop(int64_t steps)
{
    volatile float factor = 0.75f, other = 0.25f;
    _Alignas(64) float rows[TILE_ROWS * DEPTH], vectors[DEPTH * TILE_VECTORS * LANES];
    for (int i = 0; i < TILE_ROWS * DEPTH; i++)
        rows[i] = factor;
    for (int i = 0; i < DEPTH * TILE_VECTORS * LANES; i++)
        vectors[i] = other;
    vec acc[TILE_ROWS * TILE_VECTORS];
#pragma GCC unroll 32
    for (int i = 0; i < TILE_ROWS * TILE_VECTORS; i++)
        acc[i] = vec_set((float)i * factor);
    for (int64_t s = 0; s < steps; s++) {
        for (int c = 0; c < DEPTH; c++) {
            vec b[TILE_VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < TILE_VECTORS; v++)
                b[v] = vec_load(vectors + (c * TILE_VECTORS + v) * LANES);
#pragma GCC unroll 8
            for (int r = 0; r < TILE_ROWS; r++) {
                const vec a = BROADCAST(rows + r * DEPTH + c);
#pragma GCC unroll 4
                for (int v = 0; v < TILE_VECTORS; v++)
                    acc[r * TILE_VECTORS + v] = ADD_PRODUCT(acc[r * TILE_VECTORS + v], a, b[v]);
            }
        }
    }
    vec total = acc[0];
#pragma GCC unroll 32
    for (int i = 1; i < TILE_ROWS * TILE_VECTORS; i++)
        total = total + acc[i];
    return vec_sum(total);
}

/* Bits of any kind are added as integers, as NaN and denormals may take longer than other floats. */
typedef uint32_t words __attribute__((vector_size(sizeof(vec))));

/* Some words of each stream in turn, and the next ones. */
static uint32_t read_loop(const uint32_t *p, int64_t n)
{
    const int64_t apart = n / READ_STREAMS;
    words sums[READ_STREAMS * READ_SUMS] = {{0}};
    for (int64_t at = 0; at < apart; at += (int64_t)READ_SUMS * LANES) {
#pragma GCC unroll 8
        for (int i = 0; i < READ_STREAMS * READ_SUMS; i++) {
            words read;
            memcpy(&read, p + (i / READ_SUMS) * apart + at + (int64_t)(i % READ_SUMS) * LANES, sizeof read);
            sums[i] += read;
        }
    }
    uint32_t total = 0;
    for (int i = 0; i < READ_STREAMS * READ_SUMS; i++)
        for (int lane = 0; lane < LANES; lane++)
            total += sums[i][lane];
    return total;
}

/* As a copy of short rows writes: a cache fetches each line that it does not hold, and writes it back later. */
static void write_loop(uint32_t *p, int64_t n)
{
    const words ones = {0};
    for (int64_t at = 0; at < n; at += LANES) {
        const words x = ones + 1;
        memcpy(p + at, &x, sizeof x);
    }
}

/* As a state is carried on: some words of each stream are read, changed and written where they were. */
static void update_loop(uint32_t *p, int64_t n)
{
    static const volatile uint32_t nothing = 0; /* which the compiler cannot know */
    const words change = (words){0} + nothing;
    const int64_t apart = n / READ_STREAMS;
    for (int64_t at = 0; at < apart; at += LANES) {
#pragma GCC unroll 4
        for (int i = 0; i < READ_STREAMS; i++) {
            words x;
            memcpy(&x, p + i * apart + at, sizeof x);
            x += change;
            memcpy(p + i * apart + at, &x, sizeof x);
        }
    }
}

#if defined(STREAM)
/* Past the caches, without fetching anything. */
static void stream_loop(uint32_t *p, int64_t n)
{
    const words ones = {0}, x = ones + 1;
    vec v;
    memcpy(&v, &x, sizeof v);
    for (int64_t at = 0; at < n; at += LANES)
        STREAM((float *)p + at, v);
    _mm_sfence();
}
#else
#define stream_loop NULL
#endif

/*
 * Three sweeps over a row that the cache holds: maximum, exponentials and
 * their sum, division. Four independent maxima and sums keep the sweeps from
 * waiting on one chain. The last n % LANES scores are padded with -inf.
 */
static void softmax_row(float *row, int64_t n, const uint8_t *live)
{
    enum { CHAINS = 4 };
    if (live != NULL)
        for (int64_t j = 0; j < n; j++)
            row[j] = live[j] != 0 ? row[j] : -INFINITY;

    const int64_t whole = n - n % LANES, unrolled = n - n % ((int64_t)CHAINS * LANES);
    float tail[LANES];
    for (int64_t j = 0; j < LANES; j++)
        tail[j] = whole + j < n ? row[whole + j] : -INFINITY;

    vec top[CHAINS], sum[CHAINS];
    for (int c = 0; c < CHAINS; c++) {
        top[c] = vec_load(tail);
        sum[c] = vec_set(0.0f);
    }
    int64_t j = 0;
    for (; j < unrolled; j += CHAINS * LANES)
        for (int c = 0; c < CHAINS; c++)
            top[c] = MAXIMUM(top[c], vec_load(row + j + c * LANES));
    for (; j < whole; j += LANES)
        top[0] = MAXIMUM(top[0], vec_load(row + j));
    const float largest = vec_largest(MAXIMUM(MAXIMUM(top[0], top[1]), MAXIMUM(top[2], top[3])));
    if (largest == -INFINITY) {
        memset(row, 0, (size_t)n * sizeof *row);
        return;
    }

    const vec shift = vec_set(largest);
    for (j = 0; j < unrolled; j += CHAINS * LANES)
        for (int c = 0; c < CHAINS; c++) {
            const vec e = EXP2(vec_load(row + j + c * LANES) - shift);
            vec_store(row + j + c * LANES, e);
            sum[c] = sum[c] + e;
        }
    for (; j < whole; j += LANES) {
        const vec e = EXP2(vec_load(row + j) - shift);
        vec_store(row + j, e);
        sum[0] = sum[0] + e;
    }
    if (whole < n) {
        const vec e = EXP2(vec_load(tail) - shift);
        vec_store(tail, e);
        sum[1] = sum[1] + e;
    }

    const float inverse = 1.0f / vec_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    const vec factor = vec_set(inverse);
    for (j = 0; j < whole; j += LANES)
        vec_store(row + j, vec_load(row + j) * factor);
    for (; j < n; j++)
        row[j] = tail[j - whole] * inverse;
}

const struct bench_isa_kernels TABLE = {
    .isa = ISA,
    .factors = "f32",
    .registers = {.flops_per_step = 2 * LANES * ACCUMULATORS, .run = registers_loop},
    .loads = {.flops_per_step = 2 * LANES * TILE_ROWS * TILE_VECTORS * DEPTH, .run = loads_loop},
    .read = read_loop,
    .write = write_loop,
    .update = update_loop,
    .stream = stream_loop,
    .softmax_row = softmax_row,
};
