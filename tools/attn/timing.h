/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One shape of attention, timed beside what the machine can do at most: in turns, so that both are of the same moments.
 */
#ifndef ATTN_TOOLS_TIMING_H
#define ATTN_TOOLS_TIMING_H

#include <attn/attn.h>

/* What is timed, and how often. */
struct timed_call {
    attn_tensor q, k, v, out;
    attn_params params; /* num_threads is that of the limits, too */
    int repetitions;
    double min_time; /* seconds that a sample takes at least */
};

struct timed {
    char plan[512];                      /* what attn_plan_describe() says */
    const char *peak_isa, *peak_of;      /* whose loop is the peak, and of what: "f32" or "bf16" */
    double pairs;                        /* of query and key of all heads, that see each other */
    double operations;                   /* of one run: two for each product that counts */
    double bytes;                        /* of the keys and values that some query sees, with their scales */
    double median, fastest;              /* seconds */
    double peak, loads;                  /* GFLOP/s: the most that registers, and products of L1, gave */
    double read;                         /* GB/s: the most at which k and v were read; 0: they are too few */
    double peak_fraction, read_fraction; /* of the fastest samples */
    double peak_fraction_median;         /* the median over the turns */
};

/* Times it; turn_done is called after each of the repetitions. */
attn_status time_call(const struct timed_call *call, struct timed *timed, void (*turn_done)(void *user), void *user);

#endif
