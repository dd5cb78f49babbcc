/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splits of the keys: where the softmax of a strip starts anew, and what becomes
 * of what a split has given.
 *
 * Splits have ATTN_SPLIT_KEYS keys, counted from the first live key. Their
 * results are joined in the order of the keys, whoever computes them and whatever
 * else is in the pass, so that bits follow from a query and its keys alone. A
 * split of which no query sees a key costs nothing, and one of which a strip sees
 * nothing leaves that strip as it is.
 *
 * A sink is where the first split starts, as if it were a key before key 0: also
 * where no strip sees that split, as what it is joined with must not depend on
 * other queries.
 */
#include "pass/pass.h"

#include <assert.h>
#include <math.h>

int64_t attn_next_split(const struct pass *pass, int64_t split, int64_t *first)
{
    *first = attn_next_block(pass, pass->strips, pass->num_strips, split * ATTN_SPLIT_KEYS);
    if (split == 0 && (pass->work->sinks || *first >= pass->end))
        return 0;
    return *first < pass->end ? *first / ATTN_SPLIT_KEYS : -1;
}

int64_t attn_count_splits(const struct pass *pass)
{
    int64_t first, count = 0;
    for (int64_t split = attn_next_split(pass, 0, &first); split >= 0; split = attn_next_split(pass, split + 1, &first))
        count++;
    return count;
}

static void go_on_with(struct strip *strip, const struct sums *sums)
{
    strip->o = sums->o;
    strip->m = sums->m;
    strip->l = sums->l;
}

void attn_begin_split(const struct pass *pass, struct strip *strip)
{
    (void)pass;
    assert(!strip->joined || strip->next.m);
    go_on_with(strip, strip->joined ? &strip->next : &strip->whole);
    for (int r = 0; r < strip->width; r++)
        strip->m[r] = -INFINITY;
    memset(strip->l, 0, (size_t)strip->width * sizeof *strip->l);
    strip->started = 0;
}

/** Joins sums of a strip to those of all keys before. */
static void join(const struct pass *pass, const struct strip *strip, const struct sums *next)
{
    const struct attn_work *work = pass->work;
    const struct attn_join join = {.m = strip->whole.m,
                                   .l = strip->whole.l,
                                   .next_m = next->m,
                                   .next_l = next->l,
                                   .o = work->weight_callback ? NULL
                                                              : strip->whole.o, /* which is made from final weights */
                                   .next_o = next->o,
                                   .channels = strip->few ? work->dv : attn_value_channels(pass->values, work->dv),
                                   .rows = strip->few ? strip->rows : 0};
    pass->vectors->join(strip->nv, &join);
}

void attn_end_split(const struct pass *pass, struct strip *strip)
{
    if (strip->joined && strip->started)
        join(pass, strip, &strip->next);
    strip->joined |= strip->started;
    strip->started = strip->joined;
    go_on_with(strip, &strip->whole);
}

/* --------------------------------------------------------------- partials -- */

/** A strip's piece of a partial: this, then m, l, validity and shift of its lanes, then o if it has started. */
struct partial {
    _Alignas(ATTN_ALIGN) int started;
};

/** Numbers of a lane beside its channels. */
#define NUMBERS_OF_LANE 4

size_t attn_partial_size(const struct attn_scratch_shape *shape, int64_t lanes)
{
    const size_t bytes = (size_t)(lanes * (shape->value_channels + NUMBERS_OF_LANE)) * sizeof(float);
    return (size_t)shape->strips * (sizeof(struct partial) + attn_aligned(bytes));
}

static struct partial *partial_of(const struct pass *pass, int64_t i, char *partial)
{
    const struct attn_work *work = pass->work;
    return (struct partial *)(void *)(partial + (size_t)i * (work->partial_size / (size_t)work->shape->strips));
}

/** The ith array of the numbers of lanes; behind the last one lies o. */
static float *numbers_of(struct partial *partial, const struct strip *strip, int i)
{
    return (float *)(void *)(partial + 1) + (ptrdiff_t)i * strip->width;
}

void attn_keep_partial(const struct pass *pass, int64_t i, char *partial)
{
    const struct strip *strip = &pass->strips[i];
    struct partial *const kept = partial_of(pass, i, partial);
    const float *const numbers[NUMBERS_OF_LANE] = {strip->m, strip->l, strip->validity, strip->shift};
    const int64_t channels = attn_value_channels(pass->values, pass->work->dv);
    kept->started = strip->started;
    for (int n = 0; n < NUMBERS_OF_LANE; n++)
        if (numbers[n])
            memcpy(numbers_of(kept, strip, n), numbers[n], (size_t)strip->width * sizeof(float));
    if (strip->started)
        memcpy(numbers_of(kept, strip, NUMBERS_OF_LANE), strip->o,
               (size_t)(strip->few ? strip->rows * pass->work->dv : strip->width * channels) * sizeof(float));
}

static struct sums sums_in(struct partial *kept, const struct strip *strip)
{
    return (struct sums){.o = numbers_of(kept, strip, NUMBERS_OF_LANE),
                         .m = numbers_of(kept, strip, 0),
                         .l = numbers_of(kept, strip, 1)};
}

/** Joins the partials of strip i, in the place of the first one that has something. */
static void join_partials(struct pass *pass, int64_t i)
{
    struct strip *strip = &pass->strips[i];
    char *at = pass->work->partials;
    struct partial *kept = partial_of(pass, i, at);
    int64_t first, split = attn_next_split(pass, 0, &first);
    strip->whole = sums_in(kept, strip);
    strip->joined = kept->started;
    strip->validity = strip->validity ? numbers_of(kept, strip, 2) : NULL;
    strip->shift = strip->shift ? numbers_of(kept, strip, 3) : NULL;
    while ((split = attn_next_split(pass, split + 1, &first)) >= 0) {
        at += pass->work->partial_size;
        kept = partial_of(pass, i, at);
        const struct sums next = sums_in(kept, strip);
        if (kept->started && strip->joined)
            join(pass, strip, &next);
        else if (kept->started)
            strip->whole = next;
        strip->joined |= kept->started;
    }
    strip->started = strip->joined;
    go_on_with(strip, &strip->whole);
}

void attn_join_pass(const struct attn_work *work)
{
    struct pass pass;
    attn_begin_pass(&pass, work);
    for (int64_t i = 0; i < pass.num_strips; i++)
        join_partials(&pass, i);
    attn_finish_strips(&pass);
}
