/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of linear attention, and the call in the caller's memory: the bits of the
 * simple call, workspaces of just the size that was told, shares in any order and on
 * the threads of a pool, runs of something else than was planned, and the line that
 * describes a plan.
 */
#include "linear_fixture.h"

#include "random.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 6, TOKENS = 150, DK = 32, DV = 48, THREADS = 4 };

/** A call that is worth several threads. */
struct work {
    float q_data[HEADS * TOKENS * DK], k_data[HEADS * TOKENS * DK], v_data[HEADS * TOKENS * DV];
    float decay_data[HEADS * TOKENS], beta_data[HEADS * TOKENS], before[HEADS * DK * DV];
    struct {
        float out[HEADS * TOKENS * DV], s[HEADS * DK * DV];
    } written;
    attn_tensor q, k, v, out, decay, beta, state_in, state_out;
    attn_linear_attention_params params;
};

static void initialize(struct work *w, int threads)
{
    struct rng rng = rng_for_case(5, 5);
    memset(w, 0, sizeof *w);
    rng_fill_normal(&rng, w->q_data, HEADS * TOKENS * DK);
    rng_fill_normal(&rng, w->k_data, HEADS * TOKENS * DK);
    rng_fill_normal(&rng, w->v_data, HEADS * TOKENS * DV);
    rng_fill_normal(&rng, w->before, HEADS * DK * DV);
    for (int64_t i = 0; i < HEADS * TOKENS; i++) {
        w->decay_data[i] = -0.1f * (float)rng_uniform(&rng);
        w->beta_data[i] = 0.03f * (float)rng_uniform(&rng);
    }
    memset(&w->written, CANARY, sizeof w->written);
    w->q = attn_bhtd(w->q_data, 1, HEADS, TOKENS, DK);
    w->k = attn_bhtd(w->k_data, 1, HEADS, TOKENS, DK);
    w->v = attn_bhtd(w->v_data, 1, HEADS, TOKENS, DV);
    w->out = attn_bhtd(w->written.out, 1, HEADS, TOKENS, DV);
    w->decay = attn_bhtd(w->decay_data, 1, HEADS, TOKENS, 1);
    w->beta = attn_bhtd(w->beta_data, 1, HEADS, TOKENS, 1);
    w->state_in = attn_bhtd(w->before, 1, HEADS, DK, DV);
    w->state_out = attn_bhtd(w->written.s, 1, HEADS, DK, DV);
    w->params = attn_linear_attention_params_default();
    w->params.decay = &w->decay;
    w->params.beta = &w->beta;
    w->params.state_in = &w->state_in;
    w->params.state_out = &w->state_out;
    w->params.num_threads = threads;
}

static struct work work, expected;

/** The result of the simple call, to compare with. */
static void compute_expected(void)
{
    initialize(&expected, 1);
    assert_int_equal(attn_linear_attention(&expected.q, &expected.k, &expected.v, &expected.out, &expected.params),
                     ATTN_OK);
    assert_false(all_canary(&expected.written, sizeof expected.written));
}

static int is_right(const struct work *w)
{
    return memcmp(&w->written, &expected.written, sizeof w->written) == 0;
}

static int is_untouched(const struct work *w)
{
    return all_canary(&w->written, sizeof w->written);
}

static attn_linear_attention_plan *plan_of(const struct work *w)
{
    attn_linear_attention_plan *plan = NULL;
    assert_int_equal(attn_linear_attention_plan_create(&plan, &w->q, &w->k, &w->v, &w->out, &w->params), ATTN_OK);
    assert_non_null(plan);
    return plan;
}

static attn_status run(const attn_linear_attention_plan *plan, const struct work *w, void *workspace, size_t size)
{
    return attn_linear_attention_plan_run(plan, &w->q, &w->k, &w->v, &w->out, &w->params, workspace, size);
}

static attn_status begin(const attn_linear_attention_plan *plan, const struct work *w, void *workspace, size_t size)
{
    return attn_linear_attention_plan_begin(plan, &w->q, &w->k, &w->v, &w->out, &w->params, workspace, size);
}

static void test_run(void **state)
{
    (void)state;
    compute_expected();
    initialize(&work, THREADS);
    attn_linear_attention_plan *plan = plan_of(&work);
    const size_t size = attn_linear_attention_plan_workspace_size(plan);
    char *workspace = malloc(size + 2);
    assert_non_null(workspace);
    memset(workspace, 0xff, size + 2);
    assert_int_equal(run(plan, &work, workspace + 1, size - 1), ATTN_WORKSPACE_TOO_SMALL);
    assert_true(holds_words(attn_last_error(), "workspace_size"));
    assert_int_equal(run(plan, &work, NULL, size), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "workspace|NULL"));
    assert_int_equal(run(NULL, &work, workspace, size), ATTN_INVALID_ARGUMENT);
    assert_true(
        holds_words(attn_last_error(), "plan is NULL; expected one made by attn_linear_attention_plan_create()"));
    assert_int_equal(begin(plan, &work, workspace, size - 1), ATTN_WORKSPACE_TOO_SMALL);
    assert_int_equal(begin(NULL, &work, workspace, size), ATTN_INVALID_ARGUMENT);
    assert_true(is_untouched(&work));
    for (int i = 0; i < 2; i++) {
        memset(&work.written, CANARY, sizeof work.written);
        assert_int_equal(run(plan, &work, workspace + 1, size), ATTN_OK);
        assert_true(is_right(&work));
        assert_int_equal((unsigned char)workspace[size + 1], 0xff);
    }
    attn_linear_attention_plan_destroy(plan);
    attn_linear_attention_plan_destroy(NULL);
    free(workspace);
}

/** A plan that was made without data, and of other strides. */
static void test_plan_of_shapes(void **state)
{
    (void)state;
    static const attn_tensor of_none;
    static float shuffled[HEADS * TOKENS * DV];
    compute_expected();
    initialize(&work, 2);
    struct work *w = &work;
    const attn_linear_attention_params params = w->params;
    attn_tensor *const tensors[] = {&w->q, &w->k, &w->v, &w->out, &w->decay, &w->beta, &w->state_in, &w->state_out};
    attn_tensor was[8];
    for (int i = 0; i < 8; i++) {
        was[i] = *tensors[i];
        tensors[i]->data = NULL;
        memcpy(tensors[i]->stride, of_none.stride, sizeof of_none.stride);
    }
    attn_linear_attention_plan *plan = plan_of(w);
    for (int i = 0; i < 8; i++)
        *tensors[i] = was[i];
    w->params = params;
    w->v = attn_bthd(shuffled, 1, TOKENS, HEADS, DV);
    for (int64_t i = 0; i < HEADS * TOKENS * DV; i++) {
        const int64_t c = i % DV, t = i / DV % TOKENS, h = i / DV / TOKENS;
        shuffled[(t * HEADS + h) * DV + c] = w->v_data[i];
    }
    const size_t size = attn_linear_attention_plan_workspace_size(plan);
    void *workspace = malloc(size);
    assert_non_null(workspace);
    assert_int_equal(run(plan, w, workspace, size), ATTN_OK);
    assert_true(is_right(w));
    attn_linear_attention_plan_destroy(plan);
    free(workspace);
}

/** A size that was told for one number of threads serves any other. */
static void test_in(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 3, 4, 7, 16, 100000};
    const int n = (int)(sizeof counts / sizeof *counts);
    compute_expected();
    for (int asked = 0; asked < n; asked++)
        for (int used = 0; used < n; used++) {
            size_t size = 0;
            initialize(&work, counts[asked]);
            assert_int_equal(
                attn_linear_attention_workspace_size(&work.q, &work.k, &work.v, &work.out, &work.params, &size),
                ATTN_OK);
            char *workspace = malloc(size + 1);
            assert_non_null(workspace);
            workspace[size] = 0x5a;
            work.params.num_threads = counts[used];
            if (attn_linear_attention_in(&work.q, &work.k, &work.v, &work.out, &work.params, workspace, size) !=
                ATTN_OK)
                fail_msg("asked for %d threads, used with %d: %s", counts[asked], counts[used], attn_last_error());
            assert_true(is_right(&work));
            assert_int_equal(workspace[size], 0x5a);
            free(workspace);
        }
}

/** The size that the sentence names is enough, and one byte less is not. */
static void test_least_size(void **state)
{
    (void)state;
    size_t least = 0, untouched = 77;
    char none[1];
    compute_expected();
    initialize(&work, THREADS);
    assert_int_equal(attn_linear_attention_in(&work.q, &work.k, &work.v, &work.out, &work.params, none, sizeof none),
                     ATTN_WORKSPACE_TOO_SMALL);
    assert_int_equal(sscanf(attn_last_error(), "workspace_size is 1; expected at least %zu", &least), 1);
    assert_true(is_untouched(&work));
    char *workspace = malloc(least);
    assert_non_null(workspace);
    assert_int_equal(attn_linear_attention_in(&work.q, &work.k, &work.v, &work.out, &work.params, workspace, least),
                     ATTN_OK);
    assert_true(is_right(&work));
    initialize(&work, THREADS);
    assert_int_equal(attn_linear_attention_in(&work.q, &work.k, &work.v, &work.out, &work.params, NULL, least),
                     ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "workspace|NULL"));
    assert_int_equal(attn_linear_attention_workspace_size(&work.q, &work.k, &work.v, &work.out, &work.params, NULL),
                     ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "size|NULL"));
    work.k.shape[3]++;
    assert_int_equal(
        attn_linear_attention_workspace_size(&work.q, &work.k, &work.v, &work.out, &work.params, &untouched),
        ATTN_SHAPE_MISMATCH);
    assert_int_equal(untouched, 77);
    assert_true(is_untouched(&work));
    free(workspace);
}

/** Tasks are counted as they begin, share by share, and can be counted in zeros. */
static void test_progress(void **state)
{
    (void)state;
    compute_expected();
    for (int threads = 1; threads <= THREADS; threads += THREADS - 1) {
        int64_t begun = -1, tasks = -1, all = -1;
        initialize(&work, threads);
        attn_linear_attention_plan *plan = plan_of(&work);
        const size_t size = attn_linear_attention_plan_workspace_size(plan);
        void *workspace = calloc(1, size);
        assert_non_null(workspace);
        assert_int_equal(attn_linear_attention_plan_progress(plan, workspace, size, &begun, &all), ATTN_OK);
        assert_int_equal(begun, 0);
        assert_true(all >= HEADS);
        assert_int_equal(run(plan, &work, workspace, size), ATTN_OK);
        assert_true(is_right(&work));
        assert_int_equal(attn_linear_attention_plan_progress(plan, workspace, size, &begun, &tasks), ATTN_OK);
        assert_int_equal(tasks, all);
        assert_int_equal(begun, all);
        assert_int_equal(begin(plan, &work, workspace, size), ATTN_OK);
        assert_int_equal(attn_linear_attention_plan_progress(plan, workspace, size, &begun, &tasks), ATTN_OK);
        assert_int_equal(begun, 0);
        for (int phase = 0; phase < attn_linear_attention_plan_num_phases(plan); phase++)
            assert_int_equal(attn_linear_attention_plan_run_share(plan, workspace, phase, 0, 1), ATTN_OK);
        assert_int_equal(attn_linear_attention_plan_progress(plan, workspace, size, &begun, &tasks), ATTN_OK);
        assert_int_equal(begun, all);

        assert_int_equal(attn_linear_attention_plan_progress(plan, workspace, size - 1, &begun, &tasks),
                         ATTN_WORKSPACE_TOO_SMALL);
        assert_true(holds_words(attn_last_error(), "workspace_size"));
        assert_int_equal(attn_linear_attention_plan_progress(NULL, workspace, size, &begun, &tasks),
                         ATTN_INVALID_ARGUMENT);
        assert_true(holds_words(attn_last_error(), "plan is NULL"));
        assert_int_equal(attn_linear_attention_plan_progress(plan, NULL, size, &begun, &tasks), ATTN_INVALID_ARGUMENT);
        assert_true(holds_words(attn_last_error(), "workspace is NULL"));
        assert_int_equal(attn_linear_attention_plan_progress(plan, workspace, size, NULL, &tasks),
                         ATTN_INVALID_ARGUMENT);
        assert_true(holds_words(attn_last_error(), "begun is NULL"));
        assert_int_equal(attn_linear_attention_plan_progress(plan, workspace, size, &begun, NULL),
                         ATTN_INVALID_ARGUMENT);
        assert_true(holds_words(attn_last_error(), "tasks is NULL"));
        free(workspace);
        attn_linear_attention_plan_destroy(plan);
    }
}

/** A thread of a pool: its shares of all phases. */
struct worker {
    const attn_linear_attention_plan *plan;
    void *workspace;
    pthread_barrier_t *barrier;
    int ith, failures;
};

static void *take_shares(void *argument)
{
    struct worker *w = argument;
    for (int phase = 0; phase < attn_linear_attention_plan_num_phases(w->plan); phase++) {
        w->failures += attn_linear_attention_plan_run_share(w->plan, w->workspace, phase, w->ith, THREADS) != ATTN_OK;
        pthread_barrier_wait(w->barrier);
    }
    return NULL;
}

static void test_shares(void **state)
{
    (void)state;
    compute_expected();
    initialize(&work, THREADS);
    attn_linear_attention_plan *plan = plan_of(&work), *other = plan_of(&work);
    const size_t size = attn_linear_attention_plan_workspace_size(plan);
    void *workspace = calloc(1, size);
    assert_non_null(workspace);
    assert_int_equal(attn_linear_attention_plan_num_threads(plan), THREADS);
    assert_int_equal(attn_linear_attention_plan_run_share(plan, workspace, 0, 0, 1), ATTN_INVALID_ARGUMENT);
    assert_string_equal(attn_last_error(), "workspace is not prepared; expected one that "
                                           "attn_linear_attention_plan_begin() has prepared for this plan");
    assert_int_equal(begin(plan, &work, workspace, size), ATTN_OK);
    static const struct {
        int phase, ith, nth;
        const char *words;
    } wrong[] = {{-1, 0, 1, "phase is -1; expected 0 to "},
                 {9, 0, 1, "phase is 9; expected 0 to "},
                 {0, -1, 1, "ith is -1; expected 0 to 0"},
                 {0, 1, 1, "ith is 1; expected 0 to 0"},
                 {0, 0, 0, "nth is 0; expected 1 to 4, the threads of the plan"},
                 {0, 0, THREADS + 1, "nth is 5; expected 1 to 4, the threads of the plan"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(
            attn_linear_attention_plan_run_share(plan, workspace, wrong[i].phase, wrong[i].ith, wrong[i].nth),
            ATTN_INVALID_ARGUMENT);
        assert_non_null(strstr(attn_last_error(), wrong[i].words));
    }
    assert_int_equal(attn_linear_attention_plan_run_share(NULL, workspace, 0, 0, 1), ATTN_INVALID_ARGUMENT);
    assert_int_equal(attn_linear_attention_plan_run_share(plan, NULL, 0, 0, 1), ATTN_INVALID_ARGUMENT);
    assert_int_equal(attn_linear_attention_plan_run_share(other, workspace, 0, 0, 1), ATTN_INVALID_ARGUMENT);
    assert_true(is_untouched(&work));
    for (int phase = 0; phase < attn_linear_attention_plan_num_phases(plan); phase++)
        for (int ith = THREADS - 1; ith >= 0; ith--)
            assert_int_equal(attn_linear_attention_plan_run_share(plan, workspace, phase, ith, THREADS), ATTN_OK);
    assert_true(is_right(&work));
    for (int round = 0; round < 5; round++) {
        struct worker workers[THREADS];
        pthread_t threads[THREADS];
        pthread_barrier_t barrier;
        pthread_barrier_init(&barrier, NULL, THREADS);
        memset(&work.written, CANARY, sizeof work.written);
        assert_int_equal(begin(plan, &work, workspace, size), ATTN_OK);
        for (int i = 0; i < THREADS; i++) {
            workers[i] = (struct worker){plan, workspace, &barrier, i, 0};
            assert_int_equal(pthread_create(&threads[i], NULL, take_shares, &workers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(workers[i].failures, 0);
        }
        pthread_barrier_destroy(&barrier);
        assert_true(is_right(&work));
    }
    attn_linear_attention_plan_destroy(plan);
    attn_linear_attention_plan_destroy(other);
    free(workspace);
}

/** Threads that a plan for one token of so many states of 128 x 128 has, of at most THREADS. */
static int threads_for_token(int64_t heads, int corrects)
{
    const attn_tensor rows = attn_bhtd(NULL, 1, heads, 1, 128), numbers = attn_bhtd(NULL, 1, heads, 1, 1);
    const attn_tensor states = attn_bhtd(NULL, 1, heads, 128, 128);
    attn_linear_attention_params params = attn_linear_attention_params_default();
    params.beta = corrects ? &numbers : NULL;
    params.state_in = params.state_out = &states;
    params.num_threads = THREADS;
    attn_linear_attention_plan *plan;
    assert_int_equal(attn_linear_attention_plan_create(&plan, &rows, &rows, &rows, &rows, &params), ATTN_OK);
    const int threads = attn_linear_attention_plan_num_threads(plan);
    attn_linear_attention_plan_destroy(plan);
    return threads;
}

/** What is moved counts: a token computes next to nothing. */
static void test_threads(void **state)
{
    (void)state;
    assert_int_equal(threads_for_token(1, 0), 1);
    assert_int_equal(threads_for_token(7, 0), 1);
    assert_int_equal(threads_for_token(8, 0), 2);
    assert_int_equal(threads_for_token(8, 1), 4);
    assert_int_equal(threads_for_token(64, 0), THREADS);
}

/** Tensors and options may be gone when shares run; arrays may not. */
static void test_begin_keeps(void **state)
{
    (void)state;
    compute_expected();
    initialize(&work, 2);
    attn_linear_attention_plan *plan = plan_of(&work);
    const size_t size = attn_linear_attention_plan_workspace_size(plan);
    void *workspace = malloc(size);
    assert_non_null(workspace);
    assert_int_equal(begin(plan, &work, workspace, size), ATTN_OK);
    attn_tensor *const tensors[] = {&work.q,     &work.k,    &work.v,        &work.out,
                                    &work.decay, &work.beta, &work.state_in, &work.state_out};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        memset(tensors[i], 0xff, sizeof *tensors[i]);
    memset(&work.params, 0xff, sizeof work.params);
    for (int phase = 0; phase < attn_linear_attention_plan_num_phases(plan); phase++)
        assert_int_equal(attn_linear_attention_plan_run_share(plan, workspace, phase, 0, 1), ATTN_OK);
    assert_true(is_right(&work));
    attn_linear_attention_plan_destroy(plan);
    free(workspace);
}

static void test_other_runs(void **state)
{
    (void)state;
    static struct work was;
    static const uint8_t marks[HEADS * TOKENS];
    static const int64_t offsets[] = {0, TOKENS};
    attn_tensor resets = attn_bhtd(marks, 1, HEADS, TOKENS, 1);
    resets.dtype = ATTN_BOOL;
    initialize(&work, THREADS);
    attn_linear_attention_plan *plan = plan_of(&work);
    const size_t size = attn_linear_attention_plan_workspace_size(plan);
    void *workspace = malloc(size);
    assert_non_null(workspace);
    memcpy(&was, &work, sizeof was);
#define EXPECT_REFUSAL(words)                                                                                          \
    do {                                                                                                               \
        const attn_status status = run(plan, &work, workspace, size);                                                  \
        if (status != ATTN_INVALID_ARGUMENT || !holds_words(attn_last_error(), words))                                 \
            fail_msg("expected a refusal with %s; got %d, %s", words, (int)status, attn_last_error());                 \
        assert_true(is_untouched(&work));                                                                              \
        memcpy(&work, &was, sizeof was);                                                                               \
    } while (0)
    work.q.shape[2] = work.k.shape[2] = work.v.shape[2] = work.out.shape[2] = TOKENS - 1;
    work.decay.shape[2] = work.beta.shape[2] = TOKENS - 1;
    EXPECT_REFUSAL("q differs from what the plan was made with");
    work.q.shape[1] = work.k.shape[1] = 3;
    EXPECT_REFUSAL("q differs from what the plan was made with");
    work.k.shape[1] = 2;
    EXPECT_REFUSAL("k differs from what the plan was made with");
    work.v.shape[3] = work.out.shape[3] = work.state_in.shape[3] = work.state_out.shape[3] = DV - 1;
    EXPECT_REFUSAL("v differs from what the plan was made with");
    work.q.dtype = ATTN_BF16;
    EXPECT_REFUSAL("q differs from what the plan was made with");
    work.out.dtype = ATTN_F16;
    EXPECT_REFUSAL("out differs");
    work.params.decay = NULL;
    EXPECT_REFUSAL("params.decay");
    work.params.beta = NULL;
    EXPECT_REFUSAL("params.beta");
    work.decay = attn_bhtd(work.decay_data, 1, 1, 1, DK);
    EXPECT_REFUSAL("params.decay");
    work.params.state_in = NULL;
    EXPECT_REFUSAL("params.state_in");
    work.params.state_out = NULL;
    EXPECT_REFUSAL("params.state_out");
    work.params.resets = &resets;
    EXPECT_REFUSAL("params.resets");
    work.params.cu_seqlens = offsets;
    work.params.num_sequences = 1;
    EXPECT_REFUSAL("params.cu_seqlens");
    work.params.scale = 2;
    EXPECT_REFUSAL("params.scale gives 2; the plan was made for 0.176777");
    work.params.isa = "scalar";
    if (strcmp(attn_isa_active(), "scalar") != 0)
        EXPECT_REFUSAL("params.isa");
#undef EXPECT_REFUSAL
    memcpy(&work, &was, sizeof was);
    attn_linear_attention_plan *none = plan;
    work.k.shape[3]--;
    assert_int_equal(attn_linear_attention_plan_create(&none, &work.q, &work.k, &work.v, &work.out, &work.params),
                     ATTN_SHAPE_MISMATCH);
    assert_null(none);
    memcpy(&work, &was, sizeof was);
    assert_int_equal(attn_linear_attention_plan_create(NULL, &work.q, &work.k, &work.v, &work.out, &work.params),
                     ATTN_INVALID_ARGUMENT);
    assert_string_equal(attn_last_error(), "plan is NULL; expected the address of a pointer");
    assert_int_equal(run(plan, &work, workspace, size), ATTN_OK);
    attn_linear_attention_plan_destroy(plan);
    free(workspace);
}

/** Features, directions and the number of sequences are the plan's. */
static void test_other_options(void **state)
{
    (void)state;
    static float rows[TOKENS * 4], outs[TOKENS * 4];
    static char workspace[1 << 20];
    static const int64_t offsets[3] = {0, TOKENS, TOKENS};
    const attn_tensor x = attn_bhtd(rows, 1, 1, TOKENS, 4), out = attn_bhtd(outs, 1, 1, TOKENS, 4);
    for (int ragged = 0; ragged < 2; ragged++) {
        attn_linear_attention_params params = attn_linear_attention_params_default();
        attn_linear_attention_plan *plan;
        params.cu_seqlens = ragged ? offsets : NULL;
        params.num_sequences = ragged;
        assert_int_equal(attn_linear_attention_plan_create(&plan, &x, &x, &x, &out, &params), ATTN_OK);
        assert_true(attn_linear_attention_plan_workspace_size(plan) <= sizeof workspace);
        memset(outs, CANARY, sizeof outs);
        if (ragged)
            params.num_sequences = 2;
        else
            params.normalise = 1;
        assert_int_equal(attn_linear_attention_plan_run(plan, &x, &x, &x, &out, &params, workspace, sizeof workspace),
                         ATTN_INVALID_ARGUMENT);
        assert_string_equal(attn_last_error(),
                            ragged ? "params.num_sequences is 2; the plan was made for 1"
                                   : "params.map, normalise or bidirectional differs from what the plan was made with");
        assert_true(all_canary(outs, sizeof outs));
        attn_linear_attention_plan_destroy(plan);
    }
}

static void test_describe(void **state)
{
    (void)state;
    char whole[1024], part[24];
    initialize(&work, THREADS);
    attn_linear_attention_plan *plan = plan_of(&work);
    memset(part, '#', sizeof part);
    const size_t length = attn_linear_attention_plan_describe(plan, whole, sizeof whole);
    assert_int_equal(length, strlen(whole));
    assert_true(holds_words(whole, "linear attention|q=f32|dk=32|dv=48|gated delta|4 threads"));
    assert_int_equal(attn_linear_attention_plan_describe(plan, part, 10), length);
    assert_int_equal(strlen(part), 9);
    assert_memory_equal(part, whole, 9);
    assert_true(part[10] == '#');
    assert_int_equal(attn_linear_attention_plan_describe(plan, NULL, 0), length);
    assert_int_equal(attn_linear_attention_plan_describe(NULL, part, sizeof part), 0);
    assert_int_equal(attn_linear_attention_plan_num_threads(NULL), 0);
    assert_int_equal(attn_linear_attention_plan_num_phases(NULL), 0);
    assert_true(attn_linear_attention_plan_workspace_size(NULL) == SIZE_MAX);
    attn_linear_attention_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run),        cmocka_unit_test(test_plan_of_shapes), cmocka_unit_test(test_in),
        cmocka_unit_test(test_least_size), cmocka_unit_test(test_shares),         cmocka_unit_test(test_progress),
        cmocka_unit_test(test_threads),    cmocka_unit_test(test_begin_keeps),    cmocka_unit_test(test_other_runs),
        cmocka_unit_test(test_describe),   cmocka_unit_test(test_other_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
