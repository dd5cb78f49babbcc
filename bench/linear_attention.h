/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures linear attention with a state.
 */
#ifndef BENCH_LINEAR_ATTENTION_H
#define BENCH_LINEAR_ATTENTION_H

#include "machine.h"

/** bench_run_case() for a case with a rule. */
int bench_linear_attention_run(struct bench_machine *machine, const struct bench_options *options,
                               const struct bench_case *c, struct bench_results *results);

/** The same for its gradients. */
int bench_linear_attention_backward_run(struct bench_machine *machine, const struct bench_options *options,
                                        const struct bench_case *c, struct bench_results *results);

#endif
