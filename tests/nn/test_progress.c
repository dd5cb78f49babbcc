/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far calls are: an executor that looks between the phases of a call, as another thread may at any time, sees the
 * count grow from 0 to all tasks, on one thread and on several; what attn_layer_progress() refuses; and what
 * attn_model_open() tells.
 */
#include "model_folder.h"
#include "small.h"

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
    struct memory *m = memory_for_refusals("progress refused", 0);
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

/* What was told of a model that is opened. */
struct told {
    int64_t calls, done, total;
};

static void hear(void *user, int64_t done, int64_t total)
{
    struct told *told = user;
    assert_true(total > 0 && (told->calls == 0 || total == told->total));
    assert_true(told->calls == 0 ? done == 0 : done >= told->done);
    assert_true(done <= total);
    *told = (struct told){told->calls + 1, done, total};
}

/* What the tensors of a model's file take. */
static int64_t bytes_of_file(const struct model_folder *folder)
{
    char path[256];
    attn_weights *weights;
    int64_t bytes = 0;
    snprintf(path, sizeof path, "%s/model.safetensors", folder->path);
    OK(attn_weights_open(&weights, path));
    for (int64_t i = 0; i < attn_weights_count(weights); i++) {
        attn_tensor t;
        const char *name = attn_weights_name(weights, i);
        if (attn_weights_get(weights, name, 0, ATTN_ANY, &t) != ATTN_OK)
            OK(attn_weights_get(weights, name, ATTN_ANY, ATTN_ANY, &t));
        bytes += t.shape[2] * t.shape[3] * (int64_t)attn_dtype_size(t.dtype);
    }
    attn_weights_destroy(weights);
    return bytes;
}

static void test_opening(void **state)
{
    (void)state;
    struct memory *m = memory_create("progress opening", 0);
    struct model_folder folders[] = {model_folder_bert(m), model_folder_llama(m), model_folder_t5(m, 1)};
    attn_model_options options = attn_model_options_default();
    attn_model *model;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        struct told told = {0};
        options.progress = hear, options.progress_user = &told;
        OK(attn_model_open(&model, folders[i].path, &options));
        attn_model_close(model);
        assert_int_equal(told.total, bytes_of_file(&folders[i]));
        assert_int_equal(told.done, told.total);
        assert_true(told.calls > 20); /* tensors */
    }
    /* Refused at the end: all has been read, and nobody is told that it is done. */
    struct told told = {0};
    options.progress_user = &told;
    model_folder_text(&folders[1], "generation_config.json", "{\"eos_token_id\": -1}");
    REFUSES(m, attn_model_open(&model, folders[1].path, &options), ATTN_INVALID_FILE, "'eos_token_id' is -1; expected");
    assert_true(told.calls > 20 && told.done < told.total);
    options.progress = NULL;
    REFUSES(m, attn_model_open(&model, folders[1].path, &options), ATTN_INVALID_ARGUMENT,
            "options.progress_user is set; expected NULL without options.progress");
    nn_end_refusals();
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        model_folder_remove(&folders[i]);
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linformer),
        cmocka_unit_test(test_alignments),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_opening),
    };
    make_configs();
    return NN_MAIN(tests);
}
