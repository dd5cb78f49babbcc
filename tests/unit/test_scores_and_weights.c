/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores on request, and the callback of weights: cases that can be worked out
 * by hand on every instruction set, scores of int8 beside the weights and the
 * log-sum-exp of the same call, what is refused, and what is not touched.
 */
#include "fixture.h"
#include "large.h"
#include "ledger.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LN2 0.6931471805599453

/** Calls check for every instruction set. */
static void everywhere(void (*check)(attn_params params))
{
    const char *name;
    for (int i = 0; (name = attn_isa_name(i)) != NULL; i++) {
        attn_params params = attn_params_default();
        params.isa = name;
        if (attn_isa_supported(name))
            check(params);
    }
}

static void must_equal(const char *what, int at, float got, double expected)
{
    if (isinf(expected) ? (double)got != expected
                        : !(fabs((double)got - expected) <= 8 * 0x1p-24 * fabs(expected) + 1e-7))
        fail_msg("%s %d is %.9g, expected %.9g", what, at, (double)got, expected);
}

static void must_run(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                     const attn_params *params)
{
    if (attn_forward(q, k, v, out, params) != ATTN_OK)
        fail_msg("%s", attn_last_error());
}

/*
 * q = (1, 2), (3, -1); five keys, of which the first and the last are padding and hold NaN: k = (2, 1), (0, 4), (-1,
 * 1). Products: 4, 8, 1 and 5, -4, -4. Scale 0.5 of the head times 1/2 for the temperature is 1/4: 1, 2, 1/4 and 5/4,
 * -1, -1. Capped at 2: 2 tanh(s / 2). Masked: key 2 gets 1/8, key 3 is hidden by the mask from query 0, and causality
 * (query i stands at i + 2) hides key 3 from query 0 as well and nothing from query 1.
 */
static void check_stages(attn_params params)
{
    static const double products[2][3] = {{4, 8, 1}, {5, -4, -4}};
    static const float hidden = -INFINITY, half = 0.5f;
    const float q[4] = {1, 2, 3, -1}, k[10] = {NAN, NAN, 2, 1, 0, 4, -1, 1, NAN, INFINITY};
    const float v[5] = {NAN, 1, 2, 3, NAN};
    const float mask[10] = {0, 0, 0.125f, hidden, 0, 0, 0, 0.125f, 0, 0};
    const int64_t kv_start[] = {1}, kv_len[] = {4}, offset[] = {2}, last[] = {1, 0, 1};
    float out[2], plain[2], scores[3 * 5];
    const attn_tensor qt = attn_bhtd(q, 1, 1, 2, 2), kt = attn_bhtd(k, 1, 1, 5, 2), vt = attn_bhtd(v, 1, 1, 5, 1),
                      ot = attn_bhtd(out, 1, 1, 2, 1), mt = attn_bhtd(mask, 1, 1, 2, 5);
    attn_tensor st = attn_bhtd(scores, 1, 1, 2, 5), pt = attn_bhtd(plain, 1, 1, 2, 1);
    params.scale = 1;
    params.temperature = 2;
    params.head_scale = &half;
    params.softcap = 2;
    params.mask = &mt;
    params.kv_start = kv_start;
    params.kv_len = kv_len;
    params.causal = ATTN_CAUSAL_OFFSET;
    params.query_offset = offset;
    must_run(&qt, &kt, &vt, &pt, &params);
    params.scores = &st;
    for (int stage = ATTN_SCORES_RAW; stage <= ATTN_SCORES_MASKED; stage++) {
        for (int chosen = 0; chosen < 2; chosen++) { /* rows in another order, one of them twice */
            const int rows = chosen ? 3 : 2;
            st = attn_bhtd(scores, 1, 1, rows, 5);
            params.weight_rows = chosen ? last : NULL;
            params.num_weight_rows = chosen ? 3 : 0;
            params.score_stage = (attn_score_stage)stage;
            for (size_t i = 0; i < sizeof scores / sizeof *scores; i++)
                scores[i] = 77;
            must_run(&qt, &kt, &vt, &ot, &params);
            assert_memory_equal(out, plain, sizeof out);
            for (int n = 0; n < rows; n++) {
                const int i = chosen ? (int)last[n] : n;
                for (int j = 0; j < 5; j++) {
                    double expected = -INFINITY;
                    if (j >= 1 && j < 4)
                        expected = products[i][j - 1];
                    if (stage >= ATTN_SCORES_SCALED)
                        expected *= 0.25;
                    if (stage >= ATTN_SCORES_CAPPED)
                        expected = isinf(expected) ? expected : 2 * tanh(expected / 2);
                    if (stage == ATTN_SCORES_MASKED)
                        expected = j == 3 && i == 0 ? -INFINITY : expected + (j == 2 ? 0.125 : 0);
                    must_equal("score", n * 5 + j, scores[n * 5 + j], expected);
                }
            }
        }
    }
}

static void test_stages(void **state)
{
    (void)state;
    everywhere(check_stages);
}

/** Keys behind the end of a short mask are hidden; up to CAPPED they have scores, of which nothing reaches out. */
static void check_short_mask(attn_params params)
{
    enum { KEYS = 300, SHORT = 100 };
    static float k[KEYS], v[KEYS], scores[KEYS];
    static unsigned char mask[SHORT];
    const float q[1] = {3};
    float out[1];
    for (int j = 0; j < KEYS; j++) {
        k[j] = (float)j / 64;
        v[j] = j < SHORT ? 1 : NAN;
    }
    memset(mask, 1, sizeof mask);
    const attn_tensor qt = attn_bhtd(q, 1, 1, 1, 1), kt = attn_bhtd(k, 1, 1, KEYS, 1), vt = attn_bhtd(v, 1, 1, KEYS, 1),
                      ot = attn_bhtd(out, 1, 1, 1, 1), st = attn_bhtd(scores, 1, 1, 1, KEYS);
    attn_tensor mt = attn_bhtd(mask, 1, 1, 1, SHORT);
    mt.dtype = ATTN_BOOL;
    params.mask = &mt;
    params.scores = &st;
    for (int stage = ATTN_SCORES_RAW; stage <= ATTN_SCORES_MASKED; stage += ATTN_SCORES_MASKED) {
        params.score_stage = (attn_score_stage)stage;
        must_run(&qt, &kt, &vt, &ot, &params);
        must_equal("out", 0, out[0], 1);
        for (int j = 0; j < KEYS; j++)
            must_equal("score", j, scores[j], stage && j >= SHORT ? -INFINITY : 3.0 * j / 64);
    }
}

static void test_short_mask(void **state)
{
    (void)state;
    everywhere(check_short_mask);
}

/* ------------------------------------------------------- the callback of weights -- */

/** Keeps the weights of 1/4 and more, adds 1 to what key 3 has, and fills what is hidden. */
static void keep_large(const attn_weight_tile *tile, void *user)
{
    const int *hidden_from = user;
    for (int64_t j = 0; j < tile->num_keys; j++)
        for (int64_t i = 0; i < tile->num_queries; i++) {
            float *weight = &tile->weights[j * tile->key_stride + i];
            const int hidden = tile->first_key + j > tile->first_query + i + *hidden_from;
            if (hidden && *weight != 0)
                fail_msg("a hidden key has the weight %g", (double)*weight);
            *weight = hidden ? NAN : *weight < 0.25f ? 0 : *weight;
            if (tile->first_key + j == 3)
                *weight += 1;
        }
}

/*
 * Logits 0, ln 2, ln 5, 0 and values 8, 4, 2, NaN. Query 0 sees three keys: weights 1/8, 2/8, 5/8, of which the first
 * goes: out = 4/4 + 10/8 = 9/4. Query 1 sees the fourth too, whose value is 1 there (of another head): weights 1/9,
 * 2/9, 5/9, 1/9: the third stays, and the last becomes 1 (its 1/9 goes): out = 10/9 + 1. lse is that of the softmax.
 */
static void check_weight_callback(attn_params params)
{
    const float q[4] = {1, 1, 1, 1},
                k[8] = {0, (float)LN2, 1.6094379124341003f, 0, 0, (float)LN2, 1.6094379124341003f, 0};
    const float v[8] = {8, 4, 2, NAN, 8, 4, 2, 1};
    static const double expected[2][2][4] = {{{0, 0.25, 0.625, 0}, {0, 0, 5 / 9.0, 1}},
                                             {{0, 0.25, 0.625, 0}, {0, 0, 5 / 9.0, 1}}};
    float out[4], lse[4], weights[16], sums[8];
    int position = 2;
    const int64_t offset[] = {2};
    const attn_tensor qt = attn_bhtd(q, 1, 2, 2, 1), kt = attn_bhtd(k, 1, 2, 4, 1), vt = attn_bhtd(v, 1, 2, 4, 1),
                      ot = attn_bhtd(out, 1, 2, 2, 1), lt = attn_bhtd(lse, 1, 2, 2, 1),
                      wt = attn_bhtd(weights, 1, 2, 2, 4), st = attn_bhtd(sums, 1, 2, 1, 4);
    params.scale = 1;
    params.causal = ATTN_CAUSAL_OFFSET;
    params.query_offset = offset;
    params.lse = &lt;
    params.weights = &wt;
    params.key_sums = &st;
    params.weight_callback = keep_large;
    params.weight_callback_user = &position;
    must_run(&qt, &kt, &vt, &ot, &params);
    for (int h = 0; h < 2; h++) {
        must_equal("out", 2 * h, out[2 * h], 2.25); /* the hidden NaN stays away */
        must_equal("lse", 2 * h, lse[2 * h], log(8));
        must_equal("lse", 2 * h + 1, lse[2 * h + 1], log(9));
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 4; j++)
                must_equal("weight", h * 8 + i * 4 + j, weights[h * 8 + i * 4 + j], expected[h][i][j]);
        for (int j = 0; j < 4; j++)
            must_equal("sum", 4 * h + j, sums[4 * h + j], expected[h][0][j] + expected[h][1][j]);
    }
    assert_true(isnan(out[1])); /* 1 times NaN: it is seen */
    must_equal("out", 3, out[3], 10 / 9.0 + 1);
}

static void test_weight_callback(void **state)
{
    (void)state;
    everywhere(check_weight_callback);
}

static void clear(const attn_weight_tile *tile, void *user)
{
    (void)user;
    for (int64_t j = 0; j < tile->num_keys; j++)
        for (int64_t i = 0; i < tile->num_queries; i++)
            tile->weights[j * tile->key_stride + i] = 0;
}

/** With sinks a row without keys is 0, and so is one without weights. */
static void check_nothing_left(attn_params params)
{
    const float q[2] = {1, 1}, k[2] = {3, 4}, v[2] = {5, 6}, sinks[1] = {2};
    const int64_t none[] = {0};
    float out[2] = {7, 7};
    const attn_tensor qt = attn_bhtd(q, 1, 1, 2, 1), kt = attn_bhtd(k, 1, 1, 2, 1), vt = attn_bhtd(v, 1, 1, 2, 1),
                      ot = attn_bhtd(out, 1, 1, 2, 1);
    params.weight_callback = clear;
    for (int with = 0; with < 4; with++) {
        params.sinks = with & 1 ? sinks : NULL;
        params.kv_len = with & 2 ? none : NULL;
        out[0] = out[1] = 7;
        must_run(&qt, &kt, &vt, &ot, &params);
        assert_true(out[0] == 0 && out[1] == 0);
    }
}

static void test_nothing_left(void **state)
{
    (void)state;
    everywhere(check_nothing_left);
}

/* --------------------------------------------------------------------- int8 -- */

/** Scores of int8 are those of its softmax, with the mean of k again: they give lse and weights, and are near q·k. */
static void test_int8(void **state)
{
    (void)state;
    enum { T = 90, D = 32 };
    static float q[T * D], k[T * D], v[T], out[T], lse[T], weights[T * T], scores[T * T];
    struct rng rng = rng_for_case(3, 1);
    rng_fill_normal(&rng, q, T * D);
    rng_fill_normal(&rng, k, T * D);
    rng_fill_normal(&rng, v, T);
    for (int i = 0; i < T * D; i++)
        k[i] += i % D < 4 ? 3 : 0; /* a mean worth taking away */
    q[2 * D + 5] = NAN;
    const attn_tensor qt = attn_bhtd(q, 1, 1, T, D), kt = attn_bhtd(k, 1, 1, T, D), vt = attn_bhtd(v, 1, 1, T, 1),
                      ot = attn_bhtd(out, 1, 1, T, 1), lt = attn_bhtd(lse, 1, 1, T, 1),
                      wt = attn_bhtd(weights, 1, 1, T, T), st = attn_bhtd(scores, 1, 1, T, T);
    attn_params params = attn_params_default();
    params.qk = ATTN_QK_INT8;
    params.causal = ATTN_CAUSAL_TOP_LEFT;
    params.scores = &st;
    const attn_status supported = attn_forward(&qt, &kt, &vt, &ot, &params);
    if (supported == ATTN_UNSUPPORTED)
        skip();
    assert_int_equal(supported, ATTN_OK);
    for (int i = 0; i < T; i++)
        for (int j = 0; j < T; j++) {
            double dot = 0;
            for (int c = 0; c < D; c++)
                dot += (double)q[i * D + c] * (double)k[j * D + c];
            if (i == 2)
                assert_true(isnan(scores[i * T + j]));
            else
                assert_true(fabs(scores[i * T + j] - dot) < 0.5); /* of sums of 32 products of about 2 */
        }
    params.lse = &lt;
    params.weights = &wt;
    params.score_stage = ATTN_SCORES_MASKED;
    must_run(&qt, &kt, &vt, &ot, &params);
    for (int i = 0; i < T; i++) {
        double sum = 0;
        for (int j = 0; j < T; j++) {
            sum += j <= i ? exp((double)scores[i * T + j]) : 0;
            assert_true(j <= i ? i == 2 ? isnan(scores[i * T + j]) : isfinite(scores[i * T + j])
                               : scores[i * T + j] == -INFINITY);
            if (i != 2)
                assert_true(fabs(exp((double)scores[i * T + j] - (double)lse[i]) - (double)weights[i * T + j]) < 2e-6);
        }
        assert_true(i == 2 ? isnan(lse[i]) : fabs(log(sum) - (double)lse[i]) < 2e-6 * (1 + fabs((double)lse[i])));
    }
}

/* ------------------------------------------------------------------ arguments -- */

static float score_data[FIX_B * FIX_HQ * FIX_TQ * FIX_TK];

static void add_scores(struct fixture *f, attn_tensor *scores)
{
    fixture_initialize(f);
    memset(score_data, 0x5A, sizeof score_data);
    *scores = attn_bhtd(score_data, FIX_B, FIX_HQ, FIX_TQ, FIX_TK);
    f->params.scores = scores;
}

static void must_fail(const struct fixture *f, attn_status status, const char *sentence)
{
    assert_int_equal(fixture_forward(f), status);
    assert_string_equal(attn_last_error(), sentence);
    assert_true(fixture_outputs_untouched(f));
    for (size_t i = 0; i < sizeof score_data; i++)
        assert_int_equal(((unsigned char *)score_data)[i], 0x5A);
}

static void test_refusals(void **state)
{
    (void)state;
    struct fixture f;
    attn_tensor scores;
    add_scores(&f, &scores);
    f.params.score_stage = (attn_score_stage)4;
    must_fail(&f, ATTN_INVALID_ARGUMENT, "params.score_stage is 4; expected an attn_score_stage");
    f.params.score_stage = (attn_score_stage)-1;
    must_fail(&f, ATTN_INVALID_ARGUMENT, "params.score_stage is -1; expected an attn_score_stage");
    f.params.score_stage = ATTN_SCORES_MASKED;
    f.params.scores = NULL;
    must_fail(&f, ATTN_INVALID_ARGUMENT, "params.score_stage is 3; expected 0 without params.scores");
    f.params.score_stage = ATTN_SCORES_RAW;
    f.params.weight_callback_user = &f;
    must_fail(&f, ATTN_INVALID_ARGUMENT,
              "params.weight_callback_user is set; expected NULL without params.weight_callback");
    add_scores(&f, &scores);
    scores.dtype = ATTN_F16;
    must_fail(&f, ATTN_UNSUPPORTED, "params.scores.dtype is f16; expected f32, the only type of this tensor");
    add_scores(&f, &scores);
    scores.shape[2] = FIX_TQ - 1;
    must_fail(&f, ATTN_SHAPE_MISMATCH, "params.scores.shape[2] is 4; expected 5, the tokens of q");
    add_scores(&f, &scores);
    scores.shape[3] = FIX_TK - 1;
    must_fail(&f, ATTN_SHAPE_MISMATCH, "params.scores.shape[3] is 6; expected 7, the tokens of k");
    add_scores(&f, &scores);
    f.params.weights = NULL;
    f.params.weight_rows = f.weight_rows;
    f.params.num_weight_rows = 3;
    must_fail(&f, ATTN_SHAPE_MISMATCH, "params.scores.shape[2] is 5; expected 3, params.num_weight_rows");
    f.params.scores = NULL;
    must_fail(&f, ATTN_INVALID_ARGUMENT, "params.weight_rows is set but params.weights and params.scores are NULL");
    add_scores(&f, &scores);
    scores.data = f.weights_data;
    must_fail(&f, ATTN_INVALID_ARGUMENT, "params.scores overlaps params.weights; expected memory of its own");
    scores.data = f.q_data;
    must_fail(&f, ATTN_INVALID_ARGUMENT, "params.scores overlaps q; expected memory of its own");
    scores.data = NULL;
    assert_int_equal(fixture_forward(&f), ATTN_INVALID_ARGUMENT);
    add_scores(&f, &scores);
    assert_int_equal(fixture_forward(&f), ATTN_OK);
    f.params.weights = NULL; /* rows of scores alone */
    f.params.weight_rows = f.weight_rows;
    f.params.num_weight_rows = 3;
    scores = attn_bhtd(score_data, FIX_B, FIX_HQ, 3, FIX_TK);
    assert_int_equal(fixture_forward(&f), ATTN_OK);
}

/** A plan keeps whether scores and the callback are asked for, and the stage; it needs no memory for them. */
static void test_plans(void **state)
{
    (void)state;
    static const char *const names[] = {"scores", "score_stage", "weight_callback"};
    for (int change = -1; change < 3; change++) {
        struct fixture f;
        attn_tensor scores;
        attn_plan *plan;
        char sentence[96];
        add_scores(&f, &scores);
        f.params.score_stage = ATTN_SCORES_SCALED;
        f.params.weight_callback = clear;
        assert_int_equal(attn_plan_create(&plan, &f.q, &f.k, &f.v, &f.out, &f.params), ATTN_OK);
        const size_t size = attn_plan_workspace_size(plan);
        void *workspace = malloc(size);
        assert_non_null(workspace);
        f.params.scores = change == 0 ? NULL : f.params.scores;
        f.params.score_stage = change == 0 ? ATTN_SCORES_RAW : change == 1 ? ATTN_SCORES_MASKED : f.params.score_stage;
        f.params.weight_callback = change == 2 ? NULL : f.params.weight_callback;
        const attn_status status = attn_plan_run(plan, &f.q, &f.k, &f.v, &f.out, &f.params, workspace, size);
        if (change >= 0) {
            snprintf(sentence, sizeof sentence, "params.%s differs from what the plan was made with", names[change]);
            assert_int_equal(status, ATTN_INVALID_ARGUMENT);
            assert_string_equal(attn_last_error(), sentence);
            assert_true(fixture_outputs_untouched(&f));
        } else {
            assert_int_equal(status, ATTN_OK);
        }
        free(workspace);
        attn_plan_destroy(plan);
    }
}

/** Without queries, keys or channels: nothing is written that is not there. */
static void test_empty(void **state)
{
    (void)state;
    float out[6] = {1, 1, 1, 1, 1, 1}, scores[6];
    const float x[6] = {1, 2, 3, 4, 5, 6};
    const attn_tensor q = attn_bhtd(x, 1, 1, 2, 0), k = attn_bhtd(x, 1, 1, 3, 0), v = attn_bhtd(x, 1, 1, 3, 1);
    const attn_tensor ot = attn_bhtd(out, 1, 1, 2, 1);
    attn_tensor st = attn_bhtd(scores, 1, 1, 2, 3);
    attn_params params = attn_params_default();
    params.scores = &st;
    must_run(&q, &k, &v, &ot, &params); /* sums of no products */
    for (int i = 0; i < 6; i++)
        assert_true(scores[i] == 0);
    const attn_tensor no_keys = attn_bhtd(NULL, 1, 1, 0, 0), no_values = attn_bhtd(NULL, 1, 1, 0, 1);
    st = attn_bhtd(NULL, 1, 1, 2, 0);
    params.weight_callback = clear;
    must_run(&q, &no_keys, &no_values, &ot, &params);
    assert_true(out[0] == 0 && out[1] == 0);
    /* No value channels: out is empty, and scores are not. */
    const attn_tensor narrow = attn_bhtd(x, 1, 1, 3, 0), nothing = attn_bhtd(NULL, 1, 1, 2, 0);
    const attn_tensor q1 = attn_bhtd(x, 1, 1, 2, 1), k1 = attn_bhtd(x, 1, 1, 3, 1);
    st = attn_bhtd(scores, 1, 1, 2, 3);
    must_run(&q1, &k1, &narrow, &nothing, &params);
    for (int i = 0; i < 6; i++)
        assert_true(scores[i] == x[i / 3] * x[i % 3]);
}

/** A run of a plan allocates nothing for them either. */
static void test_no_allocation(void **state)
{
    (void)state;
    static struct large l;
    static float scores[LARGE_HEADS * LARGE_TOKENS * LARGE_TOKENS];
    const attn_tensor st = attn_bhtd(scores, 1, LARGE_HEADS, LARGE_TOKENS, LARGE_TOKENS);
    for (int dtype = ATTN_F32; dtype <= ATTN_F16; dtype++) {
        attn_plan *plan = NULL;
        large_initialize(&l, 2);
        large_narrow(&l, (attn_dtype)dtype);
        assert_int_equal(large_forward(&l), ATTN_OK); /* starts OpenMP's threads */
        l.params.scores = &st;
        l.params.weight_callback = clear;
        assert_int_equal(attn_plan_create(&plan, &l.q, &l.k, &l.v, &l.out, &l.params), ATTN_OK);
        const size_t size = attn_plan_workspace_size(plan);
        assert_true(size <= 2 * ((size_t)2 << 20) + 64);
        void *workspace = __real_malloc(size);
        assert_non_null(workspace);
        ledger_begin(1, 1);
        const attn_status status = attn_plan_run(plan, &l.q, &l.k, &l.v, &l.out, &l.params, workspace, size);
        ledger.active = 0;
        assert_int_equal(status, ATTN_OK);
        assert_int_equal(ledger.made, 0);
        __real_free(workspace);
        attn_plan_destroy(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages),       cmocka_unit_test(test_short_mask), cmocka_unit_test(test_weight_callback),
        cmocka_unit_test(test_nothing_left), cmocka_unit_test(test_int8),       cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_plans),        cmocka_unit_test(test_empty),      cmocka_unit_test(test_no_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
