/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls whose scales are looked at while they are used, instead of before: see
 * held.c.
 */
#ifndef ATTN_HELD_H
#define ATTN_HELD_H

#include "api/check.h"

/** Results that wait, and where they go. */
struct attn_held {
    attn_tensor out, lse;
    struct attn_looks looks;
};

/** Bytes behind attn_run_size() that the results of a call need, which may wait; 0: it has to be checked before. */
size_t attn_held_size(const struct attn_problem *problem, const struct attn_geometry *geometry);

/** Begins such a run in a workspace: problem, which has to outlive it, then says where the results wait. */
struct attn_run *attn_held_begin(struct attn_held *held, struct attn_problem *problem,
                                 const struct attn_geometry *geometry, void *workspace);

/** Behind the run: writes the results, or says what is wrong with a scale and has written nothing. */
attn_status attn_held_end(struct attn_held *held, struct attn_problem *problem, const struct attn_geometry *geometry);

#endif
