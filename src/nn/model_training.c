/* SPDX-License-Identifier: Apache-2.0 */
/* What the models have in common in training. */
#include "nn/model_training.h"

#include "api/executor.h"
#include "driver/threads.h"
#include "nn/check.h"

#include <stdio.h>

static attn_status check_probability(const char *name, float p)
{
    if (!(p >= 0.0f && p < 1.0f))
        return attn_fail(ATTN_INVALID_ARGUMENT, "pass.%s is %g; expected 0 or more and less than 1", name, (double)p);
    return ATTN_OK;
}

attn_status nn_model_take_pass(struct nn_model_run *run, const attn_model_pass *theirs)
{
    attn_model_pass *pass = &run->pass;
    CHECK(attn_take_struct("pass", pass, sizeof *pass, NN_MODEL_PASS_FIRST, theirs));
    CHECK(check_probability("dropout", pass->dropout));
    CHECK(check_probability("attention_dropout", pass->attention_dropout));
    CHECK(check_probability("hidden_dropout", pass->hidden_dropout));
    if ((unsigned)pass->keep > ATTN_KEEP_LAST)
        return attn_fail(ATTN_INVALID_ARGUMENT, "pass.keep is %d; expected an attn_keep", (int)pass->keep);
    CHECK(nn_check_threads(pass->num_threads));
    return attn_check_executor("pass.executor", pass->executor);
}

attn_status nn_model_check_kept(const struct nn_model_run *run, const char *forward)
{
    return run->pass.kept
               ? ATTN_OK
               : attn_fail(ATTN_INVALID_ARGUMENT, "pass.kept is NULL; expected what %s() has filled", forward);
}

attn_status nn_model_check_format(const attn_linear_format *format)
{
    return !format ? ATTN_OK
                   : attn_fail(ATTN_INVALID_ARGUMENT,
                               "config.%s is set; expected NULL: training reads weights as they are given", "format");
}

/* ----------------------------------------------------------- memory, the pass -- */

/** Working memory, with that of what nothing is kept of. */
static void take_pieces(struct nn_arena *arena, struct nn_model_run *run)
{
    struct nn_need need = {0};
    if (!run->pass.kept)
        run->kind->take_kept(arena, run, 0);
    run->arrays.list = nn_take(arena, run->most_arrays + 1, 1, 1, sizeof *run->arrays.list);
    run->kind->take_pieces(arena, run);
    if (!arena->status && !arena->base)
        arena->status = run->kind->measure_scratch(run, &need);
    run->scratch = nn_take_workspace(arena, need, &run->scratch_size);
}

size_t nn_model_kept_size(struct nn_model_run *run)
{
    struct nn_arena arena = {0};
    run->kind->take_kept(&arena, run, 1);
    return nn_arena_size(&arena);
}

size_t nn_model_workspace_size(struct nn_model_run *run)
{
    static const struct {
        int is_backward, keeps;
    } passes[] = {{0, 0}, {0, 1}, {1, 1}};
    size_t most = 0;
    const attn_executor *before = attn_executor_enter(run->pass.executor);
    for (int i = 0; i < 3; i++) {
        struct nn_arena arena = {0};
        run->is_backward = passes[i].is_backward;
        run->pass.kept = passes[i].keeps ? run : NULL;
        take_pieces(&arena, run);
        const size_t size = nn_arena_size(&arena);
        most = size > most ? size : most;
    }
    attn_executor_leave(before);
    return most;
}

static attn_status open_kept(struct nn_model_run *run)
{
    struct nn_arena measured = {0};
    struct nn_workspace kept;
    run->kind->take_kept(&measured, run, 1);
    const size_t size = nn_arena_size(&measured);
    if (!measured.status && run->pass.kept_size < size)
        return attn_fail(ATTN_WORKSPACE_TOO_SMALL, "pass.kept_size is %zu; expected %zu bytes or more",
                         run->pass.kept_size, size);
    CHECK(nn_workspace_open(&kept, run->pass.kept, run->pass.kept_size, &measured));
    run->kind->take_kept(&kept.arena, run, 1);
    return ATTN_OK;
}

static attn_status check_arrays(struct nn_model_run *run)
{
    CHECK(run->kind->check_tensors(run));
    nn_arrays_add(&run->arrays, run->result,
                  &(struct nn_array){.owner = "", .name = run->result_name, .layer = -1, .written = !run->is_backward});
    return nn_arrays_check(&run->arrays);
}

static attn_status open_and_run(struct nn_model_run *run, void *workspace, size_t workspace_size)
{
    struct nn_arena measured = {0};
    struct nn_workspace w;
    if (run->pass.kept)
        CHECK(open_kept(run));
    take_pieces(&measured, run);
    CHECK(nn_workspace_open(&w, workspace, workspace_size, &measured));
    take_pieces(&w.arena, run);
    attn_status status = check_arrays(run);
    if (!status)
        status = run->is_backward ? run->kind->run_backward(run) : run->kind->run_forward(run);
    nn_workspace_close(&w);
    return status;
}

attn_status nn_model_run_pass(struct nn_model_run *run, void *workspace, size_t workspace_size)
{
    const attn_executor *before = attn_executor_enter(run->pass.executor);
    const attn_status status = open_and_run(run, workspace, workspace_size);
    attn_executor_leave(before);
    return status;
}

/* ------------------------------------------------------------------- dropout -- */

const attn_dropout *nn_model_dropout(const struct nn_model_run *run, float p, int64_t place, attn_dropout *of)
{
    const uint64_t places = NN_PLACES_OF_LAYER * ((uint64_t)run->layers + 1);
    *of = (attn_dropout){.p = p, .seed = run->pass.seed, .offset = run->pass.step * places + (uint64_t)place};
    return p > 0 ? of : NULL;
}

attn_status nn_model_drop(const struct nn_model_run *run, int64_t place, const attn_tensor *rows)
{
    attn_dropout of;
    const attn_dropout *dropout = nn_model_dropout(run, run->pass.dropout, place, &of);
    return dropout ? attn_drop_activations(dropout, rows, rows, run->pass.num_threads) : ATTN_OK;
}

attn_tensor nn_model_rows(void *data, attn_dtype dtype, int64_t tokens, int64_t channels)
{
    attn_tensor rows = attn_btc(data, 1, tokens, channels);
    rows.dtype = dtype;
    return rows;
}

/* ------------------------------------------------------------------- tensors -- */

static attn_status check_weights(const char *name, const struct nn_model_tensor *t)
{
    if (!t->rows)
        return t->weights->data ? nn_check_vector(name, t->weights, t->columns) : ATTN_OK;
    CHECK(nn_check_matrix(name, t->weights, t->rows, t->columns));
    return t->is_table ? attn_check_contiguous(name, t->weights) : ATTN_OK;
}

attn_status nn_model_check_tensors(struct nn_model_run *run, const struct nn_model_tensor *tensors, int num)
{
    for (int i = 0; i < num; i++) {
        const struct nn_model_tensor *t = &tensors[i];
        char name[64];
        snprintf(name, sizeof name, "weights.%s", t->name);
        CHECK(check_weights(name, t));
        /* Norms take vectors as they lie in memory. */
        if (!t->rows && t->weights->data)
            CHECK(attn_check_contiguous(name, t->weights));
        nn_arrays_add(&run->arrays, t->weights, &(struct nn_array){.owner = "weights.", .name = t->name, .layer = -1});
        if (!run->is_backward || !t->gradients->data)
            continue;
        snprintf(name, sizeof name, "gradients.%s", t->name);
        CHECK(nn_check_sums(name, t->gradients, t->rows ? t->rows : 1, t->columns));
        nn_arrays_add(&run->arrays, t->gradients,
                      &(struct nn_array){.owner = "gradients.",
                                         .name = t->name,
                                         .layer = -1,
                                         .written = 1,
                                         .weights = run->accumulate ? t->weights->data : NULL});
    }
    return ATTN_OK;
}

/* --------------------------------------------------------------------- norms -- */

attn_status nn_model_normalise(const struct nn_model_run *run, const attn_tensor *rows, const attn_tensor *gamma,
                               const attn_tensor *beta, float eps, const attn_tensor *out)
{
    return attn_normalise(ATTN_NORM_LAYER, rows, nn_wanted(gamma), nn_wanted(beta), eps, out, run->pass.num_threads);
}

attn_status nn_model_normalise_back(const struct nn_model_run *run, const attn_tensor *rows, const attn_tensor *gamma,
                                    float eps, const attn_tensor *d, const attn_tensor *d_gamma,
                                    const attn_tensor *d_beta)
{
    attn_norm_gradients g = attn_norm_gradients_default();
    g.x = d;
    g.gamma = nn_wanted(d_gamma);
    g.beta = nn_wanted(d_beta);
    g.accumulate = run->accumulate;
    g.num_threads = run->pass.num_threads;
    return attn_normalise_backward(ATTN_NORM_LAYER, rows, nn_wanted(gamma), eps, d, &g, run->scratch,
                                   run->scratch_size);
}

size_t nn_model_norm_need(int64_t tokens, int64_t channels)
{
    static const attn_tensor wanted;
    attn_norm_gradients g = attn_norm_gradients_default();
    g.gamma = g.beta = &wanted;
    return attn_normalise_backward_workspace_size(1, tokens, channels, &g);
}
