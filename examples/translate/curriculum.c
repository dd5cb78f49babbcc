/* SPDX-License-Identifier: Apache-2.0 */
/* Draws without replacement from a pool that grows. */
#include "curriculum.h"

#include <stdlib.h>

#include "batch_order.h"

/* Steps whose texts are sorted by length together. */
enum { GROUP = 16 };

/* The streams of random numbers of groups, behind those of the parameters: what is drawn, and the order of that. */
enum { STREAM_DRAW = 1000000, STREAM_ORDER = 2000000 };

struct by_length {
    int64_t length, index;
};

static int compare(const void *a, const void *b)
{
    const struct by_length *x = a, *y = b;
    return x->length != y->length ? (x->length > y->length) - (x->length < y->length)
                                  : (x->index > y->index) - (x->index < y->index);
}

struct pool {
    int64_t count, open, left; /* all pairs; those that may be drawn by now; those of them that have not been */
    struct by_length *all;     /* [count] sorted */
    int64_t *next;             /* [left] */
    int64_t *drawn, *lengths;  /* of a group */
};

static attn_status open_pool(struct pool *pool, const struct date_pairs *pairs, int64_t batch)
{
    pool->count = pairs->texts.count;
    pool->all = calloc((size_t)pool->count, sizeof *pool->all);
    pool->next = calloc((size_t)pool->count, sizeof *pool->next);
    pool->drawn = calloc((size_t)(GROUP * batch), sizeof *pool->drawn);
    pool->lengths = calloc((size_t)(GROUP * batch), sizeof *pool->lengths);
    if (!pool->all || !pool->next || !pool->drawn || !pool->lengths)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for an order of %lld pairs", (long long)pool->count);
    for (int64_t i = 0; i < pool->count; i++)
        pool->all[i] = (struct by_length){(int64_t)pairs->texts.size[i], i};
    qsort(pool->all, (size_t)pool->count, sizeof *pool->all, compare);
    return ATTN_OK;
}

static void close_pool(struct pool *pool)
{
    free(pool->all);
    free(pool->next);
    free(pool->drawn);
    free(pool->lengths);
}

/* Lets in texts of at most longest characters, and longer ones if those are not enough for a batch. */
static void widen(struct pool *pool, int64_t longest, int64_t least)
{
    while (pool->open < pool->count && (pool->all[pool->open].length <= longest || pool->open < least))
        pool->next[pool->left++] = pool->all[pool->open++].index;
}

static int64_t draw(struct pool *pool, uint64_t chance)
{
    if (pool->left == 0)
        for (; pool->left < pool->open; pool->left++)
            pool->next[pool->left] = pool->all[pool->left].index;
    const uint64_t which = chance % (uint64_t)pool->left;
    const int64_t drawn = pool->next[which];
    pool->next[which] = pool->next[--pool->left];
    return drawn;
}

/* The pairs of a group of steps from the first on. */
static attn_status draw_group(const struct curriculum *c, const struct date_pairs *pairs, struct pool *pool,
                              int64_t first, int64_t *order)
{
    const int64_t left = c->steps - first, count = (left < GROUP ? left : GROUP) * c->batch;
    const double grown = (double)first / (c->growth * (double)c->steps);
    const uint64_t group = (uint64_t)(first / GROUP);
    widen(pool, c->shortest + (int64_t)((double)c->longest * grown), c->batch);
    for (int64_t i = 0; i < count; i++) {
        pool->drawn[i] = draw(pool, random_bits((struct stream){c->seed, STREAM_DRAW + group}, (uint64_t)i));
        pool->lengths[i] = (int64_t)pairs->texts.size[pool->drawn[i]];
    }
    CHECK(batch_order(pool->lengths, count, c->batch, (struct stream){c->seed, STREAM_ORDER + group}, order));
    for (int64_t i = 0; i < count; i++)
        order[i] = pool->drawn[order[i]];
    return ATTN_OK;
}

attn_status curriculum_order(const struct curriculum *c, const struct date_pairs *pairs, int64_t *order)
{
    struct pool pool = {0};
    attn_status status = open_pool(&pool, pairs, c->batch);
    for (int64_t first = 0; status == ATTN_OK && first < c->steps; first += GROUP)
        status = draw_group(c, pairs, &pool, first, order + first * c->batch);
    close_pool(&pool);
    return status;
}
