/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Detection of instruction sets. The compiler's own run-time support asks
 * CPUID and, through XGETBV, whether the operating system saves the wide
 * registers; a set without that state is reported as absent.
 */
#include "cpu/cpu.h"

int attn_cpu_has(attn_isa isa)
{
    switch (isa) {
    case ATTN_ISA_SCALAR:
        return 1;
#if defined(__x86_64__)
    case ATTN_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case ATTN_ISA_AVX512:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
#elif defined(__aarch64__)
    case ATTN_ISA_NEON:
        return 1; /* Advanced SIMD is part of every AArch64 that runs Linux */
#endif
    default:
        return 0;
    }
}
