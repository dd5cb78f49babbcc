/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Query heads that share a key head are rows of one block of queries where
 * sequences have few queries (src/driver/heads.c). Whatever hides keys or moves
 * scores, each head has the bits of a call for itself: in batches and in ragged
 * ones of prompts beside single tokens, over keys side by side or in pages.
 */
#include "dtype.h"
#include "properties.h"
#include "test_isa.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SEQUENCES = 5, MOST_HEADS = 48, MOST_GLOBALS = 3, MOST_DRAFTS = 5 };

/** A call, and the arrays that its options point to. */
struct grouped {
    attn_tensor q, k, v, out, lse, mask, rope_q, rope_k;
    attn_params params;
    int64_t num, queries[MOST_SEQUENCES], keys[MOST_SEQUENCES];
    int64_t cu_q[MOST_SEQUENCES + 1], cu_k[MOST_SEQUENCES + 1];
    int64_t offset[MOST_SEQUENCES], kv_len[MOST_SEQUENCES], kv_start[MOST_SEQUENCES], prefix[MOST_SEQUENCES];
    int64_t globals[MOST_GLOBALS];
    float sinks[MOST_HEADS], slopes[MOST_HEADS];
    float *table;
    int32_t *labels_q, *labels_k, *pages;
    uint64_t *ancestors;
    attn_ragged ragged;
    attn_window window;
    attn_segments segments;
    attn_tree tree;
    attn_relative_bias bias;
    attn_rope_tables rope;
};

/** Lengths of the sequences; ragged ones have their own, of which some are prompts. */
static void draw_lengths(struct grouped *g, struct rng *rng, int ragged)
{
    const int64_t queries = RNG_PICK(rng, 1, 1, 2, 3, 4, 5, 8, 9, 15, 16, 32, 33);
    const int64_t keys = rng_percent(rng, 5) ? rng_range(rng, 4090, 8300) : rng_range(rng, 1, 300);
    g->num = ragged ? rng_range(rng, 1, MOST_SEQUENCES) : rng_range(rng, 1, 2);
    for (int64_t s = 0; s < g->num; s++) {
        g->queries[s] = ragged ? RNG_PICK(rng, 0, 1, 1, 1, 2, 3, 7, 16, 32, 33, 60) : queries;
        g->keys[s] = ragged && rng_percent(rng, 80) ? rng_range(rng, 1, 300) : keys;
        g->cu_q[s + 1] = g->cu_q[s] + g->queries[s];
        g->cu_k[s + 1] = g->cu_k[s] + g->keys[s];
        g->kv_start[s] = rng_range(rng, 0, g->keys[s] / 3);
        g->kv_len[s] = g->keys[s] - rng_range(rng, 0, g->keys[s] / 3);
        g->offset[s] = rng_range(rng, -2, g->keys[s]);
        g->prefix[s] = rng_range(rng, 0, g->keys[s]);
    }
    attn_params *p = &g->params;
    p->causal = (attn_causal)rng_range(rng, ATTN_CAUSAL_NONE, ATTN_CAUSAL_OFFSET);
    p->query_offset = p->causal == ATTN_CAUSAL_OFFSET || (!p->causal && rng_percent(rng, 30)) ? g->offset : NULL;
    p->kv_len = rng_percent(rng, 40) ? g->kv_len : NULL;
    p->kv_start = rng_percent(rng, 30) ? g->kv_start : NULL;
    p->prefix_len = p->causal && rng_percent(rng, 20) ? g->prefix : NULL;
    g->ragged = (attn_ragged){g->num, g->cu_q, g->cu_k};
    p->ragged = ragged ? &g->ragged : NULL;
}

/** What hides keys by their place, on axes of tq queries and tk keys. */
static void draw_places(struct grouped *g, struct rng *rng, int64_t tq, int64_t tk)
{
    const int64_t batch = g->params.ragged ? 1 : g->num;
    int64_t least = MOST_DRAFTS, num = 0;
    /* where queries stand, as often as not */
    int64_t at = rng_range(rng, rng_percent(rng, 50) && tk > 20 ? tk - 20 : 0, tk - 1);
    for (; num < MOST_GLOBALS && at < tk; num++, at += rng_range(rng, 1, rng_percent(rng, 50) ? 5 : tk))
        g->globals[num] = at;
    g->window = (attn_window){.left = rng_range(rng, 0, 60),
                              .right = rng_percent(rng, 40) ? ATTN_UNLIMITED : rng_range(rng, 0, 60),
                              .first_tokens = rng_percent(rng, 40) ? rng_range(rng, 1, 5) : 0,
                              .global = g->globals,
                              .num_global = rng_percent(rng, 40) ? num : 0};
    g->params.window = rng_percent(rng, 30) ? &g->window : NULL;
    g->labels_q = must_allocate(batch * tq, sizeof *g->labels_q);
    g->labels_k = must_allocate(batch * tk, sizeof *g->labels_k);
    for (int64_t i = 0; i < batch * tq; i++)
        g->labels_q[i] = (int32_t)rng_range(rng, 0, 2);
    for (int64_t j = 0; j < batch * tk; j++)
        g->labels_k[j] = (int32_t)(j / 40 % 3);
    g->segments = (attn_segments){g->labels_q, g->labels_k};
    g->params.segments = rng_percent(rng, 15) ? &g->segments : NULL;
    for (int64_t s = 0; s < g->num; s++) {
        const int64_t live = (g->params.kv_len ? g->kv_len[s] : g->keys[s]) - (g->params.kv_start ? g->kv_start[s] : 0);
        least = live < least ? live : least;
    }
    g->ancestors = must_allocate(batch * tq, sizeof *g->ancestors);
    for (int64_t i = 0; i < batch * tq; i++)
        g->ancestors[i] = rng_bits(rng) | (uint64_t)1 << (i % MOST_DRAFTS);
    g->tree = (attn_tree){least, g->ancestors};
    g->params.tree = least > 0 && rng_percent(rng, 25) ? &g->tree : NULL;
}

/** What moves scores. */
static void draw_terms(struct grouped *g, struct rng *rng, int64_t tq, int64_t tk)
{
    attn_params *p = &g->params;
    const int64_t heads = g->q.shape[1], kv_heads = g->k.shape[1], batch = g->q.shape[0], dk = g->q.shape[3];
    for (int h = 0; h < MOST_HEADS; h++) {
        g->sinks[h] = h % 3 == 1 ? -INFINITY : 2 * rng_normal(rng);
        g->slopes[h] = h % 4 == 2 ? 0.0f : 0.1f * rng_normal(rng);
    }
    p->softcap = rng_percent(rng, 20) ? 3.0f : 0.0f;
    p->scale = rng_percent(rng, 20) ? -0.3f : 0.0f;
    p->sinks = rng_percent(rng, 25) ? g->sinks : NULL;
    p->alibi_slopes = rng_percent(rng, 20) ? g->slopes : NULL;
    g->bias.kind = (attn_buckets)rng_range(rng, 0, 2);
    g->bias.max_distance = rng_range(rng, 5, 200);
    g->bias.buckets = g->bias.kind == ATTN_BUCKETS_CLIPPED ? 2 * g->bias.max_distance + 1 : 8;
    g->table = must_allocate(heads * g->bias.buckets, sizeof *g->table);
    for (int64_t i = 0; i < heads * g->bias.buckets; i++)
        g->table[i] = rng_percent(rng, 2) ? -INFINITY : rng_normal(rng);
    g->bias.table = g->table;
    p->relative_bias = rng_percent(rng, 20) ? &g->bias : NULL;
    const int kind = (int)rng_range(rng, 0, 9);
    const attn_dtype dtype = kind < 5 ? ATTN_BOOL : kind < 8 ? ATTN_F32 : kind < 9 ? ATTN_BF16 : ATTN_F16;
    g->mask = problem_tensor(rng, dtype, rng_percent(rng, 50) ? batch : 1, rng_percent(rng, 60) ? heads : 1,
                             rng_percent(rng, 60) ? tq : 1, rng_percent(rng, 80) ? tk : 1);
    p->mask = rng_percent(rng, 30) ? &g->mask : NULL;
    if (p->mask && rng_percent(rng, 20)) { /* elements of a key beside each other */
        g->mask.stride[3] = g->mask.shape[2] * g->mask.shape[1];
        g->mask.stride[2] = g->mask.shape[1];
        g->mask.stride[1] = 1;
    }
    const int64_t pairs = rng_range(rng, 1, dk / 2);
    g->rope_q = problem_tensor(rng, ATTN_F32, rng_percent(rng, 50) ? batch : 1, rng_percent(rng, 50) ? heads : 1, tq,
                               2 * pairs);
    g->rope_k = problem_tensor(rng, ATTN_F32, rng_percent(rng, 50) ? batch : 1, rng_percent(rng, 50) ? kv_heads : 1, tk,
                               2 * pairs);
    g->rope = (attn_rope_tables){(attn_rope_layout)rng_range(rng, 0, 1), &g->rope_q, &g->rope_k};
    p->rope = rng_percent(rng, 15) ? &g->rope : NULL;
}

/** k or v with its tokens in pages, of which the last come first. */
static attn_tensor paged(const struct grouped *g, const attn_tensor *t, int64_t size, int64_t columns)
{
    attn_tensor pool = attn_bhtd(NULL, g->num * columns, t->shape[1], size, t->shape[3]);
    pool.dtype = t->dtype;
    pool.data = must_allocate(problem_count(&pool), attn_dtype_size(t->dtype));
    for (int64_t s = 0; s < g->num; s++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t j = 0; j < g->keys[s]; j++)
                for (int64_t c = 0; c < t->shape[3]; c++)
                    tensor_set(&pool, g->pages[s * columns + j / size], h, j % size, c,
                               g->params.ragged ? tensor_get(t, 0, h, g->cu_k[s] + j, c) : tensor_get(t, s, h, j, c));
    free(t->data);
    return pool;
}

/** Puts keys into pages: lengths of sequences are the caller's to say then. */
static void use_pages(struct grouped *g, struct rng *rng)
{
    const int64_t size = RNG_PICK(rng, 1, 7, 16, 64);
    int64_t columns = 0;
    for (int64_t s = 0; s < g->num; s++)
        columns = (g->keys[s] + size - 1) / size > columns ? (g->keys[s] + size - 1) / size : columns;
    g->pages = must_allocate(g->num * columns, sizeof *g->pages);
    for (int64_t i = 0; i < g->num * columns; i++)
        g->pages[i] = (int32_t)(g->num * columns - 1 - i);
    g->k = paged(g, &g->k, size, columns);
    g->v = paged(g, &g->v, size, columns);
    for (int64_t s = 0; s < g->num && !g->params.kv_len; s++)
        g->kv_len[s] = g->keys[s];
    g->params.kv_len = g->kv_len;
    g->params.block_table = g->pages;
    g->params.block_table_stride = columns;
    g->params.page_size = size;
    g->ragged.cu_seqlens_k = NULL;
    /* in a ragged batch keys are counted from the first of their sequence now */
    const int64_t tk = columns * size;
    g->mask.shape[3] = g->mask.shape[3] < tk ? g->mask.shape[3] : tk;
    while (g->window.num_global > 0 && g->globals[g->window.num_global - 1] >= tk)
        g->window.num_global--;
}

static void draw(struct grouped *g, struct rng *rng, const char *isa)
{
    memset(g, 0, sizeof *g);
    g->params = attn_params_default();
    g->params.isa = isa;
    g->params.num_threads = (int)rng_range(rng, 1, 3);
    const int ragged = rng_percent(rng, 50);
    draw_lengths(g, rng, ragged);
    const int64_t kv_heads = rng_range(rng, 1, 2), heads = kv_heads * RNG_PICK(rng, 2, 3, 4, 5, 8, 12, 20);
    const int64_t dk = RNG_PICK(rng, 3, 16, 37, 64), dv = RNG_PICK(rng, 5, 16, 33, 64);
    const int64_t tq = ragged ? g->cu_q[g->num] + rng_range(rng, 0, 3) : g->queries[0];
    const int64_t tk = ragged ? g->cu_k[g->num] : g->keys[0], batch = ragged ? 1 : g->num;
    const attn_dtype dtype =
        test_isa_has_pairs(isa) ? ATTN_BF16 : (attn_dtype)RNG_PICK(rng, ATTN_F32, ATTN_F32, ATTN_BF16, ATTN_F16);
    g->q = problem_tensor(rng, dtype, batch, heads, tq, dk);
    g->k = problem_tensor(rng, dtype, batch, kv_heads, tk, dk);
    g->v = problem_tensor(rng, dtype, batch, kv_heads, tk, dv);
    g->out = problem_tensor(rng, dtype, batch, heads, tq, dv);
    g->lse = problem_tensor(rng, ATTN_F32, batch, heads, tq, 1);
    g->params.lse = rng_percent(rng, 70) ? &g->lse : NULL;
    if (rng_percent(rng, 70)) {
        draw_places(g, rng, tq, tk);
        draw_terms(g, rng, tq, tk);
    }
    if (rng_percent(rng, 15)) /* those who do not see it do not notice */
        tensor_set(rng_percent(rng, 50) ? &g->k : &g->v, 0, 0, rng_range(rng, 0, tk - 1), 0,
                   rng_percent(rng, 50) ? NAN : INFINITY);
    if (!g->params.rope && !g->params.segments && rng_percent(rng, 40))
        use_pages(g, rng);
}

static void free_grouped(struct grouped *g)
{
    void *const data[] = {g->q.data,    g->k.data,      g->v.data,      g->out.data, g->lse.data,
                          g->mask.data, g->rope_q.data, g->rope_k.data, g->labels_q, g->labels_k,
                          g->table,     g->pages,       g->ancestors};
    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        free(data[i]);
}

/** Head h of a tensor, if heads have their own of it. */
static attn_tensor head_of(const attn_tensor *t, int64_t h)
{
    attn_tensor one = *t;
    if (!t->data || t->shape[1] == 1)
        return one;
    one.data = (char *)t->data + h * t->stride[1] * (int64_t)attn_dtype_size(t->dtype);
    one.shape[1] = 1;
    return one;
}

/** Whether a head of a result is the one that a tensor holds alone; a NaN is a NaN. */
static int same_head(const attn_tensor *all, int64_t h, const attn_tensor *one, const char *what)
{
    for (int64_t b = 0; b < one->shape[0]; b++)
        for (int64_t i = 0; i < one->shape[2]; i++)
            for (int64_t c = 0; c < one->shape[3]; c++) {
                const float x = tensor_get(all, b, h, i, c), y = tensor_get(one, b, 0, i, c);
                if (memcmp(&x, &y, sizeof x) != 0 && !(isnan(x) && isnan(y))) {
                    printf("  %s[%d,%d,%d,%d] is %.9g, and %.9g otherwise\n", what, (int)b, (int)h, (int)i, (int)c,
                           (double)x, (double)y);
                    return 0;
                }
            }
    return 1;
}

static int head_alone_is_same(const struct grouped *g, struct rng *rng, int64_t h)
{
    const int64_t kv = h / (g->q.shape[1] / g->k.shape[1]);
    const attn_tensor q = head_of(&g->q, h), k = head_of(&g->k, kv), v = head_of(&g->v, kv);
    const attn_tensor mask = head_of(&g->mask, h), rope_q = head_of(&g->rope_q, h), rope_k = head_of(&g->rope_k, kv);
    attn_tensor out = problem_tensor(rng, g->out.dtype, q.shape[0], 1, q.shape[2], v.shape[3]);
    attn_tensor lse = problem_tensor(rng, ATTN_F32, q.shape[0], 1, q.shape[2], 1);
    attn_params p = g->params;
    attn_relative_bias bias = g->bias;
    attn_rope_tables rope = {g->rope.layout, &rope_q, &rope_k};
    bias.table = g->table ? g->table + h * bias.buckets : NULL;
    p.num_threads = 1;
    p.lse = p.lse ? &lse : NULL;
    p.mask = p.mask ? &mask : NULL;
    p.sinks = p.sinks ? p.sinks + h : NULL;
    p.alibi_slopes = p.alibi_slopes ? p.alibi_slopes + h : NULL;
    p.relative_bias = p.relative_bias ? &bias : NULL;
    p.rope = p.rope ? &rope : NULL;
    must_succeed(attn_forward(&q, &k, &v, &out, &p), "attn_forward of a head alone");
    const int same = same_head(&g->out, h, &out, "out") && (!p.lse || same_head(&g->lse, h, &lse, "lse"));
    free(out.data);
    free(lse.data);
    return same;
}

static int heads_of_a_group(struct rng *rng, const char *isa)
{
    struct grouped g;
    char text[512];
    attn_plan *plan;
    draw(&g, rng, isa);
    must_succeed(attn_forward(&g.q, &g.k, &g.v, &g.out, &g.params), "attn_forward");
    int holds = 1;
    for (int64_t h = 0; h < g.q.shape[1] && holds; h++)
        holds = head_alone_is_same(&g, rng, h);
    if (!holds) {
        must_succeed(attn_plan_create(&plan, &g.q, &g.k, &g.v, &g.out, &g.params), "attn_plan_create");
        attn_plan_describe(plan, text, sizeof text);
        printf("  %s\n", text);
        attn_plan_destroy(plan);
    }
    free_grouped(&g);
    return holds;
}

/** How many heads are together follows from the threads. Here sums may be free: they are, or not, for all alike. */
static int threads_and_shares(struct rng *rng, const char *isa)
{
    struct grouped g;
    draw(&g, rng, isa);
    g.params.num_threads = 1;
    g.params.sums = rng_percent(rng, 50) ? ATTN_SUMS_FREE : ATTN_SUMS_ORDERED;
    must_succeed(attn_forward(&g.q, &g.k, &g.v, &g.out, &g.params), "attn_forward");
    int holds = 1;
    for (int threads = 2; threads <= 9 && holds; threads += 7) {
        attn_tensor out = problem_tensor(rng, g.out.dtype, g.q.shape[0], g.q.shape[1], g.q.shape[2], g.v.shape[3]);
        attn_tensor lse = problem_tensor(rng, ATTN_F32, g.q.shape[0], g.q.shape[1], g.q.shape[2], 1);
        attn_params p = g.params;
        p.num_threads = threads;
        p.lse = p.lse ? &lse : NULL;
        if (threads == 2)
            must_succeed(attn_forward(&g.q, &g.k, &g.v, &out, &p), "attn_forward");
        else
            problem_run_shares(&g.q, &g.k, &g.v, &out, &p);
        for (int64_t h = 0; h < g.q.shape[1] && holds; h++) {
            const attn_tensor one = head_of(&out, h), one_lse = head_of(&lse, h);
            holds = same_head(&g.out, h, &one, "out") && (!p.lse || same_head(&g.lse, h, &one_lse, "lse"));
        }
        if (!holds)
            printf("  with %d threads\n", threads);
        free(out.data);
        free(lse.data);
    }
    free_grouped(&g);
    return holds;
}

int main(int argc, char **argv)
{
    static const struct property properties[] = {{"heads of a group, each alone", heads_of_a_group},
                                                 {"threads and shares", threads_and_shares}};
    return properties_run(argc, argv, "test_heads_together", properties, sizeof properties / sizeof *properties);
}
