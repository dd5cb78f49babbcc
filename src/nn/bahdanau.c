/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The step of Bahdanau's decoder: additive attention with the state as query,
 * then a gated recurrent unit. The word and the context lie in one row, so that
 * the unit's input is one product; attention writes its part of that row itself.
 */
#include "nn/bahdanau.h"

#include "driver/ranges.h"
#include "nn/alignment.h"
#include "nn/check.h"
#include "nn/linear.h"
#include "nn/memory.h"

#include <inttypes.h>
#include <stdlib.h>

struct attn_bahdanau {
    const struct attn_nn_kernels *kernels;
    const attn_alignment *alignment;
    int64_t embedding, annotation, hidden;
    attn_linear *from_x, *from_h;
};

/* ------------------------------------------------------------------ making -- */

attn_status nn_take_bahdanau_config(attn_bahdanau_config *c, const attn_bahdanau_config *theirs)
{
    if (!theirs)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config is NULL; expected the weights of a step");
    CHECK(attn_take_struct("config", c, sizeof *c, NN_BAHDANAU_CONFIG_FIRST, theirs));
    CHECK(nn_check_length("config.embedding", c->embedding, 1));
    CHECK(nn_check_length("config.annotation", c->annotation, 1));
    CHECK(nn_check_length("config.hidden", c->hidden, 1));
    CHECK(attn_check_count("the gates of config.hidden", sizeof(float), 3, c->hidden, 1));
    CHECK(attn_check_count("config.embedding", sizeof(float), c->embedding, 2, 1));
    return attn_check_count("config.annotation", sizeof(float), c->annotation, 2, 1);
}

attn_status nn_check_bahdanau_weights(const attn_bahdanau_config *c)
{
    CHECK(nn_check_matrix("config.w_ih", &c->w_ih, 3 * c->hidden, c->embedding + c->annotation));
    CHECK(nn_check_matrix("config.w_hh", &c->w_hh, 3 * c->hidden, c->hidden));
    if (c->b_ih.data)
        CHECK(nn_check_vector("config.b_ih", &c->b_ih, 3 * c->hidden));
    if (c->b_hh.data)
        CHECK(nn_check_vector("config.b_hh", &c->b_hh, 3 * c->hidden));
    return ATTN_OK;
}

static attn_status check_alignment(const attn_bahdanau_config *c)
{
    if (!c->alignment)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.alignment is NULL; expected an additive score function");
    if (c->alignment->score != ATTN_SCORE_ADDITIVE)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.alignment has the score %d; expected ATTN_SCORE_ADDITIVE",
                         (int)c->alignment->score);
    if (c->alignment->d_query != c->hidden)
        return attn_fail(ATTN_SHAPE_MISMATCH,
                         "config.alignment has queries of %" PRId64 " channels; expected %" PRId64 ", config.hidden",
                         c->alignment->d_query, c->hidden);
    if (c->alignment->d_key != c->annotation)
        return attn_fail(ATTN_SHAPE_MISMATCH,
                         "config.alignment has keys of %" PRId64 " channels; expected %" PRId64 ", config.annotation",
                         c->alignment->d_key, c->annotation);
    return ATTN_OK;
}

attn_status attn_bahdanau_create(attn_bahdanau **step_out, const attn_bahdanau_config *config)
{
    if (!step_out)
        return attn_fail(ATTN_INVALID_ARGUMENT, "step is NULL; expected where to put the step");
    *step_out = NULL;
    attn_bahdanau_config ours;
    CHECK(nn_take_bahdanau_config(&ours, config));
    CHECK(check_alignment(&ours));
    CHECK(nn_check_bahdanau_weights(&ours));
    struct attn_bahdanau *step = calloc(1, sizeof *step);
    if (!step)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a step of %zu bytes could not be allocated", sizeof *step);
    step->kernels = attn_nn_kernels_active();
    step->alignment = ours.alignment;
    step->embedding = ours.embedding;
    step->annotation = ours.annotation;
    step->hidden = ours.hidden;
    attn_status status = attn_linear_create(&step->from_x, 1, &ours.w_ih, &ours.b_ih);
    if (!status)
        status = attn_linear_create(&step->from_h, 1, &ours.w_hh, &ours.b_hh);
    if (status) {
        attn_bahdanau_destroy(step);
        return status;
    }
    *step_out = step;
    return ATTN_OK;
}

void attn_bahdanau_destroy(attn_bahdanau *step)
{
    if (!step)
        return;
    attn_linear_destroy(step->from_x);
    attn_linear_destroy(step->from_h);
    free(step);
}

/* ------------------------------------------------------------------ running -- */

/** Working memory. */
struct pieces {
    float *input;           /* [B][embedding + annotation] */
    float *from_x, *from_h; /* [B][3*hidden] */
    void *attention;
    size_t attention_size;
};

static struct pieces take_pieces(struct nn_arena *arena, const attn_bahdanau *step, int64_t batch, int64_t tokens)
{
    struct pieces pieces;
    pieces.input = nn_take(arena, batch, step->embedding + step->annotation, 1, sizeof(float));
    pieces.from_x = nn_take(arena, batch, 3 * step->hidden, 1, sizeof(float));
    pieces.from_h = nn_take(arena, batch, 3 * step->hidden, 1, sizeof(float));
    const attn_params params = attn_params_default();
    const struct nn_need need =
        nn_additive_alignment_need(step->alignment, batch, 1, tokens, step->annotation, &params);
    pieces.attention = nn_take_workspace(arena, need, &pieces.attention_size);
    return pieces;
}

size_t attn_bahdanau_workspace_size(const attn_bahdanau *step, int64_t batch, int64_t tokens)
{
    if (!step || batch < 0 || tokens < 0)
        return SIZE_MAX;
    struct nn_arena arena = {0};
    take_pieces(&arena, step, batch, tokens);
    return nn_arena_size(&arena);
}

/** The tensors of a call. */
struct call {
    const attn_tensor *word, *projected, *annotations, *state, *context, *weights;
    const int64_t *lengths;
    int num_threads;
};

/** That an output lies on no input of a call. */
static attn_status check_apart(const char *name, const attn_tensor *t, const struct call *call)
{
    CHECK(attn_check_apart(name, t, "word", call->word, 0));
    CHECK(attn_check_apart(name, t, "projected", call->projected, 0));
    return attn_check_apart(name, t, "annotations", call->annotations, 0);
}

static attn_status check_call(const attn_bahdanau *step, const struct call *c)
{
    if (!step)
        return attn_fail(ATTN_INVALID_ARGUMENT, "step is NULL; expected a step");
    CHECK(nn_check_activations("word", c->word, NN_ANY, 1, step->embedding));
    const int64_t batch = c->word->shape[0];
    CHECK(nn_check_activations("projected", c->projected, batch, NN_ANY, step->alignment->d_projected));
    const int64_t tokens = c->projected->shape[2];
    CHECK(nn_check_activations("annotations", c->annotations, batch, tokens, step->annotation));
    CHECK(nn_check_lengths("lengths", c->lengths, batch, tokens, "the tokens of annotations"));
    CHECK(nn_check_output("state", c->state, batch, 1, step->hidden));
    CHECK(check_apart("state", c->state, c));
    if (c->context) {
        CHECK(nn_check_output("context", c->context, batch, 1, step->annotation));
        CHECK(check_apart("context", c->context, c));
        CHECK(attn_check_apart("context", c->context, "state", c->state, 0));
    }
    if (c->weights) {
        CHECK(nn_check_output("weights", c->weights, batch, 1, tokens));
        CHECK(check_apart("weights", c->weights, c));
        CHECK(attn_check_apart("weights", c->weights, "state", c->state, 0));
        if (c->context)
            CHECK(attn_check_apart("weights", c->weights, "context", c->context, 0));
    }
    return nn_check_threads(c->num_threads);
}

/** A row of a tensor of one token. */
static float *row_of(const attn_tensor *t, int64_t batch)
{
    return (float *)t->data + (t->shape[0] > 1 ? batch * t->stride[0] : 0);
}

/** The unit's cells. */
struct cells {
    const attn_bahdanau *step;
    const struct pieces *pieces;
    const attn_tensor *state;
};

static void run_cells(const void *context, int64_t first, int64_t end)
{
    const struct cells *cells = context;
    const int64_t hidden = cells->step->hidden;
    for (int64_t b = first; b < end; b++)
        cells->step->kernels->gru_cell(&(struct nn_cell_work){
            .x = cells->pieces->from_x + b * 3 * hidden,
            .h = cells->pieces->from_h + b * 3 * hidden,
            .state = row_of(cells->state, b),
            .n = hidden,
        });
}

/* Operations of a cell for each channel, in the units of nn_threads(). */
#define CELL_OPERATIONS 20

static attn_status attend(const attn_bahdanau *step, const struct call *c, const struct pieces *pieces)
{
    const int64_t batch = c->word->shape[0], width = step->embedding + step->annotation;
    attn_tensor context = attn_btc(pieces->input + step->embedding, batch, 1, step->annotation);
    context.stride[0] = width;
    attn_params params = attn_params_default();
    params.kv_len = c->lengths;
    params.weights = c->weights;
    params.num_threads = c->num_threads;
    return attn_alignment_forward(step->alignment, c->state, c->projected, c->annotations, &context, &params,
                                  pieces->attention, pieces->attention_size);
}

static void run_unit(const attn_bahdanau *step, const struct call *c, const struct pieces *pieces)
{
    const int64_t batch = c->word->shape[0], width = step->embedding + step->annotation, hidden = step->hidden;
    for (int64_t b = 0; b < batch; b++) {
        float *input = pieces->input + b * width;
        memcpy(input, row_of(c->word, b), (size_t)step->embedding * sizeof(float));
        if (c->context)
            memcpy(row_of(c->context, b), input + step->embedding, (size_t)step->annotation * sizeof(float));
    }
    const attn_tensor input = attn_btc(pieces->input, batch, 1, width);
    const attn_tensor from_x = attn_btc(pieces->from_x, batch, 1, 3 * hidden);
    const attn_tensor from_h = attn_btc(pieces->from_h, batch, 1, 3 * hidden);
    const attn_linear_options options = nn_linear_threads(c->num_threads);
    const struct cells cells = {step, pieces, c->state};
    nn_linear_run(step->from_x, &input, (const attn_tensor *const[]){&from_x}, &options);
    nn_linear_run(step->from_h, c->state, (const attn_tensor *const[]){&from_h}, &options);
    attn_run_ranges(batch, nn_threads(c->num_threads, (double)batch * (double)hidden * CELL_OPERATIONS), run_cells,
                    &cells);
}

attn_status attn_bahdanau_forward(const attn_bahdanau *step, const attn_tensor *word, const attn_tensor *projected,
                                  const attn_tensor *annotations, const int64_t *lengths, const attn_tensor *state,
                                  const attn_tensor *context, const attn_tensor *weights, int num_threads,
                                  void *workspace, size_t workspace_size)
{
    const struct call call = {word, projected, annotations, state, context, weights, lengths, num_threads};
    CHECK(check_call(step, &call));
    const int64_t batch = word->shape[0], tokens = projected->shape[2];
    struct nn_arena measured = {0};
    struct nn_workspace memory;
    take_pieces(&measured, step, batch, tokens);
    CHECK(nn_workspace_open(&memory, workspace, workspace_size, &measured));
    const struct pieces pieces = take_pieces(&memory.arena, step, batch, tokens);
    const attn_status status = attend(step, &call, &pieces);
    if (!status)
        run_unit(step, &call, &pieces);
    nn_workspace_close(&memory);
    return status;
}
