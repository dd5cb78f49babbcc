/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clocks, and the timing of a piece of work that is repeated until it takes
 * long enough for the clock.
 */
#ifndef BENCH_TIMING_H
#define BENCH_TIMING_H

#include <stdint.h>

/** Seconds of the monotonic clock. */
double bench_now(void);

/** Seconds of processor time that all threads of the process have used. */
double bench_cpu_now(void);

/** A piece of work; false means that it failed, and ends the measurement. */
typedef int (*bench_body)(void *context);

/** What one run of a body took. */
struct bench_sample {
    double real, cpu; /**< seconds for each iteration */
};

/** Runs body iterations times; 0, or -1 when it failed. */
int bench_measure(bench_body body, void *context, int64_t iterations, struct bench_sample *sample);

/** Finds how many iterations take min_time seconds; 0, or -1 when the body failed. */
int bench_calibrate(bench_body body, void *context, double min_time, int64_t *iterations);

/** The fastest of a few samples of min_time seconds each, per iteration; infinity when the body failed. */
double bench_probe(bench_body body, void *context, double min_time);

/** The median of n values, which are sorted in place; NaN when n is 0. */
double bench_median(double *values, int n);

#endif
