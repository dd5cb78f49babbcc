/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of features, averages and directions: what is refused, with nothing
 * written; projections that attn_draw_features() makes; and linear attention on a
 * caller's executor.
 */
#include "linear_fixture.h"

#include "attn/linear_attention_backward.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CHANGES = 6, FEATURES = 12, MOST_STATE = 2 * 2 * FEATURES * (LIN_DV + 1) };

/** The fixture as a Performer: positive features, averages, a decay for each head. */
struct positive {
    struct linear_fixture f;
    float projection_data[FEATURES * LIN_DK], in_data[MOST_STATE], out_data[MOST_STATE];
    attn_tensor projection;
};

#define CHANGED struct positive
#include "change.h"

static void initialize(struct positive *p)
{
    linear_fixture_initialize(&p->f);
    p->projection = attn_bhtd(p->projection_data, 1, 1, FEATURES, LIN_DK);
    memset(p->in_data, 0, sizeof p->in_data);
    memset(p->out_data, CANARY, sizeof p->out_data);
    p->f.decay = attn_bhtd(p->f.decay_data, LIN_B, LIN_H, LIN_T, 1);
    p->f.state_in = attn_bhtd(p->in_data, LIN_B, LIN_H, FEATURES, LIN_DV + 1);
    p->f.state_out = attn_bhtd(p->out_data, LIN_B, LIN_H, FEATURES, LIN_DV + 1);
    p->f.params.beta = NULL;
    p->f.params.map = ATTN_FEATURES_POSITIVE;
    p->f.params.normalise = 1;
    p->f.params.projection = &p->projection;
    assert_int_equal(attn_draw_features(&p->projection, 1, 2), ATTN_OK);
}

static const float beta_number = 0.5f;
static const attn_tensor some_beta = {(void *)(uintptr_t)&beta_number, ATTN_F32, {1, 1, 1, 1}, {0, 0, 0, 0}};

static const struct {
    attn_status status;
    const char *words;
    struct change change[MAX_CHANGES];
} wrongs[] = {
    {ATTN_INVALID_ARGUMENT, "params.map is 3; expected an attn_feature_map", {INT(f.params.map, 3)}},
    {ATTN_INVALID_ARGUMENT, "params.map is -1", {INT(f.params.map, -1)}},
    {ATTN_INVALID_ARGUMENT, "params.projection is NULL", {POINTER(f.params.projection, NULL)}},
    {ATTN_INVALID_ARGUMENT, "params.projection is set", {INT(f.params.map, ATTN_FEATURES_ELU)}},
    {ATTN_INVALID_ARGUMENT, "params.map is POSITIVE; expected params.normalise with it", {INT(f.params.normalise, 0)}},
    {ATTN_INVALID_ARGUMENT,
     "params.beta is set; expected NULL with params.map POSITIVE",
     {POINTER(f.params.beta, &some_beta)}},
    {ATTN_INVALID_ARGUMENT,
     "params.beta is set|params.normalise",
     {POINTER(f.params.beta, &some_beta), INT(f.params.map, ATTN_FEATURES_NONE), POINTER(f.params.projection, NULL)}},
    {ATTN_INVALID_ARGUMENT,
     "params.decay has a number for each channel; expected one for each head with params.map POSITIVE",
     {INT64(f.decay.shape[3], LIN_DK)}},
    {ATTN_INVALID_ARGUMENT, "params.decay is set|params.bidirectional", {INT(f.params.bidirectional, 1)}},
    {ATTN_INVALID_ARGUMENT,
     "params.beta is set; expected NULL with params.bidirectional",
     {POINTER(f.params.beta, &some_beta), INT(f.params.map, ATTN_FEATURES_ELU), INT(f.params.normalise, 0),
      INT(f.params.bidirectional, 1), POINTER(f.params.projection, NULL), POINTER(f.params.decay, NULL)}},
    {ATTN_INVALID_ARGUMENT,
     "params.scale is -0.5; expected more than 0 with params.map POSITIVE",
     {FLOAT(f.params.scale, -0.5f)}},
    {ATTN_INVALID_ARGUMENT,
     "params.scale is 0.5|params.normalise",
     {FLOAT(f.params.scale, 0.5f), INT(f.params.map, ATTN_FEATURES_ELU), POINTER(f.params.projection, NULL),
      POINTER(f.params.state_in, NULL), POINTER(f.params.state_out, NULL)}},
    {ATTN_INVALID_ARGUMENT, "params.projection.dtype", {INT(projection.dtype, 99)}},
    {ATTN_UNSUPPORTED, "params.projection.dtype is bf16", {INT(projection.dtype, ATTN_BF16)}},
    {ATTN_SHAPE_MISMATCH, "params.projection.shape[0] is 2", {INT64(projection.shape[0], 2)}},
    {ATTN_SHAPE_MISMATCH, "params.projection.shape[1] is 3", {INT64(projection.shape[1], 3)}},
    {ATTN_INVALID_ARGUMENT, "params.projection.shape[2] is 0", {INT64(projection.shape[2], 0)}},
    {ATTN_INVALID_ARGUMENT, "params.projection.shape[2] is -1", {INT64(projection.shape[2], -1)}},
    {ATTN_SHAPE_MISMATCH, "params.projection.shape[3] is 7", {INT64(projection.shape[3], 7)}},
    {ATTN_INVALID_ARGUMENT, "params.projection.stride[3] is 2", {INT64(projection.stride[3], 2)}},
    {ATTN_INVALID_ARGUMENT, "params.projection.data is NULL", {POINTER(projection.data, NULL)}},
    {ATTN_SHAPE_MISMATCH,
     "params.state_in.shape[2] is 8; expected 12, the features of params.projection",
     {INT64(f.state_in.shape[2], LIN_DK)}},
    {ATTN_SHAPE_MISMATCH,
     "params.state_in.shape[3] is 5; expected 6, the channels of v and the sum of keys",
     {INT64(f.state_in.shape[3], LIN_DV)}},
    {ATTN_SHAPE_MISMATCH, "params.state_out.shape[3] is 5|sum of keys", {INT64(f.state_out.shape[3], LIN_DV)}},
};

static int is_untouched(const struct positive *p)
{
    return linear_fixture_untouched(&p->f) && all_canary(p->out_data, sizeof p->out_data);
}

static void test_wrongs(void **state)
{
    (void)state;
    static struct positive p;
    initialize(&p);
    assert_int_equal(linear_fixture_call(&p.f), ATTN_OK);
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        initialize(&p);
        for (int n = 0; n < MAX_CHANGES; n++)
            change_make(&p, &wrongs[i].change[n]);
        const attn_status status = linear_fixture_call(&p.f);
        if (status != wrongs[i].status || !holds_words(attn_last_error(), wrongs[i].words))
            fail_msg("expected status %d and %s; got %d, \"%s\"", (int)wrongs[i].status, wrongs[i].words, (int)status,
                     attn_last_error());
        assert_true(is_untouched(&p));
    }
    initialize(&p); /* an output on the projection */
    p.projection.data = p.out_data;
    memset(p.out_data, 0, sizeof p.out_data);
    assert_int_equal(linear_fixture_call(&p.f), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "params.state_out overlaps params.projection"));
}

/** A run asks for the features that were planned. */
static void test_other_run(void **state)
{
    (void)state;
    static struct positive p;
    static char workspace[1 << 20];
    attn_linear_attention_plan *plan;
    initialize(&p);
    assert_int_equal(attn_linear_attention_plan_create(&plan, &p.f.q, &p.f.k, &p.f.v, &p.f.out, &p.f.params), ATTN_OK);
    const size_t size = attn_linear_attention_plan_workspace_size(plan);
    assert_true(size <= sizeof workspace);
    char text[512];
    attn_linear_attention_plan_describe(plan, text, sizeof text);
    assert_non_null(strstr(text, "features=positive normalised"));
    p.f.params.map = ATTN_FEATURES_ELU;
    p.f.params.projection = NULL;
    p.f.params.state_in = p.f.params.state_out = NULL;
    assert_int_equal(
        attn_linear_attention_plan_run(plan, &p.f.q, &p.f.k, &p.f.v, &p.f.out, &p.f.params, workspace, size),
        ATTN_INVALID_ARGUMENT);
    assert_true(is_untouched(&p));
    attn_linear_attention_plan_destroy(plan);
}

/* --------------------------------------------------------------- projections -- */

static void test_draws(void **state)
{
    (void)state;
    enum { D = 24, M = 60, HEADS = 40 };
    static float first[HEADS * M * D], second[HEADS * M * D];
    const attn_tensor a = attn_bhtd(first, 1, HEADS, M, D), b = attn_bhtd(second, 1, HEADS, M, D);
    double mean_square = 0;
    assert_int_equal(attn_draw_features(&a, 7, 1), ATTN_OK);
    assert_int_equal(attn_draw_features(&b, 7, 1), ATTN_OK);
    assert_memory_equal(first, second, sizeof first);
    assert_int_equal(attn_draw_features(&b, 7, 2), ATTN_OK);
    assert_memory_not_equal(first, second, sizeof first);
    assert_int_equal(attn_draw_features(&b, 8, 1), ATTN_OK);
    assert_memory_not_equal(first, second, sizeof first);
    assert_memory_not_equal(first, first + M * D, sizeof(float) * M * D); /* heads differ */
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < M; i++)
            for (int j = i / D * D; j <= i; j++) { /* the block of row i, up to it */
                const float *x = first + (h * M + i) * D, *y = first + (h * M + j) * D;
                double dot = 0;
                for (int c = 0; c < D; c++)
                    dot += (double)x[c] * (double)y[c];
                if (i == j)
                    mean_square += dot / (HEADS * M * D);
                else
                    assert_true(fabs(dot) < 1e-4);
            }
    /* The squares of the lengths are D on average, each with a variance of 2 D. */
    assert_true(fabs(mean_square - 1) < 6 * sqrt(2.0 / D / (HEADS * M)));
}

static void test_wrong_projections(void **state)
{
    (void)state;
    float data[2 * 4 * 4];
    const attn_tensor right = attn_bhtd(data, 1, 2, 4, 4);
    memset(data, CANARY, sizeof data);
    assert_int_equal(attn_draw_features(NULL, 0, 0), ATTN_INVALID_ARGUMENT);
    for (int i = 0; i < 6; i++) {
        static const struct {
            attn_status status;
            const char *words;
        } expected[] = {{ATTN_UNSUPPORTED, "projection.dtype is f16"},
                        {ATTN_SHAPE_MISMATCH, "projection.shape[0] is 2; expected 1, one projection for the batch"},
                        {ATTN_INVALID_ARGUMENT, "projection.data is NULL"},
                        {ATTN_INVALID_ARGUMENT, "projection.stride[3]"},
                        {ATTN_INVALID_ARGUMENT, "projection.stride[2]"},
                        {ATTN_UNSUPPORTED, "projection.shape[3] is 5000; expected at most 4096 channels"}};
        attn_tensor t = right;
        if (i == 0)
            t.dtype = ATTN_F16;
        else if (i == 1)
            t.shape[0] = 2, t.stride[0] = 16, t.shape[1] = 1;
        else if (i == 2)
            t.data = NULL;
        else if (i == 3)
            t.stride[3] = 2;
        else if (i == 4)
            t.stride[2] = 0; /* rows on each other */
        else
            t.shape[3] = 5000, t.shape[1] = t.shape[2] = 1;
        assert_int_equal(attn_draw_features(&t, 0, 0), expected[i].status);
        assert_true(holds_words(attn_last_error(), expected[i].words));
        assert_true(all_canary(data, sizeof data));
    }
    attn_tensor empty = right;
    empty.shape[2] = 0, empty.data = NULL;
    assert_int_equal(attn_draw_features(&empty, 0, 0), ATTN_OK);
}

/* ----------------------------------------------------------------- executors -- */

static void run_backwards(void *user, int shares, void (*share)(void *context, int ith), void *context)
{
    *(int *)user += shares;
    for (int ith = shares - 1; ith >= 0; ith--)
        share(context, ith);
}

/** With an executor of its own a call makes shares for it, also to look at its decays, and has the same bits. */
static void test_executor(void **state)
{
    (void)state;
    enum { H = 4, T = 300, D = 64 };
    static float data[3][H * T * D], decays[H * T * D], out[2][H * T * D], states[2][H * D * (D + 1)];
    static float gradients[2][H * T * D];
    attn_tensor t[3];
    for (int i = 0; i < 3; i++) {
        t[i] = attn_bhtd(data[i], 1, H, T, D);
        for (int n = 0; n < H * T * D; n++)
            data[i][n] = (float)((n * (13 + i)) % 101) * 0.01f;
    }
    for (int n = 0; n < H * T * D; n++)
        decays[n] = -0.001f * (float)(n % 50);
    const attn_tensor decay = attn_bhtd(decays, 1, H, T, D);
    for (int averages = 0; averages < 2; averages++) {
        int shares = 0;
        attn_executor executor = attn_executor_default();
        executor.num_threads = 3;
        executor.run = run_backwards;
        executor.user = &shares;
        for (int i = 0; i < 2; i++) {
            const attn_tensor to = attn_bhtd(out[i], 1, H, T, D), s = attn_bhtd(states[i], 1, H, D, D + averages);
            attn_linear_attention_params params = attn_linear_attention_params_default();
            params.decay = averages ? NULL : &decay;
            params.normalise = averages;
            params.state_out = &s;
            params.num_threads = i ? 0 : 1;
            params.executor = i ? &executor : NULL;
            assert_int_equal(attn_linear_attention(&t[0], &t[1], &t[2], &to, &params), ATTN_OK);
            assert_true(i ? shares >= 3 : shares == 0);
            const int before = shares;
            const attn_tensor d_k = attn_bhtd(gradients[i], 1, H, T, D);
            attn_linear_attention_gradients g = attn_linear_attention_gradients_default();
            g.out = &t[0], g.k = &d_k;
            params.state_out = NULL;
            assert_int_equal(attn_linear_attention_backward(&t[0], &t[1], &t[2], &to, &params, &g), ATTN_OK);
            assert_true(i ? shares >= before + 3 : shares == 0);
        }
        assert_memory_equal(gradients[0], gradients[1], sizeof gradients[0]);
        assert_memory_equal(out[0], out[1], sizeof out[0]);
        assert_memory_equal(states[0], states[1], sizeof(float) * (size_t)(H * D * (D + averages)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrongs),   cmocka_unit_test(test_other_run),
        cmocka_unit_test(test_draws),    cmocka_unit_test(test_wrong_projections),
        cmocka_unit_test(test_executor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
