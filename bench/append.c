/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call is a step of a large batch: attn_store() puts the new tokens of each
 * sequence, keys and values, where they belong in pages of two pools. The next call
 * takes the places behind them, from the last ones it goes back to the first, so
 * that it always writes to what no cache holds any more. What it reads, a model
 * has just computed: the same rows each time, which are in a cache.
 *
 * Its limit is how fast plain stores write the same pools from end to end, so that a
 * processor sees what comes next. Rows that are far from each other take plain stores
 * two to three times as long; attn_store() writes those of so large a step past the
 * caches, whose limit is bandwidth/write-streaming.
 */
#include "append.h"
#include "attn/cache.h"
#include "numbers.h"
#include "rounding.h"
#include "turns.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SEED_ROWS  31 /* and the next one: k and v */
#define SEED_PAGES 33

/* Sides of a call: keys and values. */
#define SIDES 2

struct appended {
    const struct bench_case *bcase;
    int threads;
    int64_t step;         /**< of the last call, from 0 on */
    attn_tensor x[SIDES]; /**< (1, H, B * tq, d) the new rows */
    float *floats[SIDES]; /**< what x stands for after it has been kept */
    attn_tensor pool[SIDES], scales[SIDES];
    int32_t *pages; /**< [B][tk / page] in random order */
    int64_t *slots; /**< [B * tq] of the last call */
};

static void destroy(struct appended *a)
{
    for (int i = 0; i < SIDES; i++) {
        free(a->x[i].data);
        free(a->floats[i]);
        free(a->pool[i].data);
        free(a->scales[i].data);
    }
    free(a->pages);
    free(a->slots);
}

static void shuffle(int32_t *pages, int64_t n)
{
    uint64_t state = SEED_PAGES;
    for (int64_t i = 0; i < n; i++)
        pages[i] = (int32_t)i;
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = (int64_t)(bench_random(&state) % (uint64_t)(i + 1));
        const int32_t swap = pages[i];
        pages[i] = pages[j];
        pages[j] = swap;
    }
}

/* Head by head, tokens side by side. */
static attn_tensor make_rows(attn_dtype dtype, int64_t batch, int64_t heads, int64_t tokens, int64_t d)
{
    const int64_t bytes = batch * heads * tokens * d * (int64_t)attn_dtype_size(dtype);
    attn_tensor t = attn_bhtd(bench_alloc_large((size_t)bytes), batch, heads, tokens, d);
    t.dtype = dtype;
    if (t.data != NULL)
        memset(t.data, 0, (size_t)bytes); /* pages must exist before anything is timed */
    return t;
}

/* New rows, and what they are once they have been rounded: to their own type, then to that of the pool. */
static int make_side(struct appended *a, int side)
{
    const struct bench_case *c = a->bcase;
    const attn_dtype kept = bench_case_kept(c);
    const int64_t tokens = c->batch * c->tq, rows = c->kv_heads * tokens, pages = c->batch * (c->tk / c->page);
    a->x[side] = make_rows(c->dtype, 1, c->kv_heads, tokens, c->d);
    a->pool[side] = make_rows(kept, pages, c->kv_heads, c->page, c->d);
    if (bench_quantised(kept))
        a->scales[side] = make_rows(ATTN_F32, pages, c->kv_heads, c->page, 1);
    a->floats[side] = bench_alloc_floats(rows * c->d);
    void *const rounded = bench_alloc_floats(rows * c->d);
    float *const scales = bench_alloc_floats(rows);
    const int made = a->x[side].data != NULL && a->pool[side].data != NULL && a->floats[side] != NULL &&
                     rounded != NULL && scales != NULL && (!bench_quantised(kept) || a->scales[side].data != NULL);
    if (made) {
        bench_fill_normal(a->floats[side], rows * c->d, (uint64_t)(SEED_ROWS + side));
        if (c->dtype == ATTN_F32)
            memcpy(a->x[side].data, a->floats[side], (size_t)(rows * c->d) * sizeof(float));
        else
            bench_round_rows(a->floats[side], a->x[side].data, c->dtype, NULL, rows, c->d);
        if (kept != ATTN_F32)
            bench_round_rows(a->floats[side], rounded, kept, scales, rows, c->d);
    }
    free(rounded);
    free(scales);
    return made ? 0 : -1;
}

static int create(struct appended *a, const struct bench_case *c, int threads)
{
    *a = (struct appended){.bcase = c, .threads = threads, .step = -1};
    const int64_t pages = c->batch * (c->tk / c->page);
    a->pages = malloc((size_t)pages * sizeof *a->pages);
    a->slots = malloc((size_t)(c->batch * c->tq) * sizeof *a->slots);
    if (a->pages == NULL || a->slots == NULL || make_side(a, 0) != 0 || make_side(a, 1) != 0) {
        fprintf(stderr, "attn-bench: there is not enough memory for the rows of case %s\n", c->id);
        return -1;
    }
    shuffle(a->pages, pages);
    return 0;
}

static int run(void *context)
{
    struct appended *a = context;
    const struct bench_case *c = a->bcase;
    const int64_t columns = c->tk / c->page, steps = c->tk / c->tq;
    a->step = (a->step + 1) % steps;
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t t = 0; t < c->tq; t++) {
            const int64_t at = a->step * c->tq + t;
            a->slots[b * c->tq + t] = a->pages[b * columns + at / c->page] * c->page + at % c->page;
        }
    for (int i = 0; i < SIDES; i++)
        if (attn_store(&a->x[i], a->slots, NULL, ATTN_ROPE_HALF_SPLIT, &a->pool[i],
                       a->scales[i].data != NULL ? &a->scales[i] : NULL, a->threads) != ATTN_OK)
            return 0;
    return 1;
}

/* Element c of a row of the pool, as attention would read it. */
static float kept_element(const struct appended *a, int side, int64_t row, int64_t c)
{
    const attn_tensor *pool = &a->pool[side];
    const int64_t at = row * pool->shape[3] + c;
    if (!bench_quantised(pool->dtype))
        return bench_element(pool->data, pool->dtype, at);
    const float scale = ((const float *)a->scales[side].data)[row];
    return bench_element(pool->data, pool->dtype, at) * scale;
}

/* The largest difference of what a call has kept from what it had to. */
static double difference(const struct appended *a)
{
    const struct bench_case *c = a->bcase;
    const int64_t tokens = c->batch * c->tq;
    double largest = 0.0;
    for (int i = 0; i < SIDES; i++)
        for (int64_t h = 0; h < c->kv_heads; h++)
            for (int64_t t = 0; t < tokens; t++)
                for (int64_t e = 0; e < c->d; e++) {
                    const int64_t page = a->slots[t] / c->page, place = a->slots[t] % c->page;
                    const float kept = kept_element(a, i, (page * c->kv_heads + h) * c->page + place, e);
                    const double diff = fabs((double)kept - (double)a->floats[i][(h * tokens + t) * c->d + e]);
                    if (isnan(diff))
                        return NAN;
                    largest = fmax(largest, diff);
                }
    return largest;
}

static int check(struct bench_variant *v, struct appended *a)
{
    for (int i = 0; i < SIDES; i++) { /* what is never written must not look right */
        const attn_tensor *pool = &a->pool[i];
        memset(pool->data, 0x7f, (size_t)(pool->shape[0] * pool->stride[0]) * attn_dtype_size(pool->dtype));
        if (a->scales[i].data != NULL)
            memset(a->scales[i].data, 0xff, (size_t)(pool->shape[0] * a->scales[i].stride[0]) * sizeof(float));
    }
    if (!run(a))
        return bench_variant_error(v);
    const double diff = difference(a);
    if (diff == 0.0)
        return 0;
    fprintf(stderr, "attn-bench: %s keeps rows that differ by %g; expected none\n", v->row.name, diff);
    return -1;
}

bool bench_append_supported(const char *isa)
{
    return bench_same_isa(bench_f32_isa(isa), bench_f32_isa(attn_isa_active()));
}

int bench_append_run(struct bench_machine *machine, const struct bench_options *options, const struct bench_case *c,
                     struct bench_results *results)
{
    struct appended a;
    struct bench_variant v = {.body = run, .context = &a};
    struct bench_bandwidth writing = {
        .kernels = machine->f32->kernels, .threads = options->threads, .access = BENCH_WRITE};
    int status = -1;
    v.row.kind = BENCH_FORWARD;
    v.row.bcase = c;
    v.row.isa = bench_f32_isa(options->isa);
    v.row.bytes = bench_case_key_bytes(c);
    v.row.written = true;
    bench_forward_name(c, v.row.name);
    if (create(&a, c, options->threads) != 0 || check(&v, &a) != 0)
        goto done;
    for (int i = 0; i < SIDES; i++) {
        const attn_tensor *pool = &a.pool[i];
        writing.regions[writing.num_regions++] = (struct bench_region){
            .words = pool->data, .count = pool->shape[0] * pool->stride[0] * (int64_t)attn_dtype_size(pool->dtype) / 4};
    }
    if (bench_turns_take(&v, 1, machine->f32, &writing, options) != 0 || check(&v, &a) != 0)
        goto done;
    status = bench_turns_report(&v, 1, results);
done:
    destroy(&a);
    return status;
}
