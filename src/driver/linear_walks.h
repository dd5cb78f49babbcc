/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of gradients of linear attention, as the phases of their driver run them. */
#ifndef ATTN_DRIVER_LINEAR_WALKS_H
#define ATTN_DRIVER_LINEAR_WALKS_H

#include "driver/linear_backward_call.h"

/** A piece of a side. */
void attn_linear_run_piece(const struct attn_run *run, enum attn_linear_side side, int64_t piece, void *scratch);

/** Clears rows that no sequence has, of gradients that pieces write: all of them where S has no elements. */
void attn_linear_clear_rest(const struct attn_linear_backward *call);

#endif
