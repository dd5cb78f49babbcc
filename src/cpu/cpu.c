/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Detection of instruction sets. The compiler's own run-time support asks
 * CPUID and, through XGETBV, whether the operating system saves the wide
 * registers; a set without that state is reported as absent. What we ask CPUID
 * ourselves is kept: on a virtual machine each time takes microseconds.
 */
#include "cpu/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>

/** An answer that is asked for once; threads that ask at the same time all get the same one. */
static int kept(atomic_int *answer, int (*ask)(void))
{
    enum { UNKNOWN, NO, YES };
    int known = atomic_load_explicit(answer, memory_order_relaxed);
    if (known == UNKNOWN) {
        known = ask() ? YES : NO;
        atomic_store_explicit(answer, known, memory_order_relaxed);
    }
    return known == YES;
}

/* Not every compiler knows the name; its registers are those of AVX, whose state has been asked for. */
static int ask_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

static int has_f16c(void)
{
    static atomic_int answer;
    return kept(&answer, ask_f16c);
}

/* Nor this one: bit 4 of EAX in subleaf 1 of leaf 7, whose subleaf 0 says in EAX which one is the last. */
static int ask_avx_vnni(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
           (a & (1u << 4)) != 0;
}

static int has_avx_vnni(void)
{
    static atomic_int answer;
    return kept(&answer, ask_avx_vnni);
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

#ifndef HWCAP_ASIMDDP
#define HWCAP_ASIMDDP (1 << 20)
#endif
#ifndef HWCAP2_BF16
#define HWCAP2_BF16 (1 << 14)
#endif
#endif

int attn_cpu_has(attn_isa isa)
{
    switch (isa) {
    case ATTN_ISA_SCALAR:
        return 1;
#if defined(__x86_64__)
    case ATTN_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    case ATTN_ISA_AVX512:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    case ATTN_ISA_AVX512_BF16:
        return attn_cpu_has(ATTN_ISA_AVX512) && __builtin_cpu_supports("avx512bf16");
#elif defined(__aarch64__)
    case ATTN_ISA_NEON:
        return 1; /* Advanced SIMD is part of every AArch64 that runs Linux */
    case ATTN_ISA_NEON_BF16:
        return (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
#endif
    default:
        return 0;
    }
}

int attn_cpu_has_int8_dot(attn_isa isa)
{
    if (!attn_cpu_has(isa))
        return 0;
    switch (isa) {
#if defined(__x86_64__)
    case ATTN_ISA_AVX2:
        return has_avx_vnni();
    case ATTN_ISA_AVX512:
    case ATTN_ISA_AVX512_BF16:
        return __builtin_cpu_supports("avx512vnni");
#elif defined(__aarch64__)
    case ATTN_ISA_NEON:
    case ATTN_ISA_NEON_BF16:
        return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#endif
    default:
        return 0;
    }
}
