/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs work on OpenMP threads: the tasks of a call, or ranges of anything. This
 * file is the only one that knows OpenMP.
 *
 * Tasks and ranges are handed out one at a time, as cores are shared and uneven; which
 * thread computes a task changes no bit of it.
 */
#include "driver/driver.h"

#include <omp.h>

int attn_driver_max_threads(void)
{
    return omp_get_max_threads();
}

void attn_run_parallel(const struct attn_problem *problem, const struct attn_geometry *geometry, void *scratch)
{
    if (geometry->parallel == 1 || attn_forked_from_threads()) {
        for (int64_t task = 0; task < geometry->tasks; task++)
            attn_run_task(problem, geometry, task, scratch);
        return;
    }
    attn_note_threads();
#pragma omp parallel num_threads(geometry->parallel)
    {
        void *own = (char *)scratch + (size_t)omp_get_thread_num() * geometry->scratch_size;
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < geometry->tasks; task++)
            attn_run_task(problem, geometry, task, own);
    }
}

/* Ranges a thread should find, as cores are uneven. */
#define RANGES_PER_THREAD 8

/** Where range number range of ranges begins. */
static int64_t range_start(int64_t items, int64_t ranges, int64_t range)
{
    const int64_t longer = items % ranges; /* the first so many have one item more */
    return items / ranges * range + (range < longer ? range : longer);
}

void attn_run_ranges(int64_t items, int threads, void (*body)(const void *context, int64_t first, int64_t end),
                     const void *context)
{
    if (items == 0)
        return;
    if (threads <= 1 || items == 1 || attn_forked_from_threads()) {
        body(context, 0, items);
        return;
    }
    const int64_t wanted = (int64_t)RANGES_PER_THREAD * threads, ranges = items < wanted ? items : wanted;
    attn_note_threads();
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t range = 0; range < ranges; range++)
        body(context, range_start(items, ranges, range), range_start(items, ranges, range + 1));
}
