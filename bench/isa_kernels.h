/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the bench itself needs of an instruction set: a loop that reaches the
 * arithmetic peak, one that does so with the loads of a product beside it,
 * loops that read and write memory as fast as it goes, and the softmax of the naive
 * baseline. isa_kernels.c is compiled once per instruction set and each copy
 * exports one of the tables that are declared here. So does isa_dot_kernels.c,
 * for the sets that multiply pairs of bf16, and isa_matrix_kernels.c, for
 * those with matrix registers, and isa_tanh_kernels.c; they have the loops of those peaks only, as all
 * else in f32 is that of the set below.
 *
 * None of this uses the library's own SIMD headers, so that a mistake there
 * cannot lower the bar that the library is measured against. Emulated matrix
 * registers are an exception, as nothing is measured against them, and so is the
 * tanh, whose own speed is not what a row of additive scores is about.
 */
#ifndef BENCH_ISA_KERNELS_H
#define BENCH_ISA_KERNELS_H

#include "cases.h"

/** A loop of multiply-adds. */
struct bench_peak_loop {
    /** Floating-point operations of one step: two for each product that is added to a lane. */
    int flops_per_step;

    /** Runs the loop; the result only keeps the compiler from removing it. */
    float (*run)(int64_t steps);
};

struct bench_isa_kernels {
    const char *isa;
    const char *factors; /**< whose products are counted: "f32", "bf16" or "int8"; or "tanh" */

    /** The peaks: of registers alone, and of a product's register tile with its loads, which come from L1. */
    struct bench_peak_loop registers, loads;

    /**
     * Loops on n words of 32 bits at p, n being a multiple of 1024. All are NULL in a table for bf16, as softmax_row
     * is. read returns the sum of the words, modulo 2^32; update leaves them as they are; the other two set them to 1.
     * stream leaves out the caches, wants p aligned to 64 bytes, and is NULL where an instruction set has no such
     * store.
     */
    uint32_t (*read)(const uint32_t *p, int64_t n);
    void (*write)(uint32_t *p, int64_t n);
    void (*update)(uint32_t *p, int64_t n);
    void (*stream)(uint32_t *p, int64_t n);

    /**
     * Softmax in base 2 of the n scores at row, in place. live is NULL or n
     * bytes, where zero hides a key. A row without a live key becomes all zeros.
     */
    void (*softmax_row)(float *row, int64_t n, const uint8_t *live);
};

extern const struct bench_isa_kernels bench_kernels_scalar;
extern const struct bench_isa_kernels bench_tanh_kernels_scalar;
#if defined(__x86_64__)
extern const struct bench_isa_kernels bench_kernels_avx2;
extern const struct bench_isa_kernels bench_kernels_avx512;
extern const struct bench_isa_kernels bench_tanh_kernels_avx2;
extern const struct bench_isa_kernels bench_tanh_kernels_avx512;
extern const struct bench_isa_kernels bench_dot_kernels_avx512_bf16;
extern const struct bench_isa_kernels bench_dot_kernels_amx_bf16;
extern const struct bench_isa_kernels bench_dot_kernels_amx_int8;
extern const struct bench_isa_kernels bench_dot_kernels_emulated_amx_bf16; /* with -Damx_emulation=true */
extern const struct bench_isa_kernels bench_dot_kernels_emulated_amx_int8; /* the same */
#elif defined(__aarch64__)
extern const struct bench_isa_kernels bench_kernels_neon;
extern const struct bench_isa_kernels bench_tanh_kernels_neon;
extern const struct bench_isa_kernels bench_dot_kernels_neon_bf16;
extern const struct bench_isa_kernels bench_dot_kernels_neon_bf16mm;
#endif

/** The instruction set that runs f32 where isa is asked for: isa itself, or the one that it adds bf16 to. */
const char *bench_f32_isa(const char *isa);

/** The f32 kernels for bench_f32_isa(isa), or NULL when there are none or this machine cannot run isa. */
const struct bench_isa_kernels *bench_isa_kernels_get(const char *isa);

/** The bare tanh loop of that very set, which this machine runs, or NULL. */
const struct bench_isa_kernels *bench_tanh_kernels_get(const char *isa);

/** The bf16 peak of isa, or NULL when isa does not multiply pairs of bf16 or this machine cannot run it. */
const struct bench_isa_kernels *bench_dot_kernels_get(const char *isa);

/** The int8 peak of matrix registers where isa has those, as the set of its int8 scores multiplies; else NULL. */
const struct bench_isa_kernels *bench_int8_kernels_get(const char *isa);

#endif
