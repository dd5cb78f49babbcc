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
extern const struct attn_kernels attn_kernels_avx2, attn_kernels_avx2_int8, attn_kernels_avx512,
    attn_kernels_avx512_bf16, attn_kernels_avx512_int8, attn_kernels_avx512_int8_bf16;
#elif defined(__aarch64__)
extern const struct attn_kernels attn_kernels_neon, attn_kernels_neon_bf16, attn_kernels_neon_int8,
    attn_kernels_neon_int8_bf16;
#endif

/* In rising order of preference. */
static const struct attn_kernels *const built_in[] = {
    &attn_kernels_scalar,
#if defined(__x86_64__)
    &attn_kernels_avx2,        &attn_kernels_avx2_int8,   &attn_kernels_avx512,
    &attn_kernels_avx512_int8, &attn_kernels_avx512_bf16, &attn_kernels_avx512_int8_bf16,
#elif defined(__aarch64__)
    &attn_kernels_neon,   &attn_kernels_neon_int8, &attn_kernels_neon_bf16, &attn_kernels_neon_int8_bf16,
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
        if (built_in[i]->isa == isa && built_in[i]->qk == ATTN_QK_DEFAULT)
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

/** Whether a set comes before, or is, the cap in the order of preference. */
static int within(attn_isa cap, size_t i)
{
    for (; cap != ATTN_ISA_AUTO && i < NUM_BUILT_IN; i++)
        if (built_in[i]->isa == cap)
            return 1;
    return cap == ATTN_ISA_AUTO;
}

/** Whether this processor runs kernels that are built in. */
static int runs(const struct attn_kernels *kernels)
{
    return kernels->qk == ATTN_QK_INT8 ? attn_cpu_has_int8_dot(kernels->isa) : attn_cpu_has(kernels->isa);
}

const struct attn_kernels *attn_kernels_best(attn_isa cap, attn_qk qk, int bf16)
{
    const struct attn_kernels *best = NULL;
    for (size_t i = 0; i < NUM_BUILT_IN && within(cap, i); i++)
        if (built_in[i]->qk == qk && (built_in[i]->keys_per_word == 1 || bf16) && runs(built_in[i]))
            best = built_in[i];
    return best;
}

int attn_isa_supported(attn_isa isa)
{
    return attn_kernels_get(isa) != NULL;
}
