/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two limits of the machine that cases are held against: arithmetic and
 * memory, each measured with the same number of threads as the cases.
 */
#ifndef BENCH_PEAK_H
#define BENCH_PEAK_H

#include "isa_kernels.h"

/** One peak loop and what it has reached. */
struct bench_limit {
    const struct bench_peak_loop *loop;
    double steps_per_second; /**< of one thread, as last measured: sizes the next sample */
    double best;             /**< GFLOP/s of all threads, over every sample so far */
    double best_seconds;     /**< how long the best sample took */
    int64_t best_steps;      /**< steps of each thread in the best sample */
    int samples;
};

/** The multiply-add peaks of one instruction set, of floats or of pairs of bf16. */
struct bench_peak {
    const struct bench_isa_kernels *kernels;
    int threads;
    struct bench_limit registers, loads;
};

/** One sample of both, in GFLOP/s. */
struct bench_peak_sample {
    double registers, loads;
};

/** Warms up. 0, or -1 after a sentence on stderr when OpenMP does not give so many threads. */
int bench_peak_init(struct bench_peak *peak, const struct bench_isa_kernels *kernels, int threads);

/** Runs each of the two loops on all threads for about that many seconds. */
struct bench_peak_sample bench_peak_take(struct bench_peak *peak, double seconds);

/** Read bandwidth of memory: a buffer that no cache holds, each thread reading a part of its own. */
struct bench_bandwidth {
    const struct bench_isa_kernels *kernels;
    int threads;
    float *data;
    int64_t num_floats;
    double best; /**< GB/s of all threads, over every sample so far */
    double best_seconds;
    int samples;
};

/** Allocates and touches the buffer. 0, or -1 after a sentence on stderr. */
int bench_bandwidth_init(struct bench_bandwidth *bandwidth, const struct bench_isa_kernels *kernels, int threads);

/** Reads the buffer once; returns GB/s. */
double bench_bandwidth_sample(struct bench_bandwidth *bandwidth);

void bench_bandwidth_destroy(struct bench_bandwidth *bandwidth);

#endif
