/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A token more for each sequence. Query heads that share a key head are computed
 * together (src/driver/fold.c), and each has the bits of a call of its own. Of
 * 20 heads together that is what tiles compute (score_tile.h), of few or of one
 * by itself what other kernels do (score_few.h, value_few.h).
 */
#include "fixture.h"
#include "random.h"
#include "dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, CHANNELS = 37, VALUES = 64 };

/** What hides or moves scores. */
enum masked {
    NO_MASK,
    BOOL_OF_HEADS,
    FLOAT_OF_HEADS,
    FLOAT_OF_ALL,
    PADDING,
    SINKS,             /**< some heads have none */
    WINDOW,            /**< of positions counted from 0, as there is no causality */
    WINDOW_AND_TOKENS, /**< with first and global tokens, and sinks */
    GLOBAL_QUERY,      /**< whose position is global: it sees all keys */
    MANY_MASKS
};

static attn_tensor tensor_of(attn_dtype dtype, int64_t heads, int64_t tokens, int64_t channels)
{
    const size_t bytes = (size_t)(BATCH * heads * tokens * channels) * attn_dtype_size(dtype);
    attn_tensor t = attn_bhtd(malloc(bytes), BATCH, heads, tokens, channels);
    assert_non_null(t.data);
    memset(t.data, 0x55, bytes);
    t.dtype = dtype;
    return t;
}

static void fill(struct rng *rng, const attn_tensor *t)
{
    for (int64_t i = 0; i < BATCH * t->shape[1] * t->shape[2] * t->shape[3]; i++)
        if (t->dtype == ATTN_BOOL)
            ((uint8_t *)t->data)[i] = rng_range(rng, 0, 3) > 0;
        else
            dtype_store(t->dtype, t->data, i, rng_normal(rng));
}

/** Rows of the axis from row on. */
static attn_tensor part(const attn_tensor *t, int axis, int64_t row, int64_t rows)
{
    attn_tensor some = *t;
    some.data = (char *)t->data + (size_t)(row * t->stride[axis]) * attn_dtype_size(t->dtype);
    some.shape[axis] = rows;
    return some;
}

static void expect_same(const attn_tensor *whole, const attn_tensor *one, int64_t h, const char *what)
{
    for (int64_t b = 0; b < BATCH; b++) {
        const size_t row = (size_t)whole->shape[3] * sizeof(float);
        const char *const a = (const char *)whole->data + (b * whole->stride[0] + h * whole->stride[1]) * 4;
        if (memcmp(a, (const char *)one->data + b * one->stride[0] * 4, row) != 0)
            fail_msg("%s of sequence %d and head %d differs", what, (int)b, (int)h);
    }
}

struct decoded {
    attn_tensor q, k, v, out, lse, mask, one, one_lse;
    attn_params params;
};

/** One of heads for itself. */
static void check_head(struct decoded *x, int64_t h)
{
    attn_params params = x->params;
    const int64_t kv = h / (x->q.shape[1] / x->k.shape[1]);
    const attn_tensor q = part(&x->q, 1, h, 1), k = part(&x->k, 1, kv, 1), v = part(&x->v, 1, kv, 1);
    const attn_tensor mask = x->mask.shape[1] > 1 ? part(&x->mask, 1, h, 1) : x->mask;
    params.lse = &x->one_lse;
    params.mask = params.mask ? &mask : NULL;
    params.sinks = params.sinks ? params.sinks + h : NULL;
    assert_int_equal(attn_forward(&q, &k, &v, &x->one, &params), ATTN_OK);
    expect_same(&x->out, &x->one, h, "out");
    expect_same(&x->lse, &x->one_lse, h, "lse");
}

static void check_heads(const char *isa, attn_dtype dtype, int64_t heads, int64_t kv_heads, int64_t tokens,
                        enum masked masked)
{
    static const int64_t lengths[BATCH] = {1, 4};
    const int64_t global[] = {tokens / 3, tokens - 1};
    const int last_is_global = masked == GLOBAL_QUERY;
    const attn_window window = {.left = 70,
                                .right = masked == WINDOW ? 90 : 0,
                                .first_tokens = masked == WINDOW_AND_TOKENS ? 3 : 0,
                                .global = global + last_is_global,
                                .num_global = masked == WINDOW ? 0 : 1};
    int64_t ends[BATCH];
    float sinks[40];
    struct rng rng = rng_for_case(0xdec0de, (uint64_t)(heads * 1024 + tokens));
    struct decoded x = {.q = tensor_of(dtype, heads, 1, CHANNELS),
                        .k = tensor_of(dtype, kv_heads, tokens, CHANNELS),
                        .v = tensor_of(dtype, kv_heads, tokens, VALUES),
                        .out = tensor_of(ATTN_F32, heads, 1, VALUES),
                        .lse = tensor_of(ATTN_F32, heads, 1, 1),
                        .mask = tensor_of(masked == BOOL_OF_HEADS ? ATTN_BOOL : ATTN_F32,
                                          masked == FLOAT_OF_ALL ? 1 : heads, 1, tokens),
                        .one = tensor_of(ATTN_F32, 1, 1, VALUES),
                        .one_lse = tensor_of(ATTN_F32, 1, 1, 1),
                        .params = attn_params_default()};
    fill(&rng, &x.q);
    fill(&rng, &x.k);
    fill(&rng, &x.v);
    fill(&rng, &x.mask);
    for (int b = 0; b < BATCH; b++)
        ends[b] = tokens > 4 ? tokens - b : tokens;
    for (int h = 0; h < 40; h++)
        sinks[h] = h % 3 == 1 ? -INFINITY : 2 * rng_normal(&rng);
    x.params.isa = isa;
    x.params.causal = masked % 2 || masked == GLOBAL_QUERY ? ATTN_CAUSAL_BOTTOM_RIGHT : ATTN_CAUSAL_NONE;
    x.params.lse = &x.lse;
    x.params.mask = masked == BOOL_OF_HEADS || masked == FLOAT_OF_HEADS || masked == FLOAT_OF_ALL ? &x.mask : NULL;
    x.params.sinks = masked == SINKS || masked == WINDOW_AND_TOKENS ? sinks : NULL;
    x.params.window = masked >= WINDOW ? &window : NULL;
    x.params.kv_len = masked == PADDING ? ends : NULL;
    x.params.kv_start = masked == PADDING && tokens > 4 ? lengths : NULL;
    x.params.softcap = masked == FLOAT_OF_ALL ? 3.0f : 0.0f;
    for (int threads = 1; threads <= 3; threads += 2) {
        x.params.num_threads = threads;
        assert_int_equal(attn_forward(&x.q, &x.k, &x.v, &x.out, &x.params), ATTN_OK);
        for (int64_t h = 0; h < heads; h++)
            check_head(&x, h);
    }
    void *const data[] = {x.q.data,   x.k.data,    x.v.data,   x.out.data,
                          x.lse.data, x.mask.data, x.one.data, x.one_lse.data};
    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        free(data[i]);
}

static void test_heads_together(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{4, 1}, {8, 2}, {12, 4}, {40, 2}, {3, 3}};
    static const attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_F16};
    static const int64_t lengths[] = {1, 5, 130, 300};
    for (int isa = 0; attn_isa_name(isa); isa++)
        for (size_t s = 0; attn_isa_supported(attn_isa_name(isa)) && s < sizeof shapes / sizeof *shapes; s++)
            for (size_t i = 0; i < 3 * sizeof lengths / sizeof *lengths; i++)
                for (int masked = 0; masked < MANY_MASKS; masked++)
                    check_heads(attn_isa_name(isa), dtypes[i % 3], shapes[s][0], shapes[s][1], lengths[i / 3],
                                (enum masked)masked);
}

/** The plan says how many heads share a block of queries: as many as leave work for all threads. */
static void test_described(void **state)
{
    (void)state;
    static const struct {
        int64_t heads, kv_heads, queries;
        int threads;
        const char *says;
    } cases[] = {{32, 8, 1, 2, " of 4 heads together"},
                 {32, 1, 1, 4, " of 16 heads together"},
                 {12, 1, 1, 5, " of 4 heads together"},
                 {32, 32, 1, 2, NULL},
                 {32, 8, 2, 2, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const attn_tensor q = tensor_of(ATTN_F32, cases[i].heads, cases[i].queries, 64),
                          k = tensor_of(ATTN_F32, cases[i].kv_heads, 4096, 64),
                          out = tensor_of(ATTN_F32, cases[i].heads, cases[i].queries, 64);
        attn_params params = attn_params_default();
        params.num_threads = cases[i].threads;
        params.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
        attn_plan *plan;
        char text[512];
        assert_int_equal(attn_plan_create(&plan, &q, &k, &k, &out, &params), ATTN_OK);
        attn_plan_describe(plan, text, sizeof text);
        if (cases[i].says ? !strstr(text, cases[i].says) : strstr(text, "together") != NULL)
            fail_msg("'%s' should%s say '%s'", text, cases[i].says ? "" : " not",
                     cases[i].says ? cases[i].says : "together");
        attn_plan_destroy(plan);
        free(q.data);
        free(k.data);
        free(out.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_heads_together), cmocka_unit_test(test_described)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
