/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures a case: its variants in turns with the peak.
 */
#ifndef BENCH_RUNNER_H
#define BENCH_RUNNER_H

#include "machine.h"

/**
 * Measures the selected variants of a case and adds their rows. 0, or -1 after
 * a sentence on stderr, also when a result is wrong.
 */
int bench_run_case(struct bench_machine *machine, const struct bench_options *options, const struct bench_case *c,
                   struct bench_selection selection, struct bench_results *results);

#endif
