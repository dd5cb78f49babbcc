/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BERT: embeddings, post-norm layers over a ragged batch; and the pooling of
 * its states to one vector a sequence.
 */
#include "attn/nn/models.h"

#include "nn/block.h"
#include "nn/check.h"
#include "nn/memory.h"
#include "nn/names.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

struct attn_bert {
    attn_bert_config config;
    float *words;     /* [vocabulary][d_model] */
    float *positions; /* [positions][d_model]: with the embedding of segment type 0 added */
    struct nn_norm norm;
    attn_block *blocks[];
};

/* ----------------------------------------------------------------- loading -- */

static attn_status check_config(const attn_bert_config *c)
{
    if (!c)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config is NULL; expected an attn_bert_config");
    CHECK(nn_check_struct("config", c->struct_size, sizeof *c));
    CHECK(nn_check_length("config.layers", c->layers, 0));
    CHECK(nn_check_length("config.d_model", c->d_model, 1));
    CHECK(nn_check_length("config.heads", c->heads, 1));
    CHECK(nn_check_length("config.d_ff", c->d_ff, 1));
    CHECK(nn_check_length("config.vocabulary", c->vocabulary, 1));
    CHECK(nn_check_length("config.positions", c->positions, 1));
    CHECK(nn_check_activation("config.activation", c->activation));
    CHECK(nn_check_eps("config.eps", c->eps));
    return ATTN_OK;
}

static attn_status load_embeddings(attn_bert *bert, const attn_weights *weights, const char *prefix)
{
    const attn_bert_config *c = &bert->config;
    attn_tensor words, positions, types, gamma, beta;
    CHECK(nn_get(weights, prefix, "embeddings.word_embeddings.weight", c->vocabulary, c->d_model, &words));
    CHECK(nn_get(weights, prefix, "embeddings.position_embeddings.weight", c->positions, c->d_model, &positions));
    CHECK(nn_get(weights, prefix, "embeddings.token_type_embeddings.weight", ATTN_ANY, c->d_model, &types));
    if (types.shape[2] < 1)
        return attn_fail(ATTN_SHAPE_MISMATCH,
                         "%sembeddings.token_type_embeddings.weight has no rows; expected 1 or more", prefix);
    CHECK(nn_get(weights, prefix, "embeddings.LayerNorm.weight", 0, c->d_model, &gamma));
    CHECK(nn_get(weights, prefix, "embeddings.LayerNorm.bias", 0, c->d_model, &beta));
    CHECK(nn_copy_floats(&words, &bert->words));
    CHECK(nn_copy_floats(&positions, &bert->positions));
    for (int64_t p = 0; p < c->positions; p++)
        for (int64_t d = 0; d < c->d_model; d++)
            bert->positions[p * c->d_model + d] += nn_weight_at(&types, 0, d);
    CHECK(nn_copy_floats(&gamma, &bert->norm.gamma));
    return nn_copy_floats(&beta, &bert->norm.beta);
}

static attn_status load_blocks(attn_bert *bert, const attn_weights *weights, const char *prefix)
{
    const attn_bert_config *c = &bert->config;
    attn_block_config block = attn_block_config_default();
    block.attention.d_model = c->d_model;
    block.attention.heads = c->heads;
    block.d_ff = c->d_ff;
    block.activation = c->activation;
    block.eps = c->eps;
    for (int64_t layer = 0; layer < c->layers; layer++) {
        struct nn_prefix name;
        CHECK(nn_numbered(&name, prefix, "encoder.layer.", layer));
        CHECK(attn_block_load(&bert->blocks[layer], &block, weights, name.text, ATTN_NAMING_BERT));
    }
    return ATTN_OK;
}

attn_status attn_bert_load(attn_bert **bert_out, const attn_bert_config *config, const attn_weights *weights,
                           const char *prefix)
{
    if (!bert_out)
        return attn_fail(ATTN_INVALID_ARGUMENT, "bert is NULL; expected where to put the encoder");
    *bert_out = NULL;
    CHECK(check_config(config));
    CHECK(nn_check_weights_set(weights, prefix));
    CHECK(attn_check_count("config.layers", sizeof(attn_block *), config->layers, 1, 1));
    attn_bert *bert = calloc(1, sizeof *bert + (size_t)config->layers * sizeof *bert->blocks);
    if (!bert)
        return attn_fail(ATTN_OUT_OF_MEMORY, "an encoder of %" PRId64 " layers could not be allocated", config->layers);
    bert->config = *config;
    attn_status status = load_embeddings(bert, weights, prefix);
    if (!status)
        status = load_blocks(bert, weights, prefix);
    if (status)
        attn_bert_destroy(bert);
    else
        *bert_out = bert;
    return status;
}

void attn_bert_destroy(attn_bert *bert)
{
    if (!bert)
        return;
    for (int64_t layer = 0; layer < bert->config.layers; layer++)
        attn_block_destroy(bert->blocks[layer]);
    free(bert->words);
    free(bert->positions);
    free(bert->norm.gamma);
    free(bert->norm.beta);
    free(bert);
}

/* ---------------------------------------------------------------- encoding -- */

/** Working memory of a call: position ids, and that of a layer. */
struct pieces {
    int32_t *positions;
    void *block;
    size_t block_size;
};

static attn_ragged ragged_of(int64_t num_sequences, const int64_t *offsets)
{
    return (attn_ragged){num_sequences, offsets, offsets};
}

/** Bytes of a layer's workspace, weights asked for or not, as the core's second pass has scratch of its own. */
static size_t block_workspace(const attn_bert *bert, const attn_ragged *ragged, int64_t tokens, int num_threads)
{
    const attn_tensor weights = attn_bhtd(NULL, 1, bert->config.heads, tokens, tokens);
    attn_params params = attn_params_default();
    attn_block_inputs inputs = attn_block_inputs_default();
    params.ragged = ragged;
    inputs.self = &params;
    inputs.num_threads = num_threads;
    const size_t without = attn_block_workspace_size(bert->blocks[0], 1, tokens, &inputs);
    params.weights = &weights;
    const size_t with = attn_block_workspace_size(bert->blocks[0], 1, tokens, &inputs);
    return with > without ? with : without;
}

static struct pieces take_pieces(struct nn_arena *arena, const attn_bert *bert, int64_t num_sequences, int64_t tokens,
                                 const int64_t *offsets, int num_threads)
{
    struct pieces pieces = {.positions = nn_take(arena, tokens, 1, 1, sizeof(int32_t))};
    const attn_ragged ragged = ragged_of(num_sequences, offsets);
    if (bert->config.layers)
        pieces.block_size = block_workspace(bert, &ragged, tokens, num_threads);
    pieces.block = nn_take_bytes(arena, pieces.block_size);
    return pieces;
}

size_t attn_bert_workspace_size(const attn_bert *bert, int64_t num_sequences, int64_t tokens, int num_threads)
{
    static const int64_t no_offsets[1] = {0}; /* only looked at when a call runs */
    if (!bert || num_sequences < 0 || tokens < 0)
        return SIZE_MAX;
    struct nn_arena arena = {0};
    take_pieces(&arena, bert, num_sequences, tokens, no_offsets, num_threads);
    return nn_arena_size(&arena);
}

static attn_status check_sequences(const attn_bert *bert, int64_t num_sequences, const int64_t *offsets,
                                   const int32_t *ids)
{
    const attn_bert_config *c = &bert->config;
    CHECK(nn_check_length("num_sequences", num_sequences, 0));
    CHECK(nn_check_offsets(num_sequences, offsets));
    for (int64_t s = 0; s < num_sequences; s++)
        if (offsets[s + 1] - offsets[s] > c->positions)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "offsets[%" PRId64 "] is %" PRId64 "; expected at most %" PRId64
                             ", as a sequence has no more than %" PRId64 " tokens",
                             s + 1, offsets[s + 1], offsets[s] + c->positions, c->positions);
    return nn_check_ids(ids, 0, offsets[num_sequences], c->vocabulary);
}

static attn_status embed(const attn_bert *bert, int64_t num_sequences, const int64_t *offsets, const int32_t *ids,
                         int32_t *positions, const attn_tensor *hidden, int num_threads)
{
    const attn_bert_config *c = &bert->config;
    for (int64_t s = 0; s < num_sequences; s++)
        for (int64_t t = offsets[s]; t < offsets[s + 1]; t++)
            positions[t] = (int32_t)(t - offsets[s]);
    const attn_tensor words = attn_matrix(bert->words, c->vocabulary, c->d_model);
    const attn_tensor places = attn_matrix(bert->positions, c->positions, c->d_model);
    const attn_tensor gamma = attn_vector(bert->norm.gamma, c->d_model),
                      beta = attn_vector(bert->norm.beta, c->d_model);
    CHECK(attn_embed(&words, ids, 1, 0, hidden, num_threads));
    CHECK(attn_embed(&places, positions, 1, 1, hidden, num_threads));
    return attn_normalise(ATTN_NORM_LAYER, hidden, &gamma, &beta, c->eps, hidden, num_threads);
}

static attn_status check_weights(const attn_bert *bert, const attn_bert_outputs *outputs, int64_t tokens,
                                 const attn_tensor *hidden)
{
    for (int64_t l = 0; outputs && outputs->weights && l < bert->config.layers; l++) {
        const attn_tensor *t = outputs->weights[l];
        if (!t)
            continue;
        const struct nn_name name = nn_name_of("outputs.weights", l, NULL);
        const int64_t expected[] = {1, bert->config.heads, tokens, tokens};
        CHECK(attn_check_tensor(name.text, t, CHECK_ALL));
        CHECK(attn_check_f32(name.text, t->dtype));
        for (int axis = 0; axis < 4; axis++)
            CHECK(
                attn_check_axis(name.text, t, axis, expected[axis], "as the weights are 1 x heads x tokens x tokens"));
        CHECK(attn_check_distinct(name.text, t));
        CHECK(attn_check_apart("hidden", hidden, name.text, t, 0));
    }
    return ATTN_OK;
}

static attn_status run_blocks(const attn_bert *bert, const attn_ragged *ragged, const attn_tensor *hidden,
                              const attn_bert_outputs *outputs, int num_threads, const struct pieces *pieces)
{
    attn_params params = attn_params_default();
    attn_block_inputs inputs = attn_block_inputs_default();
    params.ragged = ragged;
    inputs.self = &params;
    inputs.num_threads = num_threads;
    for (int64_t layer = 0; layer < bert->config.layers; layer++) {
        params.weights = outputs && outputs->weights ? outputs->weights[layer] : NULL;
        CHECK(attn_block_forward(bert->blocks[layer], hidden, hidden, &inputs, pieces->block, pieces->block_size));
    }
    return ATTN_OK;
}

attn_status attn_bert_forward(const attn_bert *bert, int64_t num_sequences, const int64_t *offsets, const int32_t *ids,
                              const attn_tensor *hidden, const attn_bert_outputs *outputs, int num_threads,
                              void *workspace, size_t workspace_size)
{
    if (!bert)
        return attn_fail(ATTN_INVALID_ARGUMENT, "bert is NULL; expected an encoder");
    CHECK(check_sequences(bert, num_sequences, offsets, ids));
    const int64_t tokens = offsets[num_sequences];
    CHECK(nn_check_output("hidden", hidden, 1, tokens, bert->config.d_model));
    CHECK(check_weights(bert, outputs, tokens, hidden));
    CHECK(nn_check_threads(num_threads));
    struct nn_arena measured = {0};
    take_pieces(&measured, bert, num_sequences, tokens, offsets, num_threads);
    struct nn_workspace w;
    CHECK(nn_workspace_open(&w, workspace, workspace_size, &measured));
    const struct pieces pieces = take_pieces(&w.arena, bert, num_sequences, tokens, offsets, num_threads);
    const attn_ragged ragged = ragged_of(num_sequences, offsets);
    attn_status status = embed(bert, num_sequences, offsets, ids, pieces.positions, hidden, num_threads);
    if (!status)
        status = run_blocks(bert, &ragged, hidden, outputs, num_threads, &pieces);
    nn_workspace_close(&w);
    return status;
}

/* ----------------------------------------------------------------- pooling -- */

static void mean_of_rows(const attn_tensor *hidden, int64_t first, int64_t end, int normalise, float *out)
{
    const int64_t channels = hidden->shape[3], stride = hidden->shape[2] > 1 ? hidden->stride[2] : 0;
    double squares = 0;
    for (int64_t c = 0; c < channels; c++)
        out[c] = 0;
    for (int64_t t = first; t < end; t++) {
        const float *row = (const float *)hidden->data + t * stride;
        for (int64_t c = 0; c < channels; c++)
            out[c] += row[c];
    }
    for (int64_t c = 0; c < channels; c++) {
        out[c] = end > first ? out[c] / (float)(end - first) : 0.0f;
        squares += (double)out[c] * (double)out[c];
    }
    const double length = sqrt(squares);
    for (int64_t c = 0; c < channels && normalise; c++)
        out[c] = (float)(out[c] / (length < 1e-12 ? 1e-12 : length)); /* a NaN stays one */
}

attn_status attn_mean_pool(const attn_tensor *hidden, int64_t num_sequences, const int64_t *offsets, int normalise,
                           const attn_tensor *out)
{
    CHECK(nn_check_length("num_sequences", num_sequences, 0));
    CHECK(nn_check_offsets(num_sequences, offsets));
    CHECK(nn_check_activations("hidden", hidden, 1, offsets[num_sequences], NN_ANY));
    CHECK(nn_check_output("out", out, 1, num_sequences, hidden->shape[3]));
    CHECK(attn_check_apart("out", out, "hidden", hidden, 0));
    for (int64_t s = 0; s < num_sequences; s++)
        mean_of_rows(hidden, offsets[s], offsets[s + 1], normalise,
                     (float *)out->data + s * (num_sequences > 1 ? out->stride[2] : 0));
    return ATTN_OK;
}
