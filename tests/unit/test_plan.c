/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans: the description, the workspace that is one byte too small, arguments
 * of a share, options that are not the plan's, runs with other data and
 * strides, one plan run by several threads at once, and shares run by a pool
 * of threads that are not OpenMP's, after one check for all of them.
 */
#include "fixture.h"
#include "large.h"
#include "test_isa.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static attn_plan *plan_of(const struct fixture *f)
{
    attn_plan *plan = NULL;
    assert_int_equal(attn_plan_create(&plan, f->q_arg, f->k_arg, f->v_arg, f->out_arg, f->params_arg), ATTN_OK);
    assert_non_null(plan);
    return plan;
}

static attn_status run(const attn_plan *plan, const struct fixture *f, void *workspace, size_t size)
{
    return attn_plan_run(plan, f->q_arg, f->k_arg, f->v_arg, f->out_arg, f->params_arg, workspace, size);
}

/** Whether the description of a plan for q, k and v of one type names this instruction set's kernel. */
static int plan_has_kernel(attn_dtype dtype, const char *isa, const char *kernel)
{
    static struct large l;
    attn_plan *plan = NULL;
    char text[1024], words[64];
    large_initialize(&l, 1);
    l.q.dtype = l.k.dtype = l.v.dtype = dtype;
    l.params.isa = isa;
    assert_int_equal(attn_plan_create(&plan, &l.q, &l.k, &l.v, &l.out, &l.params), ATTN_OK);
    attn_plan_describe(plan, text, sizeof text);
    attn_plan_destroy(plan);
    snprintf(words, sizeof words, " %s kernel", kernel);
    assert_non_null(strstr(text, attn_dtype_name(dtype)));
    assert_non_null(strstr(text, dtype == ATTN_F32 || !test_isa_has_pairs(kernel) ? " f32 weights" : " bf16 weights"));
    return strstr(text, words) != NULL;
}

/** Kernels of bf16 pairs are for bf16 and nothing else, whether they are asked for or found. */
static void test_kernel_follows_type(void **state)
{
    (void)state;
    for (int i = -1; i < 0 || attn_isa_name(i); i++) {
        const char *const isa = attn_isa_name(i), *const stands_for = isa ? isa : attn_isa_active(); /* -1: NULL */
        if (!attn_isa_supported(stands_for))
            continue;
        assert_true(plan_has_kernel(ATTN_BF16, isa, stands_for));
        assert_true(plan_has_kernel(ATTN_F32, isa, test_isa_of_floats(stands_for)));
        assert_true(plan_has_kernel(ATTN_F16, isa, test_isa_of_floats(stands_for)));
    }
    /* One of the three of another type is enough. */
    for (int i = 0; i < 3; i++) {
        static struct large l;
        attn_plan *plan = NULL;
        char text[1024];
        large_initialize(&l, 1);
        l.q.dtype = i == 0 ? ATTN_F32 : ATTN_BF16;
        l.k.dtype = i == 1 ? ATTN_F16 : ATTN_BF16;
        l.v.dtype = i == 2 ? ATTN_F32 : ATTN_BF16;
        assert_int_equal(attn_plan_create(&plan, &l.q, &l.k, &l.v, &l.out, &l.params), ATTN_OK);
        attn_plan_describe(plan, text, sizeof text);
        attn_plan_destroy(plan);
        assert_null(strstr(text, "_bf16 kernel"));
    }
}

static void test_describe(void **state)
{
    (void)state;
    static struct large l;
    attn_plan *plan = NULL;
    large_initialize(&l, 2);
    assert_int_equal(attn_plan_create(&plan, &l.q, &l.k, &l.v, &l.out, &l.params), ATTN_OK);
    char whole[1024], part[24];
    memset(part, '#', sizeof part);
    const size_t length = attn_plan_describe(plan, whole, sizeof whole);
    assert_int_equal(length, strlen(whole));
    assert_true(length > 20 && !strchr(whole, '\n'));
    assert_non_null(strstr(whole, test_isa_of_floats(attn_isa_active())));
    assert_non_null(strstr(whole, " f32 weights"));
    assert_int_equal(attn_plan_describe(plan, part, 10), length);
    assert_int_equal(strlen(part), 9);
    assert_memory_equal(part, whole, 9);
    assert_true(part[10] == '#');
    assert_int_equal(attn_plan_describe(plan, NULL, 0), length);
    assert_int_equal(attn_plan_num_threads(plan), 2);
    attn_plan_destroy(plan);
    attn_plan_destroy(NULL);
}

static void test_small_workspace(void **state)
{
    (void)state;
    struct fixture f;
    char number[32];
    fixture_initialize(&f);
    attn_plan *plan = plan_of(&f);
    const size_t size = attn_plan_workspace_size(plan);
    assert_true(size > 0 && size <= (size_t)attn_plan_num_threads(plan) << 21);
    void *workspace = malloc(size);
    assert_non_null(workspace);
    assert_int_equal(run(plan, &f, workspace, size - 1), ATTN_WORKSPACE_TOO_SMALL);
    snprintf(number, sizeof number, "%zu", size);
    assert_non_null(strstr(attn_last_error(), number));
    snprintf(number, sizeof number, "%zu", size - 1);
    assert_non_null(strstr(attn_last_error(), number));
    assert_int_equal(run(plan, &f, workspace, 0), ATTN_WORKSPACE_TOO_SMALL);
    assert_int_equal(run(plan, &f, NULL, size), ATTN_INVALID_ARGUMENT);
    assert_int_equal(run(NULL, &f, workspace, size), ATTN_INVALID_ARGUMENT);
    assert_int_equal(attn_plan_begin(plan, f.q_arg, f.k_arg, f.v_arg, f.out_arg, f.params_arg, workspace, size - 1),
                     ATTN_WORKSPACE_TOO_SMALL);
    assert_true(fixture_outputs_untouched(&f));
    assert_int_equal(run(plan, &f, workspace, size), ATTN_OK);
    free(workspace);
    attn_plan_destroy(plan);
}

static void test_share_arguments(void **state)
{
    (void)state;
    static const struct {
        int ith, nth;
        const char *sentence;
    } wrong[] = {{-1, 2, "ith is -1; expected 0 to 1"},
                 {2, 2, "ith is 2; expected 0 to 1"},
                 {0, 0, "nth is 0; expected 1 to 3, the threads of the plan"},
                 {0, -1, "nth is -1; expected 1 to 3, the threads of the plan"},
                 {0, 4, "nth is 4; expected 1 to 3, the threads of the plan"},
                 {3, 3, "ith is 3; expected 0 to 2"},
                 {5, 2, "ith is 5; expected 0 to 1"}};
    static struct large l;
    attn_plan *plan = NULL, *other = NULL;
    large_initialize(&l, 3);
    assert_int_equal(attn_plan_create(&plan, &l.q, &l.k, &l.v, &l.out, &l.params), ATTN_OK);
    assert_int_equal(attn_plan_create(&other, &l.q, &l.k, &l.v, &l.out, &l.params), ATTN_OK);
    assert_int_equal(attn_plan_num_threads(plan), 3);
    const int phases = attn_plan_num_phases(plan);
    assert_true(phases >= 1);
    const size_t size = attn_plan_workspace_size(plan);
    void *workspace = calloc(1, size);
    assert_non_null(workspace);
    assert_int_equal(attn_plan_run_share(plan, workspace, 0, 0, 1), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "workspace|not prepared|attn_plan_begin"));
    assert_int_equal(attn_plan_begin(plan, &l.q, &l.k, &l.v, &l.out, &l.params, workspace, size), ATTN_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(attn_plan_run_share(plan, workspace, 0, wrong[i].ith, wrong[i].nth), ATTN_INVALID_ARGUMENT);
        assert_string_equal(attn_last_error(), wrong[i].sentence);
    }
    assert_int_equal(attn_plan_run_share(plan, workspace, -1, 0, 1), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "phase is -1"));
    assert_int_equal(attn_plan_run_share(plan, workspace, phases, 0, 1), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "phase is 1; expected 0 to 0"));
    assert_int_equal(attn_plan_run_share(plan, NULL, 0, 0, 1), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "workspace is NULL"));
    assert_int_equal(attn_plan_run_share(NULL, workspace, 0, 0, 1), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "plan is NULL; expected one made by attn_plan_create()"));
    assert_int_equal(attn_plan_run_share(other, workspace, 0, 0, 1), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "workspace|attn_plan_begin"));
    assert_true(large_untouched(&l));
    free(workspace);
    attn_plan_destroy(plan);
    attn_plan_destroy(other);
}

/** What the queries about a plan say of none. */
static void test_no_plan(void **state)
{
    (void)state;
    char text[] = "text";
    assert_int_equal(attn_plan_num_threads(NULL), 0);
    assert_int_equal(attn_plan_num_phases(NULL), 0);
    assert_true(attn_plan_workspace_size(NULL) == SIZE_MAX);
    assert_int_equal(attn_plan_describe(NULL, NULL, 0), 0);
    assert_int_equal(attn_plan_describe(NULL, NULL, 7), 0);
    assert_int_equal(attn_plan_describe(NULL, text, 0), 0);
    assert_string_equal(text, "text");
    assert_int_equal(attn_plan_describe(NULL, text, sizeof text), 0);
    assert_string_equal(text, "");
}

/** Shares run what attn_plan_begin() has checked: they neither check it again nor need the tensors and params. */
static void test_one_check(void **state)
{
    (void)state;
    static struct large l, expected;
    attn_plan *plan = NULL;
    large_initialize(&expected, 1);
    assert_int_equal(large_forward(&expected), ATTN_OK);
    large_initialize(&l, 2);
    assert_int_equal(attn_plan_create(&plan, &l.q, &l.k, &l.v, &l.out, &l.params), ATTN_OK);
    const size_t size = attn_plan_workspace_size(plan);
    char *workspace = malloc(size + 1);
    assert_non_null(workspace);
    assert_int_equal(attn_plan_begin(plan, &l.q, &l.k, &l.v, &l.out, &l.params, workspace + 1, size), ATTN_OK);
    assert_true(large_untouched(&l));
    memset(&l.q, 0xff, sizeof l.q);
    memset(&l.out, 0xff, sizeof l.out);
    memset(&l.lse, 0xff, sizeof l.lse);
    memset(&l.params, 0xff, sizeof l.params);
    for (int phase = 0; phase < attn_plan_num_phases(plan); phase++)
        for (int ith = 0; ith < 2; ith++)
            assert_int_equal(attn_plan_run_share(plan, workspace + 1, phase, ith, 2), ATTN_OK);
    assert_true(large_equal(&l, &expected));
    free(workspace);
    attn_plan_destroy(plan);
}

/** Documents have a phase of their own before the others': its shares need not be as many. */
static void test_phases(void **state)
{
    (void)state;
    static struct large l, expected;
    static int32_t labels[LARGE_TOKENS];
    const attn_segments segments = {labels, labels};
    attn_plan *plan = NULL;
    for (int i = 0; i < LARGE_TOKENS; i++)
        labels[i] = i / 37;
    large_initialize(&expected, 1);
    expected.params.segments = &segments;
    assert_int_equal(large_forward(&expected), ATTN_OK);
    large_initialize(&l, 3);
    assert_int_equal(attn_plan_create(&plan, &l.q, &l.k, &l.v, &l.out, &l.params), ATTN_OK);
    assert_int_equal(attn_plan_num_phases(plan), 1);
    attn_plan_destroy(plan);
    l.params.segments = &segments;
    assert_int_equal(attn_plan_create(&plan, &l.q, &l.k, &l.v, &l.out, &l.params), ATTN_OK);
    assert_int_equal(attn_plan_num_phases(plan), 2);
    const size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size);
    assert_non_null(workspace);
    for (int nth = 1; nth <= 3; nth++) {
        memset(workspace, 0xff, size);
        memset(l.out_data, 0xff, sizeof l.out_data);
        assert_int_equal(attn_plan_begin(plan, &l.q, &l.k, &l.v, &l.out, &l.params, workspace, size), ATTN_OK);
        for (int ith = 3 - nth; ith >= 0; ith--)
            assert_int_equal(attn_plan_run_share(plan, workspace, 0, ith, 4 - nth), ATTN_OK);
        for (int ith = 0; ith < nth; ith++)
            assert_int_equal(attn_plan_run_share(plan, workspace, 1, ith, nth), ATTN_OK);
        assert_true(large_equal(&l, &expected));
    }
    free(workspace);
    attn_plan_destroy(plan);
}

/** A number of threads that no process can have counts as the most there may be. */
static void test_most_threads(void **state)
{
    (void)state;
    static struct large l, expected;
    large_initialize(&expected, 1);
    assert_int_equal(large_forward(&expected), ATTN_OK);
    for (int threads = ATTN_MAX_THREADS; threads > 0; threads = threads == INT_MAX ? 0 : INT_MAX) {
        attn_plan *plan = NULL;
        large_initialize(&l, threads);
        assert_int_equal(attn_plan_create(&plan, &l.q, &l.k, &l.v, &l.out, &l.params), ATTN_OK);
        assert_int_equal(attn_plan_num_threads(plan), ATTN_MAX_THREADS);
        attn_plan_destroy(plan);
        assert_int_equal(large_forward(&l), ATTN_OK);
        assert_true(large_equal(&l, &expected));
    }
}

/** Options are part of the plan: a run with others is refused, not quietly done in the plan's way. */
static void test_other_options(void **state)
{
    (void)state;
    struct fixture f;
    fixture_initialize(&f);
    attn_plan *plan = plan_of(&f);
    const size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size);
    assert_non_null(workspace);
    for (int i = 0; i < 8; i++) {
        fixture_initialize(&f);
        attn_params *p = &f.params;
        attn_tensor *const tensors[] = {&f.q, &f.out, &f.mask, &f.lse, &f.weights};
        p->causal = i == 0 ? ATTN_CAUSAL_TOP_LEFT : p->causal;
        p->scale = i == 1 ? 0.25f : p->scale;
        p->temperature = i == 2 ? 2.0f : p->temperature;
        p->isa = i == 3 ? (strcmp(attn_isa_active(), "scalar") == 0 ? "nothing" : "scalar") : p->isa;
        p->key_sums = i == 4 ? NULL : p->key_sums;
        p->mask = i == 5 ? NULL : p->mask;
        f.mask.dtype = i == 6 ? ATTN_BOOL : f.mask.dtype;
        for (int t = 0; i == 7 && t < 5; t++)
            tensors[t]->shape[2]--; /* fits together, but is not the plan's shape */
        if (run(plan, &f, workspace, size) == ATTN_OK)
            fail_msg("change %d of the options was accepted", i);
        assert_true(attn_last_error()[0] != 0);
        assert_true(fixture_outputs_untouched(&f));
    }
    free(workspace);
    attn_plan_destroy(plan);
}

/** So are the types of q, k, v, out and the mask: the sentence names the tensor. */
static void test_other_types(void **state)
{
    (void)state;
    static const char *const names[] = {"q.dtype", "k.dtype", "v.dtype", "out.dtype", "mask"};
    static const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_F16};
    struct fixture f;
    for (int planned = 0; planned < 3; planned++) {
        fixture_initialize(&f);
        f.q.dtype = f.k.dtype = f.v.dtype = f.out.dtype = f.mask.dtype = types[planned];
        attn_plan *plan = plan_of(&f);
        const size_t size = attn_plan_workspace_size(plan);
        void *workspace = malloc(size);
        assert_non_null(workspace);
        for (int which = 0; which < 5; which++) {
            for (int other = 0; other < 3; other++) {
                fixture_initialize(&f);
                f.q.dtype = f.k.dtype = f.v.dtype = f.out.dtype = f.mask.dtype = types[planned];
                attn_tensor *const tensors[] = {&f.q, &f.k, &f.v, &f.out, &f.mask};
                tensors[which]->dtype = types[other];
                if (other == planned) {
                    assert_int_equal(run(plan, &f, workspace, size), ATTN_OK);
                    continue;
                }
                assert_int_equal(run(plan, &f, workspace, size), ATTN_INVALID_ARGUMENT);
                if (!strstr(attn_last_error(), names[which]))
                    fail_msg("expected %s in \"%s\"", names[which], attn_last_error());
                assert_true(fixture_outputs_untouched(&f));
            }
        }
        free(workspace);
        attn_plan_destroy(plan);
    }
}

static void test_other_data(void **state)
{
    (void)state;
    struct fixture made, f, expected;
    float relaid[FIX_B * FIX_TK * FIX_HKV * FIX_DK];
    fixture_initialize(&made);
    fixture_initialize(&f);
    made.q.data = made.k.data = made.v.data = made.out.data = NULL; /* only dtypes and shapes are looked at */
    attn_plan *plan = plan_of(&made);
    const size_t size = attn_plan_workspace_size(plan);
    char *workspace = malloc(size + 3);
    assert_non_null(workspace);
    f.k = attn_bthd(relaid, FIX_B, FIX_TK, FIX_HKV, FIX_DK);
    for (int b = 0; b < FIX_B; b++)
        for (int h = 0; h < FIX_HKV; h++)
            for (int j = 0; j < FIX_TK; j++)
                for (int c = 0; c < FIX_DK; c++)
                    relaid[((b * FIX_TK + j) * FIX_HKV + h) * FIX_DK + c] =
                        f.k_data[((b * FIX_HKV + h) * FIX_TK + j) * FIX_DK + c];
    f.kv_len[1] = 3;
    f.params.num_threads = 17; /* not looked at */
    assert_int_equal(run(plan, &f, workspace + 3, size), ATTN_OK);
    fixture_initialize(&expected);
    expected.kv_len[1] = 3;
    assert_int_equal(fixture_forward(&expected), ATTN_OK);
    assert_true(fixture_outputs_equal(&f, &expected));
    free(workspace);
    attn_plan_destroy(plan);
}

struct thread {
    pthread_t id;
    const attn_plan *plan;
    struct large *l;
    const struct large *expected;
    void *workspace;
    size_t size;
    int ith, nth;               /**< nth 0: runs whole plans, again and again */
    pthread_barrier_t *barrier; /**< between phases */
    int failures;
};

static void *run_thread(void *argument)
{
    struct thread *t = argument;
    struct large *l = t->l;
    for (int phase = 0; t->nth && phase < attn_plan_num_phases(t->plan); phase++) {
        t->failures += attn_plan_run_share(t->plan, t->workspace, phase, t->ith, t->nth) != ATTN_OK;
        pthread_barrier_wait(t->barrier);
    }
    if (t->nth)
        return NULL;
    for (int i = 0; i < 20; i++) {
        large_initialize(l, 2);
        t->failures +=
            attn_plan_run(t->plan, &l->q, &l->k, &l->v, &l->out, &l->params, t->workspace, t->size) != ATTN_OK ||
            !large_equal(l, t->expected);
    }
    return NULL;
}

enum { THREADS = 4 };

static attn_plan *large_plan(struct large *l, int num_threads)
{
    attn_plan *plan = NULL;
    large_initialize(l, num_threads);
    assert_int_equal(attn_plan_create(&plan, &l->q, &l->k, &l->v, &l->out, &l->params), ATTN_OK);
    assert_int_equal(attn_plan_num_threads(plan), num_threads);
    return plan;
}

static void join_all(struct thread *threads, int n)
{
    for (int i = 0; i < n; i++)
        assert_int_equal(pthread_join(threads[i].id, NULL), 0);
    for (int i = 0; i < n; i++)
        assert_int_equal(threads[i].failures, 0);
}

static void test_concurrent_runs(void **state)
{
    (void)state;
    static struct large calls[THREADS], expected;
    static struct thread threads[THREADS];
    attn_plan *plan = large_plan(&expected, 2);
    assert_int_equal(large_forward(&expected), ATTN_OK);
    for (int i = 0; i < THREADS; i++) {
        threads[i] = (struct thread){.plan = plan, .l = &calls[i], .expected = &expected};
        threads[i].size = attn_plan_workspace_size(plan);
        threads[i].workspace = malloc(threads[i].size);
        assert_non_null(threads[i].workspace);
        assert_int_equal(pthread_create(&threads[i].id, NULL, run_thread, &threads[i]), 0);
    }
    join_all(threads, THREADS);
    for (int i = 0; i < THREADS; i++)
        free(threads[i].workspace);
    attn_plan_destroy(plan);
}

static void test_shares_of_a_pool(void **state)
{
    (void)state;
    static struct thread threads[THREADS];
    static struct large l, expected;
    large_initialize(&expected, 1);
    assert_int_equal(large_forward(&expected), ATTN_OK);
    for (int nth = 1; nth <= THREADS; nth++) {
        attn_plan *plan = large_plan(&l, THREADS);
        const size_t size = attn_plan_workspace_size(plan);
        void *workspace = malloc(size);
        pthread_barrier_t barrier;
        assert_non_null(workspace);
        assert_int_equal(pthread_barrier_init(&barrier, NULL, (unsigned)nth), 0);
        assert_int_equal(attn_plan_begin(plan, &l.q, &l.k, &l.v, &l.out, &l.params, workspace, size), ATTN_OK);
        for (int i = 0; i < nth; i++) {
            threads[i] = (struct thread){
                .plan = plan, .l = &l, .workspace = workspace, .ith = i, .nth = nth, .barrier = &barrier};
            assert_int_equal(pthread_create(&threads[i].id, NULL, run_thread, &threads[i]), 0);
        }
        join_all(threads, nth);
        assert_true(large_equal(&l, &expected));
        pthread_barrier_destroy(&barrier);
        free(workspace);
        attn_plan_destroy(plan);
    }
}

/** What a callback finds out about the run that it is called from. */
struct watched {
    const attn_plan *plan;
    const void *workspace;
    size_t size;
    int64_t tasks;
    atomic_int wrong; /* several threads look */
};

static void look(const attn_score_tile *tile, void *user)
{
    struct watched *w = user;
    int64_t begun, tasks;
    (void)tile;
    if (attn_plan_progress(w->plan, w->workspace, w->size, &begun, &tasks) != ATTN_OK || tasks != w->tasks ||
        begun < 1 || begun > tasks)
        w->wrong = 1;
}

/** Tasks of a run are counted as they begin, on one thread and on several, and can be counted in zeros. */
static void test_progress(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads += 2) {
        static struct large l;
        large_initialize(&l, threads);
        struct watched w = {.size = 0};
        l.params.callback = look;
        l.params.callback_user = &w;
        attn_plan *plan = NULL;
        assert_int_equal(attn_plan_create(&plan, &l.q, &l.k, &l.v, &l.out, &l.params), ATTN_OK);
        w.plan = plan;
        w.size = attn_plan_workspace_size(plan);
        void *workspace = calloc(1, w.size);
        w.workspace = workspace;
        assert_non_null(workspace);
        int64_t begun = -1;
        assert_int_equal(attn_plan_progress(plan, workspace, w.size, &begun, &w.tasks), ATTN_OK);
        assert_int_equal(begun, 0);
        assert_true(w.tasks > 1);
        assert_int_equal(attn_plan_run(plan, &l.q, &l.k, &l.v, &l.out, &l.params, workspace, w.size), ATTN_OK);
        assert_int_equal(w.wrong, 0);
        int64_t tasks;
        assert_int_equal(attn_plan_progress(plan, workspace, w.size, &begun, &tasks), ATTN_OK);
        assert_int_equal(begun, tasks);
        assert_int_equal(tasks, w.tasks);

        assert_int_equal(attn_plan_progress(plan, workspace, w.size - 1, &begun, &tasks), ATTN_WORKSPACE_TOO_SMALL);
        assert_non_null(strstr(attn_last_error(), "workspace_size is"));
        assert_int_equal(attn_plan_progress(NULL, workspace, w.size, &begun, &tasks), ATTN_INVALID_ARGUMENT);
        assert_string_equal(attn_last_error(), "plan is NULL; expected a plan");
        assert_int_equal(attn_plan_progress(plan, NULL, w.size, &begun, &tasks), ATTN_INVALID_ARGUMENT);
        assert_string_equal(attn_last_error(), "workspace is NULL; expected the workspace of a run");
        assert_int_equal(attn_plan_progress(plan, workspace, w.size, NULL, &tasks), ATTN_INVALID_ARGUMENT);
        assert_int_equal(attn_plan_progress(plan, workspace, w.size, &begun, NULL), ATTN_INVALID_ARGUMENT);
        free(workspace);
        attn_plan_destroy(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_describe),        cmocka_unit_test(test_kernel_follows_type),
        cmocka_unit_test(test_small_workspace), cmocka_unit_test(test_share_arguments),
        cmocka_unit_test(test_other_options),   cmocka_unit_test(test_other_types),
        cmocka_unit_test(test_other_data),      cmocka_unit_test(test_progress),

        cmocka_unit_test(test_concurrent_runs), cmocka_unit_test(test_shares_of_a_pool),
        cmocka_unit_test(test_no_plan),         cmocka_unit_test(test_one_check),
        cmocka_unit_test(test_most_threads),    cmocka_unit_test(test_phases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
