/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache whose values are channels of its keys (config.v_in_k): through prompts, single tokens,
 * forks, truncation and drafts that are kept, it gives the bits of a cache that has the same
 * values in memory of their own, with less of it. In 8 and 4 bits, where a value has the scale of its
 * key, the other cache is one of the floats that these stand for.
 */
#include "fixture.h"
#include "dtype.h"
#include "random.h"

#include "attn/cache.h"
#include "attn/quantise.h"

#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, HEADS = 6, DK = 40, DV = 24, SIZE = 4, MOST = 32 };

struct twins {
    attn_dtype dtype; /**< of the cache with values in keys */
    attn_cache *inside, *apart;
    struct rng rng;
};

static int is_quantised(attn_dtype dtype)
{
    return dtype == ATTN_I8 || dtype == ATTN_F8_E4M3 || dtype == ATTN_I4;
}

static attn_cache_config config_of(attn_dtype dtype, int v_in_k)
{
    attn_cache_config c = attn_cache_config_default();
    c.layers = LAYERS, c.kv_heads = 1, c.dk = DK, c.dv = DV, c.dtype = dtype;
    c.max_tokens = MOST, c.max_sequences = 3, c.page_size = SIZE, c.num_pages = 20;
    c.v_in_k = v_in_k;
    return c;
}

static struct twins make_twins(attn_dtype dtype)
{
    struct twins x = {.dtype = dtype, .rng = rng_for_case(0x1a7e47, (uint64_t)dtype)};
    const attn_cache_config inside = config_of(dtype, 1), apart = config_of(is_quantised(dtype) ? ATTN_F32 : dtype, 0);
    assert_int_equal(attn_cache_create(&x.inside, &inside), ATTN_OK);
    assert_int_equal(attn_cache_create(&x.apart, &apart), ATTN_OK);
    return x;
}

static void destroy(struct twins *x)
{
    attn_cache_destroy(x->inside);
    attn_cache_destroy(x->apart);
}

static attn_tensor draw(struct twins *x, int64_t heads, int64_t tokens, int64_t channels)
{
    float *data = malloc((size_t)(heads * tokens * channels) * sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < heads * tokens * channels; i++)
        data[i] = rng_normal(&x->rng);
    return attn_bthd(data, 1, tokens, heads, channels);
}

/** Scales of a row of keys. */
static int64_t scales_of(attn_dtype dtype)
{
    return dtype == ATTN_I4 ? (DK + ATTN_I4_GROUP - 1) / ATTN_I4_GROUP : 1;
}

/** Channel c of a quantised row, without its scale. */
static float number_at(attn_dtype dtype, const uint8_t *row, int c)
{
    return dtype == ATTN_I4 ? dtype_i4_at(row, c) : dtype == ATTN_I8 ? (float)(int8_t)row[c] : dtype_of_f8(row[c]);
}

/** Keys as they are once they have been quantised; of other types the same again, which is rounded as it is kept. */
static attn_tensor kept(const struct twins *x, const attn_tensor *k)
{
    const int64_t tokens = k->shape[2], groups = scales_of(x->dtype);
    float *data = malloc((size_t)(tokens * DK) * sizeof *data), scales[2 * MOST];
    uint8_t bytes[MOST * DK];
    attn_tensor small = attn_bhtd(bytes, 1, 1, tokens, x->dtype == ATTN_I4 ? groups * ATTN_I4_GROUP : DK);
    const attn_tensor scale = attn_bhtd(scales, 1, 1, tokens, groups);
    assert_non_null(data);
    small.shape[3] = DK;
    small.dtype = x->dtype;
    memcpy(data, k->data, (size_t)(tokens * DK) * sizeof *data);
    if (is_quantised(x->dtype)) {
        const int64_t row = (int64_t)attn_row_size(x->dtype, DK);
        assert_int_equal(attn_quantise(k, &small, &scale, 1), ATTN_OK);
        for (int64_t j = 0; j < tokens; j++)
            for (int c = 0; c < DK; c++)
                data[j * DK + c] = number_at(x->dtype, bytes + j * row, c) *
                                   scales[j * groups + (x->dtype == ATTN_I4 ? c / ATTN_I4_GROUP : 0)];
    }
    return attn_bthd(data, 1, tokens, 1, DK);
}

/** A step of both, whose results have to be the same. */
static void step(struct twins *x, int64_t num, const int64_t *ids, const int64_t *tokens)
{
    int64_t n = 0;
    for (int64_t i = 0; i < num; i++)
        n += tokens[i];
    assert_int_equal(attn_cache_step(x->inside, num, ids, tokens, NULL), ATTN_OK);
    assert_int_equal(attn_cache_step(x->apart, num, ids, tokens, NULL), ATTN_OK);
    for (int layer = 0; layer < LAYERS; layer++) {
        const attn_tensor k = draw(x, 1, n, DK), q = draw(x, HEADS, n, DK), same = kept(x, &k),
                          out = draw(x, HEADS, n, DV), other = draw(x, HEADS, n, DV);
        attn_tensor v = same;
        v.shape[3] = DV;
        assert_int_equal(attn_cache_append(x->inside, layer, &k, NULL, 0), ATTN_OK);
        assert_int_equal(attn_cache_append(x->apart, layer, &same, &v, 0), ATTN_OK);
        assert_int_equal(attn_cache_attend(x->inside, layer, &q, &out, NULL), ATTN_OK);
        assert_int_equal(attn_cache_attend(x->apart, layer, &q, &other, NULL), ATTN_OK);
        assert_memory_equal(out.data, other.data, (size_t)(HEADS * n * DV) * sizeof(float));
        void *const data[] = {k.data, q.data, same.data, out.data, other.data};
        for (size_t i = 0; i < sizeof data / sizeof *data; i++)
            free(data[i]);
    }
}

static void test_same_bits(void **state)
{
    (void)state;
    static const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_I8, ATTN_F8_E4M3, ATTN_I4};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct twins x = make_twins(types[t]);
        int64_t ids[3], others[3];
        for (int i = 0; i < 2; i++) {
            assert_int_equal(attn_cache_add(x.inside, &ids[i]), ATTN_OK);
            assert_int_equal(attn_cache_add(x.apart, &others[i]), ATTN_OK);
        }
        step(&x, 2, ids, (int64_t[]){6, 1}); /* a prompt beside a token */
        step(&x, 2, ids, (int64_t[]){1, 1});
        assert_int_equal(attn_cache_fork(x.inside, ids[0], &ids[2]), ATTN_OK);
        assert_int_equal(attn_cache_fork(x.apart, others[0], &others[2]), ATTN_OK);
        assert_memory_equal(ids, others, sizeof ids);
        step(&x, 3, ids, (int64_t[]){1, 2, 3}); /* which copies a page */
        step(&x, 3, ids, (int64_t[]){1, 1, 1});
        const int64_t some[2] = {9, 10};
        assert_int_equal(attn_cache_keep(x.inside, ids[2], 8, 2, some), ATTN_OK); /* which moves rows */
        assert_int_equal(attn_cache_keep(x.apart, ids[2], 8, 2, some), ATTN_OK);
        assert_int_equal(attn_cache_truncate(x.inside, ids[0], 3), ATTN_OK);
        assert_int_equal(attn_cache_truncate(x.apart, ids[0], 3), ATTN_OK);
        step(&x, 3, ids, (int64_t[]){2, 1, 1});
        destroy(&x);
    }
}

/** Values are channels of keys, in the pools that a caller sees too, and take no memory. */
static void test_memory(void **state)
{
    (void)state;
    static const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_I8, ATTN_I4};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const attn_cache_config c = config_of(types[t], 1);
        const int64_t row = (int64_t)attn_row_size(types[t], DK),
                      scales = is_quantised(types[t]) ? scales_of(types[t]) : 0;
        attn_cache *cache;
        attn_cache_usage usage = attn_cache_usage_default();
        attn_tensor k[LAYERS], v[LAYERS];
        attn_params p[LAYERS] = {attn_params_default(), attn_params_default()};
        assert_int_equal(attn_cache_create(&cache, &c), ATTN_OK);
        assert_int_equal(attn_cache_get_usage(cache, &usage), ATTN_OK);
        assert_int_equal(usage.page_bytes, LAYERS * SIZE * (row + 4 * scales));
        for (int layer = 0; layer < LAYERS; layer++) {
            assert_int_equal(attn_cache_pools(cache, layer, &k[layer], &v[layer], &p[layer]), ATTN_OK);
            assert_ptr_equal(k[layer].data, v[layer].data);
            assert_memory_equal(k[layer].stride, v[layer].stride, sizeof k[layer].stride);
            assert_int_equal(k[layer].shape[3], DK);
            assert_int_equal(v[layer].shape[3], DV);
            if (is_quantised(types[t]))
                assert_ptr_equal(p[layer].k_scale->data, p[layer].v_scale->data);
        }
        assert_int_equal((char *)k[1].data - (char *)k[0].data, c.num_pages * SIZE * row);
        if (is_quantised(types[t]))
            assert_int_equal((char *)p[1].k_scale->data - (char *)p[0].k_scale->data, c.num_pages * SIZE * 4 * scales);
        attn_cache_destroy(cache);
    }
}

static void expect_refused(const attn_cache_config *c, const char *words)
{
    attn_cache *cache = (attn_cache *)&cache;
    assert_int_equal(attn_cache_create(&cache, c), ATTN_INVALID_ARGUMENT);
    assert_null(cache);
    if (!holds_words(attn_last_error(), words))
        fail_msg("'%s' lacks one of '%s'", attn_last_error(), words);
}

static void test_refused(void **state)
{
    (void)state;
    attn_cache_config c = config_of(ATTN_F32, 1);
    attn_rope_config rope = attn_rope_config_default();
    rope.pairs = 2;
    c.dv = DK + 1;
    expect_refused(&c, "config.dv is 41; expected at most 40, config.dk, with v_in_k");
    c = config_of(ATTN_F32, 1);
    c.rope = &rope;
    expect_refused(&c, "config.rope is set|v_in_k");

    struct twins x = make_twins(ATTN_F32);
    const attn_tensor k = draw(&x, 1, 2, DK), out = draw(&x, HEADS, 2, DV);
    attn_tensor v = k;
    int64_t id;
    v.shape[3] = DV;
    assert_int_equal(attn_cache_add(x.inside, &id), ATTN_OK);
    assert_int_equal(attn_cache_add(x.apart, &id), ATTN_OK);
    const int64_t tokens = 2;
    assert_int_equal(attn_cache_step(x.inside, 1, &id, &tokens, NULL), ATTN_OK);
    assert_int_equal(attn_cache_step(x.apart, 1, &id, &tokens, NULL), ATTN_OK);
    assert_int_equal(attn_cache_append(x.inside, 0, &k, &v, 0), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "v is set; expected NULL, as config.v_in_k has values in keys"));
    assert_int_equal(attn_cache_append(x.apart, 0, &k, NULL, 0), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "v is NULL"));
    /* Nothing was kept: the same rows can be appended now, and no others lie in the cache. */
    attn_tensor pool, values;
    attn_params p = attn_params_default();
    assert_int_equal(attn_cache_pools(x.inside, 0, &pool, &values, &p), ATTN_OK);
    attn_tensor inside = pool;
    inside.shape[0] = 1, inside.shape[2] = 2;
    assert_int_equal(attn_cache_append(x.inside, 0, &inside, NULL, 0), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "the cache overlaps k"));
    assert_int_equal(attn_cache_append(x.inside, 0, &k, NULL, 0), ATTN_OK);
    free(k.data);
    free(out.data);
    destroy(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits), cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
