/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors without elements, however long their other axes are: there is nothing
 * to compute, and the answer comes at once (an alarm ends the test). And strides
 * that mean nothing, which no step may multiply: under the sanitizer of
 * undefined behaviour, an overflow fails.
 */
#include "fixture.h"

#include "attn/patterns.h"
#include "attn/rope.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HUGE ((int64_t)1 << 40)

/** Far more than everything here takes, and far less than a loop over HUGE. */
#define SECONDS 60

static attn_tensor nothing(attn_dtype dtype, int64_t batch, int64_t heads, int64_t tokens, int64_t channels)
{
    attn_tensor t = attn_bhtd(NULL, batch, heads, tokens, channels);
    t.dtype = dtype;
    return t;
}

/** The three ways of computing, with as many of the outputs as are empty too. */
static void must_do_nothing(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                            attn_params params)
{
    const attn_tensor lse = attn_bhtd(NULL, q->shape[0], q->shape[1], q->shape[2], 1);
    const attn_tensor weights = attn_bhtd(NULL, q->shape[0], q->shape[1], q->shape[2], k->shape[2]);
    const attn_tensor key_sums = attn_bhtd(NULL, q->shape[0], q->shape[1], 1, k->shape[2]);
    params.lse = lse.shape[0] && lse.shape[1] && lse.shape[2] ? NULL : &lse;
    params.weights = params.lse && weights.shape[2] < HUGE >> 21 ? &weights : NULL; /* else too large to be counted */
    params.key_sums = key_sums.shape[0] && key_sums.shape[1] && key_sums.shape[3] ? NULL : &key_sums;
    for (int outputs = 0; outputs < 2; outputs++) {
        attn_plan *plan;
        assert_int_equal(attn_forward(q, k, v, out, &params), ATTN_OK);
        assert_int_equal(attn_plan_create(&plan, q, k, v, out, &params), ATTN_OK);
        void *workspace = malloc(attn_plan_workspace_size(plan));
        assert_non_null(workspace);
        const int nth = attn_plan_num_threads(plan);
        assert_int_equal(attn_plan_run(plan, q, k, v, out, &params, workspace, attn_plan_workspace_size(plan)),
                         ATTN_OK);
        assert_int_equal(attn_plan_begin(plan, q, k, v, out, &params, workspace, attn_plan_workspace_size(plan)),
                         ATTN_OK);
        for (int phase = 0; phase < attn_plan_num_phases(plan); phase++)
            assert_int_equal(attn_plan_run_share(plan, workspace, phase, nth - 1, nth), ATTN_OK);
        free(workspace);
        attn_plan_destroy(plan);
        params.lse = params.weights = params.key_sums = NULL;
    }
}

static void test_huge_axes_without_elements(void **state)
{
    (void)state;
    static const int64_t some[2];
    static const uint64_t bits[1];
    static const int32_t labels[1];
    alarm(SECONDS);
    for (int dtype = ATTN_F32; dtype <= ATTN_F16; dtype++) {
        for (int huge = 0; huge < 8; huge++) {        /* which of batch, heads, tokens are huge: not all, nor two */
            for (int empty = 0; empty < 4; empty++) { /* which axis is empty */
                int64_t shape[4] = {1, 1, 1, 1};
                for (int axis = 0; axis < 3; axis++)
                    shape[axis] = huge >> axis & 1 ? (huge & (huge - 1) ? HUGE >> 21 : HUGE) : 1;
                shape[empty] = 0;
                const attn_tensor t = nothing((attn_dtype)dtype, shape[0], shape[1], shape[2], shape[3]);
                attn_params params = attn_params_default();
                must_do_nothing(&t, &t, &t, &t, params);
                for (int causal = 0; causal < 3; causal++) {
                    params.causal = (attn_causal)causal;
                    params.num_threads = 2;
                    must_do_nothing(&t, &t, &t, &t, params);
                }
                const attn_tree tree = {1, bits}; /* of arrays that are not read, only this much is there */
                const attn_segments segments = {labels, labels};
                const attn_window window = {1, 1, 0, NULL, 0};
                params.tree = shape[2] ? &tree : NULL;
                params.segments = &segments;
                params.window = &window;
                must_do_nothing(&t, &t, &t, &t, params);
                if (empty == 2) {
                    const attn_block_mask blocks = {16, shape[1], 0, some, NULL};
                    params.block_mask = &blocks;
                    must_do_nothing(&t, &t, &t, &t, params);
                }
                if (shape[0] == 1) {
                    const attn_ragged ragged = {1, some, some};
                    params = attn_params_default();
                    params.ragged = &ragged;
                    must_do_nothing(&t, &t, &t, &t, params);
                }
            }
        }
    }
    alarm(0);
}

/** Keys of which there are many, all in one place, and no query; heads without tokens of their own. */
static void test_huge_keys_without_queries(void **state)
{
    (void)state;
    static float number[1];
    alarm(SECONDS);
    const attn_tensor q = nothing(ATTN_F32, 1, 1, 0, 1);
    const attn_tensor k = {number, ATTN_F32, {1, 1, HUGE, 1}, {0, 0, 0, 1}};
    must_do_nothing(&q, &k, &k, &q, attn_params_default());
    const attn_tensor no_channels = nothing(ATTN_F32, 1, 1, HUGE, 0), one = nothing(ATTN_F32, 1, 1, 1, 0);
    must_do_nothing(&one, &no_channels, &no_channels, &one, attn_params_default());
    must_do_nothing(&no_channels, &one, &one, &no_channels, attn_params_default());
    alarm(0);
}

/** Rows of merges and rotations without channels; heads of patterns without rows. */
static void test_huge_others(void **state)
{
    (void)state;
    static float number[1];
    alarm(SECONDS);
    for (int axis = 0; axis < 3; axis++) {
        int64_t shape[3] = {1, 1, 1};
        shape[axis] = HUGE;
        const attn_tensor t = nothing(ATTN_F32, shape[0], shape[1], shape[2], 0);
        const attn_tensor lse = {number, ATTN_F32, {shape[0], shape[1], shape[2], 1}, {0, 0, 0, 0}};
        assert_int_equal(attn_merge(1, &t, &lse, &t, NULL, 2), ATTN_OK);
        assert_int_equal(attn_rope(&t, &t, ATTN_ROPE_INTERLEAVED, &t, 2), ATTN_OK);
    }
    attn_pattern *pattern;
    const attn_bigbird bigbird = {.window = 1, .heads = HUGE};
    assert_int_equal(attn_pattern_bigbird(&pattern, 0, 64, 16, &bigbird), ATTN_OK);
    assert_true(attn_pattern_density(pattern) == 0);
    attn_pattern_destroy(pattern);
    alarm(0);
}

/** Sets every stride that means nothing to the largest number, or the smallest. */
static void spoil(attn_tensor *t, int sign)
{
    const int empty = !t->shape[0] || !t->shape[1] || !t->shape[2] || !t->shape[3];
    for (int axis = 0; axis < 4; axis++)
        if (empty || t->shape[axis] == 1)
            t->stride[axis] = sign > 0 ? INT64_MAX : INT64_MIN;
}

/** Every tensor of the fixture's call with one axis of length 1 or 0, in which lengths reach the end. */
static void test_strides_that_mean_nothing(void **state)
{
    (void)state;
    static struct fixture plain, spoilt;
    for (int n = 0; n < 5 * 2 * 2; n++) {
        const int what = n % 5, length = n / 5 % 2, sign = n / 10 ? -1 : 1;
        struct fixture *const both[] = {&plain, &spoilt};
        for (int i = 0; i < 2; i++) {
            struct fixture *f = both[i];
            fixture_initialize(f);
            attn_tensor *const all[] = {&f->q, &f->k, &f->v, &f->out, &f->mask, &f->lse, &f->weights, &f->key_sums};
            switch (what) {
            case 0: /* batch */
                for (int t = 0; t < 8; t++)
                    all[t]->shape[0] = length;
                break;
            case 1: /* heads */
                for (int t = 0; t < 8; t++)
                    all[t]->shape[1] = length;
                break;
            case 2: /* queries */
                f->q.shape[2] = f->out.shape[2] = f->lse.shape[2] = f->weights.shape[2] = f->mask.shape[2] = length;
                break;
            case 3: /* keys, all of them padding for the second sequence, of which there may be one at its end */
                f->k.shape[2] = f->v.shape[2] = f->mask.shape[3] = f->weights.shape[3] = f->key_sums.shape[3] = length;
                f->kv_len[0] = f->kv_len[1] = f->kv_start[1] = length;
                f->kv_start[0] = 0;
                break;
            default: /* channels */
                f->q.shape[3] = f->k.shape[3] = f->v.shape[3] = f->out.shape[3] = length;
                break;
            }
            for (int t = 0; t < 8 && i == 1; t++)
                spoil(all[t], sign);
            assert_int_equal(fixture_forward(f), ATTN_OK);
        }
        assert_true(fixture_outputs_equal(&plain, &spoilt));
    }
}

/** The same where a ragged batch of one token has sequences without any, at the end of k and before it. */
static void test_strides_of_ragged_batches(void **state)
{
    (void)state;
    static const int64_t cu_q[] = {0, 1, 3, 4}, cu_k[] = {0, 0, 1, 1};
    static struct fixture plain, spoilt;
    for (int sign = -1; sign <= 1; sign += 2) {
        struct fixture *const both[] = {&plain, &spoilt};
        for (int i = 0; i < 2; i++) {
            struct fixture *f = both[i];
            fixture_initialize(f);
            attn_tensor *const all[] = {&f->q, &f->k, &f->v, &f->out, &f->mask, &f->lse, &f->weights, &f->key_sums};
            const attn_ragged ragged = {3, cu_q, cu_k};
            for (int t = 0; t < 8; t++)
                all[t]->shape[0] = 1;
            f->k.shape[2] = f->v.shape[2] = f->mask.shape[3] = f->weights.shape[3] = f->key_sums.shape[3] = 1;
            f->params.kv_len = f->params.kv_start = NULL;
            f->params.ragged = &ragged;
            for (int t = 0; t < 8 && i == 1; t++)
                spoil(all[t], sign);
            assert_int_equal(fixture_forward(f), ATTN_OK);
        }
        assert_true(fixture_outputs_equal(&plain, &spoilt));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_huge_axes_without_elements),
        cmocka_unit_test(test_huge_keys_without_queries),
        cmocka_unit_test(test_huge_others),
        cmocka_unit_test(test_strides_that_mean_nothing),
        cmocka_unit_test(test_strides_of_ragged_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
