/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures Performer: linear attention of positive random features.
 */
#ifndef BENCH_PERFORMER_H
#define BENCH_PERFORMER_H

#include "machine.h"

/** bench_run_case() for a case with features. */
int bench_performer_run(struct bench_machine *machine, const struct bench_options *options, const struct bench_case *c,
                        struct bench_results *results);

#endif
