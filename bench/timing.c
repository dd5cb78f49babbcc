/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clocks, the number of iterations, and what is reported of several samples.
 *
 * Iterations are found by doubling-and-projecting as other benchmark programs
 * do, from runs that are warm: the first run of a body pays for page faults
 * and for starting threads, and is never used.
 */
#include "timing.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

/* Samples of bench_probe(). */
#define PROBES 3

static double read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double bench_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double bench_cpu_now(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

int bench_measure(bench_body body, void *context, int64_t iterations, struct bench_sample *sample)
{
    const double cpu = bench_cpu_now(), real = bench_now();
    for (int64_t i = 0; i < iterations; i++)
        if (!body(context))
            return -1;
    sample->real = (bench_now() - real) / (double)iterations;
    sample->cpu = (bench_cpu_now() - cpu) / (double)iterations;
    return 0;
}

int bench_calibrate(bench_body body, void *context, double min_time, int64_t *iterations)
{
    struct bench_sample sample;
    if (bench_measure(body, context, 1, &sample) != 0)
        return -1;
    int64_t n = 1;
    for (;;) {
        if (bench_measure(body, context, n, &sample) != 0)
            return -1;
        const double total = sample.real * (double)n;
        if (total >= 0.25 * min_time) {
            const double needed = ceil(min_time / sample.real);
            *iterations = needed > 1.0 ? (int64_t)needed : 1;
            return 0;
        }
        /* At most tenfold: a first short run says little about the next. */
        const double next = total > 0.0 ? ceil((double)n * 0.5 * min_time / total) : 10.0 * (double)n;
        n = next < 10.0 * (double)n ? (int64_t)next : 10 * n;
    }
}

double bench_probe(bench_body body, void *context, double min_time)
{
    double fastest = INFINITY;
    int64_t iterations;
    if (bench_calibrate(body, context, min_time, &iterations) != 0)
        return fastest;
    for (int r = 0; r < PROBES; r++) {
        struct bench_sample sample;
        if (bench_measure(body, context, iterations, &sample) == 0)
            fastest = fmin(fastest, sample.real);
    }
    return fastest;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int n)
{
    if (n == 0)
        return NAN;
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    return n % 2 != 0 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}
