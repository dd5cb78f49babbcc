/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The encoder-decoder Transformer: what encodes a batch of sources, and what
 * scores given targets. decode.c finds targets.
 */
#include "nn/transformer.h"

#include "nn/check.h"
#include "nn/elementwise.h"
#include "nn/linear.h"
#include "nn/memory.h"
#include "nn/tensor_rows.h"

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
    CHECK(nn_check_typed_activations("memory", memory, NN_ANY, NN_ANY, model->config.d_model));
    if (memory->shape[2] < 1)
        return attn_fail(ATTN_SHAPE_MISMATCH, "memory.shape[2] is 0; expected 1 token or more");
    return check_lengths(lengths, memory->shape[0], 1, memory->shape[2], "the tokens of memory");
}

/* -------------------------------------------------------------- embeddings -- */

void nn_transformer_embed(const attn_transformer *model, const attn_tensor *table, const int32_t *ids, int64_t first,
                          const attn_tensor *out, int num_threads)
{
    const attn_tensor positions = attn_matrix(model->positions, model->config.positions, model->config.d_model);
    const struct nn_lookup lookup = {
        .table = table,
        .ids = ids,
        .scale = model->embedding_scale,
        .places = &positions,
        .first_place = first,
    };
    nn_look_up(&lookup, out, num_threads);
}

attn_tensor nn_transformer_states(const attn_transformer *model, const void *data, int64_t batch, int64_t tokens,
                                  int64_t channels)
{
    attn_tensor states = attn_btc(data, batch, tokens, channels);
    states.dtype = model->config.activations;
    return states;
}

/** Tokens first.. of sequence b of activations. */
static attn_tensor tokens_of(const attn_tensor *t, int64_t b, int64_t first, int64_t end)
{
    attn_tensor part = *t;
    if (t->data)
        part.data = nn_row_address(t, b, first);
    part.shape[0] = 1;
    part.shape[2] = end - first;
    return part;
}

static void clear_rows(const attn_tensor *t)
{
    for (int64_t i = 0; i < t->shape[2]; i++)
        memset(nn_row_address(t, 0, i), 0, (size_t)t->shape[3] * attn_dtype_size(t->dtype));
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
                             const attn_tensor *out, int num_threads)
{
    const attn_tensor gamma = attn_vector(norm->gamma, model->config.d_model);
    const attn_tensor beta = attn_vector(norm->beta, model->config.d_model);
    return attn_normalise(ATTN_NORM_LAYER, x, &gamma, norm->beta ? &beta : NULL, model->config.eps, out, num_threads);
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
        CHECK(nn_check_ids("ids", ids, b * tokens, b * tokens + (lengths ? lengths[b] : tokens),
                           model->config.source_vocabulary));
    CHECK(nn_check_typed_output("memory", memory, batch, tokens, model->config.d_model));
    return nn_check_threads(num_threads);
}

/** Working memory of encoding: states where memory has another type than they, and that of a layer. */
struct encoder_pieces {
    void *states, *block;
    size_t block_size;
};

static struct encoder_pieces take_encoder_pieces(struct nn_arena *arena, const attn_transformer *model,
                                                 const attn_tensor *memory, const attn_block_inputs *inputs)
{
    const attn_transformer_config *c = &model->config;
    struct encoder_pieces pieces = {0};
    struct nn_need need = {0};
    if (memory->dtype != c->activations)
        pieces.states = nn_take(arena, memory->shape[0], memory->shape[2], c->d_model, attn_dtype_size(c->activations));
    if (c->encoder_layers && !arena->base)
        need = nn_block_need(model->encoder[0], c->activations, memory->shape[0], memory->shape[2], inputs);
    pieces.block = nn_take_workspace(arena, need, &pieces.block_size);
    return pieces;
}

static attn_status run_encoder(const attn_transformer *model, const int32_t *ids, const int64_t *lengths,
                               const attn_tensor *memory, const attn_block_inputs *inputs,
                               const struct encoder_pieces *pieces)
{
    const attn_transformer_config *c = &model->config;
    const int64_t tokens = memory->shape[2];
    const attn_tensor own = nn_transformer_states(model, pieces->states, memory->shape[0], tokens, c->d_model);
    const attn_tensor *states = memory->dtype == c->activations ? memory : &own;
    /* What comes last writes to memory. */
    const attn_tensor *embedded = c->encoder_layers || c->final_norms ? states : memory;
    clear_padding(embedded, lengths);
    for (int64_t b = 0; b < memory->shape[0]; b++) {
        const attn_tensor live = tokens_of(embedded, b, 0, lengths ? lengths[b] : tokens);
        if (live.shape[2])
            nn_transformer_embed(model, &model->source_embedding, ids + b * tokens, 0, &live, inputs->num_threads);
    }
    for (int64_t layer = 0; layer < c->encoder_layers; layer++) {
        const attn_tensor *out = layer < c->encoder_layers - 1 || c->final_norms ? states : memory;
        CHECK(attn_block_forward(model->encoder[layer], states, out, inputs, pieces->block, pieces->block_size));
    }
    if (c->final_norms)
        CHECK(normalise(model, &model->encoder_norm, states, memory, inputs->num_threads));
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
    take_encoder_pieces(&measured, model, memory, &inputs);
    CHECK(nn_workspace_open(&w, NULL, 0, &measured));
    const struct encoder_pieces pieces = take_encoder_pieces(&w.arena, model, memory, &inputs);
    const attn_status status = run_encoder(model, ids, lengths, memory, &inputs, &pieces);
    nn_workspace_close(&w);
    return status;
}

/* ----------------------------------------------------------------- scoring -- */

attn_status nn_transformer_generate(const attn_transformer *model, const attn_tensor *hidden, const attn_tensor *logits,
                                    int num_threads)
{
    const attn_linear_options options = nn_linear_threads(num_threads);
    if (model->config.final_norms)
        CHECK(normalise(model, &model->decoder_norm, hidden, hidden, num_threads));
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
    CHECK(nn_check_ids("ids", ids, 0, memory->shape[0] * tokens, model->config.target_vocabulary));
    CHECK(nn_check_output("logits", logits, memory->shape[0], tokens, model->config.target_vocabulary));
    CHECK(attn_check_apart("logits", logits, "memory", memory, 0));
    CHECK(check_weights(model, weights, tokens, memory, logits));
    return nn_check_threads(num_threads);
}

/** Working memory of a call: states, and that of a layer, the last of which may give weights. */
struct pieces {
    void *hidden;
    void *block;
    size_t block_size;
};

static struct pieces take_pieces(struct nn_arena *arena, const attn_transformer *model, int64_t batch, int64_t tokens,
                                 const attn_block_inputs *inputs, attn_params *cross, const attn_tensor *weights)
{
    const attn_dtype dtype = model->config.activations;
    struct pieces pieces = {.hidden = nn_take(arena, batch, tokens, model->config.d_model, attn_dtype_size(dtype))};
    struct nn_need need = {0};
    if (!arena->base) {
        cross->weights = weights;
        need = nn_block_need(model->decoder[0], dtype, batch, tokens, inputs);
        cross->weights = NULL;
        need = nn_larger_need(need, nn_block_need(model->decoder[0], dtype, batch, tokens, inputs));
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
    const attn_tensor hidden = nn_transformer_states(model, pieces.hidden, memory->shape[0], tokens, c->d_model);
    attn_status status = ATTN_OK;
    nn_transformer_embed(model, &model->target_embedding, ids, 0, &hidden, num_threads);
    for (int64_t layer = 0; !status && layer < c->decoder_layers; layer++) {
        cross.weights = layer == c->decoder_layers - 1 ? weights : NULL;
        status = attn_block_forward(model->decoder[layer], &hidden, &hidden, &inputs, pieces.block, pieces.block_size);
    }
    if (!status)
        status = nn_transformer_generate(model, &hidden, logits, num_threads);
    nn_workspace_close(&w);
    return status;
}
