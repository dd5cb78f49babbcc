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

/** That a plan is given. kind, here and below: how the names of its functions begin, attn_plan say. */
attn_status attn_check_plan(const void *plan, const char *kind);

/** That a workspace of size bytes is given, and large enough for a plan that needs so many. */
attn_status attn_check_plan_workspace(const void *workspace, size_t size, size_t needed);

/** Runs a share of a phase of what a plan has prepared in a workspace; checks everything first. */
attn_status attn_run_checked_share(const void *plan, const char *kind, void *workspace, int phase, int ith, int nth);

/** attn_run_progress() for a caller whose arguments have not been checked; a NULL plan has no geometry. wanted: bytes
 * of the plan's workspace. */
attn_status attn_run_checked_progress(const struct attn_geometry *geometry, size_t wanted, const void *workspace,
                                      size_t size, int64_t *begun, int64_t *tasks);

#endif
