/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures attention with additive scores, of libattn_nn, as a fraction of the
 * rate at which a bare loop of the same tanh goes. BENCH_NN is 0 where the option
 * nn is off: there the cases are not to be had, as linear.h says.
 */
#ifndef BENCH_ADDITIVE_H
#define BENCH_ADDITIVE_H

#include "machine.h"

#if BENCH_NN

/** bench_run_case() for a case with additive scores; its operations are tanh of queries x keys x channels. */
int bench_additive_run(struct bench_machine *machine, const struct bench_options *options, const struct bench_case *c,
                       struct bench_results *results);

#else

static inline int bench_additive_run(struct bench_machine *machine, const struct bench_options *options,
                                     const struct bench_case *c, struct bench_results *results)
{
    (void)machine, (void)options, (void)c, (void)results;
    return -1;
}

#endif

#endif
