/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel sets that are built in, and the choice between them.
 */
#ifndef ATTN_DISPATCH_H
#define ATTN_DISPATCH_H

#include "kernels/kernels.h"

/** Whether this build holds kernels of an instruction set, for a processor that may lack it. */
int attn_kernels_built_in(attn_isa isa);

/** The kernels of an instruction set, or NULL when it is not built in or this processor lacks it. */
const struct attn_kernels *attn_kernels_get(attn_isa isa);

/**
 * The best kernels that this processor runs and that are no higher than cap (ATTN_ISA_AUTO: no cap). Those for pairs
 * of bf16 take part only for a problem whose q, k and v are all bf16.
 */
const struct attn_kernels *attn_kernels_best(attn_isa cap, int all_bf16);

#endif
