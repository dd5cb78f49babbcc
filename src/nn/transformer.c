/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The encoder-decoder Transformer: what encodes a batch of sources, and what
 * scores given targets. decode.c finds targets.
 */
#include "nn/transformer.h"

#include "nn/check.h"
#include "nn/linear.h"
#include "nn/memory.h"

#include <inttypes.h>

/* ------------------------------------------------------------------ checks -- */

static attn_status check_model(const attn_transformer *model)
{
    return model ? ATTN_OK : attn_fail(ATTN_INVALID_ARGUMENT, "model is NULL; expected an encoder-decoder");
}

static attn_status check_tokens(const attn_transformer *model, int64_t tokens)
{
    if (tokens < 0 || tokens > model->config.positions)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "tokens is %" PRId64 "; expected 0 to %" PRId64 ", the positions of the model", tokens,
                         model->config.positions);
    return ATTN_OK;
}

static attn_status check_lengths(const int64_t *lengths, int64_t batch, int64_t least, int64_t most, const char *what)
{
    for (int64_t b = 0; lengths && b < batch; b++)
        if (lengths[b] < least || lengths[b] > most)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "lengths[%" PRId64 "] is %" PRId64 "; expected %" PRId64 " to %" PRId64 ", %s", b,
                             lengths[b], least, most, what);
    return ATTN_OK;
}

attn_status nn_transformer_check_memory(const attn_transformer *model, const attn_tensor *memory,
                                        const int64_t *lengths)
{
    CHECK(nn_check_activations("memory", memory, NN_ANY, NN_ANY, model->config.d_model));
    if (memory->shape[2] < 1)
        return attn_fail(ATTN_SHAPE_MISMATCH, "memory.shape[2] is 0; expected 1 token or more");
    return check_lengths(lengths, memory->shape[0], 1, memory->shape[2], "the tokens of memory");
}

/* -------------------------------------------------------------- embeddings -- */

/** Rows of a table for tokens first, first + 1, ... of each sequence, with their positions added. */
static attn_status embed(const attn_transformer *model, const float *table, int64_t vocabulary, const int32_t *ids,
                         int64_t first, const attn_tensor *out, int num_threads)
{
    const int64_t d = model->config.d_model;
    const attn_tensor rows = attn_matrix(table, vocabulary, d);
    CHECK(attn_embed(&rows, ids, 1, 0, out, num_threads));
    for (int64_t b = 0; b < out->shape[0]; b++)
        for (int64_t t = 0; t < out->shape[2]; t++) {
            const float *position = model->positions + (first + t) * d;
            float *row = (float *)out->data + (out->shape[0] > 1 ? b * out->stride[0] : 0) +
                         (out->shape[2] > 1 ? t * out->stride[2] : 0);
            for (int64_t c = 0; c < d; c++)
                row[c] += position[c];
        }
    return ATTN_OK;
}

attn_status nn_transformer_embed_target(const attn_transformer *model, const int32_t *ids, int64_t first,
                                        const attn_tensor *out, int num_threads)
{
    return embed(model, model->target_embedding, model->config.target_vocabulary, ids, first, out, num_threads);
}

/** Tokens first.. of sequence b of activations. */
static attn_tensor tokens_of(const attn_tensor *t, int64_t b, int64_t first, int64_t end)
{
    attn_tensor part = *t;
    if (t->data)
        part.data =
            (float *)t->data + (t->shape[0] > 1 ? b * t->stride[0] : 0) + (t->shape[2] > 1 ? first * t->stride[2] : 0);
    part.shape[0] = 1;
    part.shape[2] = end - first;
    return part;
}

static void clear_rows(const attn_tensor *t)
{
    for (int64_t i = 0; i < t->shape[2]; i++)
        memset((float *)t->data + i * t->stride[2], 0, (size_t)t->shape[3] * sizeof(float));
}

/** Sets what stands behind the lengths to 0. */
static void clear_padding(const attn_tensor *memory, const int64_t *lengths)
{
    for (int64_t b = 0; lengths && b < memory->shape[0]; b++) {
        const attn_tensor padding = tokens_of(memory, b, lengths[b], memory->shape[2]);
        clear_rows(&padding);
    }
}

/* ---------------------------------------------------------------- encoding -- */

static attn_status normalise(const attn_transformer *model, const struct nn_norm *norm, const attn_tensor *x,
                             int num_threads)
{
    if (!model->config.final_norms)
        return ATTN_OK;
    const attn_tensor gamma = attn_vector(norm->gamma, model->config.d_model);
    const attn_tensor beta = attn_vector(norm->beta, model->config.d_model);
    return attn_normalise(ATTN_NORM_LAYER, x, &gamma, norm->beta ? &beta : NULL, model->config.eps, x, num_threads);
}

static attn_status check_encode(const attn_transformer *model, int64_t batch, int64_t tokens, const int32_t *ids,
                                const int64_t *lengths, const attn_tensor *memory, int num_threads)
{
    CHECK(check_model(model));
    CHECK(nn_check_length("batch", batch, 0));
    CHECK(check_tokens(model, tokens));
    CHECK(attn_check_count("ids", sizeof *ids, batch, tokens, 1));
    CHECK(check_lengths(lengths, batch, 0, tokens, "the tokens"));
    for (int64_t b = 0; b < batch; b++)
        CHECK(nn_check_ids(ids, b * tokens, b * tokens + (lengths ? lengths[b] : tokens),
                           model->config.source_vocabulary));
    CHECK(nn_check_output("memory", memory, batch, tokens, model->config.d_model));
    return nn_check_threads(num_threads);
}

static attn_status run_encoder(const attn_transformer *model, const int32_t *ids, const int64_t *lengths,
                               const attn_tensor *memory, const attn_block_inputs *inputs, void *workspace, size_t size)
{
    const attn_transformer_config *c = &model->config;
    const int64_t tokens = memory->shape[2];
    clear_padding(memory, lengths);
    for (int64_t b = 0; b < memory->shape[0]; b++) {
        const attn_tensor live = tokens_of(memory, b, 0, lengths ? lengths[b] : tokens);
        if (live.shape[2] == 0)
            continue;
        CHECK(embed(model, model->source_embedding, c->source_vocabulary, ids + b * tokens, 0, &live,
                    inputs->num_threads));
    }
    for (int64_t layer = 0; layer < c->encoder_layers; layer++)
        CHECK(attn_block_forward(model->encoder[layer], memory, memory, inputs, workspace, size));
    CHECK(normalise(model, &model->encoder_norm, memory, inputs->num_threads));
    clear_padding(memory, lengths);
    return ATTN_OK;
}

attn_status attn_transformer_encode(const attn_transformer *model, int64_t batch, int64_t tokens, const int32_t *ids,
                                    const int64_t *lengths, const attn_tensor *memory, int num_threads)
{
    CHECK(check_encode(model, batch, tokens, ids, lengths, memory, num_threads));
    attn_params params = attn_params_default();
    attn_block_inputs inputs = attn_block_inputs_default();
    params.kv_len = lengths;
    inputs.self = &params;
    inputs.num_threads = num_threads;
    struct nn_arena measured = {0};
    struct nn_workspace w;
    size_t size = 0;
    if (model->config.encoder_layers)
        size = attn_block_workspace_size(model->encoder[0], batch, tokens, &inputs);
    nn_take_bytes(&measured, size);
    CHECK(nn_workspace_open(&w, NULL, 0, &measured));
    const attn_status status = run_encoder(model, ids, lengths, memory, &inputs, nn_take_bytes(&w.arena, size), size);
    nn_workspace_close(&w);
    return status;
}

/* ----------------------------------------------------------------- scoring -- */

attn_status nn_transformer_generate(const attn_transformer *model, const attn_tensor *hidden, const attn_tensor *logits,
                                    int num_threads)
{
    const attn_linear_options options = nn_linear_threads(num_threads);
    CHECK(normalise(model, &model->decoder_norm, hidden, num_threads));
    return attn_linear_forward(model->generator, hidden, logits, &options);
}

static attn_status check_weights(const attn_transformer *model, const attn_tensor *weights, int64_t tokens,
                                 const attn_tensor *memory, const attn_tensor *logits)
{
    if (!weights)
        return ATTN_OK;
    const int64_t expected[] = {memory->shape[0], model->config.heads, tokens, memory->shape[2]};
    CHECK(attn_check_tensor("weights", weights, CHECK_ALL));
    CHECK(attn_check_f32("weights", weights->dtype));
    for (int axis = 0; axis < 4; axis++)
        CHECK(attn_check_axis("weights", weights, axis, expected[axis],
                              "as the weights are batch x heads x tokens x tokens of memory"));
    CHECK(attn_check_distinct("weights", weights));
    CHECK(attn_check_apart("weights", weights, "memory", memory, 0));
    return attn_check_apart("weights", weights, "logits", logits, 0);
}

static attn_status check_score(const attn_transformer *model, const attn_tensor *memory, const int64_t *lengths,
                               int64_t tokens, const int32_t *ids, const attn_tensor *logits,
                               const attn_tensor *weights, int num_threads)
{
    CHECK(check_model(model));
    CHECK(nn_transformer_check_memory(model, memory, lengths));
    CHECK(check_tokens(model, tokens));
    CHECK(attn_check_count("ids", sizeof *ids, memory->shape[0], tokens, 1));
    CHECK(nn_check_ids(ids, 0, memory->shape[0] * tokens, model->config.target_vocabulary));
    CHECK(nn_check_output("logits", logits, memory->shape[0], tokens, model->config.target_vocabulary));
    CHECK(attn_check_apart("logits", logits, "memory", memory, 0));
    CHECK(check_weights(model, weights, tokens, memory, logits));
    return nn_check_threads(num_threads);
}

/** Working memory of a call: states, and that of a layer, the last of which may give weights. */
struct pieces {
    float *hidden;
    void *block;
    size_t block_size;
};

static struct pieces take_pieces(struct nn_arena *arena, const attn_transformer *model, int64_t batch, int64_t tokens,
                                 const attn_block_inputs *inputs, attn_params *cross, const attn_tensor *weights)
{
    struct pieces pieces = {.hidden = nn_take(arena, batch, tokens, model->config.d_model, sizeof(float))};
    struct nn_need need = {0};
    if (!arena->base) {
        cross->weights = weights;
        need = nn_block_need(model->decoder[0], batch, tokens, inputs);
        cross->weights = NULL;
        need = nn_larger_need(need, nn_block_need(model->decoder[0], batch, tokens, inputs));
    }
    pieces.block = nn_take_workspace(arena, need, &pieces.block_size);
    return pieces;
}

attn_status attn_transformer_score(const attn_transformer *model, const attn_tensor *memory, const int64_t *lengths,
                                   int64_t tokens, const int32_t *ids, const attn_tensor *logits,
                                   const attn_tensor *weights, int num_threads)
{
    CHECK(check_score(model, memory, lengths, tokens, ids, logits, weights, num_threads));
    const attn_transformer_config *c = &model->config;
    attn_params self = attn_params_default(), cross = attn_params_default();
    attn_block_inputs inputs = attn_block_inputs_default();
    self.causal = ATTN_CAUSAL_TOP_LEFT;
    cross.kv_len = lengths;
    inputs.self = &self;
    inputs.cross = &cross;
    inputs.memory = memory;
    inputs.num_threads = num_threads;
    struct nn_arena measured = {0};
    struct nn_workspace w;
    take_pieces(&measured, model, memory->shape[0], tokens, &inputs, &cross, weights);
    CHECK(nn_workspace_open(&w, NULL, 0, &measured));
    const struct pieces pieces = take_pieces(&w.arena, model, memory->shape[0], tokens, &inputs, &cross, weights);
    const attn_tensor hidden = attn_btc(pieces.hidden, memory->shape[0], tokens, c->d_model);
    attn_status status = nn_transformer_embed_target(model, ids, 0, &hidden, num_threads);
    for (int64_t layer = 0; !status && layer < c->decoder_layers; layer++) {
        cross.weights = layer == c->decoder_layers - 1 ? weights : NULL;
        status = attn_block_forward(model->decoder[layer], &hidden, &hidden, &inputs, pieces.block, pieces.block_size);
    }
    if (!status)
        status = nn_transformer_generate(model, &hidden, logits, num_threads);
    nn_workspace_close(&w);
    return status;
}
