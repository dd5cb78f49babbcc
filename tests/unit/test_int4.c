/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys and values in 4 bits: how groups lie in memory and get their scales, by
 * hand; every way in which such a tensor and its scales can be wrong; where its
 * bytes end; and layouts, types and threads. That results have the bits of f32
 * tensors is shown by property/test_quantised.c.
 */
#include "fixture.h"

#include "dtype.h"
#include "random.h"

#include "attn/cache.h"
#include "attn/quantise.h"
#include "attn/rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static attn_tensor in_int4(const void *data, int64_t batch, int64_t heads, int64_t tokens, int64_t channels)
{
    attn_tensor t = attn_bhtd(data, batch, heads, tokens, (channels + 31) / 32 * 32);
    t.dtype = ATTN_I4;
    t.shape[3] = channels;
    return t;
}

/* ----------------------------------------------------------------- rounding -- */

static void test_sizes(void **state)
{
    (void)state;
    assert_int_equal(ATTN_I4_GROUP, 32);
    assert_int_equal(attn_row_size(ATTN_I4, 1), 16);
    assert_int_equal(attn_row_size(ATTN_I4, 32), 16);
    assert_int_equal(attn_row_size(ATTN_I4, 33), 32);
    assert_int_equal(attn_row_size(ATTN_I4, 128), 64);
    assert_int_equal(attn_row_size(ATTN_I4, 0), 0);
    assert_int_equal(attn_row_size(ATTN_F32, 3), 12);
    assert_int_equal(attn_row_size(ATTN_F16, 3), 6);
    assert_int_equal(attn_row_size(ATTN_F8_E4M3, 3), 3);
    assert_int_equal(attn_row_size(ATTN_I8, -3), 0);
    assert_int_equal(attn_row_size((attn_dtype)8, 3), 0);
}

enum { GROUPS = 9 };

/** Groups of which three numbers are given, for channels 0, 1 and 16, and what comes of them. */
static const struct {
    float x[3], scale;
    uint8_t first, second; /**< the bytes of channels 0 and 16, and of 1 and 17 */
} groups[GROUPS] = {
    {{-8, 2.5f, 7}, 1, 0x78, 0x02},                      /* both ends fit; a tie goes to the even number */
    {{-16, 7, -3}, 2, 0xe8, 0x04},                       /* -1.5 and 3.5 */
    {{16, -7, 3}, -2, 0xe8, 0x04},                       /* the larger end goes to -8 */
    {{-7, 7, 0}, 1, 0x09, 0x07},                         /* -8 would cut off the other end */
    {{-8, 7.5f, 0}, 7.5f / 7, 0x09, 0x07},               /* the same by a little */
    {{0, -0.0f, 0}, 0, 0, 0},                            /* zeros */
    {{0x1p-124f, -0x1p-127f, 0}, 0, 0, 0},               /* the step would be denormal */
    {{-0x1p-123f, 0x1p-125f, 0}, 0x1p-126f, 0x08, 0x02}, /* it is just not */
    {{1e38f, -3e38f, 3e38f}, 3e38f / 7, 0x72, 0x09},     /* as large as numbers are */
};

static void test_worked_groups(void **state)
{
    (void)state;
    static float x[GROUPS][32];
    uint8_t bytes[GROUPS][16];
    float scales[GROUPS];
    for (int g = 0; g < GROUPS; g++) {
        x[g][0] = groups[g].x[0];
        x[g][1] = groups[g].x[1];
        x[g][16] = groups[g].x[2];
    }
    memset(bytes, CANARY, sizeof bytes);
    const attn_tensor from = attn_bhtd(x, 1, 1, 1, GROUPS * 32), scale = attn_bhtd(scales, 1, 1, 1, GROUPS);
    const attn_tensor out = in_int4(bytes, 1, 1, 1, GROUPS * 32);
    assert_int_equal(attn_quantise(&from, &out, &scale, 1), ATTN_OK);
    for (int g = 0; g < GROUPS; g++) {
        assert_memory_equal(&scales[g], &groups[g].scale, sizeof *scales);
        assert_int_equal(bytes[g][0], groups[g].first);
        assert_int_equal(bytes[g][1], groups[g].second);
        for (int i = 2; i < 16; i++)
            assert_int_equal(bytes[g][i], 0);
    }
}

/** A group with a number that is not finite has the scale NaN and zeros, and the others of the row have theirs. */
static void test_groups_that_are_not_finite(void **state)
{
    (void)state;
    static const float wrong[] = {NAN, INFINITY, -INFINITY};
    for (int kind = 0; kind < 3; kind++)
        for (int at = 0; at < 40; at++) {
            float x[40], scales[2];
            uint8_t bytes[32];
            for (int i = 0; i < 40; i++)
                x[i] = -8;
            x[at] = wrong[kind];
            const attn_tensor from = attn_bhtd(x, 1, 1, 1, 40), scale = attn_bhtd(scales, 1, 1, 1, 2);
            const attn_tensor out = in_int4(bytes, 1, 1, 1, 40);
            assert_int_equal(attn_quantise(&from, &out, &scale, 1), ATTN_OK);
            const int bad = at / 32;
            assert_true(isnan(scales[bad]) && scales[1 - bad] == 1);
            for (int i = 0; i < 16; i++) {
                assert_int_equal(bytes[16 * bad + i], 0);
                assert_int_equal(bytes[16 * (1 - bad) + i], bad == 1 ? 0x88 : i < 8 ? 0x08 : 0);
            }
        }
}

/** Neither the layout, nor the type that a number comes in, nor threads change a number; nothing else is written. */
static void test_layouts(void **state)
{
    (void)state;
    enum { B = 2, H = 3, T = 70, D = 40, GAP = 32, WIDTH = 64 + GAP, ALL = B * H * T };
    static uint16_t x[ALL * D];
    static float wide[ALL * D], scales[2][ALL * 3];
    static uint8_t bytes[2][ALL * WIDTH / 2];
    struct rng rng = rng_for_case(5, 1);
    for (int i = 0; i < ALL * D; i++) {
        x[i] = dtype_narrow(ATTN_BF16, (double)rng_normal(&rng));
        wide[i] = dtype_widen(ATTN_BF16, x[i]);
    }
    attn_tensor narrow = attn_bhtd(x, B, H, T, D);
    narrow.dtype = ATTN_BF16;
    const attn_tensor f32 = attn_bhtd(wide, B, H, T, D), plain_scale = attn_bhtd(scales[0], B, H, T, 2);
    const attn_tensor plain = in_int4(bytes[0], B, H, T, D);
    const attn_tensor out = {bytes[1], ATTN_I4, {B, H, T, D}, {T * H * WIDTH, WIDTH, H * WIDTH, 1}};
    const attn_tensor scale = {scales[1], ATTN_F32, {B, H, T, 2}, {T * H * 3, 3, H * 3, 1}};
    memset(bytes[1], CANARY, sizeof bytes[1]);
    memset(scales[1], CANARY, sizeof scales[1]);
    assert_int_equal(attn_quantise(&f32, &plain, &plain_scale, 1), ATTN_OK);
    assert_int_equal(attn_quantise(&narrow, &out, &scale, 3), ATTN_OK);
    for (int64_t row = 0; row < ALL; row++) {
        const int64_t b = row / T / H, h = row / T % H, t = row % T, place = (b * T + t) * H + h;
        assert_memory_equal(bytes[0] + row * 32, bytes[1] + place * WIDTH / 2, 32);
        assert_true(all_canary(bytes[1] + place * WIDTH / 2 + 32, GAP / 2));
        assert_memory_equal(&scales[0][2 * row], &scales[1][3 * place], 2 * sizeof(float));
        assert_true(all_canary(&scales[1][3 * place + 2], sizeof(float)));
    }
}

struct rounding {
    attn_tensor x, out, scale;
    int num_threads;
    float data[2 * 3 * 40], scales[2 * 3 * 2];
    uint8_t bytes[2 * 3 * 32];
};

static void rounding_initialize(struct rounding *r)
{
    memset(r, 0, sizeof *r);
    r->x = attn_bhtd(r->data, 1, 2, 3, 40);
    r->out = in_int4(r->bytes, 1, 2, 3, 40);
    r->scale = attn_bhtd(r->scales, 1, 2, 3, 2);
    for (int i = 0; i < 2 * 3 * 40; i++)
        r->data[i] = (float)(i - 90);
    memset(r->bytes, CANARY, sizeof r->bytes);
    memset(r->scales, CANARY, sizeof r->scales);
}

static void test_wrong_roundings(void **state)
{
    (void)state;
    static struct rounding r, before;
    rounding_initialize(&r);
    assert_int_equal(attn_quantise(&r.x, &r.out, &r.scale, 0), ATTN_OK);
#define WRONG(status, words, ...)                                                                                      \
    do {                                                                                                               \
        rounding_initialize(&r);                                                                                       \
        __VA_ARGS__;                                                                                                   \
        before = r;                                                                                                    \
        const attn_status got = attn_quantise(&r.x, &r.out, &r.scale, r.num_threads);                                  \
        if (got != (status) || !holds_words(attn_last_error(), words))                                                 \
            fail_msg("expected status %d and %s; got %d, \"%s\"", (int)(status), words, (int)got, attn_last_error());  \
        assert_memory_equal(&before, &r, sizeof r);                                                                    \
    } while (0)
    WRONG(ATTN_INVALID_ARGUMENT, "out.stride[2] is 48; expected a multiple of 32", r.out.stride[2] = 48);
    WRONG(ATTN_INVALID_ARGUMENT, "out.stride[1] is 200; expected a multiple of 32", r.out.stride[1] = 200);
    WRONG(ATTN_INVALID_ARGUMENT, "out.stride[2] is 32|overlap", r.out.stride[2] = 32);
    WRONG(ATTN_INVALID_ARGUMENT, "out.stride[3]|contiguous", r.out.stride[3] = 2);
    WRONG(ATTN_SHAPE_MISMATCH, "scale.shape[3] is 1; expected 2, a scale for each 32", r.scale.shape[3] = 1);
    WRONG(ATTN_INVALID_ARGUMENT, "scale.stride[3] is 6; expected 1", r.scale.stride[3] = 6; r.scale.stride[2] = 1;
          r.scale.stride[1] = 3);
    WRONG(ATTN_UNSUPPORTED, "x.dtype is i4; expected f32, bf16 or f16", r.x.dtype = ATTN_I4);
    WRONG(ATTN_INVALID_ARGUMENT, "out overlaps x", r.out.data = r.data);
    WRONG(ATTN_INVALID_ARGUMENT, "scale overlaps out", r.out.data = r.scales);
}

/** The whole of the last group is written, and no more. */
static void test_neighbours(void **state)
{
    (void)state;
    static float all[10 + 8];
    float scales[1];
    const attn_tensor x = attn_bhtd(all + 8, 1, 1, 1, 10), scale = attn_bhtd(scales, 1, 1, 1, 1);
    attn_tensor out = in_int4((char *)all + 16, 1, 1, 1, 10); /* up to where x begins */
    assert_int_equal(attn_quantise(&x, &out, &scale, 1), ATTN_OK);
    out.data = (char *)all + 17;
    assert_int_equal(attn_quantise(&x, &out, &scale, 1), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "out overlaps x"));
}

/* ----------------------------------------------------------------- attention -- */

/** The fixture's call with k and v in 4 bits. */
struct call {
    struct fixture f;
    uint8_t k[FIX_B * FIX_HKV * FIX_TK * 16], v[FIX_B * FIX_HKV * FIX_TK * 16];
    float k_scales[FIX_B * FIX_HKV * FIX_TK], v_scales[FIX_B * FIX_HKV * FIX_TK];
    attn_tensor k_scale, v_scale;
};

static void quantise(attn_tensor *x, uint8_t *bytes, float *scales, attn_tensor *scale)
{
    const attn_tensor small = in_int4(bytes, x->shape[0], x->shape[1], x->shape[2], x->shape[3]);
    *scale = attn_bhtd(scales, x->shape[0], x->shape[1], x->shape[2], 1);
    assert_int_equal(attn_quantise(x, &small, scale, 1), ATTN_OK);
    *x = small;
}

static void call_initialize(struct call *c)
{
    fixture_initialize(&c->f);
    quantise(&c->f.k, c->k, c->k_scales, &c->k_scale);
    quantise(&c->f.v, c->v, c->v_scales, &c->v_scale);
    c->f.params.k_scale = &c->k_scale;
    c->f.params.v_scale = &c->v_scale;
}

#define REFUSES(status, words, ...)                                                                                    \
    do {                                                                                                               \
        call_initialize(&c);                                                                                           \
        __VA_ARGS__;                                                                                                   \
        fixture_expect_refused(&c.f, status, words);                                                                   \
    } while (0)

static void test_wrong_calls(void **state)
{
    (void)state;
    static struct call c;
    call_initialize(&c);
    assert_int_equal(fixture_forward(&c.f), ATTN_OK);
    REFUSES(ATTN_INVALID_ARGUMENT, "params.k_scale is NULL and k.dtype is i4; expected a scale for each 32",
            c.f.params.k_scale = NULL);
    REFUSES(ATTN_SHAPE_MISMATCH, "params.v_scale.shape[3] is 2; expected 1, a scale for each 32",
            c.v_scale.shape[3] = 2);
    REFUSES(ATTN_INVALID_ARGUMENT, "k.stride[2] is 8; expected a multiple of 32", c.f.k.stride[2] = 8);
    REFUSES(ATTN_INVALID_ARGUMENT, "v.stride[0] is 450; expected a multiple of 32", c.f.v.stride[0] = 450);
    REFUSES(ATTN_INVALID_ARGUMENT, "k.stride[3] is 32; expected 1", c.f.k.stride[3] = 32);
    REFUSES(ATTN_UNSUPPORTED, "q.dtype is i4; expected f32, bf16 or f16", c.f.q.dtype = ATTN_I4);
    REFUSES(ATTN_UNSUPPORTED, "out.dtype is i4; expected f32, bf16 or f16", c.f.out.dtype = ATTN_I4);
    REFUSES(ATTN_UNSUPPORTED, "params.mask.dtype is i4; expected bool", c.f.mask.dtype = ATTN_I4);
    REFUSES(ATTN_UNSUPPORTED, "params.lse.dtype is i4; expected f32", c.f.lse.dtype = ATTN_I4);
    const int64_t at = (FIX_HKV + 1) * FIX_TK + 2;
    REFUSES(ATTN_INVALID_ARGUMENT, "params.k_scale[1][1][2][0] is nan; expected a finite", c.k_scales[at] = NAN);
    REFUSES(ATTN_INVALID_ARGUMENT, "params.v_scale[1][1][2][0] is -inf", c.v_scales[at] = -INFINITY);
    REFUSES(ATTN_INVALID_ARGUMENT, "params.k_scale[0][0][3][0] is nan", c.k_scale.stride[2] = -1;
            c.k_scale.data = c.k_scales + 6; c.k_scales[3] = NAN);
    REFUSES(ATTN_INVALID_ARGUMENT, "out overlaps k", c.f.out.data = c.k + sizeof c.k - 4);
    call_initialize(&c);
    c.k_scales[at] = c.v_scales[at] = -0.5f; /* as of a group that is larger above than below 0 */
    assert_int_equal(fixture_forward(&c.f), ATTN_OK);
    call_initialize(&c);
    for (int64_t j = c.f.kv_len[1]; j < FIX_TK; j++) /* nothing reads those of padding */
        c.k_scales[FIX_HKV * FIX_TK + j] = c.v_scales[FIX_HKV * FIX_TK + j] = NAN;
    assert_int_equal(fixture_forward(&c.f), ATTN_OK);
}

/** Some groups of a row are wrong, or not: all are looked at, and named. */
static void test_scales_of_several_groups(void **state)
{
    (void)state;
    enum { T = 5, D = 80 };
    static float q[D], out[D], scales[2][T * 4];
    static uint8_t bytes[T * 48];
    const attn_tensor q_tensor = attn_bhtd(q, 1, 1, 1, D), k = in_int4(bytes, 1, 1, T, D);
    const attn_tensor result = attn_bhtd(out, 1, 1, 1, D);
    for (int gaps = 0; gaps < 2; gaps++)
        for (int at = 0; at < T * (3 + gaps); at++) {
            for (int i = 0; i < T * 4; i++)
                scales[0][i] = scales[1][i] = 1;
            scales[0][at] = NAN;
            attn_tensor bad = attn_bhtd(scales[0], 1, 1, T, 3 + gaps), good = attn_bhtd(scales[1], 1, 1, T, 3);
            bad.shape[3] = 3;
            attn_params params = attn_params_default();
            params.k_scale = &good, params.v_scale = &bad;
            const int seen = at % (3 + gaps) < 3;
            assert_int_equal(attn_forward(&q_tensor, &k, &k, &result, &params), seen ? ATTN_INVALID_ARGUMENT : ATTN_OK);
            if (!seen)
                continue;
            char words[60];
            snprintf(words, sizeof words, "params.v_scale[0][0][%d][%d] is nan", at / (3 + gaps), at % (3 + gaps));
            assert_true(holds_words(attn_last_error(), words));
        }
}

/** Other calls have no tensors of this type. */
static void test_other_calls(void **state)
{
    (void)state;
    float out[64] = {0}, table[64] = {0};
    uint8_t bytes[64] = {0};
    const int64_t slot = 0;
    const attn_tensor x = in_int4(bytes, 1, 1, 1, 64), floats = attn_bhtd(out, 1, 1, 1, 64);
    const attn_tensor angles = attn_bhtd(table, 1, 1, 1, 64);
    assert_int_equal(attn_rope(&x, &angles, ATTN_ROPE_HALF_SPLIT, &floats, 1), ATTN_UNSUPPORTED);
    assert_true(holds_words(attn_last_error(), "x.dtype is i4"));
    assert_int_equal(attn_store(&x, &slot, NULL, ATTN_ROPE_HALF_SPLIT, &floats, NULL, 1), ATTN_UNSUPPORTED);
    assert_true(holds_words(attn_last_error(), "x.dtype is i4"));
}

/** What attn_store() refuses of a pool, and that it writes what attn_quantise() does. */
static void test_store(void **state)
{
    (void)state;
    enum { H = 2, T = 3, D = 40, PAGE = 4 };
    static float x[H * T * D], scales[2][2 * H * PAGE * 2];
    static uint8_t bytes[2][2 * H * PAGE * 32];
    struct rng rng = rng_for_case(5, 2);
    rng_fill_normal(&rng, x, H * T * D);
    const int64_t slots[T] = {6, 1, 3};
    const attn_tensor rows = attn_bhtd(x, 1, H, T, D);
    attn_tensor pool = in_int4(bytes[0], 2, H, PAGE, D), steps = attn_bhtd(scales[0], 2, H, PAGE, 2);
#define STORE() attn_store(&rows, slots, NULL, ATTN_ROPE_HALF_SPLIT, &pool, &steps, 1)
    pool.stride[2] = 40;
    assert_int_equal(STORE(), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "pool.stride[2] is 40; expected a multiple of 32"));
    pool.stride[2] = 64;
    steps.shape[3] = 1;
    assert_int_equal(STORE(), ATTN_SHAPE_MISMATCH);
    assert_true(holds_words(attn_last_error(), "scales.shape[3] is 1; expected 2, a scale for each 32"));
    steps.shape[3] = 2;
    assert_int_equal(STORE(), ATTN_OK);
    const attn_tensor small = in_int4(bytes[1], 1, H, T, D), expected = attn_bhtd(scales[1], 1, H, T, 2);
    assert_int_equal(attn_quantise(&rows, &small, &expected, 1), ATTN_OK);
    for (int h = 0; h < H; h++)
        for (int t = 0; t < T; t++) {
            const int64_t place = (slots[t] / PAGE * H + h) * PAGE + slots[t] % PAGE;
            assert_memory_equal(bytes[0] + place * 32, bytes[1] + (h * T + t) * 32, 32);
            assert_memory_equal(scales[0] + place * 2, scales[1] + (h * T + t) * 2, 2 * sizeof(float));
        }
}

/** What a cache has of each token: rows of whole groups, and their scales. */
static void test_cache(void **state)
{
    (void)state;
    enum { LAYERS = 2, H = 3, DK = 40, DV = 20, PAGE = 4 };
    attn_cache_config config = attn_cache_config_default();
    config.layers = LAYERS, config.kv_heads = H, config.dk = DK, config.dv = DV;
    config.dtype = ATTN_I4;
    config.max_tokens = 10, config.max_sequences = 1, config.page_size = PAGE;
    attn_cache *cache;
    assert_int_equal(attn_cache_create(&cache, &config), ATTN_OK);
    attn_cache_usage usage = attn_cache_usage_default();
    assert_int_equal(attn_cache_get_usage(cache, &usage), ATTN_OK);
    assert_int_equal(usage.page_bytes, LAYERS * H * PAGE * (32 + 2 * 4 + 16 + 4));
    attn_tensor k, v;
    attn_params params = attn_params_default();
    assert_int_equal(attn_cache_pools(cache, 1, &k, &v, &params), ATTN_OK);
    assert_true(k.dtype == ATTN_I4 && k.shape[3] == DK && k.stride[2] == 64 && v.shape[3] == DV && v.stride[2] == 32);
    assert_true(params.k_scale->shape[3] == 2 && params.v_scale->shape[3] == 1);
    attn_cache_destroy(cache);
}

/** Rows without channels are no bytes and have no scales. */
static void test_empty(void **state)
{
    (void)state;
    const attn_tensor x = attn_bhtd(NULL, 1, 1, 2, 0), none = attn_bhtd(NULL, 1, 1, 2, 0);
    attn_tensor k = x;
    k.dtype = ATTN_I4;
    assert_int_equal(attn_quantise(&x, &k, &none, 0), ATTN_OK);
    float q[1], v[2] = {1, 3}, result[1] = {0};
    const attn_tensor q_tensor = attn_bhtd(q, 1, 1, 1, 0), v_tensor = attn_bhtd(v, 1, 1, 2, 1);
    const attn_tensor r = attn_bhtd(result, 1, 1, 1, 1);
    attn_params params = attn_params_default();
    params.k_scale = &none;
    assert_int_equal(attn_forward(&q_tensor, &k, &v_tensor, &r, &params), ATTN_OK);
    assert_true(result[0] == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_worked_groups),
        cmocka_unit_test(test_groups_that_are_not_finite),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_wrong_roundings),
        cmocka_unit_test(test_neighbours),
        cmocka_unit_test(test_wrong_calls),
        cmocka_unit_test(test_scales_of_several_groups),
        cmocka_unit_test(test_other_calls),
        cmocka_unit_test(test_store),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
