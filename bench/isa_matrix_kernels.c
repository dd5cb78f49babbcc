/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The peak of matrix registers, compiled once per instruction set that has
 * them, and once more for its products of int8; see isa_kernels.h. On AMX a
 * register holds 16 rows of 64 bytes, and one TDPBF16PS adds 32 products of
 * bf16 to each of 16 x 16 floats, one TDPBSSD 64 of int8 to each of as many
 * int32.
 *
 * Of the eight registers four hold sums, which are independent chains, two the
 * left and two the right factors: the largest tile that a product of matrices
 * can have there. A product begins every 16 cycles, be it of one chain or of
 * several. Factors of bf16 are 3/4 and 1/4, so that sums end at 2^27, where
 * another product no longer changes them; those of int8 are 1, and sums wrap
 * around.
 *
 * The loop with loads takes its factors from L1, four registers for four
 * products. The emulation has the loops as well, on the library's own emulated
 * registers: it is for tests, and its peak says nothing of a machine.
 */
#include "isa_kernels.h"

#if defined(BENCH_ISA_AMX_BF16)
#define ISA   "amx_bf16"
#define TABLE bench_dot_kernels_amx_bf16

#include "simd/matrix_amx.h"
#elif defined(BENCH_ISA_AMX_INT8)
#define ISA   "amx_int8"
#define TABLE bench_dot_kernels_amx_int8
#define INT8
#include "simd/matrix_amx.h"
#elif defined(BENCH_ISA_EMULATED_AMX_BF16)
#define ISA   "emulated_amx_bf16"
#define TABLE bench_dot_kernels_emulated_amx_bf16
#include "simd/matrix_emulated.h"
#elif defined(BENCH_ISA_EMULATED_AMX_INT8)
#define ISA   "emulated_amx_int8"
#define TABLE bench_dot_kernels_emulated_amx_int8
#define INT8
#include "simd/matrix_emulated.h"
#else
#error "define BENCH_ISA_AMX_BF16, BENCH_ISA_AMX_INT8 or one of these behind BENCH_ISA_EMULATED_"
#endif

/* Sizes of a register. */
#define ROWS  16
#define WORDS 16
#define BYTES 64

#define SUMS  4
#ifdef INT8
#define FACTORS            "int8"
#define DEEP               64
#define LEFT               0x01010101u
#define RIGHT              0x01010101u

#define matrix_dot_factors matrix_dot_int8
#else
#define FACTORS            "bf16"
#define DEEP               32
#define LEFT               0x3f403f40u /* 3/4 and 3/4 */
#define RIGHT              0x3e803e80u /* 1/4 and 1/4 */

#define matrix_dot_factors matrix_dot_bf16
#endif
#define PRODUCT (2 * ROWS * WORDS * DEEP) /* operations */

/* Products one after the other along the inner dimension: of 64 channels of bf16, or 128 of int8. */
#define DEPTH 2

static void fill(uint32_t *words, int count, uint32_t x)
{
    for (int i = 0; i < count; i++)
        words[i] = x;
}

static void clear_sums(void)
{
    matrix_zero(0);
    matrix_zero(1);
    matrix_zero(2);
    matrix_zero(3);
}

/* One tile: registers 0 to 3 += the rows of 4 and 5 by the columns of 6 and 7. */
static inline void add_products(void)
{
    matrix_dot_factors(0, 4, 6);
    matrix_dot_factors(1, 4, 7);
    matrix_dot_factors(2, 5, 6);
    matrix_dot_factors(3, 5, 7);
}

/* Of all elements of the sums; the registers are given back. */
static float leave_with_total(void)
{
    enum { ELEMENTS = ROWS * WORDS };
#ifdef INT8
    _Alignas(64) uint32_t sums[SUMS * ELEMENTS];
#else
    _Alignas(64) float sums[SUMS * ELEMENTS];
#endif
    matrix_store(0, sums, BYTES);
    matrix_store(1, sums + ELEMENTS, BYTES);
    matrix_store(2, sums + 2 * ELEMENTS, BYTES);
    matrix_store(3, sums + 3 * ELEMENTS, BYTES);
    matrix_leave();
    float total = 0.0f;
    for (int i = 0; i < SUMS * ELEMENTS; i++)
        total += (float)sums[i];
    return total;
}

static float registers_loop(int64_t steps)
{
    _Alignas(64) uint32_t left[ROWS * WORDS], right[ROWS * WORDS];
    fill(left, ROWS * WORDS, LEFT);
    fill(right, ROWS * WORDS, RIGHT);
    matrix_enter();
    matrix_load(4, left, BYTES);
    matrix_load(5, left, BYTES);
    matrix_load(6, right, BYTES);
    matrix_load(7, right, BYTES);
    clear_sums();
    for (int64_t s = 0; s < steps; s++)
        add_products();
    return leave_with_total();
}

/* Left factors are rows of matrix with DEPTH registers in a row, right ones registers one after the other. */
static float loads_loop(int64_t steps)
{
    _Alignas(64) uint32_t left[2 * ROWS * DEPTH * WORDS], right[DEPTH * 2 * ROWS * WORDS];
    fill(left, 2 * ROWS * DEPTH * WORDS, LEFT);
    fill(right, DEPTH * 2 * ROWS * WORDS, RIGHT);
    matrix_enter();
    clear_sums();
    for (int64_t s = 0; s < steps; s++)
        for (int c = 0; c < DEPTH; c++) {
            const uint32_t *const a = left + c * WORDS, *const b = right + c * 2 * ROWS * WORDS;
            matrix_load(4, a, DEPTH * BYTES);
            matrix_load(6, b, BYTES);
            matrix_load(7, b + ROWS * WORDS, BYTES);
            matrix_load(5, a + ROWS * DEPTH * WORDS, DEPTH * BYTES);
            add_products();
        }
    return leave_with_total();
}

const struct bench_isa_kernels TABLE = {
    .isa = ISA,
    .factors = FACTORS,
    .registers = {.flops_per_step = PRODUCT * SUMS, .run = registers_loop},
    .loads = {.flops_per_step = PRODUCT * SUMS * DEPTH, .run = loads_loop},
};
