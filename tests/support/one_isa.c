/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends a test program that is run once for each instruction set, by ATTN_MAX_CPU_ISA, as skipped where the processor
 * has no such set: the library would take the next lower one, which has a run of its own.
 */
#include "test_isa.h"

__attribute__((constructor)) static void skip_without_set(void)
{
    const char *const isa = getenv("ATTN_MAX_CPU_ISA");
    if (isa)
        test_isa_from_name(isa);
}
