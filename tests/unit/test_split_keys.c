/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of more keys than a split has (ATTN_SPLIT_KEYS), with everything that can
 * hide keys or change scores: the results are those of the oracle, and where
 * threads share the splits of few queries every bit is that of one thread, by
 * every entry point and in workspaces that have no room for it.
 */
#include "split_case.h"

#include "arguments.h"
#include "compare.h"
#include "test_isa.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t bytes_of(const attn_tensor *t)
{
    return (size_t)(t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]) * attn_dtype_size(t->dtype);
}

/** Compares the second results with the first ones and forgets them. */
static void expect_same(const struct split_case *c, enum split_kind kind, const char *how, int threads)
{
    if (memcmp(c->out[0].data, c->out[1].data, bytes_of(&c->out[0])) != 0 ||
        memcmp(c->lse[0].data, c->lse[1].data, bytes_of(&c->lse[0])) != 0)
        fail_msg("%s, %s, kind %d, %d heads on %d, %d queries, %d keys: %s with %d threads has other bits",
                 c->params.isa, attn_dtype_name(c->q.dtype), (int)kind, (int)c->q.shape[1], (int)c->k.shape[1],
                 (int)c->q.shape[2], (int)c->k.shape[2], how, threads);
    memset(c->out[1].data, 0x55, bytes_of(&c->out[1]));
    memset(c->lse[1].data, 0x55, bytes_of(&c->lse[1]));
}

/** By a plan, in shares of another order, and after attn_plan_keep(). Returns whether its description has the words. */
static int run_plan(struct split_case *c, enum split_kind kind, const attn_params *params, const char *words)
{
    attn_plan *plan;
    char text[512];
    assert_int_equal(attn_plan_create(&plan, &c->q, &c->k, &c->v, &c->out[1], params), ATTN_OK);
    attn_plan_describe(plan, text, sizeof text);
    for (int kept = 0; kept < 2; kept++) {
        const size_t size = attn_plan_workspace_size(plan);
        char *workspace = malloc(size);
        assert_non_null(workspace);
        memset(workspace, 0xff, size);
        assert_int_equal(attn_plan_begin(plan, &c->q, &c->k, &c->v, &c->out[1], params, workspace, size), ATTN_OK);
        for (int phase = 0; phase < attn_plan_num_phases(plan); phase++)
            for (int ith = 2; ith >= 0; ith--)
                assert_int_equal(attn_plan_run_share(plan, workspace, phase, ith, 3), ATTN_OK);
        expect_same(c, kind, kept ? "a plan that keeps" : "a plan", 3);
        free(workspace);
        if (!kept)
            assert_int_equal(attn_plan_keep(plan, params), ATTN_OK);
    }
    attn_plan_destroy(plan);
    return strstr(text, words) != NULL;
}

/** In workspaces from what is told down to the least, of which each has the bits. */
static void run_in_less(struct split_case *c, enum split_kind kind, const attn_params *params, int splits)
{
    size_t size, least = 0;
    assert_int_equal(attn_forward_workspace_size(&c->q, &c->k, &c->v, &c->out[1], params, &size), ATTN_OK);
    char *workspace = malloc(size);
    assert_non_null(workspace);
    for (size_t room = size; room > 0; room -= (surroundings_are_slow() ? room / 2 : room / 3) + 1) {
        memset(workspace, 0xff, room);
        const attn_status status = attn_forward_in(&c->q, &c->k, &c->v, &c->out[1], params, workspace, room);
        if (status == ATTN_WORKSPACE_TOO_SMALL)
            break;
        assert_int_equal(status, ATTN_OK);
        expect_same(c, kind, "a smaller workspace", params->num_threads);
        least = room;
    }
    assert_true(least > 0);
    size_t alone;
    attn_params one = *params;
    one.num_threads = 1;
    assert_int_equal(attn_forward_workspace_size(&c->q, &c->k, &c->v, &c->out[1], &one, &alone), ATTN_OK);
    if (splits && alone != size) /* partials, and scratch of more than one thread, which a build may not have */
        assert_true(least < size);
    free(workspace);
}

/** Row i of the third axis. */
static attn_tensor row_of(const attn_tensor *t, int64_t i)
{
    attn_tensor row = *t;
    if (t->data)
        row.data = (char *)t->data + (size_t)(i * t->stride[2]) * attn_dtype_size(t->dtype);
    row.shape[2] = 1;
    return row;
}

/** Every query by itself, where it can be told its position. */
static void run_alone(struct split_case *c, enum split_kind kind)
{
    if (c->params.block_mask || c->params.segments || c->params.tree || c->params.rope || c->params.dropout ||
        c->params.callback || c->params.alibi_slopes || kind == INT8)
        return;
    const int64_t tq = c->q.shape[2];
    for (int64_t i = 0; i < tq; i++) {
        attn_params params = c->params;
        const attn_tensor q = row_of(&c->q, i), out = row_of(&c->out[1], i), lse = row_of(&c->lse[1], i);
        const attn_tensor mask = row_of(&c->mask, i);
        const int from_end = params.causal == ATTN_CAUSAL_BOTTOM_RIGHT;
        const int64_t offset = i + (from_end ? c->k.shape[2] - tq : c->offset[0]), offsets[2] = {offset, offset};
        params.causal = from_end ? ATTN_CAUSAL_OFFSET : params.causal;
        params.query_offset = params.causal == ATTN_CAUSAL_OFFSET ? offsets : NULL;
        params.mask = params.mask ? &mask : NULL;
        params.lse = &lse;
        params.num_threads = i % 2 ? 1 : 3;
        assert_int_equal(attn_forward(&q, &c->k, &c->v, &out, &params), ATTN_OK);
    }
    expect_same(c, kind, "a query by itself", 3);
}

static void check_case(const char *isa, attn_dtype dtype, enum split_kind kind, const int64_t shape[5], uint64_t number)
{
    struct split_case *c = split_case_make(isa, dtype, kind, shape, number);
    attn_params params = c->params;
    char message[512] = "";
    c->params.lse = &c->lse[0];
    c->params.num_threads = 1;
    const attn_status status = attn_forward(&c->q, &c->k, &c->v, &c->out[0], &c->params);
    if (kind == INT8 && status == ATTN_UNSUPPORTED) {
        split_case_free(c);
        return;
    }
    assert_int_equal(status, ATTN_OK);
    if (kind != INT8) {
        if (!compare_call(&c->q, &c->k, &c->v, &c->out[0], &c->params, message, sizeof message))
            fail_msg("%s, %s, kind %d, case %d: %s", isa, attn_dtype_name(dtype), (int)kind, (int)number, message);
    }
    params.lse = &c->lse[1];
    for (int threads = 2; threads <= 4; threads += surroundings_are_slow() ? 2 : 1) {
        params.num_threads = threads;
        assert_int_equal(attn_forward(&c->q, &c->k, &c->v, &c->out[1], &params), ATTN_OK);
        expect_same(c, kind, "a call", threads);
    }
    params.num_threads = 3;
    const int splits = run_plan(c, kind, &params, " key splits of 4096 in ");
    if (!splits && kind != WINDOW && shape[2] < 50) /* which narrow strips make many tasks of */
        fail_msg("%s, kind %d: a plan for 3 threads does not split keys", isa, (int)kind);
    run_in_less(c, kind, &params, splits);
    run_alone(c, kind);
    split_case_free(c);
}

/** Heads, key heads, queries, dk, dv: worth three threads. */
static const int64_t shapes[][5] = {{1, 1, 1, 128, 96}, {4, 1, 1, 48, 40}, {1, 1, 7, 20, 17},
                                    {2, 2, 6, 16, 24},  {1, 1, 50, 8, 9},  {3, 1, 2, 33, 16}};

static void test_forms(void **state)
{
    (void)state;
    uint64_t number = 0;
    const int cases = surroundings_are_slow() ? 1 : 2;
    for (int isa = 0; attn_isa_name(isa); isa++)
        for (int kind = 0; attn_isa_supported(attn_isa_name(isa)) && kind < KINDS; kind++)
            for (int i = 0; i < cases; i++, number++) {
                const int narrow = number % 2 == 1 || test_isa_has_pairs(attn_isa_name(isa));
                check_case(attn_isa_name(isa), narrow ? ATTN_BF16 : ATTN_F32, (enum split_kind)kind, shapes[number % 6],
                           number);
            }
}

/** Weights and scores on request, and ragged batches, leave keys to one thread; the bits are the same. */
static void test_what_is_not_shared(void **state)
{
    (void)state;
    for (int request = 0; request < 4; request++) {
        struct split_case *c = split_case_make(NULL, ATTN_F32, PLAIN, shapes[2], 99);
        const int64_t tq = c->q.shape[2], tk = c->k.shape[2], cu_q[2] = {0, tq}, cu_k[2] = {0, tk};
        const attn_tensor rows = split_tensor(ATTN_F32, 1, 1, tq, tk), sums = split_tensor(ATTN_F32, 1, 1, 1, tk);
        const attn_ragged ragged = {1, cu_q, cu_k};
        attn_params params = c->params;
        params.lse = &c->lse[0];
        params.num_threads = 3;
        assert_int_equal(attn_forward(&c->q, &c->k, &c->v, &c->out[0], &params), ATTN_OK);
        params.lse = &c->lse[1];
        params.weights = request == 0 ? &rows : NULL;
        params.key_sums = request == 1 ? &sums : NULL;
        params.scores = request == 2 ? &rows : NULL;
        params.ragged = request == 3 ? &ragged : NULL;
        assert_true(run_plan(c, PLAIN, &params, ", no key splits"));
        for (int64_t i = 0; request == 0 && i < tq; i++) { /* final maxima and sums */
            double sum = 0;
            for (int64_t j = 0; j < tk; j++)
                sum += (double)((float *)rows.data)[i * tk + j];
            assert_true(fabs(sum - 1) < 1e-4);
        }
        free(rows.data);
        free(sums.data);
        split_case_free(c);
    }
}

/** What a plan says of its keys: they are split where there are too few heads and queries for the threads. */
static void test_described(void **state)
{
    (void)state;
    static const struct {
        int64_t batch, heads, kv_heads, queries, keys, left;
        int threads;
        const char *says;
    } cases[] = {{1, 1, 1, 1, 131072, ATTN_UNLIMITED, 2, "8 tasks of some splits for one query block on 2 threads"},
                 {1, 1, 1, 1, 131072, ATTN_UNLIMITED, 2, ", 32 key splits of 4096 in 8 tasks"},
                 {1, 32, 1, 1, 131072, ATTN_UNLIMITED, 2, " of 32 heads together on 2 threads, 32 key splits"},
                 {1, 8, 2, 1, 131072, ATTN_UNLIMITED, 4, " of 4 heads together on 4 threads, 32 key splits"},
                 {1, 1, 1, 1, 4097, ATTN_UNLIMITED, 2, ", no key splits"}, /* not worth a thread */
                 {1, 1, 1, 9, 4097, ATTN_UNLIMITED, 2, ", 2 key splits of 4096 in 2 tasks"},
                 {1, 1, 1, 9, 4096, ATTN_UNLIMITED, 2, ", no key splits"},
                 {1, 1, 1, 1, 131072, ATTN_UNLIMITED, 1, ", no key splits"},
                 {2, 4, 4, 1, 131072, ATTN_UNLIMITED, 2, ", no key splits"}, /* enough of other tasks */
                 {1, 1, 1, 9, 131072, 300, 2, ", no key splits"},
                 {1, 1, 1, 1, 131072, 70000, 2, ", 32 key splits of 4096 in 8 tasks"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const attn_tensor q = attn_bhtd(NULL, cases[i].batch, cases[i].heads, cases[i].queries, 64), out = q,
                          k = attn_bhtd(NULL, cases[i].batch, cases[i].kv_heads, cases[i].keys, 64);
        const attn_window window = {.left = cases[i].left, .right = ATTN_UNLIMITED};
        attn_params params = attn_params_default();
        params.num_threads = cases[i].threads;
        params.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
        params.window = cases[i].left == ATTN_UNLIMITED ? NULL : &window;
        attn_plan *plan;
        char text[512];
        assert_int_equal(attn_plan_create(&plan, &q, &k, &k, &out, &params), ATTN_OK);
        attn_plan_describe(plan, text, sizeof text);
        if (!strstr(text, cases[i].says))
            fail_msg("'%s' should say '%s'", text, cases[i].says);
        assert_int_equal(attn_plan_num_phases(plan), strstr(text, "no key splits") ? 1 : 2);
        attn_plan_destroy(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_what_is_not_shared),
                                       cmocka_unit_test(test_described)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
