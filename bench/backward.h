/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures attn_backward(), alone or behind the forward call that it needs.
 */
#ifndef BENCH_BACKWARD_H
#define BENCH_BACKWARD_H

#include "machine.h"

/** bench_run_case() for a case with gradients. */
int bench_backward_run(struct bench_peak *peak, const struct bench_options *options, const struct bench_case *c,
                       struct bench_results *results);

#endif
