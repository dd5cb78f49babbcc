/* SPDX-License-Identifier: Apache-2.0 */
/* This program once more, in the place of the process that asks for it. */
#ifndef BENCH_RESTART_H
#define BENCH_RESTART_H

/**
 * Runs this program with other arguments or another environment, on all processors that this process began with.
 * Returns if that is not possible.
 */
void bench_restart(char *const *argv);

#endif
