/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pairs of query and key take part, read off the options of a problem,
 * one after the other and each by its definition. A sequence is a batch
 * element, or one sequence of a ragged batch, whose tokens count from its start.
 */
#ifndef BENCH_PAIRS_H
#define BENCH_PAIRS_H

#include "problem.h"

/** Batch elements, or sequences of a ragged batch. */
int64_t bench_num_sequences(const struct bench_problem *p);

/** Queries of a sequence. */
int64_t bench_num_queries(const struct bench_problem *p, int64_t s);

/** Keys of a sequence that are no padding. */
int64_t bench_num_keys(const struct bench_problem *p, int64_t s);

/** Where query i of a sequence stands among its keys. */
int64_t bench_position(const struct bench_problem *p, int64_t s, int64_t i);

/** First key that query i does not see any more, by its length, causality and prefix. */
int64_t bench_key_end(const struct bench_problem *p, int64_t s, int64_t i);

/** Whether query i of head h sees key j, a key of the sequence. */
bool bench_pair_live(const struct bench_problem *p, int64_t s, int64_t h, int64_t i, int64_t j);

/** Counts the pairs that are live, over all sequences and heads. 0, or -1 when memory is short. */
int bench_count_pairs(const struct bench_problem *p, double *live_pairs);

#endif
