/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that a very long sequence takes beyond its inputs and outputs.
 */
#ifndef BENCH_MEMORY_H
#define BENCH_MEMORY_H

#include "options.h"
#include "result.h"

/** The name of the row: "memory/f32/B1/H1/Tq131072/Tk131072/d64/causal:top-left/layout:bhtd". */
const char *bench_memory_name(void);

/**
 * Starts the program again with --memory-child, so that nothing else has used
 * memory, and adds the row that it reports. 0, or -1 after a sentence on stderr.
 */
int bench_memory_run(const struct bench_options *options, struct bench_results *results);

/** What the fresh process does; returns an exit code. */
int bench_memory_child(const struct bench_options *options);

#endif
