/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The peak of matrix registers, compiled once per instruction set that has
 * them; see isa_kernels.h. On AMX a register holds 16 rows of 64 bytes, and one
 * TDPBF16PS adds 32 products of bf16 to each of 16 x 16 floats.
 *
 * Of the eight registers four hold sums, which are independent chains, two the
 * left and two the right factors: the largest tile that a product of matrices
 * can have there. A product begins every 16 cycles, be it of one chain or of
 * several. The factors are 3/4 and 1/4, so that sums end at 2^27, where
 * another product no longer changes them.
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
#elif defined(BENCH_ISA_EMULATED_AMX_BF16)
#define ISA   "emulated_amx_bf16"
#define TABLE bench_dot_kernels_emulated_amx_bf16
#include "simd/matrix_emulated.h"
#else
#error "define BENCH_ISA_AMX_BF16 or BENCH_ISA_EMULATED_AMX_BF16"
#endif

/* Sizes of a register. */
#define ROWS    16
#define WORDS   16
#define BYTES   64

#define SUMS    4
#define PRODUCT (2 * ROWS * WORDS * 32) /* operations */

/* Products one after the other along the inner dimension: of 64 channels. */
#define DEPTH          2

#define THREE_QUARTERS 0x3f40u /* as bf16 */
#define QUARTER        0x3e80u

static void fill(uint32_t *pairs, int count, uint32_t x)
{
    for (int i = 0; i < count; i++)
        pairs[i] = x << 16 | x;
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
    matrix_dot_bf16(0, 4, 6);
    matrix_dot_bf16(1, 4, 7);
    matrix_dot_bf16(2, 5, 6);
    matrix_dot_bf16(3, 5, 7);
}

/* Of all elements of the sums; the registers are given back. */
static float leave_with_total(void)
{
    enum { ELEMENTS = ROWS * WORDS };
    _Alignas(64) float sums[SUMS * ELEMENTS];
    matrix_store(0, sums, BYTES);
    matrix_store(1, sums + ELEMENTS, BYTES);
    matrix_store(2, sums + 2 * ELEMENTS, BYTES);
    matrix_store(3, sums + 3 * ELEMENTS, BYTES);
    matrix_leave();
    float total = 0.0f;
    for (int i = 0; i < SUMS * ELEMENTS; i++)
        total += sums[i];
    return total;
}

static float registers_loop(int64_t steps)
{
    _Alignas(64) uint32_t left[ROWS * WORDS], right[ROWS * WORDS];
    fill(left, ROWS * WORDS, THREE_QUARTERS);
    fill(right, ROWS * WORDS, QUARTER);
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
    fill(left, 2 * ROWS * DEPTH * WORDS, THREE_QUARTERS);
    fill(right, DEPTH * 2 * ROWS * WORDS, QUARTER);
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
    .dtype = ATTN_BF16,
    .registers = {.flops_per_step = PRODUCT * SUMS, .run = registers_loop},
    .loads = {.flops_per_step = PRODUCT * SUMS * DEPTH, .run = loads_loop},
};
