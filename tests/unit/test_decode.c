/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A token more for each sequence, or some. Query heads that share a key head are
 * computed together (src/driver/heads.c), and each has the bits of a call of its
 * own. Of 20 heads together that is what tiles compute (score_tile.h), of few or
 * of one by itself what other kernels do (score_few.h, value_few.h). More of that,
 * with options drawn at random, is a property (tests/property/test_heads_together.c).
 */
#include "fixture.h"
#include "arguments.h"
#include "random.h"
#include "dtype.h"

#include "attn/cache.h"

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
    for (int64_t b = 0; b < one->shape[0]; b++)
        for (int64_t i = 0; i < one->shape[2]; i++) {
            const size_t row = (size_t)whole->shape[3] * sizeof(float);
            const float *const a =
                (const float *)whole->data + b * whole->stride[0] + h * whole->stride[1] + i * whole->stride[2];
            if (memcmp(a, (const float *)one->data + b * one->stride[0] + i * one->stride[2], row) != 0)
                fail_msg("%s of sequence %d, head %d and query %d differs", what, (int)b, (int)h, (int)i);
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

/** Queries, keys and values of a number of heads and tokens, and memory for results. */
static struct decoded make_inputs(attn_dtype dtype, int64_t heads, int64_t kv_heads, int64_t queries, int64_t tokens)
{
    struct rng rng = rng_for_case(0xdec0de, (uint64_t)((queries * 64 + heads) * 1024 + tokens));
    const struct decoded x = {.q = tensor_of(dtype, heads, queries, CHANNELS),
                              .k = tensor_of(dtype, kv_heads, tokens, CHANNELS),
                              .v = tensor_of(dtype, kv_heads, tokens, VALUES),
                              .out = tensor_of(ATTN_F32, heads, queries, VALUES),
                              .lse = tensor_of(ATTN_F32, heads, queries, 1),
                              .one = tensor_of(ATTN_F32, 1, queries, VALUES),
                              .one_lse = tensor_of(ATTN_F32, 1, queries, 1)};
    fill(&rng, &x.q);
    fill(&rng, &x.k);
    fill(&rng, &x.v);
    return x;
}

static void free_inputs(struct decoded *x)
{
    void *const data[] = {x->q.data, x->k.data, x->v.data, x->out.data, x->lse.data, x->one.data, x->one_lse.data};
    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        free(data[i]);
}

static void check_heads(struct decoded *x, const char *isa, enum masked masked)
{
    static const int64_t lengths[BATCH] = {1, 4};
    const int64_t heads = x->q.shape[1], queries = x->q.shape[2], tokens = x->k.shape[2];
    const int64_t global[] = {tokens / 3, tokens - 1};
    const int last_is_global = masked == GLOBAL_QUERY;
    const attn_window window = {.left = 70,
                                .right = masked == WINDOW ? 90 : 0,
                                .first_tokens = masked == WINDOW_AND_TOKENS ? 3 : 0,
                                .global = global + last_is_global,
                                .num_global = masked == WINDOW ? 0 : 1};
    int64_t ends[BATCH];
    float sinks[40];
    struct rng rng = rng_for_case(0x3a5c, (uint64_t)((queries * 64 + heads) * 1024 + tokens));
    x->mask =
        tensor_of(masked == BOOL_OF_HEADS ? ATTN_BOOL : ATTN_F32, masked == FLOAT_OF_ALL ? 1 : heads, queries, tokens);
    x->params = attn_params_default();
    fill(&rng, &x->mask);
    for (int b = 0; b < BATCH; b++)
        ends[b] = tokens > 4 ? tokens - b : tokens;
    for (int h = 0; h < 40; h++)
        sinks[h] = h % 3 == 1 ? -INFINITY : 2 * rng_normal(&rng);
    x->params.isa = isa;
    x->params.causal = masked % 2 || masked == GLOBAL_QUERY ? ATTN_CAUSAL_BOTTOM_RIGHT : ATTN_CAUSAL_NONE;
    x->params.lse = &x->lse;
    x->params.mask = masked == BOOL_OF_HEADS || masked == FLOAT_OF_HEADS || masked == FLOAT_OF_ALL ? &x->mask : NULL;
    x->params.sinks = masked == SINKS || masked == WINDOW_AND_TOKENS ? sinks : NULL;
    x->params.window = masked >= WINDOW ? &window : NULL;
    x->params.kv_len = masked == PADDING ? ends : NULL;
    x->params.kv_start = masked == PADDING && tokens > 4 ? lengths : NULL;
    x->params.softcap = masked == FLOAT_OF_ALL ? 3.0f : 0.0f;
    for (int threads = surroundings_are_slow() ? 3 : 1; threads <= 3; threads += 2) {
        x->params.num_threads = threads;
        assert_int_equal(attn_forward(&x->q, &x->k, &x->v, &x->out, &x->params), ATTN_OK);
        for (int64_t h = 0; h < heads; h++)
            check_head(x, h);
    }
    free(x->mask.data);
}

static void test_heads_together(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{4, 1}, {8, 2}, {12, 4}, {40, 2}, {3, 3}};
    static const attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_F16};
    static const int64_t lengths[] = {1, 5, 130, 300};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t i = 0; i < 3 * sizeof lengths / sizeof *lengths; i++)
            for (int64_t queries = 1; queries <= 3; queries += 2) {
                if (surroundings_are_slow() && i / 3 != s % (sizeof lengths / sizeof *lengths))
                    continue; /* then each shape has one length, and each length a shape */
                struct decoded x = make_inputs(dtypes[i % 3], shapes[s][0], shapes[s][1], queries, lengths[i / 3]);
                for (int isa = 0; attn_isa_name(isa); isa++)
                    for (int masked = 0; attn_isa_supported(attn_isa_name(isa)) && masked < MANY_MASKS; masked++)
                        if (queries == 1 || (int)i % 3 == masked % 3)
                            check_heads(&x, attn_isa_name(isa), (enum masked)masked);
                free_inputs(&x);
            }
}

enum { STEP_SEQUENCES = 4, STEP_PAST = 51, STEP_TOKENS = 77 };

/** A step of a cache, of single tokens, drafts and a chunk of a prompt, for as many heads as there are. */
static void attend(const char *isa, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                   const attn_tensor *out, const float *sinks)
{
    static const int64_t past[STEP_SEQUENCES] = {12, 30, 0, 9}, tokens[STEP_SEQUENCES] = {1, 5, 70, 1};
    attn_cache_config config = attn_cache_config_default();
    attn_cache *cache;
    int64_t ids[STEP_SEQUENCES];
    config.layers = 1, config.kv_heads = k->shape[1], config.dk = CHANNELS, config.dv = VALUES, config.dtype = k->dtype;
    config.max_tokens = 100, config.max_sequences = STEP_SEQUENCES, config.page_size = 16;
    assert_int_equal(attn_cache_create(&cache, &config), ATTN_OK);
    for (int i = 0; i < STEP_SEQUENCES; i++)
        assert_int_equal(attn_cache_add(cache, &ids[i]), ATTN_OK);
    for (int step = 0; step < 2; step++) {
        const int64_t at = step ? STEP_PAST : 0, n = step ? STEP_TOKENS : STEP_PAST;
        const attn_tensor some_k = part(k, 2, at, n), some_v = part(v, 2, at, n);
        assert_int_equal(attn_cache_step(cache, STEP_SEQUENCES, ids, step ? tokens : past, NULL), ATTN_OK);
        assert_int_equal(attn_cache_append(cache, 0, &some_k, &some_v, 1), ATTN_OK);
    }
    attn_params params = attn_params_default();
    params.isa = isa;
    params.sinks = sinks;
    assert_int_equal(attn_cache_attend(cache, 0, q, out, &params), ATTN_OK);
    attn_cache_destroy(cache);
}

/** In a step of a cache each sequence has its heads together or not, whatever the others have. */
static void test_mixed_steps(void **state)
{
    (void)state;
    static const attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16};
    static const float sinks[] = {0.5f, -1.0f, 2.0f, -INFINITY, 0.0f, 1.0f};
    for (int isa = 0; attn_isa_name(isa); isa++)
        for (int i = 0; attn_isa_supported(attn_isa_name(isa)) && i < 2; i++) {
            struct rng rng = rng_for_case(0xcac4e, (uint64_t)i);
            attn_tensor all[] = {tensor_of(dtypes[i], 6, STEP_TOKENS, CHANNELS),
                                 tensor_of(dtypes[i], 2, STEP_PAST + STEP_TOKENS, CHANNELS),
                                 tensor_of(dtypes[i], 2, STEP_PAST + STEP_TOKENS, VALUES),
                                 tensor_of(ATTN_F32, 6, STEP_TOKENS, VALUES),
                                 tensor_of(ATTN_F32, 1, STEP_TOKENS, VALUES)};
            for (int t = 0; t < 5; t++) {
                if (t < 3)
                    fill(&rng, &all[t]);
                all[t].shape[0] = 1;
            }
            attend(attn_isa_name(isa), &all[0], &all[1], &all[2], &all[3], sinks);
            for (int64_t h = 0; h < 6; h++) {
                const attn_tensor q = part(&all[0], 1, h, 1), k = part(&all[1], 1, h / 3, 1),
                                  v = part(&all[2], 1, h / 3, 1);
                attend(attn_isa_name(isa), &q, &k, &v, &all[4], sinks + h);
                expect_same(&all[3], &all[4], h, "out");
            }
            for (int t = 0; t < 5; t++)
                free(all[t].data);
        }
}

/** What a plan says of a call of f32. */
static void describe(int64_t heads, int64_t kv_heads, int64_t queries, const attn_params *params, char *text,
                     size_t size)
{
    const attn_tensor q = attn_bhtd(NULL, params->ragged ? 1 : BATCH, heads, queries, 64),
                      k = attn_bhtd(NULL, params->ragged ? 1 : BATCH, kv_heads, 4096, 64);
    attn_plan *plan;
    assert_int_equal(attn_plan_create(&plan, &q, &k, &k, &q, params), ATTN_OK);
    attn_plan_describe(plan, text, size);
    attn_plan_destroy(plan);
}

static void expect_words(const char *text, const char *words)
{
    if (words ? !strstr(text, words) : strstr(text, "together") != NULL)
        fail_msg("'%s' should%s say '%s'", text, words ? "" : " not", words ? words : "together");
}

/** The plan says how many heads share a block of queries: as many as leave work for all threads, and as it has rows. */
static void test_described(void **state)
{
    (void)state;
    static const struct {
        int64_t heads, kv_heads, queries;
        int threads;
        const char *says;
    } cases[] = {{32, 8, 1, 2, "blocks of 4 queries x 128 keys, 16 tasks of one query block of 4 heads together on"},
                 {32, 1, 1, 4, " of 16 heads together on"},
                 {12, 1, 1, 5, " of 4 heads together on"},
                 {32, 32, 1, 2, NULL},
                 {32, 8, 5, 2, "blocks of 20 queries x 128 keys, 16 tasks of one query block of 4 heads together on"},
                 {128, 1, 4, 1, "4 tasks of one query block of 64 heads together on"}, /* as 256 rows are a block */
                 {32, 8, 32, 2, " of 4 heads together on"},
                 {32, 8, 33, 2, NULL}};
    char text[512];
    attn_params params = attn_params_default();
    params.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        params.num_threads = cases[i].threads;
        describe(cases[i].heads, cases[i].kv_heads, cases[i].queries, &params, text, sizeof text);
        expect_words(text, cases[i].says);
    }
    static const int64_t offsets[] = {0, 1};
    const attn_ragged ragged = {3, offsets, offsets}; /* a plan looks at none of them */
    params.num_threads = 2;
    params.ragged = &ragged;
    describe(32, 8, 100, &params, text, sizeof text);
    expect_words(text, " of 4 heads together where a sequence has few queries on");
}

/** What wants a head by itself has it. */
static void test_apart(void **state)
{
    (void)state;
    enum { QUERIES = 2, APART = 9 };
    static const float scale[32] = {1};
    static const int64_t offsets[] = {0, 0};
    static const int32_t column = 0;
    const attn_tensor weights = attn_bhtd(NULL, BATCH, 32, QUERIES, 4096), sums = attn_bhtd(NULL, BATCH, 32, 1, 4096),
                      table = attn_bhtd(NULL, 1, 1, 2, 64);
    const attn_dropout dropout = {0.5f, 1, 2};
    const attn_disentangled disentangled = {.span = 1, .rel_k = &table};
    const attn_block_mask pattern = {.size = 16, .heads = 1, .rows = 1, .offsets = offsets, .columns = &column};
    char text[512];
    for (int i = 0; i < APART; i++) {
        attn_params params = attn_params_default();
        params.num_threads = 1;
        params.head_scale = i == 0 ? scale : NULL;
        params.dropout = i == 1 ? &dropout : NULL;
        params.disentangled = i == 2 ? &disentangled : NULL;
        params.block_mask = i == 3 ? &pattern : NULL;
        params.weights = i == 4 ? &weights : NULL;
        params.scores = i == 5 ? &weights : NULL;
        params.key_sums = i == 6 ? &sums : NULL;
        params.callback = i == 7 ? fixture_keep_scores : NULL;
        params.weight_callback = i == 8 ? fixture_keep_weights : NULL;
        describe(32, 8, QUERIES, &params, text, sizeof text);
        expect_words(text, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_heads_together), cmocka_unit_test(test_mixed_steps),
                                       cmocka_unit_test(test_described), cmocka_unit_test(test_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
