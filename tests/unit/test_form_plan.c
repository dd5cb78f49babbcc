/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a plan remembers of the options with structs of their own: a run with
 * another one is refused, by name, and one with other contents is not. The
 * check is called by itself, with the structs of the plan's call freed. And what
 * a plan keeps of arrays that its caller promises to leave as they are.
 */
#include "api/check.h"
#include "forms.h"

#define CHANGED struct forms
#include "change.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CHANGES 4

struct other {
    unsigned forms;
    const char *name; /**< the option in the sentence; NULL: a run may differ so */
    struct change change[MAX_CHANGES];
};

static const struct other others[] = {
    {FORM_SOFTCAP, NULL, {FLOAT(params.softcap, 50)}},
    {FORM_BIAS, NULL, {INT64(bias.buckets, 5), INT64(bias.max_distance, 2)}},
    {FORM_DISENTANGLED,
     "disentangled->span",
     {INT64(disentangled.span, 5), INT64(rel_k.shape[2], 10), INT64(rel_q.shape[2], 10)}},
    {FORM_DISENTANGLED, "disentangled->delta", {INT(disentangled.delta, ATTN_DELTA_KEY_QUERY)}},
    {FORM_DISENTANGLED, "disentangled->rel_k", {POINTER(disentangled.rel_k, NULL)}},
    {FORM_DISENTANGLED, "disentangled->rel_q", {POINTER(disentangled.rel_q, NULL)}},
    {FORM_ROPE, "rope->layout", {INT(rope.layout, ATTN_ROPE_HALF_SPLIT)}},
    {FORM_ROPE, "rope->q.shape[3]", {INT64(rope_q.shape[3], 4), INT64(rope_k.shape[3], 4)}},
    {FORM_ROPE, NULL, {INT64(rope_q.shape[0], 1)}},
    {FORM_CALLBACK, NULL, {POINTER(params.callback_user, NULL)}},
    {FORM_WEIGHT_CALLBACK, NULL, {POINTER(params.weight_callback_user, NULL)}},
    {FORM_PREFIX, NULL, {INT64(prefix_len[0], 30)}},
    {FORM_WINDOW, NULL, {INT64(window.left, 9), INT64(window.num_global, 2)}},
    {FORM_BLOCKS,
     "block_mask->size",
     {INT64(blocks.size, 32), INT64(blocks.rows, 2), INT64(blocks.heads, 1), INT(columns[3], 1)}},
    {FORM_BLOCKS, NULL, {INT64(blocks.heads, 1), INT(columns[1], 3)}},
    {FORM_TREE, NULL, {INT64(tree.tokens, 7)}},
    {FORM_RAGGED, NULL, {INT64(cu_seqlens_q[1], 12)}},
    {FORM_RAGGED, "ragged->num_sequences", {INT64(ragged.num_sequences, 2)}},
    {FORM_DROPOUT, NULL, {FLOAT(dropout.p, 0.5f)}},
};

/** The name of each option, by its bit in enum form. */
static const char *const names[] = {"head_scale",   "softcap",    "sinks",          "alibi_slopes", "relative_bias",
                                    "disentangled", "rope",       "callback",       "query_offset", "prefix_len",
                                    "window",       "block_mask", "segments",       "tree",         "ragged",
                                    "dropout",      "kv_len",     "weight_callback"};

static struct attn_problem problem_of(const struct forms *c, enum check_depth depth)
{
    struct attn_problem problem;
    const attn_status status = attn_check(&problem, &c->q, &c->k, &c->v, &c->out, &c->params, depth);
    if (status != ATTN_OK)
        fail_msg("\"%s\"", attn_last_error());
    return problem;
}

/** Plans a call, frees it, and runs another one: fails unless that is refused with this name, or accepted if NULL. */
static void run_after(struct forms *planned, const struct forms *now, const char *name)
{
    const struct attn_problem was = problem_of(planned, CHECK_SHAPES);
    const struct attn_planned kept = attn_planned_of(&was);
    free(planned);
    const struct attn_problem is = problem_of(now, CHECK_ALL);
    const attn_status status = attn_check_planned(&is, &was, &kept);
    char words[96] = "";
    if (name)
        snprintf(words, sizeof words, "params.%s differs from what the plan was made with", name);
    if (status != (name ? ATTN_INVALID_ARGUMENT : ATTN_OK) || (name && strcmp(attn_last_error(), words) != 0))
        fail_msg("status %d \"%s\", expected \"%s\"", (int)status, attn_last_error(), words);
}

static struct forms *new_call(unsigned forms)
{
    struct forms *c = malloc(sizeof *c);
    assert_non_null(c);
    forms_initialize(c, forms);
    return c;
}

static void test_other_settings(void **state)
{
    (void)state;
    static struct forms now;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const struct other *other = &others[i];
        forms_initialize(&now, other->forms);
        run_after(new_call(other->forms), &now, NULL);
        for (int n = 0; n < MAX_CHANGES; n++)
            change_make(&now, &other->change[n]);
        run_after(new_call(other->forms), &now, other->name);
    }
}

/** The call with an option or without it, otherwise the same. */
static void with_or_without(struct forms *c, unsigned form, int with)
{
    const unsigned shape = form & FORM_RAGGED; /* a batch of 1 in both */
    forms_initialize(c, with ? form : shape);
    if (!with)
        c->params.ragged = NULL;
    if (form == FORM_PREFIX)
        c->params.causal = ATTN_CAUSAL_TOP_LEFT;
}

static void test_other_presence(void **state)
{
    (void)state;
    static struct forms now;
    for (size_t bit = 0; bit < sizeof names / sizeof *names; bit++)
        for (int planned = 0; planned < 2; planned++) {
            struct forms *c = new_call(0);
            with_or_without(c, 1u << bit, planned);
            with_or_without(&now, 1u << bit, !planned);
            run_after(c, &now, names[bit]);
        }
    assert_int_equal(1u << (sizeof names / sizeof *names), FORM_END);
}

static attn_plan *plan_of(const struct forms *c)
{
    attn_plan *plan;
    if (attn_plan_create(&plan, &c->q, &c->k, &c->v, &c->out, &c->params) != ATTN_OK)
        fail_msg("%s", attn_last_error());
    return plan;
}

static void run_planned(const attn_plan *plan, const struct forms *c)
{
    const size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size);
    assert_non_null(workspace);
    memset(workspace, 0xff, size);
    if (attn_plan_run(plan, &c->q, &c->k, &c->v, &c->out, &c->params, workspace, size) != ATTN_OK)
        fail_msg("%s", attn_last_error());
    free(workspace);
}

/** With every option that has arrays, and several at once: the bits of a plan that keeps nothing. */
static void test_kept_arrays(void **state)
{
    (void)state;
    static const unsigned some[] = {FORM_SEGMENTS | FORM_LENGTHS, FORM_SEGMENTS | FORM_RAGGED, FORM_BLOCKS | FORM_SINKS,
                                    FORM_WINDOW | FORM_SEGMENTS | FORM_TREE};
    static struct forms c, expected;
    for (size_t i = 0;; i++) {
        const size_t alone = sizeof some / sizeof *some;
        const unsigned form = i < alone ? some[i] : 1u << (i - alone);
        if (form == FORM_END)
            break;
        forms_initialize(&c, form);
        forms_initialize(&expected, form);
        c.params.causal = expected.params.causal = form & FORM_PREFIX ? ATTN_CAUSAL_TOP_LEFT : c.params.causal;
        attn_plan *plan = plan_of(&c);
        const int phases = attn_plan_num_phases(plan);
        const size_t size = attn_plan_workspace_size(plan);
        if (attn_plan_keep(plan, &c.params) != ATTN_OK)
            fail_msg("%s", attn_last_error());
        assert_int_equal(attn_plan_num_phases(plan), form & FORM_SEGMENTS ? phases - 1 : phases);
        assert_true(form & FORM_SEGMENTS ? attn_plan_workspace_size(plan) < size
                                         : attn_plan_workspace_size(plan) == size);
        run_planned(plan, &c);
        run_planned(plan, &c);
        assert_int_equal(attn_plan_keep(plan, &c.params), ATTN_INVALID_ARGUMENT);
        assert_string_equal(attn_last_error(), "plan keeps its arrays already; expected a new one for others");
        attn_plan_destroy(plan);
        plan = plan_of(&expected);
        run_planned(plan, &expected);
        attn_plan_destroy(plan);
        assert_memory_equal(c.out.data, expected.out.data, sizeof expected.out_data);
    }
}

/** What is kept is used: a key whose label changes to that of a query far off is not found. */
static void test_kept_labels(void **state)
{
    (void)state;
    enum { TOKENS = 640, FAR = 600 };
    static int32_t labels[TOKENS], q_label = 7;
    static float keys[TOKENS], values[TOKENS];
    float query = 1, out = 0, expected = 0;
    for (int j = 0; j < TOKENS; j++)
        values[j] = (float)j;
    labels[1] = 7;
    const attn_tensor q = attn_bhtd(&query, 1, 1, 1, 1), k = attn_bhtd(keys, 1, 1, TOKENS, 1),
                      v = attn_bhtd(values, 1, 1, TOKENS, 1), o = attn_bhtd(&out, 1, 1, 1, 1);
    const attn_segments segments = {.q = &q_label, .k = labels};
    attn_params params = attn_params_default();
    params.segments = &segments;
    attn_plan *plan;
    assert_int_equal(attn_plan_create(&plan, &q, &k, &v, &o, &params), ATTN_OK);
    assert_int_equal(attn_plan_keep(plan, &params), ATTN_OK);
    const size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size);
    assert_non_null(workspace);
    labels[FAR] = 7; /* a promise broken, to see that nobody looks */
    assert_int_equal(attn_plan_run(plan, &q, &k, &v, &o, &params, workspace, size), ATTN_OK);
    assert_true(out == 1);
    free(workspace);
    attn_plan_destroy(plan);
    assert_int_equal(attn_forward(&q, &k, &v, &o, &params), ATTN_OK);
    expected = (1 + FAR) / 2.0f;
    assert_true(out == expected);
}

/** Wrong arrays are refused when they are handed over, and the plan goes on as before. */
static void test_wrong_arrays_are_not_kept(void **state)
{
    (void)state;
    static struct forms c, wrong;
    forms_initialize(&c, FORM_RAGGED | FORM_SEGMENTS);
    forms_initialize(&wrong, FORM_RAGGED | FORM_SEGMENTS);
    attn_plan *plan = plan_of(&c);
    const int phases = attn_plan_num_phases(plan);
    wrong.cu_seqlens_q[1] = -1;
    assert_int_equal(attn_plan_keep(plan, &wrong.params), ATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_last_error(), "cu_seqlens_q"));
    forms_initialize(&wrong, FORM_RAGGED);
    assert_int_equal(attn_plan_keep(plan, &wrong.params), ATTN_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_last_error(), "segments"));
    assert_int_equal(attn_plan_keep(NULL, &c.params), ATTN_INVALID_ARGUMENT);
    assert_int_equal(attn_plan_num_phases(plan), phases);
    run_planned(plan, &c);
    attn_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_settings),
        cmocka_unit_test(test_other_presence),
        cmocka_unit_test(test_kept_arrays),
        cmocka_unit_test(test_kept_labels),
        cmocka_unit_test(test_wrong_arrays_are_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
