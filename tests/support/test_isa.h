/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instruction sets by name, for test programs that take --isa NAME, and the
 * exit code by which Meson recognises a test that cannot run here.
 */
#ifndef TEST_ISA_H
#define TEST_ISA_H

#include "attn/attn.h"

#include <stdio.h>
#include <stdlib.h>

#define TEST_SKIPPED 77

/** The instruction set called name; ends the program when there is none, or when it cannot run here (77: skipped). */
static inline const char *test_isa_from_name(const char *name)
{
    for (int isa = 0; attn_isa_name(isa); isa++) {
        if (strcmp(name, attn_isa_name(isa)) != 0)
            continue;
        if (attn_isa_supported(name))
            return attn_isa_name(isa);
        printf("skipped: this processor has no %s\n", name);
        exit(TEST_SKIPPED);
    }
    fprintf(stderr, "--isa is %s; expected one of", name);
    for (int isa = 0; attn_isa_name(isa); isa++)
        fprintf(stderr, " %s", attn_isa_name(isa));
    fprintf(stderr, "\n");
    exit(2);
}

/** The name as the library has it, static storage. */
static inline const char *test_isa_from_list(const char *name)
{
    for (int isa = 0; attn_isa_name(isa); isa++)
        if (strcmp(name, attn_isa_name(isa)) == 0)
            return attn_isa_name(isa);
    return NULL;
}

/** The set whose kernels f32 gets where isa is asked for: a set for pairs of bf16 extends the one whose name it begins
 * with, and AMX extends AVX-512. */
static inline const char *test_isa_of_floats(const char *isa)
{
    if (strstr(isa, "amx_bf16"))
        return test_isa_from_list("avx512");
    const char *const suffix = strstr(isa, "_bf16");
    for (int i = 0; suffix && attn_isa_name(i); i++)
        if (strlen(attn_isa_name(i)) == (size_t)(suffix - isa) &&
            strncmp(attn_isa_name(i), isa, (size_t)(suffix - isa)) == 0)
            return attn_isa_name(i);
    return isa;
}

/** Whether a set multiplies pairs of bf16; NULL does not. */
static inline int test_isa_has_pairs(const char *isa)
{
    return isa && test_isa_of_floats(isa) != isa;
}

/** Whether a set makes weights by a table (simd/exp2_table_avx512.h). */
static inline int test_isa_has_table(const char *isa)
{
    return isa && (strstr(isa, "amx_bf16") || strstr(isa, "avx512_bf16"));
}

#endif
