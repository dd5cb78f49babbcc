/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far calls are: an executor that looks between the phases of a call, as another thread may at any time, sees the
 * count grow from 0 to all tasks, on one thread and on several; and what attn_layer_progress() refuses.
 */
#include "memory.h"

#include "attn/nn.h"

#include <stdbool.h>
#include <stdlib.h>

enum { MOST_LOOKS = 64 };

/* What an executor has seen. */
struct watched {
    const void *workspace;
    size_t size;
    int looks;
    int64_t begun[MOST_LOOKS], tasks[MOST_LOOKS];
};

static void look(struct watched *w)
{
    assert_true(w->looks < MOST_LOOKS);
    OK(attn_layer_progress(w->workspace, w->size, &w->begun[w->looks], &w->tasks[w->looks]));
    w->looks++;
}

static void run_watched(void *user, int shares, void (*share)(void *context, int ith), void *context)
{
    look(user);
    for (int ith = 0; ith < shares; ith++)
        share(context, ith);
    look(user);
}

/* A call of either kind, with several sequences, and more keys than one split has. */
struct call {
    attn_tensor q, k, v, e, out;
    attn_alignment *alignment; /* NULL: Linformer */
    attn_params params;
};

static size_t size_of(const struct call *c)
{
    return c->alignment ? attn_alignment_workspace_size(c->alignment, c->q.shape[0], c->q.shape[2], c->k.shape[2],
                                                        c->v.shape[3], &c->params)
                        : attn_linformer_workspace_size(&c->q, &c->k, &c->v, &c->e, NULL, &c->out, &c->params);
}

static void run(const struct call *c, void *workspace, size_t size)
{
    if (c->alignment)
        OK(attn_alignment_forward(c->alignment, &c->q, &c->k, &c->v, &c->out, &c->params, workspace, size));
    else
        OK(attn_linformer_forward(&c->q, &c->k, &c->v, &c->e, NULL, &c->out, &c->params, workspace, size));
}

/* inside: whether the executor looks between two of its tasks. */
static void expect_counted(struct call *c, bool inside)
{
    struct watched w = {.looks = 0};
    attn_executor executor = attn_executor_default();
    executor.run = run_watched;
    executor.user = &w;
    for (int threads = 1; threads <= 4; threads += 3) {
        int64_t begun = -1, tasks = -1;
        bool between = false;
        w.looks = 0;
        executor.num_threads = threads;
        c->params.executor = &executor;
        w.size = size_of(c);
        void *workspace = calloc(1, w.size);
        assert_non_null(workspace);
        w.workspace = workspace;
        OK(attn_layer_progress(workspace, w.size, &begun, &tasks));
        assert_int_equal(begun, 0);
        assert_int_equal(tasks, 0);
        run(c, workspace, w.size);
        OK(attn_layer_progress(workspace, w.size, &begun, &tasks));
        assert_int_equal(begun, tasks);
        assert_true(tasks > 1);
        for (int i = 0; i < w.looks; i++) {
            assert_true(w.tasks[i] == 0 || w.tasks[i] == tasks);
            assert_true(w.begun[i] <= w.tasks[i] && (i == 0 || w.begun[i] >= w.begun[i - 1]));
            between |= w.begun[i] > 0 && w.begun[i] < tasks;
        }
        assert_true(threads == 1 || w.looks > 0);
        assert_true(threads == 1 || between == inside);
        /* Once more in the same memory: from 0 again. */
        run(c, workspace, w.size);
        OK(attn_layer_progress(workspace, w.size, &begun, &tasks));
        assert_int_equal(begun, tasks);
        free(workspace);
    }
}

static attn_tensor random_dense(struct memory *m, int64_t batch, int64_t heads, int64_t tokens, int64_t channels)
{
    const attn_tensor t = place_dense(m, batch, heads, tokens, channels);
    fill(m, &t, 0.5);
    return t;
}

static void test_linformer(void **state)
{
    (void)state;
    struct memory *m = memory_create("progress linformer", 0);
    struct call c = {.q = random_dense(m, 2, 2, 300, 64),
                     .k = random_dense(m, 2, 2, 300, 64),
                     .v = random_dense(m, 2, 2, 300, 64),
                     .e = random_dense(m, 1, 1, 100, 300),
                     .out = place_dense(m, 2, 2, 300, 64),
                     .params = attn_params_default()};
    expect_counted(&c, true);
    memory_destroy(m);
}

/* Few queries and many keys, whose parts are joined in a phase of its own; many queries; and a score of the core's. */
static void test_alignments(void **state)
{
    (void)state;
    static const struct {
        attn_score score;
        int64_t queries, keys;
        bool inside;
    } cases[] = {{ATTN_SCORE_ADDITIVE, 1, 2000, true},
                 {ATTN_SCORE_ADDITIVE, 200, 100, false},
                 {ATTN_SCORE_SCALED_DOT, 500, 500, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct memory *m = memory_create("progress alignments", i);
        const int64_t queries = cases[i].queries, keys = cases[i].keys;
        attn_alignment_config config = attn_alignment_config_default();
        config.score = cases[i].score;
        config.d_query = config.d_key = 64;
        if (cases[i].score == ATTN_SCORE_ADDITIVE) {
            config.d_attention = 64;
            config.w_q = random_dense(m, 1, 1, 64, 64), config.w_k = random_dense(m, 1, 1, 64, 64);
            config.v = random_dense(m, 1, 1, 1, 64);
        }
        struct call c = {.q = random_dense(m, 2, 1, queries, 64),
                         .k = random_dense(m, 2, 1, keys, 64),
                         .v = random_dense(m, 2, 1, keys, 64),
                         .out = place_dense(m, 2, 1, queries, 64),
                         .params = attn_params_default()};
        OK(attn_alignment_create(&c.alignment, &config));
        expect_counted(&c, cases[i].inside);
        attn_alignment_destroy(c.alignment);
        memory_destroy(m);
    }
}

static void test_refused(void **state)
{
    (void)state;
    struct memory *m = memory_create("progress refused", 0);
    static const _Alignas(64) char zeros[79];
    int64_t begun = 5, tasks = 6;
    REFUSES(m, attn_layer_progress(NULL, sizeof zeros, &begun, &tasks), ATTN_INVALID_ARGUMENT,
            "workspace is NULL; expected that of a call");
    REFUSES(m, attn_layer_progress(zeros, sizeof zeros, NULL, &tasks), ATTN_INVALID_ARGUMENT,
            "begun is NULL; expected where the number goes");
    REFUSES(m, attn_layer_progress(zeros, sizeof zeros, &begun, NULL), ATTN_INVALID_ARGUMENT,
            "tasks is NULL; expected where the number goes");
    REFUSES(m, attn_layer_progress(zeros, sizeof zeros - 1, &begun, &tasks), ATTN_WORKSPACE_TOO_SMALL,
            "workspace_size is 78|79");
    nn_end_refusals();
    assert_int_equal(begun, 5);
    assert_int_equal(tasks, 6);
    OK(attn_layer_progress(zeros, sizeof zeros, &begun, &tasks));
    assert_int_equal(begun, 0);
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linformer),
        cmocka_unit_test(test_alignments),
        cmocka_unit_test(test_refused),
    };
    return NN_MAIN(tests);
}
