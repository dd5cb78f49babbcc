/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the results.
 */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "bars.h"
#include "options.h"
#include "machine.h"

#include <stdio.h>

/** Where data goes: standard output, or a file that appears when it is complete. */
struct bench_sink {
    FILE *file;
    char *temporary; /**< NULL when file is written directly */
    const char *path;
};

/** Opens the sink, before anything is measured. 0, or -1 after a sentence on stderr. */
int bench_sink_open(struct bench_sink *sink, const char *path);

/** Makes the file appear. 0, or -1 after a sentence on stderr. */
int bench_sink_commit(struct bench_sink *sink);

/** Removes what was not committed; harmless afterwards. */
void bench_sink_discard(struct bench_sink *sink);

/** The processor's name as the system gives it, or "unknown". */
const char *bench_cpu_name(void);

/** Writes everything in the chosen format; checks is NULL without --check. 0, or -1 when memory is short. */
int bench_report(FILE *file, const struct bench_options *options, const struct bench_machine *machine,
                 const struct bench_results *results, const struct bench_checks *checks);

/** The part of bench_report() that knows JSON. */
int bench_report_json(FILE *file, const struct bench_options *options, const struct bench_machine *machine,
                      const struct bench_results *results, const struct bench_checks *checks);

#endif
