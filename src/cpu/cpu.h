/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the processor offers.
 */
#ifndef ATTN_CPU_H
#define ATTN_CPU_H

#include "attn/attn.h"

/** Whether the processor, and the system's saving of registers, allow an instruction set. */
int attn_cpu_has(attn_isa isa);

/**
 * Whether it has an instruction set and, for the vectors of that set, instructions that multiply int8 with sums in
 * int32: AVX-VNNI for AVX2, AVX512-VNNI for AVX-512, FEAT_DotProd for NEON. A processor may have one of the first two
 * alone.
 */
int attn_cpu_has_int8_dot(attn_isa isa);

#endif
