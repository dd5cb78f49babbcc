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

/** Whether a promise is about that case, or needs it for comparison, on that instruction set. */
bool bench_bars_need(const struct bench_case *c, attn_isa isa);

/**
 * Holds every row against its promises and sets the rows' verdicts. 0, or -1
 * after a sentence on stderr.
 */
int bench_bars_check(struct bench_results *results, struct bench_checks *checks);

void bench_checks_destroy(struct bench_checks *checks);

#endif
