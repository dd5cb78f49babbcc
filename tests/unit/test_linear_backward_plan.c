/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of the gradients of linear attention, and their shares on threads that are
 * not OpenMP's: the bits of the simple call, workspaces of just the size that was
 * told, shares in any order, what may be gone when they run, runs of something else
 * than was planned, and the line that describes a plan.
 */
#include "linear_fixture.h"

#include "attn/linear_attention_backward.h"

#include "random.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 4, Q_HEADS = 8, TOKENS = 150, DK = 32, DV = 24, THREADS = 4 };
enum { K_SIZE = HEADS * TOKENS * DK, Q_SIZE = Q_HEADS * TOKENS * DK, V_SIZE = HEADS * TOKENS * DV };
enum { OUT_SIZE = Q_HEADS * TOKENS * DV, STATE_SIZE = HEADS * DK * DV };

/** A call with all gradients, worth several threads: phases of features, sums, pieces, and ends. */
struct work {
    float q_data[Q_SIZE], k_data[K_SIZE], v_data[V_SIZE], out_data[OUT_SIZE], d_out_data[OUT_SIZE];
    float decay_data[K_SIZE], before[STATE_SIZE], behind[STATE_SIZE];
    struct {
        float q[Q_SIZE], k[K_SIZE], v[V_SIZE], decay[K_SIZE], s[STATE_SIZE];
    } written;
    attn_tensor q, k, v, out, decay, state_in, d_out, d_state, d_q, d_k, d_v, d_decay, d_state_in;
    attn_linear_attention_params params;
    attn_linear_attention_gradients gradients;
};

static void initialize(struct work *w, int threads)
{
    struct rng rng = rng_for_case(5, 6);
    memset(w, 0, sizeof *w);
    rng_fill_normal(&rng, w->q_data, Q_SIZE);
    rng_fill_normal(&rng, w->k_data, K_SIZE);
    rng_fill_normal(&rng, w->v_data, V_SIZE);
    rng_fill_normal(&rng, w->d_out_data, OUT_SIZE);
    rng_fill_normal(&rng, w->before, STATE_SIZE);
    rng_fill_normal(&rng, w->behind, STATE_SIZE);
    for (int64_t i = 0; i < K_SIZE; i++)
        w->decay_data[i] = -0.1f * (float)rng_uniform(&rng);
    memset(&w->written, CANARY, sizeof w->written);
    w->q = attn_bhtd(w->q_data, 1, Q_HEADS, TOKENS, DK), w->d_q = attn_bhtd(w->written.q, 1, Q_HEADS, TOKENS, DK);
    w->k = attn_bhtd(w->k_data, 1, HEADS, TOKENS, DK), w->d_k = attn_bhtd(w->written.k, 1, HEADS, TOKENS, DK);
    w->v = attn_bhtd(w->v_data, 1, HEADS, TOKENS, DV), w->d_v = attn_bhtd(w->written.v, 1, HEADS, TOKENS, DV);
    w->out = attn_bhtd(w->out_data, 1, Q_HEADS, TOKENS, DV);
    w->d_out = attn_bhtd(w->d_out_data, 1, Q_HEADS, TOKENS, DV);
    w->decay = attn_bhtd(w->decay_data, 1, HEADS, TOKENS, DK);
    w->d_decay = attn_bhtd(w->written.decay, 1, HEADS, TOKENS, DK);
    w->state_in = attn_bhtd(w->before, 1, HEADS, DK, DV), w->d_state_in = attn_bhtd(w->written.s, 1, HEADS, DK, DV);
    w->d_state = attn_bhtd(w->behind, 1, HEADS, DK, DV);
    w->params = attn_linear_attention_params_default();
    w->params.decay = &w->decay;
    w->params.state_in = &w->state_in;
    w->params.num_threads = threads;
    w->gradients = attn_linear_attention_gradients_default();
    w->gradients.out = &w->d_out, w->gradients.state_out = &w->d_state;
    w->gradients.q = &w->d_q, w->gradients.k = &w->d_k, w->gradients.v = &w->d_v;
    w->gradients.decay = &w->d_decay, w->gradients.state_in = &w->d_state_in;
}

static struct work work, expected;

/** The result of the simple call, to compare with. */
static void compute_expected(void)
{
    initialize(&expected, 1);
    assert_int_equal(attn_linear_attention_backward(&expected.q, &expected.k, &expected.v, NULL, &expected.params,
                                                    &expected.gradients),
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

static attn_linear_attention_backward_plan *plan_of(const struct work *w)
{
    attn_linear_attention_backward_plan *plan = NULL;
    assert_int_equal(
        attn_linear_attention_backward_plan_create(&plan, &w->q, &w->k, &w->v, NULL, &w->params, &w->gradients),
        ATTN_OK);
    assert_non_null(plan);
    return plan;
}

static attn_status run(const attn_linear_attention_backward_plan *plan, const struct work *w, void *workspace,
                       size_t size)
{
    return attn_linear_attention_backward_plan_run(plan, &w->q, &w->k, &w->v, NULL, &w->params, &w->gradients,
                                                   workspace, size);
}

static attn_status begin(const attn_linear_attention_backward_plan *plan, const struct work *w, void *workspace,
                         size_t size)
{
    return attn_linear_attention_backward_plan_begin(plan, &w->q, &w->k, &w->v, NULL, &w->params, &w->gradients,
                                                     workspace, size);
}

static void test_run(void **state)
{
    (void)state;
    compute_expected();
    initialize(&work, THREADS);
    attn_linear_attention_backward_plan *plan = plan_of(&work);
    const size_t size = attn_linear_attention_backward_plan_workspace_size(plan);
    char *workspace = malloc(size + 2);
    assert_non_null(workspace);
    memset(workspace, 0xff, size + 2);
    assert_int_equal(run(plan, &work, workspace + 1, size - 1), ATTN_WORKSPACE_TOO_SMALL);
    assert_true(holds_words(attn_last_error(), "workspace_size"));
    assert_int_equal(run(plan, &work, NULL, size), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "workspace is NULL"));
    assert_int_equal(run(NULL, &work, workspace, size), ATTN_INVALID_ARGUMENT);
    assert_string_equal(attn_last_error(),
                        "plan is NULL; expected one made by attn_linear_attention_backward_plan_create()");
    assert_int_equal(begin(plan, &work, workspace, size - 1), ATTN_WORKSPACE_TOO_SMALL);
    assert_int_equal(begin(NULL, &work, workspace, size), ATTN_INVALID_ARGUMENT);
    assert_true(is_untouched(&work));
    for (int i = 0; i < 2; i++) {
        memset(&work.written, CANARY, sizeof work.written);
        assert_int_equal(run(plan, &work, workspace + 1, size), ATTN_OK);
        assert_true(is_right(&work));
        assert_int_equal((unsigned char)workspace[size + 1], 0xff);
    }
    attn_linear_attention_backward_plan_destroy(plan);
    attn_linear_attention_backward_plan_destroy(NULL);
    free(workspace);
}

/** A plan that was made without data. */
static void test_plan_of_shapes(void **state)
{
    (void)state;
    compute_expected();
    initialize(&work, 2);
    struct work *w = &work;
    attn_tensor *const tensors[] = {&w->q,   &w->k,   &w->v,   &w->decay,   &w->state_in,   &w->d_out,
                                    &w->d_q, &w->d_k, &w->d_v, &w->d_decay, &w->d_state_in, &w->d_state};
    enum { TENSORS = sizeof tensors / sizeof *tensors };
    void *data[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        data[i] = tensors[i]->data;
        tensors[i]->data = NULL;
    }
    attn_linear_attention_backward_plan *plan = plan_of(w);
    for (int i = 0; i < TENSORS; i++)
        tensors[i]->data = data[i];
    const size_t size = attn_linear_attention_backward_plan_workspace_size(plan);
    void *workspace = malloc(size);
    assert_non_null(workspace);
    assert_int_equal(run(plan, w, workspace, size), ATTN_OK);
    assert_true(is_right(w));
    attn_linear_attention_backward_plan_destroy(plan);
    free(workspace);
}

/** A thread of a pool: its shares of all phases. */
struct worker {
    const attn_linear_attention_backward_plan *plan;
    void *workspace;
    pthread_barrier_t *barrier;
    int ith, failures;
};

static void *take_shares(void *argument)
{
    struct worker *w = argument;
    for (int phase = 0; phase < attn_linear_attention_backward_plan_num_phases(w->plan); phase++) {
        w->failures +=
            attn_linear_attention_backward_plan_run_share(w->plan, w->workspace, phase, w->ith, THREADS) != ATTN_OK;
        pthread_barrier_wait(w->barrier);
    }
    return NULL;
}

static void test_shares(void **state)
{
    (void)state;
    compute_expected();
    initialize(&work, THREADS);
    attn_linear_attention_backward_plan *plan = plan_of(&work), *other = plan_of(&work);
    const size_t size = attn_linear_attention_backward_plan_workspace_size(plan);
    void *workspace = calloc(1, size);
    assert_non_null(workspace);
    const int phases = attn_linear_attention_backward_plan_num_phases(plan);
    assert_true(phases > 1);
    assert_int_equal(attn_linear_attention_backward_plan_num_threads(plan), THREADS);
    assert_int_equal(attn_linear_attention_backward_plan_run_share(plan, workspace, 0, 0, 1), ATTN_INVALID_ARGUMENT);
    assert_string_equal(attn_last_error(), "workspace is not prepared; expected one that "
                                           "attn_linear_attention_backward_plan_begin() has prepared for this plan");
    assert_int_equal(begin(plan, &work, workspace, size), ATTN_OK);
    assert_int_equal(attn_linear_attention_backward_plan_run_share(plan, workspace, phases, 0, 1),
                     ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "phase is "));
    assert_int_equal(attn_linear_attention_backward_plan_run_share(plan, workspace, 0, 0, THREADS + 1),
                     ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "nth is 5; expected 1 to 4, the threads of the plan"));
    assert_int_equal(attn_linear_attention_backward_plan_run_share(NULL, workspace, 0, 0, 1), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "plan is NULL"));
    assert_int_equal(attn_linear_attention_backward_plan_run_share(plan, NULL, 0, 0, 1), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "workspace is NULL"));
    assert_int_equal(attn_linear_attention_backward_plan_run_share(other, workspace, 0, 0, 1), ATTN_INVALID_ARGUMENT);
    assert_true(is_untouched(&work));
    for (int phase = 0; phase < phases; phase++)
        for (int ith = THREADS - 1; ith >= 0; ith--)
            assert_int_equal(attn_linear_attention_backward_plan_run_share(plan, workspace, phase, ith, THREADS),
                             ATTN_OK);
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
    attn_linear_attention_backward_plan_destroy(plan);
    attn_linear_attention_backward_plan_destroy(other);
    free(workspace);
}

/** Tensors, options and gradients may be gone when shares run; arrays may not. */
static void test_begin_keeps(void **state)
{
    (void)state;
    compute_expected();
    initialize(&work, 2);
    attn_linear_attention_backward_plan *plan = plan_of(&work);
    const size_t size = attn_linear_attention_backward_plan_workspace_size(plan);
    void *workspace = malloc(size);
    assert_non_null(workspace);
    assert_int_equal(begin(plan, &work, workspace, size), ATTN_OK);
    attn_tensor *const tensors[] = {&work.q,   &work.k,   &work.v,   &work.decay,   &work.state_in,   &work.d_out,
                                    &work.d_q, &work.d_k, &work.d_v, &work.d_decay, &work.d_state_in, &work.d_state};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        memset(tensors[i], 0xff, sizeof *tensors[i]);
    memset(&work.params, 0xff, sizeof work.params);
    memset(&work.gradients, 0xff, sizeof work.gradients);
    for (int phase = 0; phase < attn_linear_attention_backward_plan_num_phases(plan); phase++)
        assert_int_equal(attn_linear_attention_backward_plan_run_share(plan, workspace, phase, 0, 1), ATTN_OK);
    assert_true(is_right(&work));
    attn_linear_attention_backward_plan_destroy(plan);
    free(workspace);
}

static void test_other_runs(void **state)
{
    (void)state;
    static struct work was;
    initialize(&work, THREADS);
    attn_linear_attention_backward_plan *plan = plan_of(&work);
    const size_t size = attn_linear_attention_backward_plan_workspace_size(plan);
    void *workspace = malloc(size);
    assert_non_null(workspace);
    memcpy(&was, &work, sizeof was);
#define EXPECT_REFUSAL(sentence)                                                                                       \
    do {                                                                                                               \
        assert_int_equal(run(plan, &work, workspace, size), ATTN_INVALID_ARGUMENT);                                    \
        assert_string_equal(attn_last_error(), sentence);                                                              \
        assert_true(is_untouched(&work));                                                                              \
        memcpy(&work, &was, sizeof was);                                                                               \
    } while (0)
    work.k.dtype = ATTN_BF16;
    EXPECT_REFUSAL("k differs from what the plan was made with");
    work.d_out.dtype = ATTN_F16;
    EXPECT_REFUSAL("gradients.out differs from what the plan was made with");
    work.d_q.dtype = ATTN_F16;
    EXPECT_REFUSAL("gradients.q differs from what the plan was made with");
    work.gradients.k = NULL;
    EXPECT_REFUSAL("gradients.k differs from what the plan was made with");
    work.gradients.v = NULL;
    EXPECT_REFUSAL("gradients.v differs from what the plan was made with");
    work.gradients.decay = NULL;
    EXPECT_REFUSAL("gradients.decay differs from what the plan was made with");
    work.gradients.state_in = NULL;
    EXPECT_REFUSAL("gradients.state_in differs from what the plan was made with");
    work.gradients.state_out = NULL;
    EXPECT_REFUSAL("gradients.state_out differs from what the plan was made with");
#undef EXPECT_REFUSAL
    work.params.normalise = 1;
    assert_int_equal(attn_linear_attention_backward_plan_run(plan, &work.q, &work.k, &work.v, &work.out, &work.params,
                                                             &work.gradients, workspace, size),
                     ATTN_SHAPE_MISMATCH); /* of states, with a column of sums */
    assert_true(is_untouched(&work));
    memcpy(&work, &was, sizeof was);
    attn_linear_attention_backward_plan *none = plan;
    work.d_k.shape[3]--;
    assert_int_equal(attn_linear_attention_backward_plan_create(&none, &work.q, &work.k, &work.v, NULL, &work.params,
                                                                &work.gradients),
                     ATTN_SHAPE_MISMATCH);
    assert_null(none);
    memcpy(&work, &was, sizeof was);
    assert_int_equal(attn_linear_attention_backward_plan_create(NULL, &work.q, &work.k, &work.v, NULL, &work.params,
                                                                &work.gradients),
                     ATTN_INVALID_ARGUMENT);
    assert_string_equal(attn_last_error(), "plan is NULL; expected the address of a pointer");
    assert_int_equal(run(plan, &work, workspace, size), ATTN_OK);
    attn_linear_attention_backward_plan_destroy(plan);
    free(workspace);
}

/** With normalise out is planned, too; features and sums are phases of their own. */
static void test_normalised(void **state)
{
    (void)state;
    static float expected_q[Q_SIZE];
    initialize(&work, THREADS);
    struct work *w = &work;
    w->params = attn_linear_attention_params_default();
    w->params.map = ATTN_FEATURES_ELU;
    w->params.normalise = 1;
    w->params.num_threads = THREADS;
    w->gradients.state_out = w->gradients.decay = w->gradients.state_in = NULL;
    assert_int_equal(attn_linear_attention(&w->q, &w->k, &w->v, &w->out, &w->params), ATTN_OK);
    assert_int_equal(attn_linear_attention_backward(&w->q, &w->k, &w->v, &w->out, &w->params, &w->gradients), ATTN_OK);
    memcpy(expected_q, w->written.q, sizeof expected_q);
    memset(w->written.q, CANARY, sizeof w->written.q);
    attn_linear_attention_backward_plan *plan = NULL;
    assert_int_equal(
        attn_linear_attention_backward_plan_create(&plan, &w->q, &w->k, &w->v, &w->out, &w->params, &w->gradients),
        ATTN_OK);
    const size_t size = attn_linear_attention_backward_plan_workspace_size(plan);
    void *workspace = malloc(size);
    assert_non_null(workspace);
    w->out.dtype = ATTN_BF16;
    assert_int_equal(attn_linear_attention_backward_plan_run(plan, &w->q, &w->k, &w->v, &w->out, &w->params,
                                                             &w->gradients, workspace, size),
                     ATTN_INVALID_ARGUMENT);
    assert_string_equal(attn_last_error(), "out differs from what the plan was made with");
    assert_true(all_canary(w->written.q, sizeof w->written.q));
    w->out.dtype = ATTN_F32;
    assert_int_equal(attn_linear_attention_backward_plan_run(plan, &w->q, &w->k, &w->v, &w->out, &w->params,
                                                             &w->gradients, workspace, size),
                     ATTN_OK);
    assert_memory_equal(w->written.q, expected_q, sizeof expected_q);
    attn_linear_attention_backward_plan_destroy(plan);
    free(workspace);
}

static void test_describe(void **state)
{
    (void)state;
    char whole[1024], part[24];
    initialize(&work, THREADS);
    attn_linear_attention_backward_plan *plan = plan_of(&work);
    memset(part, '#', sizeof part);
    const size_t length = attn_linear_attention_backward_plan_describe(plan, whole, sizeof whole);
    assert_int_equal(length, strlen(whole));
    assert_true(holds_words(whole, "linear attention backward dq dk dv ddecay dstate|q=f32|dk=32|dv=24|4 threads"));
    assert_int_equal(attn_linear_attention_backward_plan_describe(plan, part, 10), length);
    assert_int_equal(strlen(part), 9);
    assert_memory_equal(part, whole, 9);
    assert_true(part[10] == '#');
    assert_int_equal(attn_linear_attention_backward_plan_describe(plan, NULL, 0), length);
    assert_int_equal(attn_linear_attention_backward_plan_describe(NULL, part, sizeof part), 0);
    assert_int_equal(attn_linear_attention_backward_plan_num_threads(NULL), 0);
    assert_int_equal(attn_linear_attention_backward_plan_num_phases(NULL), 0);
    assert_true(attn_linear_attention_backward_plan_workspace_size(NULL) == SIZE_MAX);
    attn_linear_attention_backward_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run),         cmocka_unit_test(test_plan_of_shapes), cmocka_unit_test(test_shares),
        cmocka_unit_test(test_begin_keeps), cmocka_unit_test(test_other_runs),     cmocka_unit_test(test_normalised),
        cmocka_unit_test(test_describe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
