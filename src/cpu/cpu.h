/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the processor offers.
 */
#ifndef ATTN_CPU_H
#define ATTN_CPU_H

#include "attn/attn.h"

/** Whether the processor, and the system's saving of registers, allow an instruction set. */
int attn_cpu_has(attn_isa isa);

#endif
