/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how fast new keys and values are kept.
 */
#ifndef BENCH_APPEND_H
#define BENCH_APPEND_H

#include "machine.h"

/** Whether rows are stored by the kernels that are measured where isa is asked for: those of attn_isa_active(). */
bool bench_append_supported(const char *isa);

/** bench_run_case() for a case that appends. */
int bench_append_run(struct bench_machine *machine, const struct bench_options *options, const struct bench_case *c,
                     struct bench_results *results);

#endif
