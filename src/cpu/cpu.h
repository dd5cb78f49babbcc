/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the processor offers.
 */
#ifndef ATTN_CPU_H
#define ATTN_CPU_H

#include "attn/attn.h"

/** Whether the processor, and the system's saving of registers, allow an instruction set. */
int attn_cpu_has(attn_isa isa);

/** Whether it multiplies int8 with sums in int32: AVX512-VNNI, FEAT_DotProd. */
int attn_cpu_has_int8_dot(void);

#endif
