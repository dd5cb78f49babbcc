/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every way in which the options with arrays and structs of their own can be
 * wrong, one at a time: the status, a sentence that names the argument and the
 * value, and no output written. A plan notices what stands outside arrays and
 * leaves their contents to the run. Then settings at the borders of what is
 * valid, which must pass.
 */
#include "wrong_forms.h"

#include "fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** Settings at the borders of what is valid. */
struct valid {
    unsigned forms;
    struct change change[MAX_CHANGES];
};

static const struct valid valids[] = {
    {FORM_HEAD_SCALE, {FLOAT(head_scale[0], 0), FLOAT(head_scale[1], -8)}},
    {FORM_SOFTCAP, {FLOAT(params.softcap, 1e-3f)}},
    {FORM_SINKS, {FLOAT(sinks[1], -INFINITY)}},
    {FORM_SLOPES, {FLOAT(slopes[1], 0), FLOAT(slopes[2], -1)}},
    {FORM_BIAS, {FLOAT(bias_table[5], -INFINITY)}},
    {FORM_BIAS, {INT64(bias.buckets, 1), INT64(bias.max_distance, 0)}},
    {FORM_BIAS, {INT(bias.kind, ATTN_BUCKETS_T5), INT64(bias.max_distance, 4)}},
    {FORM_BIAS, {INT(bias.kind, ATTN_BUCKETS_T5), INT64(bias.buckets, 2), INT64(bias.max_distance, INT64_MAX)}},
    {FORM_BIAS, {INT(bias.kind, ATTN_BUCKETS_T5_BIDIRECTIONAL), INT64(bias.buckets, 4), INT64(bias.max_distance, 2)}},
    {FORM_DISENTANGLED, {POINTER(disentangled.rel_q, NULL)}},
    {FORM_DISENTANGLED, {INT(disentangled.delta, ATTN_DELTA_KEY_QUERY)}},
    {FORM_DISENTANGLED, {POINTER(disentangled.rel_k, NULL)}},
    {FORM_DISENTANGLED, {INT64(disentangled.span, 1), INT64(rel_k.shape[2], 2), INT64(rel_q.shape[2], 2)}},
    {FORM_DISENTANGLED, {FLOAT(rel_k_data[3], NAN)}},
    {FORM_ROPE, {INT(rope.layout, ATTN_ROPE_HALF_SPLIT), FLOAT(rope_q_data[3], INFINITY)}},
    {FORM_ROPE, {INT64(rope_q.shape[0], 1), INT64(rope_q.shape[3], 2), INT64(rope_k.shape[3], 2)}},
    {FORM_ROPE | FORM_RAGGED, {UNCHANGED}},
    {FORM_CALLBACK, {POINTER(params.callback_user, NULL)}},
    {FORM_WEIGHT_CALLBACK, {POINTER(params.weight_callback_user, NULL)}},
    {FORM_POSITIONS, {INT64(query_offset[0], INT64_MIN), INT64(query_offset[1], INT64_MAX)}},
    {FORM_POSITIONS | FORM_PREFIX, {INT(params.causal, ATTN_CAUSAL_OFFSET)}},
    {FORM_PREFIX, {INT64(prefix_len[0], INT64_MAX), INT(params.causal, ATTN_CAUSAL_BOTTOM_RIGHT)}},
    {FORM_WINDOW, {INT64(window.left, 0), INT64(window.right, 0), INT64(window.first_tokens, INT64_MAX)}},
    {FORM_WINDOW, {INT64(window.num_global, 0), POINTER(window.global, NULL), INT64(window.left, INT64_MAX)}},
    {FORM_WINDOW | FORM_RAGGED, {UNCHANGED}},
    {FORM_BLOCKS, {INT64(blocks.heads, 1)}},
    {FORM_BLOCKS,
     {INT64(blocks.heads, 0), INT64(offsets[2], 2), INT64(offsets[3], 4), INT(columns[2], 1), INT(columns[3], 3)}},
    {FORM_BLOCKS,
     {INT64(blocks.size, INT64_MAX - 15), INT64(blocks.rows, 1), INT64(offsets[1], 0), INT64(blocks.heads, 1),
      POINTER(blocks.columns, NULL)}},
    {FORM_BLOCKS | FORM_RAGGED, {UNCHANGED}},
    {FORM_SEGMENTS, {INT(segments_q[0], INT32_MIN), INT(segments_k[9], INT32_MAX)}},
    {FORM_TREE, {INT64(tree.tokens, 50)}},
    {FORM_TREE | FORM_LENGTHS, {INT64(tree.tokens, 20)}},
    {FORM_TREE | FORM_RAGGED, {INT64(tree.tokens, 18)}}, /* the sequence with 5 keys has no queries */
    {FORM_RAGGED, {INT64(ragged.num_sequences, 0)}},
    {FORM_RAGGED, {INT64(cu_seqlens_q[3], 40), INT64(cu_seqlens_k[3], 50)}},
    {FORM_RAGGED | FORM_LENGTHS, {INT64(kv_len[1], 0), INT64(kv_start[2], 18)}},
    {FORM_DROPOUT, {FLOAT(dropout.p, 0)}},
    {FORM_DROPOUT, {FLOAT(dropout.p, 0.99999994f)}},
};

static const struct wrong_table *const tables[] = {&wrong_scores, &wrong_sequences, &wrong_masks};

enum { TABLES = sizeof tables / sizeof *tables };

static void make_call(struct forms *c, unsigned forms, const struct change *changes)
{
    forms_initialize(c, forms);
    for (int i = 0; i < MAX_CHANGES; i++)
        change_make(c, &changes[i]);
}

/** Complains about a row unless it was refused as it should be; returns the number of complaints. */
static int judge(const char *function, const struct wrong *w, const struct forms *c, attn_status status)
{
    const int untouched = forms_untouched(c);
    if (status == w->status && holds_words(attn_last_error(), w->words) && untouched)
        return 0;
    print_error("%s, wrong %s: status %d \"%s\", expected %d and the words %s%s\n", function, w->change[0].where,
                (int)status, attn_last_error(), (int)w->status, w->words, untouched ? "" : "; AN OUTPUT WAS WRITTEN");
    return 1;
}

static void test_forward_refuses(void **state)
{
    (void)state;
    static struct forms c;
    int failures = 0;
    for (int t = 0; t < TABLES; t++)
        for (size_t i = 0; i < tables[t]->count; i++) {
            const struct wrong *w = &tables[t]->rows[i];
            make_call(&c, w->forms, w->change);
            const attn_status status = forms_forward(&c);
            failures += judge("attn_forward", w, &c, status);
        }
    assert_int_equal(failures, 0);
}

/** The plan is one without any of the options, so that what a run says first is what it finds wrong. */
static void test_runs_refuse(void **state)
{
    (void)state;
    static struct forms c;
    attn_plan *plan = NULL;
    int failures = 0;
    forms_initialize(&c, 0);
    assert_int_equal(forms_plan(&c, &plan), ATTN_OK);
    const size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size);
    assert_non_null(workspace);
    for (int t = 0; t < TABLES; t++)
        for (size_t i = 0; i < tables[t]->count; i++) {
            const struct wrong *w = &tables[t]->rows[i];
            make_call(&c, w->forms, w->change);
            attn_status status = attn_plan_run(plan, &c.q, &c.k, &c.v, &c.out, &c.params, workspace, size);
            failures += judge("attn_plan_run", w, &c, status);
            status = attn_plan_begin(plan, &c.q, &c.k, &c.v, &c.out, &c.params, workspace, size);
            failures += judge("attn_plan_begin", w, &c, status);
        }
    assert_int_equal(failures, 0);
    free(workspace);
    attn_plan_destroy(plan);
}

static void test_plans_refuse(void **state)
{
    (void)state;
    static struct forms c;
    int failures = 0;
    for (int t = 0; t < TABLES; t++)
        for (size_t i = 0; i < tables[t]->count; i++) {
            const struct wrong *w = &tables[t]->rows[i];
            attn_plan *plan = NULL;
            make_call(&c, w->forms, w->change);
            const attn_status status = forms_plan(&c, &plan);
            assert_true((status == ATTN_OK) == (plan != NULL));
            attn_plan_destroy(plan);
            if (w->noticed == IN_PLAN) {
                failures += judge("attn_plan_create", w, &c, status);
            } else if (status != ATTN_OK) {
                failures++;
                print_error("attn_plan_create looked at %s: status %d \"%s\"\n", w->change[0].where, (int)status,
                            attn_last_error());
            }
        }
    assert_int_equal(failures, 0);
}

/** Disentangled scores are not for int8, where there is int8. */
static void test_not_with_int8(void **state)
{
    (void)state;
    static struct forms c;
    forms_initialize(&c, 0);
    c.params.qk = ATTN_QK_INT8;
    if (forms_forward(&c) != ATTN_OK)
        skip();
    forms_initialize(&c, FORM_DISENTANGLED);
    c.params.qk = ATTN_QK_INT8;
    assert_int_equal(forms_forward(&c), ATTN_UNSUPPORTED);
    assert_true(holds_words(attn_last_error(), "params.disentangled|ATTN_QK_INT8"));
    assert_true(forms_untouched(&c));
}

/** A call of bf16 without data, with 2^61 elements along the heads or tokens of q, or the tokens of k: still valid. */
static void make_vast(struct forms *c, int heads, int queries, int keys)
{
    const int64_t vast = (int64_t)1 << 61, hq = heads ? vast : 1, tq = queries ? vast : 1, tk = keys ? vast : 1;
    attn_tensor *const tensors[] = {&c->q, &c->k, &c->v, &c->out};
    forms_initialize(c, 0);
    c->params.lse = NULL;
    for (int t = 0; t < 4; t++) {
        const int from_q = t == 0 || t == 3;
        *tensors[t] = (attn_tensor){NULL, ATTN_BF16, {1, from_q ? hq : 1, from_q ? tq : tk, 1}, {0, 0, 0, 1}};
    }
    attn_plan *plan = NULL;
    assert_int_equal(forms_plan(c, &plan), ATTN_OK);
    attn_plan_destroy(plan);
}

static void overflows(const struct forms *c, const char *words)
{
    attn_plan *plan = NULL;
    assert_int_equal(forms_plan(c, &plan), ATTN_SIZE_OVERFLOW);
    if (!holds_words(attn_last_error(), words) || !strstr(attn_last_error(), "2305843009213693952"))
        fail_msg("expected %s in \"%s\"", words, attn_last_error());
    assert_null(plan);
}

/** Arrays that no counter of bytes can hold, beside tensors that it can. */
static void test_vast_arrays(void **state)
{
    (void)state;
    static struct forms c;
    make_vast(&c, 1, 0, 0);
    c.blocks.heads = c.q.shape[1], c.blocks.rows = 1;
    c.params.block_mask = &c.blocks;
    overflows(&c, "params.block_mask->offsets");
    make_vast(&c, 1, 0, 0);
    c.params.relative_bias = &c.bias;
    overflows(&c, "params.relative_bias->table");
    make_vast(&c, 1, 0, 0);
    c.params.sinks = c.sinks;
    overflows(&c, "params.sinks");
    make_vast(&c, 1, 0, 0);
    c.params.ragged = &c.ragged;
    overflows(&c, "params.ragged->num_sequences");
    make_vast(&c, 0, 1, 0);
    c.params.segments = &c.segments;
    overflows(&c, "params.segments->q");
    make_vast(&c, 0, 0, 1);
    c.params.segments = &c.segments;
    overflows(&c, "params.segments->k");
    make_vast(&c, 0, 1, 0);
    c.params.tree = &c.tree;
    overflows(&c, "params.tree->ancestors");
    make_vast(&c, 0, 0, 1);
    c.window.num_global = c.k.shape[2];
    c.params.window = &c.window;
    overflows(&c, "params.window->global");

    attn_plan *plan = NULL; /* as many sequences can be counted in bytes, but not their offsets, which are one more */
    make_vast(&c, 0, 0, 0);
    c.ragged.num_sequences = ((int64_t)1 << 60) - 1;
    c.params.ragged = &c.ragged;
    assert_int_equal(forms_plan(&c, &plan), ATTN_SIZE_OVERFLOW);
    assert_non_null(strstr(attn_last_error(), "params.ragged->num_sequences"));
}

/** A plan that is made from pointers which lead nowhere: it may not look at what stands in arrays. */
static void test_plans_read_no_array(void **state)
{
    (void)state;
    static struct forms c;
    attn_plan *plan = NULL;
    const void *const nowhere = (const void *)(uintptr_t)16;
    for (unsigned ragged = 0; ragged <= 1; ragged++)
        for (unsigned form = 1; form < FORM_END; form <<= 1) {
            forms_initialize(&c, form | (ragged ? FORM_RAGGED : 0));
            attn_params *p = &c.params;
            p->head_scale = p->head_scale ? nowhere : NULL;
            p->sinks = p->sinks ? nowhere : NULL;
            p->alibi_slopes = p->alibi_slopes ? nowhere : NULL;
            p->query_offset = p->query_offset ? nowhere : NULL;
            p->kv_len = p->kv_len ? nowhere : NULL;
            p->kv_start = p->kv_start ? nowhere : NULL;
            p->prefix_len = p->prefix_len ? nowhere : NULL;
            c.bias.table = nowhere;
            c.window.global = nowhere;
            c.blocks.offsets = nowhere;
            c.blocks.columns = nowhere;
            c.segments = (attn_segments){nowhere, nowhere};
            c.tree.ancestors = nowhere;
            c.ragged.cu_seqlens_q = c.ragged.cu_seqlens_k = nowhere;
            c.rel_k.data = c.rel_q.data = c.rope_q.data = c.rope_k.data = NULL;
            const attn_status expected = ATTN_OK;
            assert_int_equal(forms_plan(&c, &plan), expected);
            attn_plan_destroy(plan);
        }
}

/** Every option by itself, at the borders of what is valid, and in pairs. */
static void test_valid_settings(void **state)
{
    (void)state;
    static struct forms c;
    int failures = 0;
    for (size_t i = 0; i < sizeof valids / sizeof *valids; i++) {
        attn_plan *plan = NULL;
        make_call(&c, valids[i].forms, valids[i].change);
        const attn_status planned = forms_plan(&c, &plan), status = forms_forward(&c);
        attn_plan_destroy(plan);
        if (planned == ATTN_OK && status == ATTN_OK)
            continue;
        failures++;
        print_error("valid %s: status %d \"%s\"\n", valids[i].change[0].where, (int)status, attn_last_error());
    }
    for (unsigned a = 1; a < FORM_END; a <<= 1)
        for (unsigned b = a; b < FORM_END; b <<= 1) {
            const unsigned forms = a | b;
            if (forms == (FORM_DISENTANGLED | FORM_ROPE) || forms == FORM_LENGTHS)
                continue;
            forms_initialize(&c, forms);
            if (forms == (FORM_POSITIONS | FORM_PREFIX))
                c.params.causal = ATTN_CAUSAL_OFFSET;
            if (forms_forward(&c) == ATTN_OK)
                continue;
            failures++;
            print_error("valid pair %#x: \"%s\"\n", forms, attn_last_error());
        }
    assert_int_equal(failures, 0);
}

/** Where there are no queries, keys or heads, there need not be arrays for them. */
static void test_empty_axes(void **state)
{
    (void)state;
    static struct forms c;
    forms_initialize(&c, FORM_SEGMENTS | FORM_TREE);
    c.q.shape[2] = c.out.shape[2] = c.lse.shape[2] = 0;
    c.segments.q = NULL;
    c.tree = (attn_tree){1000, NULL};
    assert_int_equal(forms_forward(&c), ATTN_OK);
    forms_initialize(&c, FORM_SEGMENTS);
    c.k.shape[2] = c.v.shape[2] = 0;
    c.segments.k = NULL;
    assert_int_equal(forms_forward(&c), ATTN_OK);
    forms_initialize(&c, FORM_SEGMENTS | FORM_TREE);
    c.q.shape[0] = c.k.shape[0] = c.v.shape[0] = c.out.shape[0] = c.lse.shape[0] = 0;
    c.segments = (attn_segments){NULL, NULL};
    c.tree.ancestors = NULL;
    c.params.causal = ATTN_CAUSAL_OFFSET;
    assert_int_equal(forms_forward(&c), ATTN_OK);
    forms_initialize(&c, FORM_BIAS);
    c.q.shape[1] = c.out.shape[1] = c.lse.shape[1] = c.k.shape[1] = c.v.shape[1] = 0;
    c.bias.table = NULL;
    assert_int_equal(forms_forward(&c), ATTN_OK);
    forms_initialize(&c, FORM_BLOCKS);
    c.q.shape[2] = c.out.shape[2] = c.lse.shape[2] = 0;
    c.blocks.rows = 0;
    c.blocks.columns = NULL;
    assert_int_equal(forms_forward(&c), ATTN_OK);
    assert_true(forms_untouched(&c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_refuses), cmocka_unit_test(test_runs_refuse),
        cmocka_unit_test(test_plans_refuse),    cmocka_unit_test(test_not_with_int8),
        cmocka_unit_test(test_vast_arrays),     cmocka_unit_test(test_plans_read_no_array),
        cmocka_unit_test(test_valid_settings),  cmocka_unit_test(test_empty_axes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
