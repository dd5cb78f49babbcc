/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offsets beyond 2^31 and 2^32 elements in keys and values that are quantised or
 * lie in pages: side by side and in pools, with their scales, in rows of the block
 * table, and in a cache.
 */
#include "fixture.h"
#include "arguments.h"
#include "far.h"
#include "guard.h"
#include "random.h"

#include "attn/cache.h"
#include "attn/quantise.h"

#include <stdio.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, HQ = 4, HKV = 2, TK = 40, D = 40, DV = 33, PAGES = 7, SIZE = 16, COLUMNS = 3 };

struct call {
    const attn_tensor *q, *k, *v, *out;
    attn_params params;
};

static const int32_t table[B * COLUMNS] = {3, 0, 6, 5, 2, 1};
static const int64_t lengths[B] = {TK, TK - 7};

static attn_status forward(void *user)
{
    const struct call *const c = user;
    return attn_forward(c->q, c->k, c->v, c->out, &c->params);
}

static int is_quantised(attn_dtype dtype)
{
    return dtype == ATTN_I8 || dtype == ATTN_F8_E4M3 || dtype == ATTN_I4;
}

/** Random keys or values, of which *scale becomes the scales where they are quantised. */
static attn_tensor *add_rows(struct far_set *set, const char *name, const char *scale_name, attn_dtype dtype,
                             int64_t batch, int64_t tokens, int64_t channels, const attn_tensor **scale)
{
    attn_tensor *const rows = far_add(set, name, FAR_READ, 0, dtype, batch, HKV, tokens, channels);
    if (!is_quantised(dtype))
        return rows;
    const int64_t scales = dtype == ATTN_I4 ? (channels + ATTN_I4_GROUP - 1) / ATTN_I4_GROUP : 1;
    struct far_set floats = {0};
    const attn_tensor *const x = far_add(&floats, "x", FAR_READ, 0, ATTN_F32, batch, HKV, tokens, channels);
    *scale = far_add(set, scale_name, FAR_READ, dtype != ATTN_I4, ATTN_F32, batch, HKV, tokens, scales);
    assert_int_equal(attn_quantise(x, rows, *scale, 1), ATTN_OK);
    far_clear(&floats);
    return rows;
}

static void make_call(struct call *c, struct far_set *set, const char *isa, attn_dtype dtype, int64_t tq, int paged)
{
    const int64_t batch = paged ? PAGES : B, tokens = paged ? SIZE : TK;
    c->params = attn_params_default();
    c->params.isa = isa;
    c->params.kv_len = lengths;
    c->params.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    c->q = far_add(set, "q", FAR_READ, 0, ATTN_F32, B, HQ, tq, D);
    c->out = far_add(set, "out", FAR_WRITTEN, 0, ATTN_F32, B, HQ, tq, DV);
    c->k = add_rows(set, "k", "k_scale", dtype, batch, tokens, D, &c->params.k_scale);
    c->v = add_rows(set, "v", "v_scale", dtype, batch, tokens, DV, &c->params.v_scale);
    if (paged) {
        c->params.block_table = table;
        c->params.block_table_stride = COLUMNS;
        c->params.page_size = SIZE;
    }
}

static int check_rows(const char *isa, attn_dtype dtype, int64_t tq, int paged, attn_sums sums)
{
    struct far_set set = {0};
    struct call c;
    char what[128];
    make_call(&c, &set, isa, dtype, tq, paged);
    c.params.sums = sums;
    snprintf(what, sizeof what, "%s of %s, %d queries, %s", paged ? "pages" : "rows", attn_dtype_name(dtype), (int)tq,
             isa);
    const int wrong = far_check_set(what, &set, forward, &c);
    far_clear(&set);
    return wrong;
}

/** Rows of the block table that are more than 2^32 entries apart, so that Tk is as large, too. */
static int check_table(const char *isa)
{
    struct far_set set = {0};
    struct call c;
    make_call(&c, &set, isa, ATTN_BF16, 2, 1);
    assert_int_equal(forward(&c), ATTN_OK);
    const size_t out_size = (size_t)(B * c.out->stride[0]) * sizeof(float);
    void *const expected = malloc(out_size);
    assert_non_null(expected);
    memcpy(expected, c.out->data, out_size);
    memset(c.out->data, CANARY, out_size);

    const size_t size = ((size_t)FAR_UNSIGNED + COLUMNS) * sizeof(int32_t);
    int32_t *const far = far_map(size);
    memcpy(far, table, COLUMNS * sizeof *far);
    memcpy(far + FAR_UNSIGNED, table + COLUMNS, COLUMNS * sizeof *far);
    c.params.block_table = far;
    c.params.block_table_stride = FAR_UNSIGNED;
    snprintf(guard_case_line, sizeof guard_case_line, "a block table, %s", isa);
    assert_int_equal(forward(&c), ATTN_OK);
    const int wrong = memcmp(c.out->data, expected, out_size) != 0;
    if (wrong)
        print_message("%s: out differs from that of a small one\n", guard_case_line);
    far_unmap(far, size);
    free(expected);
    far_clear(&set);
    return wrong;
}

static const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_I8, ATTN_F8_E4M3, ATTN_I4};

static void test_rows(void **state)
{
    (void)state;
    int wrong = 0;
    for (int n = 0; attn_isa_name(n); n++) {
        const char *const isa = attn_isa_name(n);
        for (int t = 3; t < 6 && attn_isa_supported(isa); t++) {
            wrong += check_rows(isa, types[t], 2, 0, ATTN_SUMS_ORDERED);
            wrong += check_rows(isa, types[t], 2, 0, ATTN_SUMS_FREE);
            wrong += check_rows(isa, types[t], TK - 7, 0, ATTN_SUMS_ORDERED);
        }
    }
    assert_int_equal(wrong, 0);
}

static void test_pages(void **state)
{
    (void)state;
    int wrong = 0;
    for (int n = 0; attn_isa_name(n); n++) {
        const char *const isa = attn_isa_name(n);
        for (int t = 0; t < 6 && attn_isa_supported(isa); t++) {
            wrong += check_rows(isa, types[t], 2, 1, t % 2 ? ATTN_SUMS_FREE : ATTN_SUMS_ORDERED);
            wrong += check_rows(isa, types[t], TK - 7, 1, ATTN_SUMS_ORDERED);
        }
        if (attn_isa_supported(isa))
            wrong += check_table(isa);
    }
    assert_int_equal(wrong, 0);
}

enum { SEQUENCES = 3, CACHE_D = 32, STEP = 5 };

/**
 * What a cache of some tokens a sequence gives for the last of its sequences, in the last layer: a prompt, and after a
 * fork, whose page is copied, a token of the fork. NULL where there is no memory for such a cache.
 */
static float *run_cache(attn_dtype dtype, int64_t layers, int64_t max_tokens)
{
    enum { ROW = HQ * CACHE_D };
    struct rng rng = rng_for_case(5, 5);
    static float q[HQ * STEP * CACHE_D], k[HKV * STEP * CACHE_D], v[HKV * STEP * CACHE_D];
    attn_cache_config config = attn_cache_config_default();
    config.layers = layers, config.kv_heads = HKV, config.dk = config.dv = CACHE_D, config.dtype = dtype;
    config.max_tokens = max_tokens, config.max_sequences = SEQUENCES;
    attn_cache *cache;
    const attn_status status = attn_cache_create(&cache, &config);
    if (status == ATTN_OUT_OF_MEMORY)
        return NULL;
    assert_int_equal(status, ATTN_OK);
    float *const out = calloc((STEP + 1) * ROW, sizeof *out);
    assert_non_null(out);
    int64_t ids[SEQUENCES], tokens = STEP;
    for (int s = 0; s < SEQUENCES; s++) {
        tokens = s < SEQUENCES - 1 ? STEP : 1;
        if (s < SEQUENCES - 1)
            assert_int_equal(attn_cache_add(cache, &ids[s]), ATTN_OK);
        else
            assert_int_equal(attn_cache_fork(cache, ids[s - 1], &ids[s]), ATTN_OK);
        assert_int_equal(attn_cache_step(cache, 1, &ids[s], &tokens, NULL), ATTN_OK);
        for (int64_t layer = 0; layer < layers; layer++) {
            rng_fill_normal(&rng, q, HQ * STEP * CACHE_D);
            rng_fill_normal(&rng, k, HKV * STEP * CACHE_D);
            rng_fill_normal(&rng, v, HKV * STEP * CACHE_D);
            float *const at = out + (s < SEQUENCES - 1 ? 0 : STEP * ROW);
            const attn_tensor qt = attn_bhtd(q, 1, HQ, tokens, CACHE_D), ot = attn_bhtd(at, 1, HQ, tokens, CACHE_D);
            const attn_tensor kt = attn_bhtd(k, 1, HKV, tokens, CACHE_D), vt = attn_bhtd(v, 1, HKV, tokens, CACHE_D);
            assert_int_equal(attn_cache_append(cache, layer, &kt, &vt, 1), ATTN_OK);
            assert_int_equal(attn_cache_attend(cache, layer, &qt, &ot, NULL), ATTN_OK);
        }
    }
    attn_cache_destroy(cache);
    return out;
}

/** Pages of 2^31 elements and more: the second begins behind 2^31, the third behind 2^32. */
static void check_cache(attn_dtype dtype, int64_t layers)
{
    float *const near = run_cache(dtype, layers, 64);
    float *const far = run_cache(dtype, layers, FAR_SIGNED / (HKV * CACHE_D) / 16 * 16);
    assert_non_null(near);
    if (far)
        assert_memory_equal(far, near, (STEP + 1) * HQ * CACHE_D * sizeof *near);
    else
        print_message("left out: no memory for pages of 2^31 elements of %s\n", attn_dtype_name(dtype));
    free(near);
    free(far);
}

static void test_cache(void **state)
{
    (void)state;
    if (surroundings_are_slow()) {
        print_message("left out: sanitizers and memcheck keep notes on each of its 13 GB\n");
        return;
    }
    mallopt(M_PERTURB, 0); /* which Meson sets for tests: pools are to be hardly touched */
    check_cache(ATTN_I4, 2);
    check_cache(ATTN_I8, 1);
}

int main(void)
{
    guard_catch_faults();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
