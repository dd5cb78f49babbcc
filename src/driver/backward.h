/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver of the backward pass: cuts a checked call into tasks and runs them.
 *
 * A task owns some keys of a key head: it walks over the blocks of queries of
 * all heads that share it, in order, and has the sums of dK and dV to itself.
 * dQ is a sum over keys: tasks of earlier keys add their part to a block of
 * queries before those of later ones do, in memory that all threads share. So
 * every sum has one order, whoever computes it, and nothing is stored twice.
 *
 * Tasks of a head are handed out in the order of the keys, so one that waits does so for
 * tasks that have begun: it follows them from block to block.
 */
#ifndef ATTN_DRIVER_BACKWARD_H
#define ATTN_DRIVER_BACKWARD_H

#include "driver/backward_call.h"

/** Cuts a call for at most threads threads: with coarse, in memory whose size does not follow from them. */
void attn_backward_cut(struct attn_backward *backward, const struct attn_kernels *kernels, int threads);

/** A checked call cut as a plan is, whose shapes and options it has: the plan has to outlive its runs. */
void attn_backward_adopt(struct attn_backward *backward, const struct attn_backward *plan);

/** Lays a run out in a workspace of attn_run_size() bytes, for so many threads; backward has to outlive it. */
struct attn_run *attn_backward_begin(void *workspace, const struct attn_backward *backward);

/** Takes a copy of the call into the workspace: what was given need not outlive this. */
void attn_backward_keep(struct attn_run *run);

#endif
