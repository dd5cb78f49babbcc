/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names, support and choice of the instruction sets. A set is usable when its
 * kernels are built in and the processor and its system can run it.
 */
#include "dispatch.h"

#include "cpu/cpu.h"

#include <stddef.h>

extern const struct attn_kernels attn_kernels_scalar;
#if defined(__x86_64__)
extern const struct attn_kernels attn_kernels_avx2, attn_kernels_avx512, attn_kernels_avx512_bf16;
#elif defined(__aarch64__)
extern const struct attn_kernels attn_kernels_neon, attn_kernels_neon_bf16;
#endif

/* In rising order of preference. */
static const struct attn_kernels *const built_in[] = {
    &attn_kernels_scalar,
#if defined(__x86_64__)
    &attn_kernels_avx2,
    &attn_kernels_avx512,
    &attn_kernels_avx512_bf16,
#elif defined(__aarch64__)
    &attn_kernels_neon,
    &attn_kernels_neon_bf16,
#endif
};

#define NUM_BUILT_IN (sizeof built_in / sizeof *built_in)

static const char *const names[] = {"auto", "scalar", "avx2", "avx512", "neon", "avx512_bf16", "neon_bf16"};

const char *attn_isa_name(attn_isa isa)
{
    return (unsigned)isa < sizeof names / sizeof *names ? names[isa] : "unknown";
}

static const struct attn_kernels *find(attn_isa isa)
{
    for (size_t i = 0; i < NUM_BUILT_IN; i++)
        if (built_in[i]->isa == isa)
            return built_in[i];
    return NULL;
}

int attn_kernels_built_in(attn_isa isa)
{
    return find(isa) != NULL;
}

const struct attn_kernels *attn_kernels_get(attn_isa isa)
{
    return attn_cpu_has(isa) ? find(isa) : NULL;
}

const struct attn_kernels *attn_kernels_best(attn_isa cap, int all_bf16)
{
    const struct attn_kernels *best = built_in[0];
    for (size_t i = 0; i < NUM_BUILT_IN; i++) {
        if (attn_cpu_has(built_in[i]->isa) && (built_in[i]->pack == 1 || all_bf16))
            best = built_in[i];
        if (built_in[i]->isa == cap)
            break;
    }
    return best;
}

int attn_isa_supported(attn_isa isa)
{
    return attn_kernels_get(isa) != NULL;
}
