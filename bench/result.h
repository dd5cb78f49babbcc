/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One row of the output, and the list of them.
 */
#ifndef BENCH_RESULT_H
#define BENCH_RESULT_H

#include "cases.h"

enum bench_kind { BENCH_FORWARD, BENCH_NAIVE, BENCH_PEAK, BENCH_BANDWIDTH, BENCH_MEMORY };

/** Whether the row's promises are met. */
enum bench_verdict { BENCH_NO_BAR, BENCH_MET, BENCH_NOT_MET };

/** Figures that a row does not have are 0. Times are seconds for one iteration. */
struct bench_result {
    enum bench_kind kind;
    char name[BENCH_NAME_SIZE];
    const struct bench_case *bcase; /**< NULL except for forward and naive rows */
    const char *isa;                /**< of the kernels that ran */
    int threads, repetitions;
    int64_t iterations;

    double real_time, real_time_median, cpu_time;
    double flops; /**< of one iteration: forward and naive rows */
    double bytes; /**< that one iteration reads, weights or keys and values, or writes */
    bool written; /**< bytes are written: rows of appending */
    double gflops, peak_gflops, fraction, fraction_median;
    double peak_loads_gflops, fraction_of_loads; /**< the same with the loads of a product beside the multiply-adds */
    double gb_per_second;
    double bandwidth_gb_per_second, bandwidth_fraction; /**< of reading or writing, beside it; its part of that */
    double token_time;        /**< seconds for each token, or key of a tree: cases with a cost */
    double tokens_per_second; /**< of decoding and appending, all sequences together */

    double max_abs_diff;            /**< against the naive result, or the sampled rows */
    double speedup, speedup_median; /**< naive time / this time, when both were measured */
    const char *strategy;           /**< how the naive row used its threads, or NULL */
    size_t workspace_bytes;         /**< as the plan asks for */
    int64_t tensor_bytes;           /**< memory row: inputs and outputs */
    int64_t peak_rss, rss_growth;   /**< memory row: of the process; by running the plan, beyond the tensors */
    char plan[512];                 /**< attn_plan_describe */

    enum bench_verdict verdict;
};

/** Which rows of a case are wanted: the library's and the baseline's. */
struct bench_selection {
    bool library, naive;
};

struct bench_results {
    struct bench_result *rows;
    int count, capacity;
};

/** Whether the library computed the row. */
static inline bool bench_result_of_library(const struct bench_result *row)
{
    return row->kind == BENCH_FORWARD || row->kind == BENCH_MEMORY;
}

/** Adds a row that is all zeros and returns it, valid until the next call; NULL after a sentence on stderr. */
struct bench_result *bench_results_add(struct bench_results *results);

void bench_results_destroy(struct bench_results *results);

/** Whether the row's plan names the kernels of its instruction set: 0, or -1 after a sentence on stderr. */
int bench_result_check_kernels(const struct bench_result *row);

#endif
