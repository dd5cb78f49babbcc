/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bare tanh loop, which rows of additive scores are held against, compiled
 * once per instruction set; see isa_kernels.h. Each tanh counts as an operation.
 *
 * It is the library's own tanh, which attention with additive scores calls, so
 * that a fraction says what scores, softmax and values cost beside it, whatever
 * tanh that is. Nothing but its operations happens: inputs are in registers, and
 * the compiler is told that each may have become another one and that each result
 * is used. Chains are side by side, as many as registers have room for, and steps
 * do not depend on each other.
 *
 * With loads: the same of sums of two rows in L1, multiplied by a third one and
 * added up, as a score has it.
 */
#include "isa_kernels.h"

#include "simd/simd.h"

#if defined(__x86_64__)
#define REGISTER "v"
#elif defined(__aarch64__)
#define REGISTER "w"
#else
#define REGISTER "m"
#endif

#define PASTED(a, b) a##b
#define NAMED(a, b)  PASTED(a, b)
#define QUOTED(x)    #x
#define STRING(x)    QUOTED(x)

/* Chains: with 16 registers more would not stay there. */
#define CHAINS     (VF_STRIP * VF_CHANNELS > 16 ? TANH_CHAINS : TANH_CHAINS / 2)
#define EACH_CHAIN _Pragma("GCC unroll 8") for (int i = 0; i < CHAINS; i++)

/* Rounds of a step: its loop is to cost nothing. */
#define ROUNDS 16

/* Rows of the loop with loads, which L1 holds. */
#define ROWS    8
#define COLUMNS 256

static float registers_loop(int64_t steps)
{
    vf inputs[CHAINS];
    EACH_CHAIN inputs[i] = vf_set1(0.1f * (float)i + 0.3f);
    for (int64_t s = 0; s < steps * ROUNDS; s++) {
        vf x[CHAINS];
        EACH_CHAIN
        {
            __asm__ volatile("" : "+" REGISTER(inputs[i]));
            x[i] = inputs[i];
        }
        vf_tanh_many(x, CHAINS);
        EACH_CHAIN __asm__ volatile("" : : REGISTER(x[i]));
    }
    return 1.0f;
}

static float loads_loop(int64_t steps)
{
    _Alignas(64) float rows[ROWS][COLUMNS], other[COLUMNS], factors[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) {
        for (int r = 0; r < ROWS; r++)
            rows[r][c] = 0.01f * (float)((c + 7 * r) % 50);
        other[c] = 0.02f * (float)(c % 30);
        factors[c] = 0.5f;
    }
    vf sums[CHAINS];
    EACH_CHAIN sums[i] = vf_zero();
    for (int64_t s = 0; s < steps; s++) {
        __asm__ volatile("" : : "r"(rows), "r"(other) : "memory");
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < COLUMNS; c += CHAINS * VF_LEN) {
                vf x[CHAINS];
                EACH_CHAIN x[i] = vf_add(vf_load(rows[r] + c + i * VF_LEN), vf_load(other + c + i * VF_LEN));
                vf_tanh_many(x, CHAINS);
                EACH_CHAIN sums[i] = vf_fma(vf_load(factors + c + i * VF_LEN), x[i], sums[i]);
            }
    }
    float lanes[VF_LEN], sum = 0.0f;
    EACH_CHAIN
    {
        vf_store(lanes, sums[i]);
        sum += lanes[0];
    }
    return sum;
}

const struct bench_isa_kernels NAMED(bench_tanh_kernels_, BENCH_ISA) = {
    .isa = STRING(BENCH_ISA),
    .factors = "tanh",
    .registers = {.flops_per_step = ROUNDS * CHAINS * VF_LEN, .run = registers_loop},
    .loads = {.flops_per_step = ROWS * COLUMNS, .run = loads_loop},
};
