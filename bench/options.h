/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of attn-bench.
 */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include "attn/attn.h"

#include <regex.h>
#include <stdbool.h>

/** Exit codes. */
enum { BENCH_OK = 0, BENCH_FAILURE = 1, BENCH_USAGE = 2 };

enum bench_format { BENCH_TABLE, BENCH_CSV, BENCH_JSON };

struct bench_options {
    bool has_filter;
    regex_t filter;
    int threads, repetitions;
    double min_time; /**< seconds */
    enum bench_format format;
    const char *out;  /**< NULL: standard output */
    const char *blas; /**< OpenBLAS kernels; NULL: those of isa */
    const char *isa;  /**< never NULL once parsed */
    bool list, check, memory, compare;
    char **argv;       /**< as the program was started */
    bool memory_child; /**< this process is the fresh one that --memory starts */
};

/**
 * Parses the command line. Returns -1 to go on, or an exit code after --help,
 * --version or a sentence on stderr.
 */
int bench_options_parse(struct bench_options *options, int argc, char **argv);

void bench_options_destroy(struct bench_options *options);

/** Whether --filter lets that name through. */
bool bench_options_match(const struct bench_options *options, const char *name);

#endif
