/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a model of a folder: the states of an encoder and what is made of them,
 * or a decoder's step.
 *
 * States are computed in the type of the model's activations, whatever is asked
 * for, so that no output depends on which others there are.
 */
#include "nn/model.h"

#include "api/executor.h"
#include "driver/threads.h"
#include "nn/bert.h"
#include "nn/check.h"
#include "nn/linear.h"
#include "nn/llama.h"
#include "nn/memory.h"
#include "nn/tensor_rows.h"

#include <inttypes.h>
#include <math.h>

/* ------------------------------------------------------------------- checks -- */

/** That a model is of a kind, or of both. */
static attn_status check_kind(const attn_model *model, attn_model_kind kind, const char *call, const char *expected)
{
    if (!model)
        return attn_fail(ATTN_INVALID_ARGUMENT, "model is NULL; expected a model");
    return model->info.kind == kind || model->info.kind == ATTN_MODEL_ENCODER_DECODER
               ? ATTN_OK
               : attn_fail(ATTN_INVALID_ARGUMENT, "model is %s; expected %s for %s()", model->model_type, expected,
                           call);
}

static attn_status take_outputs(attn_model_outputs *ours, const attn_model_outputs *theirs)
{
    if (!theirs)
        return attn_fail(ATTN_INVALID_ARGUMENT, "outputs is NULL; expected an attn_model_outputs");
    CHECK(attn_take_struct("outputs", ours, sizeof *ours, NN_MODEL_OUTPUTS_FIRST, theirs));
    if (!ours->hidden && !ours->states && !ours->weights && !ours->pooled && !ours->embeddings && !ours->logits &&
        !ours->token_logits)
        return attn_fail(ATTN_INVALID_ARGUMENT, "outputs has no tensors; expected at least one");
    return ATTN_OK;
}

/** An output that a model cannot give. */
static attn_status fail_output(const char *name, const attn_model *model, const char *lacks)
{
    return attn_fail(ATTN_INVALID_ARGUMENT, "outputs.%s is set; expected NULL, as this model, %s, has no %s", name,
                     *model->architecture ? model->architecture : model->model_type, lacks);
}

static attn_status check_first_tokens(const char *output, const attn_model_batch *batch)
{
    for (int64_t s = 0; s < batch->num_sequences; s++)
        if (batch->offsets[s] == batch->offsets[s + 1])
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "batch.offsets has no tokens for sequence %" PRId64 "; expected some, as outputs.%s is "
                             "made of one of them",
                             s, output);
    return ATTN_OK;
}

/** Outputs of heads, which have a row for each sequence or for each token. */
static attn_status check_sequences(const attn_model *model, const attn_model_batch *batch,
                                   const attn_model_outputs *outputs)
{
    const attn_model_info *info = &model->info;
    const int64_t num = batch->num_sequences;
    if (outputs->pooled) {
        if (!info->pooler)
            return fail_output("pooled", model, "pooler");
        CHECK(nn_check_output("outputs.pooled", outputs->pooled, 1, num, info->d_model));
        CHECK(check_first_tokens("pooled", batch));
    }
    if (outputs->logits) {
        if (!info->logits || info->kind != ATTN_MODEL_ENCODER)
            return fail_output("logits", model, "head of classes");
        CHECK(nn_check_output("outputs.logits", outputs->logits, 1, num, info->logits));
        CHECK(check_first_tokens("logits", batch));
    }
    if (outputs->token_logits) {
        if (!info->token_logits)
            return fail_output("token_logits", model, "head of tokens");
        CHECK(
            nn_check_output("outputs.token_logits", outputs->token_logits, 1, batch->offsets[num], info->token_logits));
    }
    if (!outputs->embeddings)
        return ATTN_OK;
    if (!info->pooling)
        return fail_output("embeddings", model, "pooling; its folder has no modules.json, and options.pooling was 0");
    CHECK(nn_check_output("outputs.embeddings", outputs->embeddings, 1, num, info->d_model));
    return info->pooling == ATTN_POOLING_MEAN ? ATTN_OK : check_first_tokens("embeddings", batch);
}

/** That what is written lies apart. */
static attn_status check_all_apart(const attn_model *model, const attn_model_outputs *outputs)
{
    const struct nn_argument list[] = {{"outputs.hidden", outputs->hidden},
                                       {"outputs.pooled", outputs->pooled},
                                       {"outputs.logits", outputs->logits},
                                       {"outputs.token_logits", outputs->token_logits},
                                       {"outputs.embeddings", outputs->embeddings}};
    const int num = sizeof list / sizeof *list;
    CHECK(nn_check_apart(list, num, NULL, 0));
    for (int i = 0; i < num; i++)
        for (int64_t l = 0; list[i].tensor && l <= model->info.layers; l++) {
            if (outputs->states && outputs->states[l])
                CHECK(attn_check_apart(list[i].name, list[i].tensor, nn_name_of("outputs.states", l, NULL).text,
                                       outputs->states[l], 0));
            if (outputs->weights && l < model->info.layers && outputs->weights[l])
                CHECK(attn_check_apart(list[i].name, list[i].tensor, nn_name_of("outputs.weights", l, NULL).text,
                                       outputs->weights[l], 0));
        }
    return ATTN_OK;
}

/* ----------------------------------------------------------------- encoders -- */

/** Working memory of a call: states, those of first tokens, and what is made of them. */
struct pieces {
    attn_tensor hidden, first, made;
    attn_tensor rows;  /* f32, for pooling by a token or the largest */
    attn_tensor words; /* of all tokens, behind the layer of the head of words */
};

static attn_tensor take_rows(struct nn_arena *arena, int64_t rows, int64_t channels, attn_dtype dtype)
{
    attn_tensor t = attn_btc(nn_take(arena, 1, rows, channels, attn_dtype_size(dtype)), 1, rows, channels);
    t.dtype = dtype;
    return t;
}

static struct pieces take_pieces(struct nn_arena *arena, const attn_model *model, int64_t num, int64_t tokens)
{
    const int64_t d = model->info.d_model;
    struct pieces pieces;
    pieces.hidden = take_rows(arena, tokens, d, model->activations);
    pieces.first = take_rows(arena, num, d, model->activations);
    pieces.made = take_rows(arena, num, d, model->activations);
    pieces.rows = take_rows(arena, num, d, ATTN_F32);
    pieces.words = take_rows(arena, model->tokens.dense ? tokens : 0, d, model->activations);
    return pieces;
}

/** One token's state of each sequence. */
static void gather(const attn_tensor *hidden, const attn_model_batch *batch, int last, const attn_tensor *out)
{
    const size_t size = (size_t)hidden->shape[3] * attn_dtype_size(hidden->dtype);
    for (int64_t s = 0; s < batch->num_sequences; s++)
        memcpy(nn_row_address(out, 0, s),
               nn_row_address(hidden, 0, last ? batch->offsets[s + 1] - 1 : batch->offsets[s]), size);
}

/** The largest of each channel; a NaN stays one. */
static void take_largest(const attn_tensor *hidden, const attn_model_batch *batch, const attn_tensor *out)
{
    for (int64_t s = 0; s < batch->num_sequences; s++) {
        float *row = nn_row_address(out, 0, s);
        for (int64_t t = batch->offsets[s]; t < batch->offsets[s + 1]; t++)
            for (int64_t c = 0; c < hidden->shape[3]; c++) {
                const float x = nn_weight_at(hidden, t, c);
                row[c] = t == batch->offsets[s] || x > row[c] || isnan(x) ? x : row[c];
            }
    }
}

static attn_status pool(const attn_model *model, const attn_model_batch *batch, const struct pieces *pieces,
                        const attn_tensor *out)
{
    const attn_pooling pooling = model->info.pooling;
    if (pooling == ATTN_POOLING_MEAN)
        return attn_mean_pool(&pieces->hidden, batch->num_sequences, batch->offsets, model->info.normalise, out);
    if (pooling == ATTN_POOLING_MAX) {
        take_largest(&pieces->hidden, batch, &pieces->rows);
    } else {
        gather(&pieces->hidden, batch, pooling == ATTN_POOLING_LAST, &pieces->first);
        CHECK(attn_activate(ATTN_ACTIVATION_NONE, &pieces->first, &pieces->rows, batch->num_threads));
    }
    /* Of sequences of one row each, which are their own mean. */
    for (int64_t s = 0; s < batch->num_sequences; s++) {
        const int64_t offsets[] = {0, 1};
        attn_tensor row = pieces->rows, to = *out;
        row.shape[2] = to.shape[2] = 1;
        row.data = nn_row_address(&pieces->rows, 0, s);
        to.data = nn_row_address(out, 0, s);
        CHECK(attn_mean_pool(&row, 1, offsets, model->info.normalise, &to));
    }
    return ATTN_OK;
}

static attn_status run_token_head(const struct nn_token_head *tokens, const attn_tensor *hidden,
                                  const attn_tensor *words, const attn_tensor *logits, int num_threads)
{
    attn_linear_options options = nn_linear_threads(num_threads);
    if (!tokens->dense)
        return attn_linear_forward(tokens->head, hidden, logits, &options);
    const attn_tensor gamma = attn_vector(tokens->norm.gamma, hidden->shape[3]),
                      beta = attn_vector(tokens->norm.beta, hidden->shape[3]);
    options.activation = tokens->activation;
    CHECK(attn_linear_forward(tokens->dense, hidden, words, &options));
    CHECK(attn_normalise(ATTN_NORM_LAYER, words, &gamma, tokens->norm.beta ? &beta : NULL, tokens->eps, words,
                         num_threads));
    options.activation = ATTN_ACTIVATION_NONE;
    return attn_linear_forward(tokens->head, words, logits, &options);
}

static attn_status run_heads(const attn_model *model, const attn_model_batch *batch, const struct pieces *pieces,
                             const attn_model_outputs *outputs)
{
    attn_linear_options options = nn_linear_threads(batch->num_threads);
    if (outputs->embeddings)
        CHECK(pool(model, batch, pieces, outputs->embeddings));
    if (outputs->token_logits)
        CHECK(
            run_token_head(&model->tokens, &pieces->hidden, &pieces->words, outputs->token_logits, batch->num_threads));
    if (outputs->pooled || outputs->logits)
        gather(&pieces->hidden, batch, 0, &pieces->first);
    if (outputs->pooled) {
        options.activation = ATTN_ACTIVATION_TANH;
        CHECK(attn_linear_forward(model->pooler, &pieces->first, outputs->pooled, &options));
    }
    if (!outputs->logits)
        return ATTN_OK;
    options.activation = model->head_activation;
    CHECK(attn_linear_forward(model->head_dense ? model->head_dense : model->pooler, &pieces->first, &pieces->made,
                              &options));
    options.activation = ATTN_ACTIVATION_NONE;
    return attn_linear_forward(model->head, &pieces->made, outputs->logits, &options);
}

static attn_status run_encoder(const attn_model *model, const attn_model_batch *batch,
                               const attn_model_outputs *outputs, const struct pieces *pieces)
{
    const struct nn_bert_call call = {
        .num_sequences = batch->num_sequences,
        .offsets = batch->offsets,
        .ids = batch->ids,
        .types = batch->token_types,
        .hidden = &pieces->hidden,
        .states = outputs->states,
        .weights = outputs->weights,
        .num_threads = batch->num_threads,
    };
    CHECK(model->t5 ? nn_t5_encode(model->t5, &call) : nn_bert_encode(model->bert, &call));
    if (outputs->hidden)
        CHECK(attn_activate(ATTN_ACTIVATION_NONE, &pieces->hidden, outputs->hidden, batch->num_threads));
    return run_heads(model, batch, pieces, outputs);
}

attn_status nn_model_take_batch(attn_model_batch *ours, const attn_model_batch *theirs)
{
    if (!theirs)
        return attn_fail(ATTN_INVALID_ARGUMENT, "batch is NULL; expected an attn_model_batch");
    CHECK(attn_take_struct("batch", ours, sizeof *ours, NN_MODEL_BATCH_FIRST, theirs));
    CHECK(nn_check_length("batch.num_sequences", ours->num_sequences, 0));
    CHECK(nn_check_offsets("batch.offsets", ours->num_sequences, ours->offsets));
    CHECK(nn_check_threads(ours->num_threads));
    return attn_check_executor("batch.executor", ours->executor);
}

attn_status attn_model_encode(const attn_model *model, const attn_model_batch *batch, const attn_model_outputs *outputs)
{
    attn_model_batch b;
    attn_model_outputs o;
    CHECK(check_kind(model, ATTN_MODEL_ENCODER, "attn_model_encode", "an encoder"));
    CHECK(nn_model_take_batch(&b, batch));
    CHECK(take_outputs(&o, outputs));
    const int64_t tokens = b.offsets[b.num_sequences];
    if (o.hidden)
        CHECK(nn_check_typed_output("outputs.hidden", o.hidden, 1, tokens, model->info.d_model));
    CHECK(check_sequences(model, &b, &o));
    CHECK(check_all_apart(model, &o));
    struct nn_arena measured = {0};
    struct nn_workspace w;
    take_pieces(&measured, model, b.num_sequences, tokens);
    CHECK(nn_workspace_open(&w, NULL, 0, &measured));
    const struct pieces pieces = take_pieces(&w.arena, model, b.num_sequences, tokens);
    const attn_executor *before = attn_executor_enter(b.executor);
    const attn_status status = run_encoder(model, &b, &o, &pieces);
    attn_executor_leave(before);
    nn_workspace_close(&w);
    return status;
}

/* ----------------------------------------------------------------- decoders -- */

attn_status attn_model_cache_config(const attn_model *model, attn_cache_config *config)
{
    CHECK(check_kind(model, ATTN_MODEL_DECODER, "attn_model_cache_config", "a decoder"));
    return attn_llama_cache_config(model->llama, config);
}

attn_status attn_model_step(const attn_model *model, attn_cache *cache, const attn_model_tokens *tokens,
                            const attn_model_outputs *outputs)
{
    attn_model_tokens t;
    attn_model_outputs o;
    CHECK(check_kind(model, ATTN_MODEL_DECODER, "attn_model_step", "a decoder"));
    if (!tokens)
        return attn_fail(ATTN_INVALID_ARGUMENT, "tokens is NULL; expected an attn_model_tokens");
    CHECK(attn_take_struct("tokens", &t, sizeof t, NN_MODEL_TOKENS_FIRST, tokens));
    CHECK(attn_check_executor("tokens.executor", t.executor));
    CHECK(take_outputs(&o, outputs));
    const char *encoders = o.weights        ? "weights"
                           : o.pooled       ? "pooled"
                           : o.embeddings   ? "embeddings"
                           : o.token_logits ? "token_logits"
                                            : NULL;
    if (encoders)
        return attn_fail(ATTN_INVALID_ARGUMENT, "outputs.%s is set; expected NULL for a decoder", encoders);
    const int with_memory = model->info.kind == ATTN_MODEL_ENCODER_DECODER;
    if (!with_memory && (t.memory || t.sources))
        return attn_fail(ATTN_INVALID_ARGUMENT, "tokens.%s is set; expected NULL, as %s has no encoder",
                         t.memory ? "memory" : "sources", model->model_type);
    struct nn_llama_call call = {
        .ids = t.ids,
        .tree = t.tree,
        .num_rows = t.num_rows,
        .rows = t.rows,
        .logits = o.logits,
        .hidden = o.hidden,
        .states = o.states,
        .num_threads = t.num_threads,
    };
    const attn_executor *before = attn_executor_enter(t.executor);
    const attn_status status =
        with_memory ? nn_model_step_with_memory(model, cache, &t, &call) : nn_llama_step(model->llama, cache, &call);
    attn_executor_leave(before);
    return status;
}
