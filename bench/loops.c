/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which loops of bf16 products are those of an instruction set, and which set the kernels of a plan are of.
 */
#include "isa_kernels.h"

#include <stdio.h>

const struct bench_isa_kernels *bench_dot_kernels_get(const char *isa)
{
    if (!attn_isa_supported(isa))
        return NULL;
    static const struct bench_isa_kernels *const all[] = {
#if defined(__x86_64__)
        &bench_dot_kernels_avx512_bf16,
        &bench_dot_kernels_amx_bf16,
#if BENCH_AMX_EMULATION
        &bench_dot_kernels_emulated_amx_bf16,
#endif
#elif defined(__aarch64__)
        &bench_dot_kernels_neon_bf16,
        &bench_dot_kernels_neon_bf16mm,
#endif
        NULL,
    };
    for (size_t i = 0; all[i] != NULL; i++)
        if (bench_same_isa(all[i]->isa, isa))
            return all[i];
    return NULL;
}

bool bench_plan_names(const char *description, const char *isa)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, ": %s kernel,", isa);
    return strstr(description, wanted) != NULL;
}
