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

/** Warms up. Returns how many threads there were: those asked for, or fewer, with which nothing has been measured. */
int bench_peak_init(struct bench_peak *peak, const struct bench_isa_kernels *kernels, int threads);

/** Runs each of the two loops on all threads for about that many seconds. */
struct bench_peak_sample bench_peak_take(struct bench_peak *peak, double seconds);

/** What is done to memory. */
enum bench_access {
    BENCH_READ,
    BENCH_WRITE,  /**< by plain stores, which fetch a line before they change it */
    BENCH_UPDATE, /**< by plain stores to what has just been read; words are counted once */
    BENCH_STREAM  /**< by stores past the caches */
};

#define BENCH_NUM_ACCESSES 4

/** Words of 32 bits. */
struct bench_region {
    uint32_t *words;
    int64_t count;
};

#define BENCH_MAX_REGIONS 4 /* keys, values and their scales */

/** How fast all threads read or write some memory, each thread a part of its own. */
struct bench_bandwidth {
    const struct bench_isa_kernels *kernels;
    int threads;
    enum bench_access access;
    struct bench_region regions[BENCH_MAX_REGIONS];
    int num_regions;
    double best; /**< GB/s of all threads, over every sample so far */
    double best_seconds;
    int samples;
    uint32_t sum; /**< of the words that the last sample has read */
};

/** Allocates a buffer that no cache holds, and touches it: all words are 1. 0, or the bytes that there were not. */
size_t bench_bandwidth_buffer(struct bench_region *buffer, int threads);

/** Goes through the regions once, or through small ones as often as makes a sample of some length; returns GB/s. */
double bench_bandwidth_sample(struct bench_bandwidth *bandwidth);

/** "read", "write", "update" or "write-streaming". */
const char *bench_access_name(enum bench_access access);

#endif
