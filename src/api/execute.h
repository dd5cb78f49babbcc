/* SPDX-License-Identifier: Apache-2.0 */
/* Running what has begun, and with ATTN_VERBOSE a line about it. */
#ifndef ATTN_EXECUTE_H
#define ATTN_EXECUTE_H

#include "driver/driver.h"

/** Runs all phases of a run that has begun; with ATTN_VERBOSE writes a line about it. */
void attn_execute(struct attn_run *run);

/** Runs a share of a phase, for a caller that has said which: checks the numbers first. */
attn_status attn_run_checked_share(struct attn_run *run, int phase, int ith, int nth);

#endif
