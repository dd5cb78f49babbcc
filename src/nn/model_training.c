/* SPDX-License-Identifier: Apache-2.0 */
/* What the models have in common in training. */
#include "nn/model_training.h"

#include "api/executor.h"
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

attn_status nn_model_open_kept(const struct nn_model_run *run, const struct nn_arena *measured,
                               struct nn_workspace *kept)
{
    const size_t size = nn_arena_size(measured);
    if (!measured->status && run->pass.kept_size < size)
        return attn_fail(ATTN_WORKSPACE_TOO_SMALL, "pass.kept_size is %zu; expected %zu bytes or more",
                         run->pass.kept_size, size);
    return nn_workspace_open(kept, run->pass.kept, run->pass.kept_size, measured);
}

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

attn_status nn_model_check_tensors(const struct nn_model_run *run, const struct nn_model_tensor *tensors, int num,
                                   struct nn_arrays *arrays)
{
    for (int i = 0; i < num; i++) {
        const struct nn_model_tensor *t = &tensors[i];
        char name[64];
        snprintf(name, sizeof name, "weights.%s", t->name);
        CHECK(check_weights(name, t));
        /* Norms take vectors as they lie in memory. */
        if (!t->rows && t->weights->data)
            CHECK(attn_check_contiguous(name, t->weights));
        nn_arrays_add(arrays, t->weights, &(struct nn_array){.owner = "weights.", .name = t->name, .layer = -1});
        if (!run->is_backward || !t->gradients->data)
            continue;
        snprintf(name, sizeof name, "gradients.%s", t->name);
        CHECK(nn_check_sums(name, t->gradients, t->rows ? t->rows : 1, t->columns));
        nn_arrays_add(arrays, t->gradients,
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
