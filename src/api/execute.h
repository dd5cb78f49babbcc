/* SPDX-License-Identifier: Apache-2.0 */
/* Running what has begun, and with ATTN_VERBOSE a line about it. */
#ifndef ATTN_EXECUTE_H
#define ATTN_EXECUTE_H

#include "driver/driver.h"

/** Runs all phases of a run that has begun; with ATTN_VERBOSE writes a line about it. */
void attn_execute(struct attn_run *run);

/**
 * Cuts a call again until one thread has room in a workspace of size bytes, and for as many threads as have. cut makes
 * the geometry anew for so many threads; for more of them each may need less. Returns whether there is room for one.
 */
int attn_fit(struct attn_geometry *geometry, size_t size, void (*cut)(void *call, int threads), void *call);

/** Runs a share of a phase, for a caller that has said which: checks the numbers first. */
attn_status attn_run_checked_share(struct attn_run *run, int phase, int ith, int nth);

/** attn_run_progress() for a caller whose arguments have not been checked; a NULL plan has no geometry. wanted: bytes
 * of the plan's workspace. */
attn_status attn_run_checked_progress(const struct attn_geometry *geometry, size_t wanted, const void *workspace,
                                      size_t size, int64_t *begun, int64_t *tasks);

#endif
