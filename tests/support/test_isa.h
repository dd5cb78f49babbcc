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
static inline attn_isa test_isa_from_name(const char *name)
{
    for (int isa = ATTN_ISA_SCALAR; isa <= ATTN_ISA_LAST; isa++) {
        if (strcmp(name, attn_isa_name((attn_isa)isa)) != 0)
            continue;
        if (attn_isa_supported((attn_isa)isa))
            return (attn_isa)isa;
        printf("skipped: this processor or build has no %s\n", name);
        exit(TEST_SKIPPED);
    }
    fprintf(stderr, "--isa is %s; expected scalar, avx2, avx512, avx512_bf16, neon or neon_bf16\n", name);
    exit(2);
}

#endif
