/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel sets that are built in, and the choice between them.
 */
#ifndef ATTN_DISPATCH_H
#define ATTN_DISPATCH_H

#include "kernels/kernels.h"

/** Whether this build holds kernels of an instruction set, for a processor that may lack it. */
int attn_kernels_built_in(attn_isa isa);

/** The kernels of an instruction set for ATTN_QK_DEFAULT, or NULL when it is not built in or this processor lacks it.
 */
const struct attn_kernels *attn_kernels_get(attn_isa isa);

/**
 * The best kernels that this processor runs, that compute scores as asked and that are no higher than cap
 * (ATTN_ISA_AUTO: no cap); NULL if there are none. Those for pairs of bf16 take part only with bf16, which says that
 * v is bf16, and so are q and k if qk does not make them int8.
 */
const struct attn_kernels *attn_kernels_best(attn_isa cap, attn_qk qk, int bf16);

#endif
