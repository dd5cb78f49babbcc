/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver of gradients of linear attention.
 *
 *     features      of q and k, and v with a column of ones     with a map, or normalise
 *     sums          gradients of sums that out is divided by    with normalise
 *     pieces        dq, dv and dS; dk                           walks over tokens, as the forward pass is
 *     pieces        dk                                          here with gradients of decays, which want dq's walk
 * first ends          decays; dq and dk of features
 *
 * A piece is some columns of what is wanted of one head of one sequence: dv and dS have S's
 * own columns, dq and dk its rows, for which S lies on its side. Each walks for all
 * heads of out that what it makes is the sum of, one after the other.
 */
#ifndef ATTN_DRIVER_LINEAR_BACKWARD_H
#define ATTN_DRIVER_LINEAR_BACKWARD_H

#include "driver/linear_backward_call.h"

/** Cuts a call for at most threads threads. */
void attn_linear_backward_cut(struct attn_linear_backward *call, const struct attn_kernels *kernels, int threads);

/** Lays a run out in a workspace of attn_run_size() bytes; call has to outlive it. */
struct attn_run *attn_linear_backward_begin(void *workspace, const struct attn_linear_backward *call);

/** Takes a copy of the call into the workspace: what was given need not outlive this. */
void attn_linear_backward_keep(struct attn_run *run);

#endif
