/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scales of keys in 4 bits that are looked at while they are used (src/api/held.c):
 * wherever a wrong one is, in K or V, the call says which, and has written nothing;
 * with right ones results do not depend on the way, nor on where rows are. Which calls do so follows from
 * the instruction set: the others check first, and have to do the same.
 */
#include "fixture.h"

#include "random.h"

#include "attn/quantise.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, KV_HEADS = 2, KEYS = 300, PAGE = 16, MOST_GROUP = 4, MOST_CHANNELS = 256, MOST_GROUPS = 8 };
enum { ROWS = BATCH * KV_HEADS * ((KEYS + PAGE - 1) / PAGE) * PAGE, QUERIES = BATCH * KV_HEADS * MOST_GROUP };

/** A call with few queries in bf16 on a cache in int4. */
struct call {
    int64_t dk, dv, group;
    int in_pages;
    uint8_t numbers[2][ROWS * MOST_CHANNELS / 2];
    float scales[2][ROWS * MOST_GROUPS];
    int32_t table[BATCH * (KEYS / PAGE + 1)];
    int64_t kv_len[BATCH];
    uint16_t q_data[QUERIES * MOST_CHANNELS];
    float out_data[QUERIES * MOST_CHANNELS], lse_data[QUERIES];
    attn_window window;
    attn_tensor q, k, v, out, lse, scale[2];
    attn_params params;
};

static int64_t groups_of(int64_t channels)
{
    return (channels + 31) / 32;
}

/** Rows of K or V, in batch elements or in pages. */
static attn_tensor stored(const struct call *c, int which, int64_t blocks, int64_t tokens, int64_t channels)
{
    attn_tensor t = attn_bhtd((void *)(uintptr_t)c->numbers[which], blocks, KV_HEADS, tokens, 32 * groups_of(channels));
    t.dtype = ATTN_I4;
    t.shape[3] = channels;
    return t;
}

static void initialize(struct call *c, struct rng *rng, int64_t dk, int64_t dv, int64_t group, int in_pages)
{
    const int64_t columns = (KEYS + PAGE - 1) / PAGE, blocks = in_pages ? BATCH * columns : BATCH;
    const int64_t tokens = in_pages ? PAGE : KEYS;
    memset(c, 0, sizeof *c);
    c->dk = dk;
    c->dv = dv;
    c->group = group;
    c->in_pages = in_pages;
    for (int which = 0; which < 2; which++) {
        for (size_t i = 0; i < sizeof c->numbers[0]; i++)
            c->numbers[which][i] = (uint8_t)rng_bits(rng);
        for (size_t i = 0; i < sizeof c->scales[0] / sizeof(float); i++)
            c->scales[which][i] = rng_normal(rng) / 8;
    }
    for (int64_t i = 0; i < QUERIES * MOST_CHANNELS; i++)
        c->q_data[i] = (uint16_t)(0x3e00 + rng_range(rng, 0, 255) + (rng_percent(rng, 50) ? 0x8000 : 0));
    for (int32_t i = 0; i < BATCH * columns; i++)
        c->table[i] = (int32_t)(BATCH * columns - 1 - i);
    c->q = attn_bhtd(c->q_data, BATCH, KV_HEADS * group, 1, dk);
    c->q.dtype = ATTN_BF16;
    c->k = stored(c, 0, blocks, tokens, dk);
    c->v = stored(c, 1, blocks, tokens, dv);
    for (int which = 0; which < 2; which++)
        c->scale[which] = attn_bhtd(c->scales[which], blocks, KV_HEADS, tokens, groups_of(which ? dv : dk));
    c->out = attn_bhtd(c->out_data, BATCH, KV_HEADS * group, 1, dv);
    c->lse = attn_bhtd(c->lse_data, BATCH, KV_HEADS * group, 1, 1);
    c->params = attn_params_default();
    c->params.sums = ATTN_SUMS_FREE;
    c->params.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    c->params.k_scale = &c->scale[0];
    c->params.v_scale = &c->scale[1];
    c->params.lse = &c->lse;
    c->params.num_threads = 2;
    c->params.kv_len = c->kv_len;
    for (int64_t b = 0; b < BATCH; b++)
        c->kv_len[b] = rng_range(rng, KEYS / 2, KEYS - 1);
    if (in_pages) {
        c->params.block_table = c->table;
        c->params.block_table_stride = columns;
        c->params.page_size = PAGE;
    }
}

/** The ways to run a call. */
enum way { SIMPLE, IN_MEMORY, IN_LITTLE_MEMORY, PLAN, SHARES, WAYS };

static attn_status run(struct call *c, enum way way)
{
    static char workspace[4 << 20];
    size_t size = sizeof workspace;
    if (way == SIMPLE)
        return attn_forward(&c->q, &c->k, &c->v, &c->out, &c->params);
    if (way == IN_MEMORY || way == IN_LITTLE_MEMORY) {
        assert_int_equal(attn_forward_workspace_size(&c->q, &c->k, &c->v, &c->out, &c->params, &size), ATTN_OK);
        assert_true(size <= sizeof workspace);
        if (way == IN_LITTLE_MEMORY) { /* enough, if a part of it is for results that wait or another thread */
            const attn_status status =
                attn_forward_in(&c->q, &c->k, &c->v, &c->out, &c->params, workspace + 1, size - 1);
            if (status != ATTN_WORKSPACE_TOO_SMALL)
                return status;
        }
        return attn_forward_in(&c->q, &c->k, &c->v, &c->out, &c->params, workspace + 1, size);
    }
    attn_plan *plan;
    assert_int_equal(attn_plan_create(&plan, &c->q, &c->k, &c->v, &c->out, &c->params), ATTN_OK);
    size = attn_plan_workspace_size(plan);
    assert_true(size <= sizeof workspace);
    attn_status status;
    if (way == PLAN) {
        status = attn_plan_run(plan, &c->q, &c->k, &c->v, &c->out, &c->params, workspace, size);
    } else {
        status = attn_plan_begin(plan, &c->q, &c->k, &c->v, &c->out, &c->params, workspace, size);
        for (int phase = 0; status == ATTN_OK && phase < attn_plan_num_phases(plan); phase++)
            assert_int_equal(attn_plan_run_share(plan, workspace, phase, 0, 1), ATTN_OK);
    }
    attn_plan_destroy(plan);
    return status;
}

static void forget_results(struct call *c)
{
    for (size_t i = 0; i < sizeof c->out_data / sizeof *c->out_data; i++)
        c->out_data[i] = 7;
    for (size_t i = 0; i < sizeof c->lse_data / sizeof *c->lse_data; i++)
        c->lse_data[i] = 7;
}

static void expect_forgotten(const struct call *c)
{
    for (size_t i = 0; i < sizeof c->out_data / sizeof *c->out_data; i++)
        assert_true(c->out_data[i] == 7);
    for (size_t i = 0; i < sizeof c->lse_data / sizeof *c->lse_data; i++)
        assert_true(c->lse_data[i] == 7);
}

/** A wrong scale of a key. Returns where it is. */
static float *spoil(struct call *c, struct rng *rng, int which, int64_t b, int64_t key, char *words, size_t size)
{
    static const float wrong[] = {NAN, INFINITY, -INFINITY};
    static const char *const numbers[] = {"nan", "inf", "-inf"};
    const int kind = (int)rng_range(rng, 0, 2);
    const int64_t head = rng_range(rng, 0, KV_HEADS - 1), group = rng_range(rng, 0, c->scale[which].shape[3] - 1);
    const int64_t block = c->in_pages ? c->table[b * c->params.block_table_stride + key / PAGE] : b;
    const int64_t row = c->in_pages ? key % PAGE : key;
    const attn_tensor *t = &c->scale[which];
    float *const at = (float *)t->data + block * t->stride[0] + head * t->stride[1] + row * t->stride[2] + group;
    *at = wrong[kind];
    snprintf(words, size, "params.%s_scale[%d][%d][%d][%d] is %s; expected a finite number", which ? "v" : "k",
             (int)block, (int)head, (int)row, (int)group, numbers[kind]);
    return at;
}

/** Some wrong scales, one at a time, live or not; then right ones. */
static void check_wrong(struct call *c, struct rng *rng, int rounds)
{
    static float out[QUERIES * MOST_CHANNELS], lse[QUERIES];
    assert_int_equal(run(c, SIMPLE), ATTN_OK);
    memcpy(out, c->out_data, sizeof out);
    memcpy(lse, c->lse_data, sizeof lse);
    for (int i = 0; i < rounds; i++) {
        const int which = (int)rng_range(rng, 0, 1);
        const int64_t b = rng_range(rng, 0, BATCH - 1);
        const int64_t key = i == 0   ? 0
                            : i == 1 ? c->kv_len[b] - 1
                            : i == 2 ? c->kv_len[b]
                                     : rng_range(rng, 0, KEYS - 1);
        const enum way way = (enum way)rng_range(rng, 0, WAYS - 1);
        char words[160];
        float before, *const at = spoil(c, rng, which, b, key, words, sizeof words);
        forget_results(c);
        if (key < c->kv_len[b]) {
            assert_int_equal(run(c, way), ATTN_INVALID_ARGUMENT);
            assert_true(holds_words(attn_last_error(), words));
            expect_forgotten(c);
        } else {
            assert_int_equal(run(c, way), ATTN_OK);
            assert_true(isfinite(c->out_data[0]));
        }
        before = rng_normal(rng) / 8;
        *at = key < c->kv_len[b] ? before : NAN; /* of padding it may stay */
        assert_int_equal(run(c, SIMPLE), ATTN_OK);
        memcpy(out, c->out_data, sizeof out);
        memcpy(lse, c->lse_data, sizeof lse);
        for (enum way again = i + 1 < rounds ? WAYS : SIMPLE; again < WAYS; again++) { /* at the end */
            forget_results(c);
            assert_int_equal(run(c, again), ATTN_OK);
            for (int64_t r = 0; r < BATCH * KV_HEADS * c->group; r++) {
                assert_memory_equal(c->out_data + r * c->dv, out + r * c->dv, (size_t)c->dv * sizeof *out);
                assert_memory_equal(&c->lse_data[r], &lse[r], sizeof *lse);
            }
        }
    }
}

static void test_wrong(void **state)
{
    (void)state;
    static struct call c;
    struct rng rng = rng_for_case(11, 1);
    static const int64_t widths[][2] = {{128, 128}, {64, 64}, {256, 128}, {64, 128}, {128, 32}, {40, 100}, {1, 1}};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (int64_t group = 1; group <= MOST_GROUP; group *= 2)
            for (int in_pages = 0; in_pages < 2; in_pages++) {
                initialize(&c, &rng, widths[i][0], widths[i][1], group, in_pages);
                check_wrong(&c, &rng, 4);
            }
}

/** Rows of a call in pages, one behind the other. */
static void bring_together(const struct call *paged, struct call *c)
{
    for (int which = 0; which < 2; which++) {
        const attn_tensor *from = which ? &paged->v : &paged->k, *to = which ? &c->v : &c->k;
        const attn_tensor *from_scale = &paged->scale[which], *to_scale = &c->scale[which];
        for (int64_t b = 0; b < BATCH; b++)
            for (int64_t h = 0; h < KV_HEADS; h++)
                for (int64_t j = 0; j < KEYS; j++) {
                    const int64_t page = paged->table[b * paged->params.block_table_stride + j / PAGE], row = j % PAGE;
                    memcpy((uint8_t *)to->data + (b * to->stride[0] + h * to->stride[1] + j * to->stride[2]) / 2,
                           (uint8_t *)from->data +
                               (page * from->stride[0] + h * from->stride[1] + row * from->stride[2]) / 2,
                           (size_t)from->stride[2] / 2);
                    memcpy((float *)to_scale->data + b * to_scale->stride[0] + h * to_scale->stride[1] +
                               j * to_scale->stride[2],
                           (float *)from_scale->data + page * from_scale->stride[0] + h * from_scale->stride[1] +
                               row * from_scale->stride[2],
                           (size_t)to_scale->shape[3] * sizeof(float));
                }
    }
    memcpy(c->q_data, paged->q_data, sizeof c->q_data);
    memcpy(c->kv_len, paged->kv_len, sizeof c->kv_len);
}

/** In pages or one behind the other, rows give the same bits. */
static void test_pages(void **state)
{
    (void)state;
    static struct call paged, c;
    struct rng rng = rng_for_case(11, 5);
    static const int64_t widths[][2] = {{128, 128}, {64, 64}, {256, 128}, {40, 100}, {200, 250}};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (int64_t group = 1; group <= MOST_GROUP; group++) {
            initialize(&paged, &rng, widths[i][0], widths[i][1], group, 1);
            initialize(&c, &rng, widths[i][0], widths[i][1], group, 0);
            bring_together(&paged, &c);
            assert_int_equal(run(&paged, SIMPLE), ATTN_OK);
            assert_int_equal(run(&c, SIMPLE), ATTN_OK);
            assert_memory_equal(paged.out_data, c.out_data, sizeof c.out_data);
            assert_memory_equal(paged.lse_data, c.lse_data, sizeof c.lse_data);
        }
}

/** Keys that no query sees are live: their scales count, though no task reads them. */
static void test_unseen(void **state)
{
    (void)state;
    static struct call c;
    struct rng rng = rng_for_case(11, 2);
    for (int64_t group = 1; group <= MOST_GROUP; group *= 4)
        for (int option = 0; option < 2; option++) {
            initialize(&c, &rng, 128, 128, group, 0);
            c.window = (attn_window){.left = 40};
            if (option == 0)
                c.params.window = &c.window;
            else
                c.params.causal = ATTN_CAUSAL_TOP_LEFT;
            check_wrong(&c, &rng, 8);
        }
}

/** Results that are not finite for another reason are written. */
static void test_other_infinities(void **state)
{
    (void)state;
    static struct call c;
    struct rng rng = rng_for_case(11, 3);
    for (int64_t group = 1; group <= MOST_GROUP; group *= 4)
        for (int kind = 0; kind < 2; kind++) {
            initialize(&c, &rng, 128, 128, group, 0);
            if (kind == 0)
                c.q_data[5] = 0x7fc0; /* NaN */
            else
                c.scales[1][0] = 3e38f;
            for (enum way way = SIMPLE; way < WAYS; way++) {
                forget_results(&c);
                assert_int_equal(run(&c, way), ATTN_OK);
                assert_true(kind == 1 || isnan(c.out_data[0]));
                assert_true(c.out_data[(BATCH * KV_HEADS * group - 1) * 128] != 7);
            }
        }
}

/** What waits is bounded: the results of many sequences are as large as the caller's out, and do not wait. */
static void test_many_sequences(void **state)
{
    (void)state;
    static struct call c;
    struct rng rng = rng_for_case(11, 6);
    size_t few, many;
    initialize(&c, &rng, 128, 128, 1, 0);
    c.params.kv_len = NULL;
    c.params.lse = NULL;
    attn_tensor *const batched[] = {&c.q, &c.k, &c.v, &c.out, &c.scale[0], &c.scale[1]};
    assert_int_equal(attn_forward_workspace_size(&c.q, &c.k, &c.v, &c.out, &c.params, &few), ATTN_OK);
    for (size_t i = 0; i < sizeof batched / sizeof *batched; i++)
        batched[i]->shape[0] = (int64_t)1 << 20; /* 1 GiB of results */
    assert_int_equal(attn_forward_workspace_size(&c.q, &c.k, &c.v, &c.out, &c.params, &many), ATTN_OK);
    assert_true(many < few + (16 << 20));
}

enum { TOKENS = 4, WIDE = 128 };

/**
 * Where nobody looks at scales, as in a kept plan or a cache, one that is NaN stands for a row of NaN, and E4M3 has NaN
 * among its numbers: queries that see one get NaN, and the others the bits that they have without it.
 */
static void check_hidden(struct rng *rng, attn_dtype dtype, int by_mask)
{
    const int i4 = dtype == ATTN_I4, groups = i4 ? WIDE / 32 : 1;
    static uint8_t numbers[2][KEYS * WIDE];
    static float scales[2][KEYS * WIDE / 32], results[2][TOKENS * WIDE];
    static uint16_t queries[TOKENS * WIDE];
    static uint8_t seen[TOKENS * KEYS];
    for (int which = 0; which < 2; which++) {
        for (size_t i = 0; i < sizeof numbers[0]; i++)
            numbers[which][i] = (uint8_t)(rng_bits(rng) & (i4 ? 0xff : 0xde)); /* no NaN */
        for (size_t i = 0; i < sizeof scales[0] / sizeof(float); i++)
            scales[which][i] = i4 ? rng_normal(rng) / 8 : fabsf(rng_normal(rng)) / 200;
    }
    for (int i = 0; i < TOKENS * WIDE; i++)
        queries[i] = (uint16_t)(0x3e00 + rng_range(rng, 0, 255) + (rng_percent(rng, 50) ? 0x8000 : 0));
    for (int i = 0; i < 6; i++) /* maxima of some queries grow late, and by much */
        for (int g = 0; g < groups; g++)
            scales[0][rng_range(rng, KEYS / 2, KEYS - TOKENS) * groups + g] *= 20.0f * (float)(i + 1);
    for (int i = 0; i < TOKENS * KEYS; i++)
        seen[i] = (uint8_t)(by_mask ? rng_percent(rng, 70) : i % KEYS <= KEYS - TOKENS + i / KEYS);
    attn_tensor q = attn_bhtd(queries, 1, 1, TOKENS, WIDE), k = attn_bhtd(numbers[0], 1, 1, KEYS, WIDE), v = k;
    const attn_tensor k_scale = attn_bhtd(scales[0], 1, 1, KEYS, groups);
    const attn_tensor v_scale = attn_bhtd(scales[1], 1, 1, KEYS, groups);
    attn_tensor mask = attn_bhtd(seen, 1, 1, TOKENS, KEYS);
    q.dtype = ATTN_BF16;
    k.dtype = v.dtype = dtype;
    v.data = numbers[1];
    mask.dtype = ATTN_BOOL;
    attn_params params = attn_params_default();
    params.k_scale = &k_scale;
    params.v_scale = &v_scale;
    params.sums = ATTN_SUMS_FREE;
    if (by_mask)
        params.mask = &mask;
    else
        params.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    attn_tensor out = attn_bhtd(results[0], 1, 1, TOKENS, WIDE);
    attn_plan *plan;
    assert_int_equal(attn_plan_create(&plan, &q, &k, &v, &out, &params), ATTN_OK);
    assert_int_equal(attn_plan_keep(plan, &params), ATTN_OK);
    const size_t size = attn_plan_workspace_size(plan);
    void *const workspace = malloc(size); /* no larger, for sanitizers */
    assert_non_null(workspace);
    assert_int_equal(attn_plan_run(plan, &q, &k, &v, &out, &params, workspace, size), ATTN_OK);
    const int64_t key = by_mask ? rng_range(rng, 0, KEYS - 1) : KEYS - rng_range(rng, 1, TOKENS - 1);
    const int64_t which = by_mask ? rng_range(rng, 0, 1) : 1;
    if (dtype != ATTN_F8_E4M3 || rng_percent(rng, 50))
        scales[which][key * groups + rng_range(rng, 0, groups - 1)] = NAN;
    else
        numbers[which][key * WIDE + rng_range(rng, 0, WIDE - 1)] = rng_percent(rng, 50) ? 0x7f : 0xff;
    out.data = results[1];
    assert_int_equal(attn_plan_run(plan, &q, &k, &v, &out, &params, workspace, size), ATTN_OK);
    for (int i = 0; i < TOKENS; i++) {
        int nans = 0;
        for (int c = 0; c < WIDE; c++)
            nans += isnan(results[1][i * WIDE + c]) != 0;
        if (seen[i * KEYS + key])
            assert_true(nans >= (i4 ? 32 : 1));
        else
            assert_memory_equal(&results[0][i * WIDE], &results[1][i * WIDE], WIDE * sizeof(float));
    }
    free(workspace);
    attn_plan_destroy(plan);
}

static void test_hidden(void **state)
{
    (void)state;
    struct rng rng = rng_for_case(11, 4);
    static const attn_dtype dtypes[] = {ATTN_I4, ATTN_F8_E4M3, ATTN_I8};
    for (int i = 0; i < 60; i++)
        check_hidden(&rng, dtypes[i / 20], i % 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong),          cmocka_unit_test(test_pages),
        cmocka_unit_test(test_unseen),         cmocka_unit_test(test_other_infinities),
        cmocka_unit_test(test_many_sequences), cmocka_unit_test(test_hidden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
