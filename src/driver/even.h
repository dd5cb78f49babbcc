/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes of tasks with which threads finish together.
 */
#ifndef ATTN_DRIVER_EVEN_H
#define ATTN_DRIVER_EVEN_H

#include "kernels/kernels.h"

/** What is to be cut: equal heads, of rows that see up to as many keys as the last one. */
struct attn_even_work {
    int64_t heads, rows;
    int64_t most_rows; /**< of a task */
    double first;      /**< keys of the first row, as a part of those of the last one */
    int64_t splits;    /**< of the keys, which tasks may share; 1: each takes all */
    int threads;
};

/** A task: rows of a head, and one of so many parts of their splits. */
struct attn_even_cut {
    int64_t rows, parts;
};

/**
 * The cut that is expected to end first. Rows of a task are a multiple of the lanes of a vector; few of them take more
 * time each. Where tasks of most_rows are many for each thread it is these.
 */
struct attn_even_cut attn_cut_evenly(const struct attn_kernels *kernels, const struct attn_even_work *work);

/**
 * When the last of some tasks ends whose times fall from the longest to 0, handed out in this order: two for each
 * thread take the same time for all of them, as whoever has had the longer one takes the shorter one next.
 */
double attn_end_of_falling(int threads, double tasks, double longest);

#endif
