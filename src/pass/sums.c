/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of shared keys: what a pass over the keys that some sequences have in
 * common leaves for the passes over those of each, which go on from there.
 *
 * A row of sums is that of a query, whatever strips it was in: o, m and l of all
 * splits of the keys that have ended, then those of the split that goes on. Which
 * of the two are there follows from the number of keys, all of which every query
 * has seen. So each query has the chain of sums that it has alone.
 */
#include "pass/pass.h"

#include <math.h>

/** A query's m, l and o. */
struct row {
    float *m, *l, *o;
};

/** The first or, with next, the second part of a query's row. */
static struct row row_at(const struct attn_work *work, int64_t query, int next)
{
    float *const at = work->sums + query * attn_sums_row(work->dv) + next * attn_sums_row(work->dv) / 2;
    return (struct row){at, at + 1, at + 2};
}

/** Places of o from lane to lane, and from channel to channel. */
static void find_steps(const struct pass *pass, const struct strip *strip, ptrdiff_t *lane, ptrdiff_t *channel)
{
    *lane = strip->few ? pass->work->dv : 1;
    *channel = strip->few ? 1 : strip->width;
}

static void leave(const struct pass *pass, const struct strip *strip, const struct sums *sums, int next)
{
    ptrdiff_t lane, channel;
    find_steps(pass, strip, &lane, &channel);
    for (int r = 0; r < strip->rows; r++) {
        const struct row row = row_at(pass->work, query_of(strip, r), next);
        *row.m = sums->m[r];
        *row.l = sums->l[r];
        for (int c = 0; c < pass->work->dv; c++)
            row.o[c] = sums->o[r * lane + c * channel];
    }
}

static void take(const struct pass *pass, const struct strip *strip, const struct sums *sums, int next)
{
    ptrdiff_t lane, channel;
    find_steps(pass, strip, &lane, &channel);
    /* lanes behind the last row, and channels that fill words, are computed with, too */
    if (!strip->few)
        memset(sums->o, 0, (size_t)(strip->width * attn_value_channels(pass->values, pass->work->dv)) * sizeof(float));
    for (int r = strip->rows; r < strip->width; r++) {
        sums->m[r] = -INFINITY;
        sums->l[r] = 0.0f;
    }
    for (int r = 0; r < strip->rows; r++) {
        const struct row row = row_at(pass->work, query_of(strip, r), next);
        sums->m[r] = *row.m;
        sums->l[r] = *row.l;
        for (int c = 0; c < pass->work->dv; c++)
            sums->o[r * lane + c * channel] = row.o[c];
    }
}

void attn_leave_sums(struct pass *pass, int64_t i)
{
    struct strip *const strip = &pass->strips[i];
    const int64_t keys = pass->work->num_keys;
    if (is_split_end(keys))
        attn_end_split(pass, strip);
    leave(pass, strip, &strip->whole, 0);
    if (keys > ATTN_SPLIT_KEYS && !is_split_end(keys))
        leave(pass, strip, &strip->next, 1);
}

void attn_take_sums(struct pass *pass, int64_t i)
{
    struct strip *const strip = &pass->strips[i];
    const int64_t keys = pass->work->sums_keys;
    take(pass, strip, &strip->whole, 0);
    strip->started = 1;
    strip->joined = keys >= ATTN_SPLIT_KEYS;
    if (keys < ATTN_SPLIT_KEYS || is_split_end(keys))
        return;
    take(pass, strip, &strip->next, 1);
    strip->o = strip->next.o;
    strip->m = strip->next.m;
    strip->l = strip->next.l;
}
