/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks for the size of tasks with which threads finish together. Where a thread
 * has few of them, their number decides: 344 equal tasks keep 256 threads busy
 * for two thirds of the time, 512 smaller ones all of it. Neither the rows of a
 * task nor the parts of its keys move a bit of the result.
 *
 * Time counts in what a vector of rows takes for all keys of the last row. A
 * register tile of few vectors waits for its loads, and every task reads the keys
 * from a far cache once. tools/scaling replays what comes of it.
 */
#include "driver/even.h"

#include <math.h>

/* Of so many tasks for each thread the last one to end matters little. */
#define MANY 32

/* What a task takes besides: keys from a far cache, in vectors of rows. */
#define FAR_KEYS 0.3

/* Part of a task by which threads end one after the other because cores are uneven. */
#define UNEVEN 0.05

/* Rows of a register tile that share the load of a vector. */
#define TILE_ROWS 4.0

static double more(double a, double b)
{
    return a > b ? a : b;
}

static int64_t steps(int64_t count, int64_t size)
{
    return (count + size - 1) / size;
}

/** What a strip of so many vectors takes. */
static double strip_time(int64_t vectors)
{
    return more((double)vectors, 1.0 + (double)vectors / TILE_ROWS);
}

/** What a task of so many rows takes with all keys of the last row. */
static double rows_time(const struct attn_kernels *kernels, int64_t rows)
{
    const int64_t lanes = kernels->vectors->lanes, strip = kernels->strip, rest = rows % strip;
    return (double)(rows / strip) * strip_time(strip / lanes) + (rest > 0 ? strip_time(steps(rest, lanes)) : 0.0);
}

double attn_end_of_falling(int threads, double tasks, double longest)
{
    /* Two tasks of each thread are a round, of which whole ones come before the last: it takes its first time and its
     * last, which is the next one's first. Times fall by the same amount from round to round, so their sum is closed.
     */
    const double rounds = tasks / (2.0 * threads), fall = rounds > 1.0 ? 1.0 / rounds : 0.0;
    const double whole = rounds > 1.0 ? ceil(rounds) - 1.0 : 0.0;
    return longest * (2.0 * whole - fall * whole * whole + 1.0 - fall * whole);
}

/** When the last thread ends. */
static double end_of(const struct attn_kernels *kernels, const struct attn_even_work *work,
                     const struct attn_even_cut *cut)
{
    const int64_t blocks = steps(work->rows, cut->rows), tasks = work->heads * blocks * cut->parts;
    const double part = (double)steps(work->splits, cut->parts) / (double)work->splits;
    const double longest = (rows_time(kernels, cut->rows) + FAR_KEYS) * part;
    const double mean = (1.0 + work->first) / 2.0;
    double end;
    if (work->first >= 0.5) /* about equal */
        end = (double)steps(tasks, work->threads) * longest * mean;
    else if (cut->parts == 1)
        end = attn_end_of_falling(work->threads, (double)tasks, longest) + longest / (double)blocks;
    else /* parts of all sizes, in no order */
        end = (double)tasks * mean / work->threads * longest + longest / 2.0;
    return end + UNEVEN * longest;
}

struct attn_even_cut attn_cut_evenly(const struct attn_kernels *kernels, const struct attn_even_work *work)
{
    const int64_t lanes = kernels->vectors->lanes;
    struct attn_even_cut best = {.rows = work->most_rows, .parts = 1};
    if (work->threads <= 1 || work->heads * steps(work->rows, best.rows) >= (int64_t)MANY * work->threads)
        return best;
    double least = end_of(kernels, work, &best);
    for (int64_t rows = work->most_rows / lanes * lanes; rows >= lanes; rows -= lanes)
        for (int64_t parts = 1; parts <= work->splits; parts *= 2) {
            const struct attn_even_cut cut = {rows, parts};
            const double end = end_of(kernels, work, &cut);
            if (end < least) {
                least = end;
                best = cut;
            }
        }
    return best;
}
