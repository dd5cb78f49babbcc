/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs ranges of anything on threads. They are handed out one at a time, as
 * cores are shared and uneven.
 */
#include "driver/ranges.h"

#include "driver/threads.h"

#include <stdatomic.h>

/* Ranges a thread should find, as cores are uneven. */
#define RANGES_PER_THREAD 8

struct ranges {
    int64_t items, count;
    void (*body)(const void *context, int64_t first, int64_t end);
    const void *context;
    _Alignas(64) atomic_llong next; /* a line of its own: all threads write it, and only read the rest */
};

/** Where range number range begins. */
static int64_t range_start(const struct ranges *r, int64_t range)
{
    const int64_t longer = r->items % r->count; /* the first so many have one item more */
    return r->items / r->count * range + (range < longer ? range : longer);
}

static void run_share(void *context, int ith)
{
    struct ranges *r = context;
    (void)ith;
    for (int64_t range; (range = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed)) < r->count;)
        r->body(r->context, range_start(r, range), range_start(r, range + 1));
}

void attn_run_ranges(int64_t items, int threads, void (*body)(const void *context, int64_t first, int64_t end),
                     const void *context)
{
    if (items == 0)
        return;
    const struct attn_team team = attn_team_of(NULL, items < threads ? (int)items : threads);
    if (team.size == 1) {
        body(context, 0, items);
        return;
    }
    const int64_t wanted = (int64_t)RANGES_PER_THREAD * team.size;
    struct ranges ranges = {.items = items, .count = items < wanted ? items : wanted, .body = body, .context = context};
    attn_run_shares(&team, run_share, &ranges);
}
