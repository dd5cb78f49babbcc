/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_store() of many tokens, whose rows may go past the caches and are made
 * several at a time, against calls of a token each, which do neither: every byte
 * of the pool and of its scales, whatever the types, widths, strides and
 * alignment, the order of the slots, the threads and the numbers; and slots that
 * come twice among many.
 */
#include "fixture.h"
#include "dtype.h"
#include "random.h"

#include "attn/cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_I8, ATTN_F8_E4M3, ATTN_I4};

struct store_case {
    attn_dtype from, to;
    int64_t width, heads, tokens, pages, size; /**< size: rows of a page */
    int64_t gap;                               /**< elements of the pool behind each row, whole groups */
    size_t shift;                              /**< bytes before the pool */
    int tokens_first;                          /**< rows of all heads of a token side by side */
    int pairs;                                 /**< of rotations */
    attn_rope_layout layout;
    int in_order; /**< a prompt's slots */
};

/** A row of numbers: usual ones, or with what has no size or too much of it. */
static void draw_row(struct rng *rng, const attn_tensor *x, int64_t h, int64_t t)
{
    const int kind = (int)rng_range(rng, 0, 19);
    const float factor = kind == 0 ? 0.0f : kind == 1 ? 1e-41f : kind == 2 ? 3e4f : kind == 3 ? 1e-6f : 1.0f;
    for (int64_t c = 0; c < x->shape[3]; c++)
        tensor_set(x, 0, h, t, c, rng_normal(rng) * factor);
    const float odd[] = {NAN, INFINITY, -INFINITY, -0.0f};
    if (kind >= 4 && kind < 8)
        tensor_set(x, 0, h, t, rng_range(rng, 0, x->shape[3] - 1), odd[kind - 4]);
}

/** Different places of a pool, in any order, some of them -1; or one behind the other. */
static void draw_slots(struct rng *rng, const struct store_case *c, int64_t *slots)
{
    const int64_t places = c->pages * c->size;
    int64_t *all = malloc((size_t)places * sizeof *all);
    for (int64_t i = 0; i < places; i++)
        all[i] = i;
    for (int64_t i = places - 1; i > 0 && !c->in_order; i--) {
        const int64_t j = rng_range(rng, 0, i), kept = all[i];
        all[i] = all[j];
        all[j] = kept;
    }
    for (int64_t t = 0; t < c->tokens; t++)
        slots[t] = rng_percent(rng, 5) ? -1 : all[t];
    free(all);
}

struct pools {
    char *data;
    float *scales;
    size_t bytes, scale_bytes;
    attn_tensor pool, scale;
};

static struct pools make_pools(const struct store_case *c)
{
    struct pools p;
    const int64_t group = c->to == ATTN_I4 ? 32 : 1, width = (c->width + group - 1) / group * group + c->gap;
    const int64_t per_row = c->to == ATTN_I4 ? (c->width + 31) / 32 : 1, rows = c->pages * c->heads * c->size;
    const size_t size = c->to == ATTN_I4 ? 0 : attn_dtype_size(c->to);
    p.bytes = (c->to == ATTN_I4 ? (size_t)(rows * width / 2) : (size_t)(rows * width) * size) + c->shift;
    p.scale_bytes = (size_t)(rows * per_row) * sizeof(float);
    p.data = aligned_alloc(64, (p.bytes + 63) / 64 * 64);
    p.scales = malloc(p.scale_bytes);
    assert_non_null(p.data);
    assert_non_null(p.scales);
    memset(p.data, CANARY, p.bytes);
    memset(p.scales, CANARY, p.scale_bytes);
    p.pool = c->tokens_first ? attn_bthd(p.data + c->shift, c->pages, c->size, c->heads, width)
                             : attn_bhtd(p.data + c->shift, c->pages, c->heads, c->size, width);
    p.pool.dtype = c->to;
    p.pool.shape[3] = c->width;
    p.scale = attn_bhtd(p.scales, c->pages, c->heads, c->size, per_row);
    return p;
}

static void free_pools(struct pools *p)
{
    free(p->data);
    free(p->scales);
}

static void store(const struct store_case *c, const attn_tensor *x, const int64_t *slots, const attn_tensor *rotations,
                  const struct pools *p, int threads)
{
    const int quantised = c->to == ATTN_I8 || c->to == ATTN_F8_E4M3 || c->to == ATTN_I4;
    const attn_status status =
        attn_store(x, slots, c->pairs ? rotations : NULL, c->pairs ? c->layout : ATTN_ROPE_HALF_SPLIT, &p->pool,
                   quantised ? &p->scale : NULL, threads);
    if (status != ATTN_OK)
        fail_msg("%s", attn_last_error());
}

static attn_tensor token_of(const attn_tensor *x, int64_t t)
{
    attn_tensor one = *x;
    one.data = (char *)x->data + (size_t)(t * x->stride[2]) * attn_dtype_size(x->dtype);
    one.shape[2] = 1;
    return one;
}

static void check_case(struct rng *rng, const struct store_case *c)
{
    float *x_data = malloc((size_t)(c->heads * c->tokens * c->width) * sizeof *x_data);
    float *table = malloc((size_t)(c->tokens * 2 * c->pairs + 1) * sizeof *table);
    int64_t *slots = malloc((size_t)c->tokens * sizeof *slots);
    attn_tensor x = rng_percent(rng, 50) ? attn_bthd(x_data, 1, c->tokens, c->heads, c->width)
                                         : attn_bhtd(x_data, 1, c->heads, c->tokens, c->width);
    x.dtype = c->from;
    for (int64_t t = 0; t < c->tokens; t++)
        for (int64_t h = 0; h < c->heads; h++)
            draw_row(rng, &x, h, t);
    for (int64_t i = 0; i < c->tokens * 2 * c->pairs; i++)
        table[i] = (float)rng_uniform(rng) * 2 - 1;
    const attn_tensor rotations = attn_bhtd(table, 1, 1, c->tokens, 2 * c->pairs);
    draw_slots(rng, c, slots);
    struct pools expected = make_pools(c), got = make_pools(c);
    for (int64_t t = 0; t < c->tokens; t++) {
        const attn_tensor one = token_of(&x, t), turn = token_of(&rotations, t);
        store(c, &one, slots + t, &turn, &expected, 1);
    }
    store(c, &x, slots, &rotations, &got, (int)rng_range(rng, 1, 3));
    if (memcmp(expected.data, got.data, got.bytes) != 0 || memcmp(expected.scales, got.scales, got.scale_bytes) != 0)
        fail_msg(
            "%s to %s, %d channels, %d heads, %d tokens, gap %d, shift %d, %d pairs%s%s: other bytes than one by one",
            attn_dtype_name(c->from), attn_dtype_name(c->to), (int)c->width, (int)c->heads, (int)c->tokens, (int)c->gap,
            (int)c->shift, c->pairs, c->tokens_first ? ", tokens first" : "", c->in_order ? ", in order" : "");
    free_pools(&expected);
    free_pools(&got);
    free(x_data);
    free(table);
    free(slots);
}

/** As many tokens as make a call of some size, in a pool of twice as many places. */
static struct store_case draw_case(struct rng *rng, attn_dtype from, attn_dtype to, int64_t width, int64_t bytes)
{
    struct store_case c = {.from = from, .to = to, .width = width, .heads = rng_range(rng, 1, 5)};
    const int64_t group = to == ATTN_I4 ? 32 : 1;
    c.size = RNG_PICK(rng, 1, 5, 16);
    c.tokens = bytes / (width * c.heads) + 1;
    c.pages = (2 * c.tokens + c.size - 1) / c.size + rng_range(rng, 0, 3);
    c.gap = rng_percent(rng, 70) ? 0 : group * rng_range(rng, 1, 70);
    c.shift = rng_percent(rng, 70) ? 0 : attn_dtype_size(to == ATTN_I4 ? ATTN_F32 : to) * (size_t)rng_range(rng, 1, 15);
    c.tokens_first = rng_percent(rng, 40);
    c.pairs = rng_percent(rng, 40) && width > 1 ? (int)rng_range(rng, 1, width / 2) : 0;
    c.layout = rng_percent(rng, 50) ? ATTN_ROPE_INTERLEAVED : ATTN_ROPE_HALF_SPLIT;
    c.in_order = rng_percent(rng, 20);
    return c;
}

/** Calls large enough to go past the caches, where their pool passes the second level, and small ones. */
static void test_many_tokens(void **state)
{
    (void)state;
    static const int64_t widths[] = {1, 7, 16, 33, 64, 80, 100, 128, 192, 256, 576, 1024, 4096};
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 6; to++)
            for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
                struct rng rng = rng_for_case((uint64_t)(from * 6 + to), i);
                const struct store_case c =
                    draw_case(&rng, types[from], types[to], widths[i], rng_percent(&rng, 50) ? 20000 : 80000);
                check_case(&rng, &c);
            }
}

/** A pool that L2 does not hold, of rows that are whole lines, as nothing else goes past the caches. */
static void test_past_the_caches(void **state)
{
    (void)state;
    const int64_t second = (int64_t)attn_cache_size(2) ? (int64_t)attn_cache_size(2) : 1 << 20;
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 6; to++)
            for (int turned = 0; turned < 2; turned++) {
                struct rng rng = rng_for_case((uint64_t)(from * 6 + to), (uint64_t)(100 + turned));
                struct store_case c = draw_case(&rng, types[from], types[to], RNG_PICK(&rng, 64, 128, 320), 150000);
                c.gap = 0, c.shift = 0, c.in_order = 0, c.size = 16;
                c.pairs = turned ? (int)(c.width / 4) : 0;
                const int64_t row = c.width * c.heads * (c.to == ATTN_F32 ? 4 : c.to <= ATTN_F16 ? 2 : 1);
                c.pages = second / (row * c.size) + 10 + c.tokens / 16;
                check_case(&rng, &c);
            }
}

/** Of many slots in any order one comes twice; and -1 may come as often as it likes. */
static void test_slots_that_come_twice(void **state)
{
    (void)state;
    enum { MOST = 3000 };
    static float x_data[MOST], pool_data[2 * MOST];
    static int64_t slots[MOST];
    static const int64_t lengths[] = {2, 3, 16, 17, 511, 512, 513, MOST};
    const attn_tensor pool = attn_bhtd(pool_data, 2, 1, MOST, 1);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int64_t step = 1; step <= 1024; step *= 2) {
            struct rng rng = rng_for_case(i, (uint64_t)step);
            const int64_t n = lengths[i];
            const attn_tensor x = attn_bhtd(x_data, 1, 1, n, 1);
            for (int64_t t = 0; t < n; t++) /* steps of powers of two fall on the same places of a table without care */
                slots[t] = (n - 1 - t) * step < 2 * MOST ? (n - 1 - t) * step : -1;
            assert_int_equal(attn_store(&x, slots, NULL, ATTN_ROPE_HALF_SPLIT, &pool, NULL, 1), ATTN_OK);
            const int64_t first = rng_range(&rng, 0, n - 1), second = (first + rng_range(&rng, 1, n - 1)) % n;
            slots[first] = slots[second] = 2 * MOST - 1;
            memset(pool_data, CANARY, sizeof pool_data);
            assert_int_equal(attn_store(&x, slots, NULL, ATTN_ROPE_HALF_SPLIT, &pool, NULL, 1), ATTN_INVALID_ARGUMENT);
            assert_true(holds_words(attn_last_error(), "slots has 5999 twice"));
            for (size_t byte = 0; byte < sizeof pool_data; byte++)
                assert_int_equal(((unsigned char *)pool_data)[byte], CANARY);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_tokens),
        cmocka_unit_test(test_past_the_caches),
        cmocka_unit_test(test_slots_that_come_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
