/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of tasks and blocks of the backward pass, and what a step of them takes. */
#ifndef ATTN_DRIVER_BACKWARD_EVEN_H
#define ATTN_DRIVER_BACKWARD_EVEN_H

#include "driver/backward_call.h"

/** Keys of a task and queries of a block, at most, and whether dQ has tasks of its own. */
struct attn_backward_sizes {
    int64_t keys, queries;
    int apart;
};

/**
 * What a step, some keys with a block of queries, takes besides its pairs: for each query the time of so many keys, as
 * its rows are turned (measured on AVX2 at d = 64, in tasks of 32 to 256 keys: 19). Where tasks follow each other: the
 * same for sums of dQ that come from another core's caches, and so many pairs for telling the others; both are guesses.
 */
#define ATTN_TURNED_KEYS 20.0
#define ATTN_FAR_KEYS    5.0
#define ATTN_TOLD_PAIRS  120.0

/** What each key takes with so many queries, in those of the widest strips. A strip of n vectors takes 1 + 2 n / 3
 * parts of the widest one's 3 (measured on AVX2: 1.6, 2.4 and 3). */
static inline double attn_backward_time_of_queries(int64_t strip, int64_t queries)
{
    const int64_t rest = queries % strip;
    return (double)(queries - rest) + (rest > 0 ? ((double)strip + 2.0 * (double)rest) / 3.0 : 0.0);
}

/** Makes those sizes such that so many threads are expected to end first. strip: queries of the widest one; step:
 * blocks have a multiple of it. */
void attn_backward_even_sizes(const struct attn_backward *b, int64_t strip, int64_t step, int threads,
                              struct attn_backward_sizes *sizes);

#endif
