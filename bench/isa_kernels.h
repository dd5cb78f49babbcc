/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the bench itself needs of an instruction set: a loop that reaches the
 * arithmetic peak, a loop that reads memory as fast as it comes, and the
 * softmax of the naive baseline. isa_kernels.c is compiled once per instruction
 * set and each copy exports one of the tables that are declared here.
 *
 * None of this uses the library's own SIMD headers, so that a mistake there
 * cannot lower the bar that the library is measured against.
 */
#ifndef BENCH_ISA_KERNELS_H
#define BENCH_ISA_KERNELS_H

#include "attn/attn.h"

struct bench_isa_kernels {
    attn_isa isa;

    /** Floating-point operations of one step of fma(): two for each lane of each accumulator. */
    int flops_per_step;

    /** Runs the peak loop; the result only keeps the compiler from removing it. */
    float (*fma)(int64_t steps);

    /** Sums n floats at p, in any order; p is aligned to 64 bytes and n a multiple of 1024. */
    float (*read)(const float *p, int64_t n);

    /**
     * Softmax in base 2 of the n scores at row, in place. live is NULL or n
     * bytes, where zero hides a key. A row without a live key becomes all zeros.
     */
    void (*softmax_row)(float *row, int64_t n, const uint8_t *live);
};

extern const struct bench_isa_kernels bench_kernels_scalar;
#if defined(__x86_64__)
extern const struct bench_isa_kernels bench_kernels_avx2;
extern const struct bench_isa_kernels bench_kernels_avx512;
#elif defined(__aarch64__)
extern const struct bench_isa_kernels bench_kernels_neon;
#endif

/** The kernels for isa, or NULL when there are none or this machine cannot run them. */
const struct bench_isa_kernels *bench_isa_kernels_get(attn_isa isa);

#endif
