/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs ranges of anything on OpenMP threads. Beside parallel.c this file is the
 * only one that knows OpenMP.
 *
 * Ranges are handed out one at a time, as cores are shared and uneven.
 */
#include "driver/ranges.h"

#include <omp.h>

int attn_driver_max_threads(void)
{
    return omp_get_max_threads();
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
