/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the library promises of its speed and memory, and whether a run met it.
 */
#ifndef BENCH_BARS_H
#define BENCH_BARS_H

#include "result.h"

/** One promise held against one row. */
struct bench_check {
    char name[BENCH_NAME_SIZE]; /**< of the row */
    char what[BENCH_NAME_SIZE]; /**< the quantity, e.g. "fraction of the peak" */
    double measured, bar;
    bool at_most; /**< measured must not exceed bar; otherwise it must reach it */
    bool met;
};

struct bench_checks {
    struct bench_check *items;
    int count, capacity;
};

/** What bars know of processors: the bits of every group that one belongs to. */
enum bench_processor {
    BENCH_ANY_PROCESSOR = 0,
    BENCH_DECODES = 8, /**< what a token of decoding reaches was measured there */
    BENCH_AMD = 1,
    BENCH_ZEN4 = BENCH_AMD | BENCH_DECODES | 2, /**< multiply-adds of 256 bits, with AVX-512 too */
    BENCH_INTEL = BENCH_DECODES | 4
};

/** The processor of that vendor and family, as CPUID gives them. */
unsigned bench_processor_find(const char *vendor, int family);

/** Its name, for people. */
const char *bench_processor_name(unsigned processor);

/** Whether a promise is about that case, or needs it for comparison, where isa is asked for. */
bool bench_bars_need(const struct bench_case *c, const char *isa, unsigned processor);

/**
 * Holds every row against its promises and sets the rows' verdicts. 0, or -1
 * after a sentence on stderr.
 */
int bench_bars_check(struct bench_results *results, unsigned processor, struct bench_checks *checks);

void bench_checks_destroy(struct bench_checks *checks);

#endif
