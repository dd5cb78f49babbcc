/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A quantised k and v: every way in which their scales, and the arguments of
 * attn_quantise(), can be wrong; plans; numbers that are NaN, seen and hidden;
 * and attn_quantise() on layouts, types and threads. That results have the bits
 * of f32 tensors is shown by property/test_quantised.c, that the numbers are
 * right by check_kernels.
 */
#include "fixture.h"

#include "dtype.h"
#include "random.h"

#include "attn/quantise.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** The fixture's call with k in int8 and v in E4M3. */
struct call {
    struct fixture f;
    uint8_t k[FIX_B * FIX_HKV * FIX_TK * FIX_DK], v[FIX_B * FIX_HKV * FIX_TK * FIX_DV];
    float k_scales[FIX_B * FIX_HKV * FIX_TK], v_scales[FIX_B * FIX_HKV * FIX_TK];
    attn_tensor k_scale, v_scale;
};

static void quantise(attn_tensor *x, attn_dtype dtype, uint8_t *bytes, float *scales, attn_tensor *scale)
{
    attn_tensor small = attn_bhtd(bytes, x->shape[0], x->shape[1], x->shape[2], x->shape[3]);
    small.dtype = dtype;
    *scale = attn_bhtd(scales, x->shape[0], x->shape[1], x->shape[2], 1);
    assert_int_equal(attn_quantise(x, &small, scale, 1), ATTN_OK);
    *x = small;
}

static void call_initialize(struct call *c)
{
    fixture_initialize(&c->f);
    quantise(&c->f.k, ATTN_I8, c->k, c->k_scales, &c->k_scale);
    quantise(&c->f.v, ATTN_F8_E4M3, c->v, c->v_scales, &c->v_scale);
    c->f.params.k_scale = &c->k_scale;
    c->f.params.v_scale = &c->v_scale;
}

#define REFUSES(status, words, ...)                                                                                    \
    do {                                                                                                               \
        call_initialize(&c);                                                                                           \
        __VA_ARGS__;                                                                                                   \
        fixture_expect_refused(&c.f, status, words);                                                                   \
    } while (0)

static void test_wrong_scales(void **state)
{
    (void)state;
    static struct call c;
    call_initialize(&c);
    assert_int_equal(fixture_forward(&c.f), ATTN_OK);
    REFUSES(ATTN_INVALID_ARGUMENT, "params.k_scale is NULL and k.dtype is i8", c.f.params.k_scale = NULL);
    REFUSES(ATTN_INVALID_ARGUMENT, "params.v_scale is NULL and v.dtype is f8_e4m3", c.f.params.v_scale = NULL);
    REFUSES(ATTN_INVALID_ARGUMENT, "params.k_scale is set and k.dtype is f32; expected NULL", c.f.k.dtype = ATTN_F32;
            c.f.k.data = c.f.k_data);
    REFUSES(ATTN_UNSUPPORTED, "params.q_scale is set; version", c.f.params.q_scale = &c.k_scale);
    REFUSES(ATTN_UNSUPPORTED, "q.dtype|i8|f32, bf16 or f16", c.f.q.dtype = ATTN_I8);
    REFUSES(ATTN_UNSUPPORTED, "out.dtype|f8_e4m3|f32, bf16 or f16", c.f.out.dtype = ATTN_F8_E4M3);
    REFUSES(ATTN_UNSUPPORTED, "k.dtype|u8|i8, f8_e4m3 or i4", c.f.k.dtype = ATTN_U8);
    REFUSES(ATTN_INVALID_ARGUMENT, "v.dtype is 8; expected an attn_dtype", c.f.v.dtype = (attn_dtype)8);
    REFUSES(ATTN_UNSUPPORTED, "params.k_scale.dtype is bf16; expected f32", c.k_scale.dtype = ATTN_BF16);
    REFUSES(ATTN_SHAPE_MISMATCH, "params.v_scale.shape[0] is 3; expected 1 or 2", c.v_scale.shape[0] = 3);
    REFUSES(ATTN_SHAPE_MISMATCH, "params.v_scale.shape[1] is 4; expected 1 or 2", c.v_scale.shape[1] = 4);
    REFUSES(ATTN_SHAPE_MISMATCH, "params.k_scale.shape[2] is 6; expected 7, the tokens of k", c.k_scale.shape[2] = 6);
    REFUSES(ATTN_SHAPE_MISMATCH, "params.k_scale.shape[3] is 8; expected 1", c.k_scale.shape[3] = 8);
    REFUSES(ATTN_INVALID_ARGUMENT, "params.k_scale.data is NULL", c.k_scale.data = NULL);
    REFUSES(ATTN_INVALID_ARGUMENT, "params.k_scale.data is |; expected an address aligned to 4 bytes",
            c.k_scale.data = (char *)c.k_scales + 2);
    REFUSES(ATTN_SIZE_OVERFLOW, "params.v_scale.stride[2]", c.v_scale.stride[2] = INT64_MAX / 2);
    const int64_t last = c.f.kv_len[1] - 1, at = (FIX_HKV + 1) * FIX_TK + last;
    REFUSES(ATTN_INVALID_ARGUMENT, "params.k_scale[1][1][|is nan; expected a finite", c.k_scales[at] = NAN);
    REFUSES(ATTN_INVALID_ARGUMENT, "params.v_scale[1][1][|is inf", c.v_scales[at] = INFINITY);
    REFUSES(ATTN_INVALID_ARGUMENT, "params.v_scale[1][1][|is -0.5|0 or more", c.v_scales[at] = -0.5f);
    REFUSES(ATTN_INVALID_ARGUMENT, "params.k_scale[0][0][3] is nan", c.k_scale.stride[2] = -1;
            c.k_scale.data = c.k_scales + 6; c.k_scales[3] = NAN);
    REFUSES(ATTN_INVALID_ARGUMENT, "out overlaps params.v_scale", c.f.out.data = c.v_scales);
    REFUSES(ATTN_INVALID_ARGUMENT, "params.lse overlaps params.k_scale", c.f.lse.data = c.k_scales);
}

enum { MANY_HEADS = 2, MANY_KEYS = 70000, MANY_HIDDEN = 100, MANY_CHANNELS = 4, MANY_PAGE = 16 };

/** A call with so many scales that threads share the look at them, in pages or not. */
static void check_among_many(attn_dtype dtype, int in_pages)
{
    static uint8_t numbers[MANY_HEADS * MANY_KEYS * 16];
    static float scales[MANY_HEADS * MANY_KEYS], good[MANY_HEADS * MANY_KEYS];
    static int32_t table[MANY_KEYS / MANY_PAGE];
    const int64_t pages = MANY_KEYS / MANY_PAGE, live = MANY_KEYS - MANY_HIDDEN;
    const int64_t blocks = in_pages ? pages : 1, tokens = in_pages ? MANY_PAGE : MANY_KEYS;
    attn_tensor k = attn_bhtd(numbers, blocks, MANY_HEADS, tokens, dtype == ATTN_I4 ? 32 : MANY_CHANNELS);
    k.dtype = dtype;
    k.shape[3] = MANY_CHANNELS;
    const attn_tensor scale = attn_bhtd(scales, blocks, MANY_HEADS, tokens, 1);
    float q_data[MANY_HEADS * MANY_CHANNELS] = {1}, out_data[MANY_HEADS * MANY_CHANNELS];
    const attn_tensor q = attn_bhtd(q_data, 1, MANY_HEADS, 1, MANY_CHANNELS);
    const attn_tensor out = attn_bhtd(out_data, 1, MANY_HEADS, 1, MANY_CHANNELS);
    attn_params params = attn_params_default();
    params.k_scale = params.v_scale = &scale;
    params.kv_len = &live;
    params.num_threads = 2;
    if (in_pages) {
        params.block_table = table;
        params.block_table_stride = pages;
        params.page_size = MANY_PAGE;
    }
    struct rng rng = rng_for_case(5, 5);
    for (int32_t i = 0; i < pages; i++)
        table[i] = (int32_t)(pages - 1 - i);
    for (int64_t i = 0; i < MANY_HEADS * MANY_KEYS; i++)
        good[i] = dtype == ATTN_I4 ? -1.0f : 1.0f;
    memcpy(scales, good, sizeof scales);
    assert_int_equal(attn_forward(&q, &k, &k, &out, &params), ATTN_OK);
    for (int n = 0; n < 60; n++) {
        const int64_t head = rng_range(&rng, 0, MANY_HEADS - 1);
        const int64_t key = n == 0 ? 0 : n == 1 ? live - 1 : n == 2 ? live : rng_range(&rng, 0, MANY_KEYS - 1);
        const int64_t block = in_pages ? table[key / MANY_PAGE] : 0, row = in_pages ? key % MANY_PAGE : key;
        float *const wrong = &scales[(block * MANY_HEADS + head) * tokens + row];
        char words[120];
        snprintf(words, sizeof words, "params.k_scale[%d][%d][%d]%s is nan; expected a finite number", (int)block,
                 (int)head, (int)row, dtype == ATTN_I4 ? "[0]" : "");
        *wrong = NAN;
        out_data[0] = 7;
        assert_int_equal(attn_forward(&q, &k, &k, &out, &params), key < live ? ATTN_INVALID_ARGUMENT : ATTN_OK);
        if (key < live) {
            assert_true(holds_words(attn_last_error(), words));
            assert_true(out_data[0] == 7);
        }
        *wrong = good[0];
    }
}

static void test_wrong_among_many(void **state)
{
    (void)state;
    for (int in_pages = 0; in_pages < 2; in_pages++) {
        check_among_many(ATTN_I8, in_pages);
        check_among_many(ATTN_I4, in_pages);
    }
}

/** Scales that nothing reads may be anything; -0 is 0. */
static void test_scales_of_padding(void **state)
{
    (void)state;
    static struct call c;
    call_initialize(&c);
    c.k_scales[0] = -0.0f;
    int any = 0;
    for (int64_t b = 0; b < FIX_B; b++)
        for (int64_t j = c.f.kv_len[b]; j < FIX_TK; j++, any = 1)
            c.k_scales[b * FIX_HKV * FIX_TK + j] = c.v_scales[b * FIX_HKV * FIX_TK + j] = NAN;
    assert_true(any);
    assert_int_equal(fixture_forward(&c.f), ATTN_OK);
}

/** A plan is one of types and of the shapes of scales; kept, it no longer looks at their numbers. */
static void test_plans(void **state)
{
    (void)state;
    static struct call c;
    static char workspace[1 << 20];
    call_initialize(&c);
    const struct fixture *f = &c.f;
    attn_plan *plan;
    assert_int_equal(attn_plan_create(&plan, &f->q, &f->k, &f->v, &f->out, &f->params), ATTN_OK);
    const size_t size = attn_plan_workspace_size(plan);
    assert_true(size <= sizeof workspace);
    char text[512];
    attn_plan_describe(plan, text, sizeof text);
    assert_true(holds_words(text, "k=i8 v=f8_e4m3"));
#define RUN() attn_plan_run(plan, &f->q, &f->k, &f->v, &f->out, &f->params, workspace, size)
    assert_int_equal(RUN(), ATTN_OK);
    c.k_scales[1] = NAN;
    assert_int_equal(RUN(), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "params.k_scale[0][0][1] is nan; expected a finite number, 0 or more"));
    c.k_scales[1] = 1;
    c.k_scale.shape[1] = 1;
    assert_int_equal(RUN(), ATTN_SHAPE_MISMATCH);
    assert_true(holds_words(attn_last_error(), "params.k_scale.shape[1] is 1; the plan was made for 2"));
    c.k_scale.shape[1] = FIX_HKV;
    c.f.v.dtype = ATTN_I8;
    assert_int_equal(RUN(), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "v.dtype is i8; the plan was made for f8_e4m3"));
    c.f.v.dtype = ATTN_F8_E4M3;
    assert_int_equal(attn_plan_keep(plan, &f->params), ATTN_OK);
    c.k_scales[1] = NAN;
    assert_int_equal(RUN(), ATTN_OK);
    attn_plan_destroy(plan);
}

/** NaN of E4M3: live it reaches the result, hidden it does not, whatever hides it. */
static void test_nan_numbers(void **state)
{
    (void)state;
    for (int tq = 1; tq <= 40; tq += 39)
        for (int hidden = 0; hidden < 2; hidden++) {
            enum { T = 20, D = 24 };
            static float q[40 * D], out[40 * D], scales[T];
            static uint8_t bytes[T * D], live[T];
            for (int i = 0; i < 40 * D; i++)
                q[i] = 0.01f * (float)(i % 7);
            for (int i = 0; i < T * D; i++)
                bytes[i] = (uint8_t)(i % 100);
            for (int j = 0; j < T; j++) {
                scales[j] = 0.01f;
                live[j] = !hidden || j != 5;
            }
            bytes[5 * D + 3] = 0xff;
            attn_tensor v = attn_bhtd(bytes, 1, 1, T, D), scale = attn_bhtd(scales, 1, 1, T, 1);
            attn_tensor mask = attn_bhtd(live, 1, 1, 1, T), q_tensor = attn_bhtd(q, 1, 1, tq, D);
            const attn_tensor result = attn_bhtd(out, 1, 1, tq, D);
            mask.dtype = ATTN_BOOL;
            v.dtype = ATTN_F8_E4M3;
            attn_params params = attn_params_default();
            params.mask = &mask;
            params.k_scale = params.v_scale = &scale;
            assert_int_equal(attn_forward(&q_tensor, &v, &v, &result, &params), ATTN_OK);
            for (int i = 0; i < tq * D; i++)
                assert_int_equal(isnan(out[i]) != 0, !hidden);
        }
}

struct rounding {
    attn_tensor x, out, scale;
    const attn_tensor *x_arg, *out_arg, *scale_arg;
    int num_threads;
    float data[24], scales[6];
    uint8_t bytes[24];
};

static void rounding_initialize(struct rounding *r)
{
    memset(r, 0, sizeof *r);
    r->x = attn_bhtd(r->data, 1, 2, 3, 4);
    r->out = attn_bhtd(r->bytes, 1, 2, 3, 4);
    r->out.dtype = ATTN_I8;
    r->scale = attn_bhtd(r->scales, 1, 2, 3, 1);
    r->x_arg = &r->x, r->out_arg = &r->out, r->scale_arg = &r->scale;
    for (int i = 0; i < 24; i++)
        r->data[i] = (float)(i - 9);
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
        const attn_status got = attn_quantise(r.x_arg, r.out_arg, r.scale_arg, r.num_threads);                         \
        if (got != (status) || !holds_words(attn_last_error(), words))                                                 \
            fail_msg("expected status %d and %s; got %d, \"%s\"", (int)(status), words, (int)got, attn_last_error());  \
        assert_memory_equal(&before, &r, sizeof r);                                                                    \
    } while (0)
    WRONG(ATTN_INVALID_ARGUMENT, "x is NULL", r.x_arg = NULL);
    WRONG(ATTN_INVALID_ARGUMENT, "out is NULL", r.out_arg = NULL);
    WRONG(ATTN_INVALID_ARGUMENT, "scale is NULL", r.scale_arg = NULL);
    WRONG(ATTN_UNSUPPORTED, "x.dtype|i8|f32, bf16 or f16", r.x.dtype = ATTN_I8);
    WRONG(ATTN_UNSUPPORTED, "out.dtype is u8; expected i8, f8_e4m3 or i4", r.out.dtype = ATTN_U8);
    WRONG(ATTN_UNSUPPORTED, "scale.dtype is f16; expected f32", r.scale.dtype = ATTN_F16);
    WRONG(ATTN_SHAPE_MISMATCH, "out.shape[1] is 3; expected 2, the heads of x", r.out.shape[1] = 3);
    WRONG(ATTN_SHAPE_MISMATCH, "out.shape[3] is 3; expected 4, the channels of x", r.out.shape[3] = 3);
    WRONG(ATTN_SHAPE_MISMATCH, "scale.shape[2] is 2; expected 3, the tokens of x", r.scale.shape[2] = 2);
    WRONG(ATTN_SHAPE_MISMATCH, "scale.shape[3] is 4; expected 1", r.scale.shape[3] = 4);
    WRONG(ATTN_INVALID_ARGUMENT, "x.stride[3]|contiguous", r.x.stride[3] = 2);
    WRONG(ATTN_INVALID_ARGUMENT, "out.stride[3]|contiguous", r.out.stride[3] = -1);
    WRONG(ATTN_INVALID_ARGUMENT, "out.stride[2] is 3|overlap", r.out.stride[2] = 3);
    WRONG(ATTN_INVALID_ARGUMENT, "scale.stride[2] is 0|overlap", r.scale.stride[2] = 0);
    WRONG(ATTN_INVALID_ARGUMENT, "out overlaps x", r.out.data = r.data);
    WRONG(ATTN_INVALID_ARGUMENT, "scale overlaps x", r.scale.data = r.data + 20);
    WRONG(ATTN_INVALID_ARGUMENT, "scale overlaps out", r.out.data = r.scales);
    WRONG(ATTN_INVALID_ARGUMENT, "out.data is NULL", r.out.data = NULL);
    WRONG(ATTN_INVALID_ARGUMENT, "num_threads is -1", r.num_threads = -1);
}

/** By hand: scales, ties, zeros, and rows that have no scale. */
static void test_worked_rounding(void **state)
{
    (void)state;
    static const float x[5][4] = {
        {127, 2.5f, -3.5f, 0.49f}, {-254, 1, 3, 0}, {0, -0.0f, 0, 0}, {1, NAN, 2, 3}, {1, 2, -INFINITY, 3}};
    static const int8_t expected[5][4] = {{127, 2, -4, 0}, {-127, 0, 2, 0}, {0}, {0}, {0}};
    int8_t bytes[5][4];
    uint8_t codes[2][4];
    float scales[5], of_codes[2];
    const attn_tensor from = attn_bhtd(x, 1, 1, 5, 4), scale = attn_bhtd(scales, 1, 1, 5, 1);
    attn_tensor out = attn_bhtd(bytes, 1, 1, 5, 4);
    out.dtype = ATTN_I8;
    assert_int_equal(attn_quantise(&from, &out, &scale, 1), ATTN_OK);
    assert_memory_equal(bytes, expected, sizeof bytes);
    assert_true(scales[0] == 1 && scales[1] == 2 && scales[2] == 0 && isnan(scales[3]) && isnan(scales[4]));
    /* 448 is 0x7e; 17 lies between 16 (0x58) and 18 (0x59), 2^-10 between 0 and 2^-9 (1): to the even one. */
    static const float y[2][4] = {{448, 17, -0x1p-10f, 0x1.8p-9f}, {-896, 38, 0x1p-5f, 2}};
    static const uint8_t of_y[2][4] = {{0x7e, 0x58, 0x80, 0x02}, {0xfe, 0x5a, 0x08, 0x38}};
    const attn_tensor wide = attn_bhtd(y, 1, 1, 2, 4), steps = attn_bhtd(of_codes, 1, 1, 2, 1);
    attn_tensor narrow = attn_bhtd(codes, 1, 1, 2, 4);
    narrow.dtype = ATTN_F8_E4M3;
    assert_int_equal(attn_quantise(&wide, &narrow, &steps, 1), ATTN_OK);
    assert_true(of_codes[0] == 1 && of_codes[1] == 2);
    assert_memory_equal(codes, of_y, sizeof codes);
}

/** Neither the layout, nor the type that a number comes in, nor threads change a number; nothing else is written. */
static void test_layouts(void **state)
{
    (void)state;
    enum { B = 2, H = 3, T = 70, D = 40, GAP = 3, ALL = B * H * T };
    static uint16_t x[ALL * D];
    static float wide[ALL * D], scales[2][ALL * 2];
    static uint8_t bytes[2][ALL * (D + GAP)];
    struct rng rng = rng_for_case(5, 0);
    for (int i = 0; i < ALL * D; i++) {
        x[i] = dtype_narrow(ATTN_BF16, (double)rng_normal(&rng));
        wide[i] = dtype_widen(ATTN_BF16, x[i]);
    }
    attn_tensor narrow = attn_bhtd(x, B, H, T, D);
    narrow.dtype = ATTN_BF16;
    const attn_tensor f32 = attn_bhtd(wide, B, H, T, D), plain_scale = attn_bhtd(scales[0], B, H, T, 1);
    for (int type = 0; type < 2; type++) {
        attn_tensor plain = attn_bhtd(bytes[0], B, H, T, D);
        attn_tensor out = {bytes[1], ATTN_I8, {B, H, T, D}, {T * H * (D + GAP), D + GAP, H * (D + GAP), 1}};
        const attn_tensor scale = {scales[1], ATTN_F32, {B, H, T, 1}, {T * H * 2, 2, H * 2, 1}};
        plain.dtype = out.dtype = type ? ATTN_F8_E4M3 : ATTN_I8;
        memset(bytes[1], CANARY, sizeof bytes[1]);
        memset(scales[1], CANARY, sizeof scales[1]);
        assert_int_equal(attn_quantise(&f32, &plain, &plain_scale, 1), ATTN_OK);
        assert_int_equal(attn_quantise(&narrow, &out, &scale, 3), ATTN_OK);
        for (int64_t row = 0; row < ALL; row++) {
            const int64_t b = row / T / H, h = row / T % H, t = row % T, place = (b * T + t) * H + h;
            assert_memory_equal(bytes[0] + row * D, bytes[1] + place * (D + GAP), D);
            assert_true(all_canary(bytes[1] + place * (D + GAP) + D, GAP));
            assert_memory_equal(&scales[0][row], &scales[1][2 * place], sizeof(float));
            assert_true(all_canary(&scales[1][2 * place + 1], sizeof(float)));
        }
    }
}

/** Rows without channels have the scale 0; no rows have none. */
static void test_empty(void **state)
{
    (void)state;
    float scales[2] = {7, 7};
    attn_tensor x = attn_bhtd(NULL, 1, 1, 2, 0), out = x;
    const attn_tensor scale = attn_bhtd(scales, 1, 1, 2, 1);
    out.dtype = ATTN_F8_E4M3;
    assert_int_equal(attn_quantise(&x, &out, &scale, 0), ATTN_OK);
    assert_true(scales[0] == 0 && scales[1] == 0);
    x = attn_bhtd(NULL, 0, 1, 2, 4), out = x;
    out.dtype = ATTN_I8;
    const attn_tensor none = attn_bhtd(NULL, 0, 1, 2, 1);
    assert_int_equal(attn_quantise(&x, &out, &none, 0), ATTN_OK);
    /* Keys without channels have scores of 0, and values that are means. */
    float q[1], v[2] = {1, 3}, result[1] = {0};
    attn_tensor q_tensor = attn_bhtd(q, 1, 1, 1, 0), k = attn_bhtd(NULL, 1, 1, 2, 0);
    const attn_tensor v_tensor = attn_bhtd(v, 1, 1, 2, 1), r = attn_bhtd(result, 1, 1, 1, 1);
    attn_params params = attn_params_default();
    k.dtype = ATTN_I8;
    params.k_scale = &scale;
    assert_int_equal(attn_forward(&q_tensor, &k, &v_tensor, &r, &params), ATTN_OK);
    assert_true(result[0] == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_scales),
        cmocka_unit_test(test_wrong_among_many),
        cmocka_unit_test(test_scales_of_padding),
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_nan_numbers),
        cmocka_unit_test(test_wrong_roundings),
        cmocka_unit_test(test_worked_rounding),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
