/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caches: what is wrong about their arguments, and that then nothing has
 * changed; what a step's attention offers beside out; drafts in a tree. That caches keep what they are given, through
 * any operations, is a property (tests/property/test_cache.c).
 */
#include "fixture.h"
#include "dtype.h"
#include "random.h"

#include "attn/cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, KV_HEADS = 2, HEADS = 4, D = 8, DV = 6, SIZE = 4, MOST = 64 };

static attn_cache_config small_config(void)
{
    attn_cache_config c = attn_cache_config_default();
    c.layers = LAYERS, c.kv_heads = KV_HEADS, c.dk = D, c.dv = DV;
    c.max_tokens = MOST, c.max_sequences = 3, c.page_size = SIZE, c.num_pages = 20;
    return c;
}

/** Rows of a step of n tokens. */
struct step_rows {
    float q_data[HEADS * MOST * D], k_data[KV_HEADS * MOST * D], v_data[KV_HEADS * MOST * DV],
        out_data[HEADS * MOST * DV];
    attn_tensor q, k, v, out;
};

static void draw_rows(struct step_rows *x, int64_t n, uint64_t seed)
{
    struct rng rng = rng_for_case(seed, 3);
    for (size_t i = 0; i < sizeof x->q_data / sizeof *x->q_data; i++)
        x->q_data[i] = rng_normal(&rng);
    for (size_t i = 0; i < sizeof x->k_data / sizeof *x->k_data; i++)
        x->k_data[i] = rng_normal(&rng);
    for (size_t i = 0; i < sizeof x->v_data / sizeof *x->v_data; i++)
        x->v_data[i] = rng_normal(&rng);
    memset(x->out_data, CANARY, sizeof x->out_data);
    x->q = attn_bthd(x->q_data, 1, n, HEADS, D);
    x->k = attn_bthd(x->k_data, 1, n, KV_HEADS, D);
    x->v = attn_bthd(x->v_data, 1, n, KV_HEADS, DV);
    x->out = attn_bthd(x->out_data, 1, n, HEADS, DV);
}

#define WRONG_CONFIG(status, words, ...)                                                                               \
    do {                                                                                                               \
        c = small_config();                                                                                            \
        (void)(__VA_ARGS__);                                                                                           \
        cache = (attn_cache *)&c;                                                                                      \
        FAILS_WITH(status, words, attn_cache_create(&cache, &c));                                                      \
        assert_null(cache);                                                                                            \
    } while (0)

static void test_configs(void **state)
{
    (void)state;
    attn_cache_config c = small_config();
    attn_cache *cache = NULL;
    attn_rope_config rope = attn_rope_config_default();
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "cache is NULL; expected the address of a pointer", attn_cache_create(NULL, &c));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "config is NULL; expected an attn_cache_config", attn_cache_create(&cache, NULL));
    WRONG_CONFIG(ATTN_INVALID_ARGUMENT, "config.struct_size is 8", c.struct_size = 8);
    WRONG_CONFIG(ATTN_INVALID_ARGUMENT, "config.layers is 0", c.layers = 0);
    WRONG_CONFIG(ATTN_INVALID_ARGUMENT, "config.kv_heads is -1", c.kv_heads = -1);
    WRONG_CONFIG(ATTN_INVALID_ARGUMENT, "config.dk is 1025|1 to 1024", c.dk = 1025);
    WRONG_CONFIG(ATTN_INVALID_ARGUMENT, "config.dv is -2", c.dv = -2);
    WRONG_CONFIG(ATTN_UNSUPPORTED, "config.dtype is bool", c.dtype = ATTN_BOOL);
    WRONG_CONFIG(ATTN_INVALID_ARGUMENT, "config.max_tokens is 0", c.max_tokens = 0);
    WRONG_CONFIG(ATTN_INVALID_ARGUMENT, "config.max_sequences is 0", c.max_sequences = 0);
    WRONG_CONFIG(ATTN_INVALID_ARGUMENT, "config.page_size is 65|1 to 64", c.page_size = 65);
    WRONG_CONFIG(ATTN_INVALID_ARGUMENT, "config.num_pages is 2147483648", c.num_pages = (int64_t)1 << 31);
    WRONG_CONFIG(ATTN_INVALID_ARGUMENT, "config.window is -1", c.window = -1);
    WRONG_CONFIG(ATTN_INVALID_ARGUMENT, "config.first_tokens is 4|without a window", c.first_tokens = 4);
    WRONG_CONFIG(ATTN_INVALID_ARGUMENT, "config.rope_layout is 1|without rope", c.rope_layout = ATTN_ROPE_INTERLEAVED);
    WRONG_CONFIG(ATTN_INVALID_ARGUMENT, "config.rope->pairs is 0", c.rope = &rope);
    rope.pairs = D / 2 + 1;
    WRONG_CONFIG(ATTN_INVALID_ARGUMENT, "config.rope->pairs is 5|1 to 4", c.rope = &rope);
    rope.pairs = 2;
    rope.base = 0.5;
    WRONG_CONFIG(ATTN_INVALID_ARGUMENT, "base", c.rope = &rope);
    rope.base = 0;
    WRONG_CONFIG(ATTN_INVALID_ARGUMENT, "config.rope_layout is 2; expected an attn_rope_layout", c.rope = &rope,
                 c.rope_layout = (attn_rope_layout)2);
    WRONG_CONFIG(ATTN_SIZE_OVERFLOW, "config asks for 2147483647 pages of", c.layers = INT32_MAX,
                 c.kv_heads = INT32_MAX, c.num_pages = INT32_MAX);
    attn_cache_destroy(NULL);
}

static attn_cache *make(const attn_cache_config *c)
{
    attn_cache *cache;
    assert_int_equal(attn_cache_create(&cache, c), ATTN_OK);
    return cache;
}

static int64_t add(attn_cache *cache)
{
    int64_t id;
    assert_int_equal(attn_cache_add(cache, &id), ATTN_OK);
    return id;
}

/** A whole step: tokens, and attention in all layers. */
static void run_step(attn_cache *cache, int64_t num, const int64_t *ids, const int64_t *tokens,
                     const struct step_rows *x)
{
    assert_int_equal(attn_cache_step(cache, num, ids, tokens, NULL), ATTN_OK);
    for (int layer = 0; layer < LAYERS; layer++) {
        assert_int_equal(attn_cache_append(cache, layer, &x->k, &x->v, 0), ATTN_OK);
        assert_int_equal(attn_cache_attend(cache, layer, &x->q, &x->out, NULL), ATTN_OK);
    }
}

static void test_steps(void **state)
{
    (void)state;
    static struct step_rows x, y;
    const attn_cache_config c = small_config();
    attn_cache *cache = make(&c);
    attn_cache_usage usage = attn_cache_usage_default();
    int64_t ids[3], id, tokens[3] = {5, 0, 1};
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "id is NULL; expected where to put one", attn_cache_add(cache, NULL));
    for (int i = 0; i < 3; i++)
        ids[i] = add(cache);
    FAILS_WITH(ATTN_CACHE_FULL, "3 sequences, config.max_sequences", attn_cache_add(cache, &id));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "fork is NULL; expected where to put an id",
               attn_cache_fork(cache, ids[0], NULL));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "usage is NULL; expected where to put it", attn_cache_get_usage(cache, NULL));
    FAILS_WITH(ATTN_CACHE_FULL, "3 sequences", attn_cache_fork(cache, ids[0], &id));
    draw_rows(&x, 6, 1);
    run_step(cache, 3, ids, tokens, &x);
    assert_int_equal(attn_cache_keys(cache), 8);
    assert_int_equal(attn_cache_get_usage(cache, &usage), ATTN_OK);
    assert_int_equal(usage.pages_in_use, 3);
    assert_int_equal(usage.tokens, 6);
    assert_int_equal(usage.page_bytes, LAYERS * KV_HEADS * SIZE * (D + DV) * 4);
    assert_true(usage.bytes >= usage.page_bytes * usage.num_pages);

    /* What is wrong leaves the step as it is: it can be attended to again. */
    y = x;
    memset(x.out_data, CANARY, sizeof x.out_data);
    const int64_t again[2] = {ids[1], ids[1]}, no_id[1] = {77}, many[1] = {MOST}, some[1] = {60}, less[1] = {-1};
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "ids[1] is 1 again; expected sequences that are all different",
               attn_cache_step(cache, 2, again, tokens, NULL));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "ids[0] is 77|no such sequence", attn_cache_step(cache, 1, no_id, tokens, NULL));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "tokens[0] is 64|0 to 59", attn_cache_step(cache, 1, ids, many, NULL));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "tokens[0] is 60|0 to 59", attn_cache_step(cache, 1, ids, some, NULL));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "tokens[0] is -1; expected 0 to 59: sequence 0 has 5 of config.max_tokens, 64",
               attn_cache_step(cache, 1, ids, less, NULL));
    FAILS_WITH(ATTN_CACHE_FULL, "free", (tokens[0] = 40, tokens[1] = 40, attn_cache_step(cache, 2, ids, tokens, NULL)));
    FAILS_WITH(ATTN_CACHE_FULL, "the step has 119 tokens, and all pages together hold 80",
               (tokens[0] = 59, tokens[1] = 60, attn_cache_step(cache, 2, ids, tokens, NULL)));
    const int64_t position = ((int64_t)1 << 53) + 1;
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "positions[0] is 9007199254740993; expected at most 2^53 in size",
               attn_cache_step(cache, 1, &ids[1], (tokens[2] = 1, &tokens[2]), &position));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "num is 4|0 to 3", attn_cache_step(cache, 4, ids, tokens, NULL));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "num is -1; expected 0 to 3, config.max_sequences",
               attn_cache_step(cache, -1, ids, tokens, NULL));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "ids is NULL; expected 1 numbers", attn_cache_step(cache, 1, NULL, some, NULL));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "tokens is NULL", attn_cache_step(cache, 1, ids, NULL, NULL));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "cache is NULL", attn_cache_step(NULL, 0, NULL, NULL, NULL));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "length is 6; expected 0 to 5, the tokens of sequence 0",
               attn_cache_truncate(cache, ids[0], 6));
    assert_int_equal(attn_cache_length(cache, ids[0]), 5);
    assert_int_equal(attn_cache_length(cache, 77), -1);
    assert_int_equal(attn_cache_length(NULL, 0), -1);
    assert_int_equal(attn_cache_attend(cache, 1, &x.q, &x.out, NULL), ATTN_OK);
    assert_memory_equal(x.out_data, y.out_data, 6 * HEADS * DV * sizeof(float));

    /* A change of a sequence ends it. */
    assert_int_equal(attn_cache_truncate(cache, ids[0], 4), ATTN_OK);
    assert_int_equal(attn_cache_keys(cache), 0);
    FAILS_WITH(ATTN_SHAPE_MISMATCH, "q.shape[2] is 6; expected 0, the tokens of the step",
               attn_cache_attend(cache, 1, &x.q, &x.out, NULL));
    attn_cache_destroy(cache);
}

static void test_layers(void **state)
{
    (void)state;
    static struct step_rows x;
    const attn_cache_config c = small_config();
    attn_cache *cache = make(&c);
    const int64_t id = add(cache), tokens = 3, none[1] = {0};
    attn_tensor t;
    attn_params p = attn_params_default();
    draw_rows(&x, 3, 2);
    assert_int_equal(attn_cache_step(cache, 1, &id, &tokens, NULL), ATTN_OK);
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "layer is 0, to which the step's keys have not been appended",
               attn_cache_attend(cache, 0, &x.q, &x.out, NULL));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "layer is 2; expected 0 to 1", attn_cache_append(cache, 2, &x.k, &x.v, 0));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "layer is -1", attn_cache_attend(cache, -1, &x.q, &x.out, NULL));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "k is NULL", attn_cache_append(cache, 0, NULL, &x.v, 0));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "num_threads is -1; expected 0 or more",
               attn_cache_append(cache, 0, &x.k, &x.v, -1));
    t = x.k, t.shape[2] = 2;
    FAILS_WITH(ATTN_SHAPE_MISMATCH, "k.shape[2] is 2; expected 3, the tokens of the step",
               attn_cache_append(cache, 0, &t, &x.v, 0));
    t = x.k, t.shape[0] = 2;
    FAILS_WITH(ATTN_SHAPE_MISMATCH, "k.shape[0] is 2; expected 1, as sequences follow each other",
               attn_cache_append(cache, 0, &t, &x.v, 0));
    t = x.k, t.shape[1] = 1;
    FAILS_WITH(ATTN_SHAPE_MISMATCH, "k.shape[1] is 1; expected 2, config.kv_heads",
               attn_cache_append(cache, 0, &t, &x.v, 0));
    FAILS_WITH(ATTN_SHAPE_MISMATCH, "v.shape[3] is 8; expected 6, the head size of the cache",
               attn_cache_append(cache, 0, &x.k, &x.k, 0));
    t = x.v, t.dtype = ATTN_I8;
    FAILS_WITH(ATTN_UNSUPPORTED, "v.dtype is i8", attn_cache_append(cache, 0, &x.k, &t, 0));
    assert_int_equal(attn_cache_append(cache, 0, &x.k, &x.v, 0), ATTN_OK);
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "layer is 0, which has the keys of this step already",
               attn_cache_append(cache, 0, &x.k, &x.v, 0));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "q is NULL", attn_cache_attend(cache, 0, NULL, &x.out, NULL));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "out is NULL", attn_cache_attend(cache, 0, &x.q, NULL, NULL));
    p.causal = ATTN_CAUSAL_TOP_LEFT;
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "params.causal is set", attn_cache_attend(cache, 0, &x.q, &x.out, &p));
    p.causal = ATTN_CAUSAL_NONE;
    p.kv_len = none;
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "params.kv_len is set", attn_cache_attend(cache, 0, &x.q, &x.out, &p));
    p.kv_len = NULL;
    p.softcap = -1;
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "params.softcap is -1", attn_cache_attend(cache, 0, &x.q, &x.out, &p));
    assert_true(all_canary(x.out_data, sizeof x.out_data));
    /* Out in the cache's own memory. */
    attn_tensor k, v;
    p = attn_params_default();
    assert_int_equal(attn_cache_pools(cache, 0, &k, &v, &p), ATTN_OK);
    t = x.out, t.data = k.data;
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "out overlaps k", attn_cache_attend(cache, 0, &x.q, &t, NULL));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "params is NULL; expected where to put the block table",
               attn_cache_pools(cache, 0, &k, &v, NULL));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "k is NULL; expected where to put a tensor",
               attn_cache_pools(cache, 0, NULL, &v, NULL));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "v is NULL; expected where to put a tensor",
               attn_cache_pools(cache, 0, &k, NULL, &p));
    p.struct_size = 8;
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "params.struct_size is 8; expected what attn_params_default() sets",
               attn_cache_pools(cache, 0, &k, &v, &p));
    assert_int_equal(attn_cache_attend(cache, 0, &x.q, &x.out, NULL), ATTN_OK);
    attn_cache_destroy(cache);
}

/** Queries are turned as keys are: by their place, or by the positions that a step was given. */
static void test_rotate(void **state)
{
    (void)state;
    static struct step_rows x;
    static float table[3 * D], expected[3 * HEADS * D];
    attn_cache_config c = small_config();
    attn_rope_config rope = attn_rope_config_default();
    rope.pairs = 3;
    c.rope = &rope;
    c.rope_layout = ATTN_ROPE_INTERLEAVED;
    attn_cache *cache = make(&c);
    rope.pairs = 1; /* the cache has a copy */
    const int64_t id = add(cache), tokens = 3, positions[3] = {7, 7, 100};
    for (int given = 0; given < 2; given++) {
        draw_rows(&x, 3, 9);
        assert_int_equal(attn_cache_step(cache, 1, &id, &tokens, given ? positions : NULL), ATTN_OK);
        const attn_tensor turned = attn_bthd(expected, 1, 3, HEADS, D), rows = attn_bhtd(table, 1, 1, 3, 6);
        rope.pairs = 3;
        assert_int_equal(attn_rope_table(&rope, given ? positions : NULL, 3, table), ATTN_OK);
        assert_int_equal(attn_rope(&x.q, &rows, ATTN_ROPE_INTERLEAVED, &turned, 1), ATTN_OK);
        assert_int_equal(attn_cache_rotate(cache, &x.q, &x.q, 1), ATTN_OK);
        assert_memory_equal(x.q_data, expected, sizeof expected);
        attn_tensor t = x.q;
        t.shape[2] = 2;
        FAILS_WITH(ATTN_SHAPE_MISMATCH, "q.shape[2] is 2; expected 3", attn_cache_rotate(cache, &t, &t, 1));
        assert_int_equal(attn_cache_truncate(cache, id, 0), ATTN_OK);
    }
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "cache is NULL; expected one of attn_cache_create()",
               attn_cache_rotate(NULL, &x.q, &x.q, 1));
    attn_cache_destroy(cache);
}

/** A step that finds no pages leaves the one before it, with its rotations, whose memory it has made anew. */
static void test_rotate_after_failure(void **state)
{
    (void)state;
    static struct step_rows x;
    static float expected[HEADS * D], turned_data[HEADS * D];
    attn_cache_config c = small_config();
    attn_rope_config rope = attn_rope_config_default();
    rope.pairs = D / 2;
    c.rope = &rope;
    attn_cache *cache = make(&c);
    const int64_t ids[3] = {add(cache), add(cache), add(cache)}, tokens[3] = {60, 1, 63}, position = 9;
    const attn_tensor turned = attn_bthd(turned_data, 1, 1, HEADS, D);
    draw_rows(&x, 1, 8);
    assert_int_equal(attn_cache_step(cache, 1, &ids[0], &tokens[0], NULL), ATTN_OK);
    assert_int_equal(attn_cache_step(cache, 1, &ids[1], &tokens[1], &position), ATTN_OK);
    assert_int_equal(attn_cache_rotate(cache, &x.q, &turned, 1), ATTN_OK);
    memcpy(expected, turned_data, sizeof expected);
    FAILS_WITH(ATTN_CACHE_FULL, "pages", attn_cache_step(cache, 1, &ids[2], &tokens[2], NULL));
    assert_int_equal(attn_cache_rotate(cache, &x.q, &turned, 1), ATTN_OK);
    assert_memory_equal(turned_data, expected, sizeof expected);
    assert_memory_not_equal(turned_data, x.q_data, sizeof turned_data);
    attn_cache_destroy(cache);
}

/** The lse of a step of one token for each sequence, which runs as a batch, is that of one that has to be ragged. */
static void test_lse(void **state)
{
    (void)state;
    static struct step_rows x;
    static float lse_data[2][3][HEADS], weights_data[HEADS * 3 * 2 * SIZE], out_data[HEADS * 3 * DV];
    const attn_cache_config c = small_config();
    attn_cache *cache = make(&c);
    const int64_t ids[3] = {add(cache), add(cache), add(cache)}, first[3] = {5, 1, 3}, one[3] = {1, 1, 1};
    attn_params p = attn_params_default();
    const attn_tensor weights = attn_bhtd(weights_data, 1, HEADS, 3, 2 * SIZE);
    draw_rows(&x, 9, 5);
    run_step(cache, 3, ids, first, &x);
    draw_rows(&x, 3, 6);
    assert_int_equal(attn_cache_step(cache, 3, ids, one, NULL), ATTN_OK);
    assert_int_equal(attn_cache_append(cache, 0, &x.k, &x.v, 0), ATTN_OK);
    for (int ragged = 0; ragged < 2; ragged++) {
        const attn_tensor lse = attn_bthd(lse_data[ragged], 1, 3, HEADS, 1);
        p.lse = &lse;
        p.weights = ragged ? &weights : NULL;
        assert_int_equal(attn_cache_attend(cache, 0, &x.q, &x.out, &p), ATTN_OK);
        assert_true(!ragged || memcmp(out_data, x.out_data, sizeof out_data) == 0);
        memcpy(out_data, x.out_data, sizeof out_data);
    }
    assert_memory_equal(lse_data[0], lse_data[1], sizeof lse_data[0]);
    for (int i = 0; i < 3; i++)
        for (int h = 0; h < HEADS; h++)
            assert_true(isfinite(lse_data[0][i][h]) && lse_data[0][i][h] != 0.0f);
    attn_cache_destroy(cache);
}

/** A row that 8 bits cannot hold is a row of NaN, seen by the queries of its sequence and head from its place on. */
static void test_scales(void **state)
{
    (void)state;
    static struct step_rows x, right;
    attn_cache_config c = small_config();
    c.dtype = ATTN_F8_E4M3;
    attn_cache *cache = make(&c);
    const int64_t ids[2] = {add(cache), add(cache)}, tokens[2] = {2, 2};
    attn_params p = attn_params_default();
    attn_tensor k, v;
    draw_rows(&x, 4, 7);
    draw_rows(&right, 4, 7);
    assert_int_equal(attn_cache_step(cache, 2, ids, tokens, NULL), ATTN_OK);
    assert_int_equal(attn_cache_append(cache, 0, &right.k, &right.v, 0), ATTN_OK);
    assert_int_equal(attn_cache_attend(cache, 0, &right.q, &right.out, NULL), ATTN_OK);
    x.v_data[KV_HEADS * DV] = INFINITY; /* of the first sequence token 1, key head 0 */
    assert_int_equal(attn_cache_append(cache, 1, &x.k, &x.v, 0), ATTN_OK);
    assert_int_equal(attn_cache_attend(cache, 1, &x.q, &x.out, NULL), ATTN_OK);
    for (int token = 0; token < 4; token++)
        for (int h = 0; h < HEADS; h++) {
            const float *found = x.out_data + (token * HEADS + h) * DV,
                        *expected = right.out_data + (found - x.out_data);
            if (token == 1 && h < HEADS / KV_HEADS)
                for (int i = 0; i < DV; i++)
                    assert_true(isnan(found[i]));
            else
                assert_memory_equal(found, expected, DV * sizeof *found);
        }
    /* Called with the pools as a caller's own, which may have slots that were never filled. */
    assert_int_equal(attn_cache_pools(cache, 1, &k, &v, &p), ATTN_OK);
    draw_rows(&x, 2, 8);
    attn_tensor q = attn_bthd(x.q_data, 2, 1, HEADS, D), out = attn_bthd(x.out_data, 2, 1, HEADS, DV);
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "params.v_scale[0][0][1] is", attn_forward(&q, &k, &v, &out, &p));
    assert_true(all_canary(x.out_data, sizeof x.out_data));
    p.sums = ATTN_SUMS_FREE;
    p.v_scale = NULL;
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "params.k_scale is set; a cache says itself",
               (p.block_table = NULL, p.block_table_stride = p.page_size = 0, p.kv_len = NULL,
                attn_cache_attend(cache, 1, &right.q, &right.out, &p)));
    attn_cache_destroy(cache);
}

/** Sums of weights per key, by which keys may be chosen that go: those of a call over keys side by side. */
static void test_key_sums(void **state)
{
    (void)state;
    static struct step_rows x;
    static float sums[2][HEADS][2 * SIZE], expected[HEADS][5], lse[5][HEADS];
    const attn_cache_config c = small_config();
    attn_cache *cache = make(&c);
    const int64_t ids[2] = {add(cache), add(cache)}, tokens[2] = {5, 1};
    attn_params p = attn_params_default();
    const attn_tensor key_sums = attn_bhtd(sums, 2, HEADS, 1, 2 * SIZE);
    attn_tensor lse_of_step = attn_bthd(lse, 1, 6, HEADS, 1);
    static float more_lse[6][HEADS];
    lse_of_step.data = more_lse;
    draw_rows(&x, 6, 4);
    assert_int_equal(attn_cache_step(cache, 2, ids, tokens, NULL), ATTN_OK);
    assert_int_equal(attn_cache_append(cache, 0, &x.k, &x.v, 0), ATTN_OK);
    p.key_sums = &key_sums;
    p.lse = &lse_of_step;
    memset(sums, CANARY, sizeof sums);
    assert_int_equal(attn_cache_attend(cache, 0, &x.q, &x.out, &p), ATTN_OK);
    attn_tensor q = x.q, k = x.k, v = x.v, out = x.out, sum = attn_bhtd(expected, 1, HEADS, 1, 5);
    q.shape[2] = k.shape[2] = v.shape[2] = out.shape[2] = 5;
    p = attn_params_default();
    p.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    p.key_sums = &sum;
    assert_int_equal(attn_forward(&q, &k, &v, &out, &p), ATTN_OK);
    for (int h = 0; h < HEADS; h++) {
        assert_memory_equal(sums[0][h], expected[h], sizeof expected[h]);
        for (int j = 5; j < 2 * SIZE; j++)
            assert_true(sums[0][h][j] == 0.0f);
        assert_true(sums[1][h][0] == 1.0f && sums[1][h][1] == 0.0f); /* the one key that there is */
    }
    attn_cache_destroy(cache);
}

/** Drafts in a tree, verified in one step, are what each branch gives by itself; those that are rejected go. */
static void test_tree(void **state)
{
    (void)state;
    static struct step_rows prompt, drafts, branch;
    const attn_cache_config c = small_config();
    attn_cache *cache = make(&c);
    const int64_t id = add(cache), five = 5, three = 3;
    draw_rows(&prompt, 5, 5);
    run_step(cache, 1, &id, &five, &prompt);
    int64_t fork;
    assert_int_equal(attn_cache_fork(cache, id, &fork), ATTN_OK);
    /* 0, and 1 and 2 that both follow it */
    static const uint64_t ancestors[3] = {1, 3, 5};
    const attn_tree tree = {3, ancestors};
    attn_params p = attn_params_default();
    p.tree = &tree;
    draw_rows(&drafts, 3, 6);
    assert_int_equal(attn_cache_step(cache, 1, &id, &three, NULL), ATTN_OK);
    assert_int_equal(attn_cache_append(cache, 1, &drafts.k, &drafts.v, 0), ATTN_OK);
    assert_int_equal(attn_cache_attend(cache, 1, &drafts.q, &drafts.out, &p), ATTN_OK);
    /* The branch 0, 2: its tokens one by one. */
    const int64_t one = 1;
    for (int token = 0; token < 3; token += 2) {
        branch = drafts;
        const size_t row = HEADS * D, kv_row = KV_HEADS * D, v_row = KV_HEADS * DV;
        branch.q = attn_bthd(drafts.q_data + (size_t)token * row, 1, 1, HEADS, D);
        branch.k = attn_bthd(drafts.k_data + (size_t)token * kv_row, 1, 1, KV_HEADS, D);
        branch.v = attn_bthd(drafts.v_data + (size_t)token * v_row, 1, 1, KV_HEADS, DV);
        branch.out = attn_bthd(branch.out_data, 1, 1, HEADS, DV);
        assert_int_equal(attn_cache_step(cache, 1, &fork, &one, NULL), ATTN_OK);
        assert_int_equal(attn_cache_append(cache, 1, &branch.k, &branch.v, 0), ATTN_OK);
        assert_int_equal(attn_cache_attend(cache, 1, &branch.q, &branch.out, NULL), ATTN_OK);
        for (int i = 0; i < HEADS * DV; i++) /* a hidden key between: sums of a tile may begin elsewhere */
            assert_true(fabsf(branch.out_data[i] - drafts.out_data[token * HEADS * DV + i]) < 1e-6f);
    }
    /* That branch is accepted: what follows is what follows in the fork. */
    static const int64_t accepted[2] = {5, 7}, falls[2] = {7, 5}, low[1] = {4}, high[1] = {8};
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "length is 9; expected 0 to 8, the tokens there are",
               attn_cache_keep(cache, id, 9, 0, NULL));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "num is 4; expected 0 to 3, the tokens behind the first 5",
               attn_cache_keep(cache, id, 5, 4, accepted));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "tokens[1] is 5; expected more than 7, the one before it",
               attn_cache_keep(cache, id, 5, 2, falls));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "tokens[0] is 4; expected 5 to 7, a token from length on",
               attn_cache_keep(cache, id, 5, 1, low));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "tokens[0] is 8", attn_cache_keep(cache, id, 5, 1, high));
    FAILS_WITH(ATTN_INVALID_ARGUMENT, "tokens is NULL; expected 1 of them", attn_cache_keep(cache, id, 5, 1, NULL));
    FAILS_WITH(ATTN_UNSUPPORTED, "tokens[0] is 1, which would move from or to a page",
               attn_cache_keep(cache, id, 0, 1, &one));
    assert_int_equal(attn_cache_keep(cache, id, 5, 2, accepted), ATTN_OK);
    assert_int_equal(attn_cache_length(cache, id), 7);
    float expected[HEADS * DV];
    const int64_t both[2] = {id, fork};
    for (int i = 0; i < 2; i++) {
        draw_rows(&branch, 1, 8);
        assert_int_equal(attn_cache_step(cache, 1, &both[i], &one, NULL), ATTN_OK);
        assert_int_equal(attn_cache_append(cache, 1, &branch.k, &branch.v, 0), ATTN_OK);
        assert_int_equal(attn_cache_attend(cache, 1, &branch.q, &branch.out, NULL), ATTN_OK);
        if (i == 0)
            memcpy(expected, branch.out_data, sizeof expected);
    }
    assert_memory_equal(expected, branch.out_data, sizeof expected);
    attn_cache_destroy(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_configs), cmocka_unit_test(test_steps),    cmocka_unit_test(test_layers),
        cmocka_unit_test(test_scales),  cmocka_unit_test(test_rotate),   cmocka_unit_test(test_rotate_after_failure),
        cmocka_unit_test(test_lse),     cmocka_unit_test(test_key_sums), cmocka_unit_test(test_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
