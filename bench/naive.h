/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention as everybody writes it first: S = QK^T by a matrix product, softmax
 * of each row, SV by another matrix product, with the whole Tq x Tk matrix of
 * one head (or of one head for each thread) in memory. The baseline that the
 * library must never be slower than, and the check of its results.
 */
#ifndef BENCH_NAIVE_H
#define BENCH_NAIVE_H

#include "isa_kernels.h"
#include "problem.h"

/** Where the threads go. */
enum bench_naive_strategy {
    BENCH_NAIVE_SERIAL, /**< one thread: the best for the smallest cases */
    BENCH_NAIVE_HEADS,  /**< heads are shared out, each product runs on one thread */
    BENCH_NAIVE_BLAS    /**< one head after the other, products and softmax on all threads */
};

struct bench_naive {
    struct bench_problem *problem;
    const struct bench_isa_kernels *kernels;
    int threads;
    enum bench_naive_strategy strategy;
    float *scores;
    int num_buffers; /**< matrices in scores */
};

/**
 * Allocates the score matrices and keeps the fastest of the strategies, each
 * measured for a few times probe_time seconds; with probe_time 0 nothing is
 * measured and the usual one taken. 0, or -1 after a sentence on stderr.
 */
int bench_naive_create(struct bench_naive *naive, struct bench_problem *problem,
                       const struct bench_isa_kernels *kernels, int threads, double probe_time);

/** Computes problem->expected; a bench_body that returns true. */
int bench_naive_run(void *naive);

void bench_naive_destroy(struct bench_naive *naive);

/** "serial", "heads" or "blas". */
const char *bench_naive_strategy_name(enum bench_naive_strategy strategy);

/**
 * Makes OpenBLAS use the kernels called core, or with NULL those of isa. It
 * looks at OPENBLAS_CORETYPE when it is loaded, so this sets the variable and
 * starts the program again. The default does not ask the environment or
 * OpenBLAS: both may name an older processor's kernels, and a baseline that is
 * slowed proves nothing. The core "environment" leaves everything as it is.
 * Returns 0 when nothing is to be done, or -1 after a sentence on stderr when
 * there are no kernels called core.
 */
int bench_naive_select_blas(const char *isa, const char *core, char **argv);

/** The name of the kernels that OpenBLAS uses, e.g. "SkylakeX". */
const char *bench_naive_blas_core(void);

#endif
