/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A case made concrete: tensors full of normally distributed numbers, masks,
 * lengths, what the case's form needs, and the number of (query, key) pairs
 * that take part.
 */
#ifndef BENCH_PROBLEM_H
#define BENCH_PROBLEM_H

#include "cases.h"
#include "peak.h"

struct bench_form_data; /* what a form has in memory: forms.c */

struct bench_problem {
    const struct bench_case *bcase;
    int64_t batch, tq, tk; /**< axes of the tensors: the case's, but for a ragged batch all its tokens */
    attn_tensor q, k, v;   /**< f32, as the naive implementation reads them */
    attn_tensor expected;  /**< f32, filled by the naive implementation, laid out as out; or rows of it */
    int64_t *rows;         /**< where the rows of expected are in out, counted through its memory; NULL: alike */
    attn_tensor typed[3];  /**< q, k and v in the types of the case, with the same values: for f32 the same memory */
    attn_tensor scales[2]; /**< of k and v in 8 bits; data is NULL where they have none */
    attn_tensor pools[2];  /**< k and v in pages; data is NULL where they are side by side */
    attn_tensor scale_pools[2];
    int32_t *block_table;         /**< of the pools, or NULL */
    attn_tensor out;              /**< in the type of the case */
    attn_tensor mask;             /**< data is NULL without a mask */
    int64_t *kv_len;              /**< NULL without padding */
    struct bench_form_data *form; /**< NULL for a plain case */
    attn_params params;           /**< everything but exp, isa and num_threads */
    double live_pairs;            /**< over all batches and heads */
    double flops;                 /**< for each live pair: two for each product of QK^T and of PV */
};

/**
 * Allocates and fills everything but expected where the case is checked by a
 * sample of rows, see rows.h; 0, or -1 after a sentence on stderr.
 */
int bench_problem_create(struct bench_problem *p, const struct bench_case *c);

void bench_problem_destroy(struct bench_problem *p);

/** What the library is called with: k (1) or v (2). */
static inline const attn_tensor *bench_problem_keys(const struct bench_problem *p, int which)
{
    return p->block_table != NULL ? &p->pools[which - 1] : &p->typed[which];
}

/** Adds the memory of keys, values and scales that the library reads to the regions of memory. */
void bench_problem_memory(const struct bench_problem *p, struct bench_bandwidth *memory);

/** Fills out with NaN: an output that is never written must not look right. */
void bench_problem_spoil(struct bench_problem *p);

/** How out differs from expected, in the rows that expected has; both are NaN if any element of either is NaN. */
struct bench_difference {
    double largest; /**< of |out - expected| over all elements */
    double of_row;  /**< largest over the rows of |out - expected| / |expected|, norms of the row's channels */
};

struct bench_difference bench_problem_difference(const struct bench_problem *p);

#endif
