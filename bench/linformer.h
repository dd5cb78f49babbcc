/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures Linformer, of libattn_nn: attention to projected keys and values.
 * BENCH_NN is 0 where the option nn is off: there the cases are not to be had,
 * as linear.h says.
 */
#ifndef BENCH_LINFORMER_H
#define BENCH_LINFORMER_H

#include "machine.h"

#if BENCH_NN

/** bench_run_case() for a case with projected keys. */
int bench_linformer_run(struct bench_machine *machine, const struct bench_options *options, const struct bench_case *c,
                        struct bench_results *results);

#else

static inline int bench_linformer_run(struct bench_machine *machine, const struct bench_options *options,
                                      const struct bench_case *c, struct bench_results *results)
{
    (void)machine, (void)options, (void)c, (void)results;
    return -1;
}

#endif

#endif
