/* SPDX-License-Identifier: Apache-2.0 */
/*
 * int8 scores (ATTN_QK_INT8): exact where nothing is rounded, close elsewhere,
 * and with the semantics of every other path: masks, rows that are empty or
 * not finite, equal bits, refusals. Each test runs on every instruction set
 * with int8 dot products, and is skipped where there is none.
 */
#include "dtype.h"
#include "oracle.h"
#include "random.h"
#include "test_isa.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LARGEST = 600 * 160 };

/** One head: q (tq, d), k and v (tk, d). */
struct call {
    const char *isa;
    attn_dtype dtype;
    int64_t tq, tk, d;
    float q[LARGEST], k[LARGEST], v[LARGEST]; /**< in f32, representable in dtype */
    uint16_t narrow[4][LARGEST];              /**< the same in dtype, and out */
    float out[LARGEST], lse[600], weights[600 * 600];
    attn_params params;
};

static struct call a, b;

static int has_int8(const char *isa)
{
    attn_tensor t = attn_bhtd(NULL, 1, 1, 1, 1);
    attn_params params = attn_params_default();
    attn_plan *plan;
    params.qk = ATTN_QK_INT8;
    params.isa = isa;
    if ((isa && !attn_isa_supported(isa)) || attn_plan_create(&plan, &t, &t, &t, &t, &params) != ATTN_OK)
        return 0;
    attn_plan_destroy(plan);
    return 1;
}

/** Runs the test for every instruction set and type. */
static void for_each(void (*test)(const char *isa, attn_dtype dtype))
{
    int found = 0;
    for (int isa = 0; attn_isa_name(isa); isa++)
        for (int dtype = ATTN_F32; has_int8(attn_isa_name(isa)) && dtype <= ATTN_F16; dtype++, found++)
            test(attn_isa_name(isa), (attn_dtype)dtype);
    if (!found)
        skip();
}

static void fill(struct call *c, const char *isa, attn_dtype dtype, int64_t tq, int64_t tk, int64_t d, uint64_t seed)
{
    struct rng rng = rng_for_case(11, seed);
    assert_true(tq * d <= LARGEST && tk * d <= LARGEST && tq <= 600 && tk <= 600);
    c->isa = isa, c->dtype = dtype, c->tq = tq, c->tk = tk, c->d = d;
    rng_fill_normal(&rng, c->q, tq * d);
    rng_fill_normal(&rng, c->k, tk * d);
    rng_fill_normal(&rng, c->v, tk * d);
    c->params = attn_params_default();
    c->params.qk = ATTN_QK_INT8;
    c->params.num_threads = 1;
}

static attn_tensor narrowed(struct call *c, int i, float *wide, int64_t tokens)
{
    attn_tensor t = attn_bhtd(wide, 1, 1, tokens, c->d);
    if (c->dtype == ATTN_F32)
        return t;
    t.dtype = c->dtype;
    t.data = c->narrow[i];
    for (int64_t j = 0; i < 3 && j < tokens * c->d; j++) {
        c->narrow[i][j] = dtype_narrow(c->dtype, (double)wide[j]);
        wide[j] = dtype_widen(c->dtype, c->narrow[i][j]);
    }
    return t;
}

/** Rounds the inputs to the type and computes out, lse and weights. */
static void run(struct call *c)
{
    const attn_tensor q = narrowed(c, 0, c->q, c->tq), k = narrowed(c, 1, c->k, c->tk), v = narrowed(c, 2, c->v, c->tk);
    const attn_tensor out = narrowed(c, 3, c->out, c->tq), lse = attn_bhtd(c->lse, 1, 1, c->tq, 1),
                      weights = attn_bhtd(c->weights, 1, 1, c->tq, c->tk);
    c->params.isa = c->isa;
    c->params.lse = &lse;
    c->params.weights = &weights;
    if (attn_forward(&q, &k, &v, &out, &c->params) != ATTN_OK)
        fail_msg("%s", attn_last_error());
    for (int64_t j = 0; c->dtype != ATTN_F32 && j < c->tq * c->d; j++)
        c->out[j] = dtype_widen(c->dtype, c->narrow[3][j]);
}

/** The same call with exact scores. */
static void run_exact(struct call *to, const struct call *from)
{
    memcpy(to, from, sizeof *to);
    to->params.qk = ATTN_QK_DEFAULT;
    run(to);
}

static double cosine(const float *x, const float *y, int64_t n)
{
    double xy = 0, xx = 0, yy = 0;
    for (int64_t i = 0; i < n; i++) {
        xy += (double)x[i] * (double)y[i];
        xx += (double)x[i] * (double)x[i];
        yy += (double)y[i] * (double)y[i];
    }
    return xy / sqrt(xx * yy);
}

static double largest_difference(const float *x, const float *y, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        const double difference = fabs((double)x[i] - (double)y[i]);
        most = difference <= most ? most : isnan(difference) ? INFINITY : difference;
    }
    return most;
}

/** Integers up to 127, reached in each row, and K with a mean of 0 have steps of 1: nothing is rounded. */
static void exact_integers(const char *isa, attn_dtype dtype)
{
    static const int64_t sizes[] = {1, 3, 4, 16, 17, 33, 64, 80, 127, 129};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int64_t tq = 53, tk = 258, d = sizes[s];
        fill(&a, isa, dtype, tq, tk, d, s);
        struct rng rng = rng_for_case(12, s);
        for (int64_t i = 0; i < tq; i++)
            for (int64_t c = 0; c < d; c++)
                a.q[i * d + c] = c == i % d ? 127.0f : (float)rng_range(&rng, -127, 127);
        for (int64_t j = 0; j < tk; j += 2)
            for (int64_t c = 0; c < d; c++) {
                a.k[j * d + c] = c == j % d ? -127.0f : (float)rng_range(&rng, -127, 127);
                a.k[(j + 1) * d + c] = -a.k[j * d + c];
            }
        a.params.scale = (s % 2 ? -1.0f : 1.0f) / (4000.0f * sqrtf((float)d));
        a.params.causal = s % 3 == 0 ? ATTN_CAUSAL_BOTTOM_RIGHT : ATTN_CAUSAL_NONE;
        run(&a);
        run_exact(&b, &a);
        assert_true(largest_difference(a.weights, b.weights, tq * tk) < 1e-5);
        /* Pairs of bf16 round their weights in either case, from scores that differ by f32's rounding. */
        assert_true(largest_difference(a.lse, b.lse, tq) < (dtype == ATTN_BF16 ? 4e-3 : 1e-5));
        assert_true(largest_difference(a.out, b.out, tq * d) < (dtype == ATTN_F32 ? 1e-5 : 2e-2));
    }
}

/** Normal values, with and without an offset that all keys have in common, whose removal softmax does not notice. */
static void close_to_exact(const char *isa, attn_dtype dtype)
{
    for (uint64_t seed = 0; seed < 6; seed++) {
        const int64_t d = seed % 2 ? 64 : 40;
        fill(&a, isa, dtype, 100, 600, d, seed);
        for (int64_t j = 0; seed >= 2 && j < a.tk; j++)
            for (int64_t c = 0; c < d; c++)
                a.k[j * d + c] += (float)(c % 7) * 4.0f - 12.0f;
        run(&a);
        run_exact(&b, &a);
        assert_true(cosine(a.out, b.out, a.tq * d) > 0.9995);
        assert_true(largest_difference(a.weights, b.weights, a.tq * a.tk) < 0.02);
        assert_true(largest_difference(a.lse, b.lse, a.tq) < 0.02);
    }
}

static void special_rows(const char *isa, attn_dtype dtype)
{
    fill(&a, isa, dtype, 60, 140, 48, 3);
    float bias[60 * 140];
    uint8_t live[60 * 140];
    memset(live, 1, sizeof live);
    memset(bias, 0, sizeof bias);
    a.q[5 * 48 + 3] = NAN;
    a.q[6 * 48 + 40] = INFINITY;
    memset(a.q + 7 * 48, 0, 48 * sizeof(float));
    a.q[8 * 48] = NAN;
    memset(live + 8 * 140, 0, 140);                    /* query 8 sees nothing */
    a.k[100 * 48] = NAN, a.k[101 * 48 + 7] = INFINITY; /* seen by query 9 alone */
    a.v[100 * 48 + 2] = NAN, a.v[101 * 48 + 2] = -INFINITY;
    for (int i = 0; i < 60; i++)
        live[i * 140 + 100] = live[i * 140 + 101] = i == 9;
    const attn_tensor boolean = {live, ATTN_BOOL, {1, 1, 60, 140}, {0, 0, 140, 1}};
    for (int additive = 0; additive < 2; additive++) {
        for (int i = 0; i < 60 * 140; i++)
            bias[i] = live[i] ? 0.0f : -INFINITY;
        const attn_tensor added = attn_bhtd(bias, 1, 1, 60, 140);
        a.params.mask = additive ? &added : &boolean;
        run(&a);
        for (int i = 0; i < 60; i++) {
            const float *row = a.out + i * 48;
            if (i == 5 || i == 6 || i == 9) {
                assert_true(isnan(a.lse[i]));
                for (int c = 0; c < 48; c++)
                    assert_true(isnan(row[c]));
            } else if (i == 8) {
                assert_true(a.lse[i] == -INFINITY);
                for (int c = 0; c < 48; c++)
                    assert_true(row[c] == 0.0f);
            } else {
                assert_true(isfinite(a.lse[i]));
                for (int c = 0; c < 48; c++)
                    assert_true(isfinite(row[c]));
            }
        }
        assert_true(fabs((double)a.lse[7] - log(138.0)) < 1e-2); /* a query of zeros sees 138 equal keys */
    }
}

/** A single key has weight 1, so the output is v. */
static void one_key(const char *isa, attn_dtype dtype)
{
    fill(&a, isa, dtype, 3, 1, 37, 4);
    run(&a);
    for (int i = 0; i < 3; i++)
        assert_memory_equal(a.out + i * 37, a.v, 37 * sizeof(float));
}

static int same_rows(const struct call *x, int64_t row, const struct call *y, int64_t other, int64_t n)
{
    return memcmp(x->out + row * x->d, y->out + other * y->d, (size_t)(n * x->d) * sizeof(float)) == 0 &&
           memcmp(x->lse + row, y->lse + other, (size_t)n * sizeof(float)) == 0;
}

/** Threads, other queries, padding on either side and what stands there do not move a bit. */
static void equal_bits(const char *isa, attn_dtype dtype)
{
    fill(&a, isa, dtype, 300, 260, 64, 5);
    run(&a);
    memcpy(&b, &a, sizeof b);
    b.params.num_threads = 3;
    run(&b);
    assert_true(same_rows(&a, 0, &b, 0, 300));

    memcpy(&b, &a, sizeof b); /* queries 100 to 130 alone */
    b.tq = 31;
    memcpy(b.q, a.q + 100 * 64, (size_t)31 * 64 * sizeof(float));
    run(&b);
    assert_true(same_rows(&a, 100, &b, 0, 31));

    const int64_t start = 13, end = 273; /* the same keys between garbage */
    memcpy(&b, &a, sizeof b);
    b.tk = 300;
    for (int64_t i = 0; i < b.tk * 64; i++)
        b.k[i] = b.v[i] = i % 3 ? NAN : 60000.0f;
    memcpy(b.k + start * 64, a.k, (size_t)260 * 64 * sizeof(float));
    memcpy(b.v + start * 64, a.v, (size_t)260 * 64 * sizeof(float));
    b.params.kv_start = &start;
    b.params.kv_len = &end;
    run(&b);
    assert_true(same_rows(&a, 0, &b, 0, 300));

    a.params.causal = b.params.causal = ATTN_CAUSAL_TOP_LEFT; /* finite garbage behind the last query's diagonal */
    a.tq = b.tq = 40;
    run(&a);
    memcpy(&b, &a, sizeof b);
    for (int64_t i = 40 * 64; i < 260 * 64; i++)
        b.k[i] = b.v[i] = 60000.0f;
    run(&b);
    assert_true(same_rows(&a, 0, &b, 0, 40));

    static uint8_t live[260]; /* and in a slot that a mask hides */
    memset(live, 1, sizeof live);
    live[7] = 0;
    const attn_tensor mask = {live, ATTN_BOOL, {1, 1, 1, 260}, {0, 0, 0, 1}};
    a.params.causal = ATTN_CAUSAL_NONE;
    a.params.mask = &mask;
    run(&a);
    memcpy(&b, &a, sizeof b);
    for (int64_t i = 7 * 64; i < 8 * 64; i++)
        b.k[i] = b.v[i] = 60000.0f;
    run(&b);
    assert_true(same_rows(&a, 0, &b, 0, 40));
}

static void test_exact_integers(void **state)
{
    (void)state;
    for_each(exact_integers);
}

static void test_close_to_exact(void **state)
{
    (void)state;
    for_each(close_to_exact);
}

static void test_special_rows(void **state)
{
    (void)state;
    for_each(special_rows);
}

static void test_one_key(void **state)
{
    (void)state;
    for_each(one_key);
}

static void test_equal_bits(void **state)
{
    (void)state;
    for_each(equal_bits);
}

/** A set without the instructions refuses; nothing else is chosen in its place. */
static void test_refusals(void **state)
{
    (void)state;
    static const char *const without[] = {"scalar", "avx2"}; /* AVX2 unless there is AVX-VNNI */
    attn_tensor t = attn_bhtd(NULL, 1, 1, 1, 1);
    attn_params params = attn_params_default();
    attn_plan *plan;
    params.qk = ATTN_QK_INT8;
    assert_false(has_int8("scalar"));
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        if (!attn_isa_supported(without[i]) || has_int8(without[i]))
            continue;
        params.isa = without[i];
        assert_int_equal(attn_plan_create(&plan, &t, &t, &t, &t, &params), ATTN_UNSUPPORTED);
        assert_null(plan);
        assert_non_null(strstr(attn_last_error(), "params.qk is ATTN_QK_INT8, and "));
        assert_non_null(strstr(attn_last_error(), "no int8 dot products"));
    }
    params.isa = NULL;
    if (!has_int8(NULL))
        return;
    assert_int_equal(attn_plan_create(&plan, &t, &t, &t, &t, &params), ATTN_OK);
    char text[512], workspace[65536];
    float one = 1, result = 0;
    attn_tensor out = t;
    attn_plan_describe(plan, text, sizeof text);
    assert_non_null(strstr(text, "int8 scores"));
    t.data = &one;
    out.data = &result;
    params.qk = ATTN_QK_DEFAULT;
    assert_int_equal(attn_plan_run(plan, &t, &t, &t, &out, &params, workspace, sizeof workspace),
                     ATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_last_error(), "params.qk differs"));
    attn_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_integers), cmocka_unit_test(test_close_to_exact),
        cmocka_unit_test(test_special_rows),   cmocka_unit_test(test_one_key),
        cmocka_unit_test(test_equal_bits),     cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
