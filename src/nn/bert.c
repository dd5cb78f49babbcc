/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BERT: embeddings, post-norm layers over a ragged batch; and the pooling of
 * its states to one vector a sequence.
 */
#include "nn/bert.h"

#include "nn/block.h"
#include "nn/check.h"
#include "nn/elementwise.h"
#include "nn/memory.h"
#include "nn/names.h"

#include <inttypes.h>
#include <stdlib.h>

struct attn_bert {
    attn_bert_config config;
    attn_tensor words;     /* (vocabulary, d_model), of the type that it came in, as the next two */
    attn_tensor positions; /* (positions, d_model) */
    attn_tensor types;     /* (token types, d_model); without data if there are none */
    struct nn_norm norm;
    attn_block *blocks[];
};

/* ----------------------------------------------------------------- loading -- */

attn_status nn_complete_bert_config(attn_bert_config *c, const attn_bert_config *theirs)
{
    if (!theirs)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config is NULL; expected an attn_bert_config");
    CHECK(attn_take_struct("config", c, sizeof *c, NN_BERT_CONFIG_FIRST, theirs));
    CHECK(nn_check_length("config.layers", c->layers, 0));
    CHECK(nn_check_length("config.d_model", c->d_model, 1));
    CHECK(nn_check_length("config.heads", c->heads, 1));
    CHECK(nn_check_length("config.d_ff", c->d_ff, 1));
    CHECK(nn_check_length("config.vocabulary", c->vocabulary, 1));
    CHECK(nn_check_length("config.positions", c->positions, 1));
    CHECK(nn_check_activation("config.activation", c->activation));
    CHECK(nn_check_eps("config.eps", c->eps));
    CHECK(nn_check_length("config.token_types", c->token_types, -1));
    if (c->first_position < 0 || c->first_position >= c->positions)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.first_position is %" PRId64 "; expected 0 to %" PRId64,
                         c->first_position, c->positions - 1);
    if (!c->token_types)
        c->token_types = 2;
    CHECK(nn_check_layer_type("config.activations", c->activations));
    return attn_check_count("config.layers", sizeof(attn_block *), c->layers, 1, 1);
}

/**
 * Whether row 1 of a table of positions is zero and row 2 is not: the mark of RoBERTa, whose positions begin behind
 * that of padding. BERT learns all of its rows.
 */
static int has_padding_row(const attn_tensor *positions)
{
    int zero = positions->shape[2] > 2, other = 0;
    for (int64_t d = 0; zero && d < positions->shape[3]; d++) {
        zero = nn_weight_at(positions, 1, d) == 0.0f;
        other |= nn_weight_at(positions, 2, d) != 0.0f;
    }
    return zero && other;
}

static attn_status load_embeddings(attn_bert *bert, struct nn_reader *reader, const char *prefix)
{
    const attn_bert_config *c = &bert->config;
    attn_tensor words, positions, types = {0}, gamma, beta;
    CHECK(nn_get(reader, prefix, "embeddings.word_embeddings.weight", c->vocabulary, c->d_model, &words));
    CHECK(nn_get(reader, prefix, "embeddings.position_embeddings.weight", c->positions, c->d_model, &positions));
    if (c->token_types > 0)
        CHECK(nn_get(reader, prefix, "embeddings.token_type_embeddings.weight", c->token_types, c->d_model, &types));
    if (c->first_position == 0 && has_padding_row(&positions))
        return attn_fail(ATTN_UNSUPPORTED,
                         "row 1 of %sembeddings.position_embeddings.weight is zero, as RoBERTa has it for padding; "
                         "expected config.first_position 2 for such a model, or BERT's positions",
                         prefix);
    CHECK(nn_get_norm(reader, prefix, "embeddings.LayerNorm", c->d_model, &gamma, &beta));
    CHECK(nn_copy_weights(&words, &bert->words));
    CHECK(nn_copy_weights(&positions, &bert->positions));
    CHECK(nn_copy_weights(&types, &bert->types));
    CHECK(nn_copy_floats(&gamma, &bert->norm.gamma));
    return nn_copy_floats(&beta, &bert->norm.beta);
}

attn_block_config nn_bert_layer(const attn_bert_config *c, attn_mha_config *attention)
{
    attn_block_config block = attn_block_config_default();
    *attention = attn_mha_config_default();
    attention->d_model = c->d_model;
    attention->heads = c->heads;
    block.attention = attention;
    block.d_ff = c->d_ff;
    block.activation = c->activation;
    block.eps = c->eps;
    block.format = c->format;
    return block;
}

static attn_status load_blocks(attn_bert *bert, struct nn_reader *reader, const char *prefix, attn_naming naming)
{
    const char *layers = naming == ATTN_NAMING_DISTILBERT ? "transformer.layer." : "encoder.layer.";
    const attn_bert_config *c = &bert->config;
    attn_mha_config attention;
    const attn_block_config block = nn_bert_layer(c, &attention);
    for (int64_t layer = 0; layer < c->layers; layer++) {
        struct nn_prefix name;
        CHECK(nn_numbered(&name, prefix, layers, layer));
        CHECK(nn_block_load(&bert->blocks[layer], &block, reader, name.text, naming));
    }
    return ATTN_OK;
}

/** Behind the prefix and not read; the header says why. */
static const char *const known[] = {"embeddings.position_ids", "pooler.dense.*", NULL};

attn_status nn_bert_load(attn_bert **bert_out, const attn_bert_config *config, struct nn_reader *reader,
                         const char *prefix, attn_naming naming)
{
    attn_bert_config ours;
    CHECK(nn_complete_bert_config(&ours, config));
    attn_bert *bert = calloc(1, sizeof *bert + (size_t)ours.layers * sizeof *bert->blocks);
    if (!bert)
        return attn_fail(ATTN_OUT_OF_MEMORY, "an encoder of %" PRId64 " layers could not be allocated", ours.layers);
    bert->config = ours;
    attn_status status = load_embeddings(bert, reader, prefix);
    if (!status)
        status = load_blocks(bert, reader, prefix, naming);
    bert->config.format = NULL;
    if (!status)
        status = nn_check_all_read(reader, prefix, known);
    if (status)
        attn_bert_destroy(bert);
    else
        *bert_out = bert;
    return status;
}

attn_status attn_bert_load(attn_bert **bert, const attn_bert_config *config, const attn_weights *weights,
                           const char *prefix)
{
    if (!bert)
        return attn_fail(ATTN_INVALID_ARGUMENT, "bert is NULL; expected where to put the encoder");
    *bert = NULL;
    struct nn_reader reader;
    if (!config)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config is NULL; expected an attn_bert_config");
    CHECK(nn_reader_open(&reader, "attn_bert_load", weights, prefix));
    const attn_status status = nn_bert_load(bert, config, &reader, prefix, ATTN_NAMING_BERT);
    nn_reader_close(&reader);
    return status;
}

void attn_bert_destroy(attn_bert *bert)
{
    if (!bert)
        return;
    for (int64_t layer = 0; layer < bert->config.layers; layer++)
        attn_block_destroy(bert->blocks[layer]);
    free(bert->words.data);
    free(bert->positions.data);
    free(bert->types.data);
    free(bert->norm.gamma);
    free(bert->norm.beta);
    free(bert);
}

/* ---------------------------------------------------------------- encoding -- */

/** Working memory of a call: position ids, states, and that of a layer. */
struct pieces {
    int32_t *positions;
    void *states; /* [tokens][d_model] of the model's activations, where hidden has another type */
    void *block;
    size_t block_size;
};

static attn_ragged ragged_of(int64_t num_sequences, const int64_t *offsets)
{
    return (attn_ragged){num_sequences, offsets, offsets};
}

/** A layer's workspace, weights asked for or not, as the core's second pass has scratch of its own. */
static struct nn_need block_need(const attn_bert *bert, const attn_ragged *ragged, int64_t tokens, int num_threads)
{
    const attn_tensor weights = attn_bhtd(NULL, 1, bert->config.heads, tokens, tokens);
    attn_params params = attn_params_default();
    attn_block_inputs inputs = attn_block_inputs_default();
    params.ragged = ragged;
    inputs.self = &params;
    inputs.num_threads = num_threads;
    const attn_dtype dtype = bert->config.activations;
    const struct nn_need without = nn_block_need(bert->blocks[0], dtype, 1, tokens, &inputs);
    params.weights = &weights;
    return nn_larger_need(without, nn_block_need(bert->blocks[0], dtype, 1, tokens, &inputs));
}

/** own_states: hidden has another type than the model's activations. */
static struct pieces take_pieces(struct nn_arena *arena, const attn_bert *bert, const attn_ragged *ragged,
                                 int64_t tokens, int own_states, int num_threads)
{
    struct pieces pieces = {.positions = nn_take(arena, tokens, 1, 1, sizeof(int32_t))};
    if (own_states)
        pieces.states = nn_take(arena, tokens, bert->config.d_model, 1, attn_dtype_size(bert->config.activations));
    struct nn_need need = {0};
    if (bert->config.layers && !arena->base)
        need = block_need(bert, ragged, tokens, num_threads);
    pieces.block = nn_take_workspace(arena, need, &pieces.block_size);
    return pieces;
}

size_t attn_bert_workspace_size(const attn_bert *bert, int64_t num_sequences, int64_t tokens, int num_threads)
{
    static const int64_t no_offsets[1] = {0}; /* only looked at when a call runs */
    if (!bert || num_sequences < 0 || tokens < 0)
        return SIZE_MAX;
    struct nn_arena arena = {0};
    const attn_ragged ragged = ragged_of(num_sequences, no_offsets);
    take_pieces(&arena, bert, &ragged, tokens, 1, num_threads);
    return nn_arena_size(&arena);
}

attn_status nn_bert_check_sequences(const attn_bert_config *c, int64_t num_sequences, const int64_t *offsets,
                                    const int32_t *ids)
{
    CHECK(nn_check_length("num_sequences", num_sequences, 0));
    CHECK(nn_check_offsets("offsets", num_sequences, offsets));
    CHECK(nn_check_sequences("offsets", num_sequences, offsets, c->positions - c->first_position));
    return nn_check_ids("ids", ids, 0, offsets[num_sequences], c->vocabulary);
}

/** The normalised sums of embeddings; sums are rounded to the type of the states. */
static attn_status embed(const attn_bert *bert, const struct nn_bert_call *call, int32_t *positions,
                         const attn_tensor *states, const attn_tensor *out)
{
    const attn_bert_config *c = &bert->config;
    nn_count_positions(call->num_sequences, call->offsets, c->first_position, positions);
    const attn_tensor gamma = attn_vector(bert->norm.gamma, c->d_model),
                      beta = attn_vector(bert->norm.beta, c->d_model);
    const struct nn_lookup lookup = {
        .table = &bert->words,
        .ids = call->ids,
        .scale = 1,
        .places = &bert->positions,
        .place_ids = positions,
        .kind = bert->types.data ? &bert->types : NULL,
        .kind_ids = call->types,
    };
    nn_look_up(&lookup, states, call->num_threads);
    return attn_normalise(ATTN_NORM_LAYER, states, &gamma, bert->norm.beta ? &beta : NULL, c->eps, out,
                          call->num_threads);
}

static attn_status check_weights(const struct nn_bert_call *call, int64_t layers, int64_t heads, int64_t tokens)
{
    for (int64_t l = 0; call->weights && l < layers; l++) {
        const attn_tensor *t = call->weights[l];
        if (!t)
            continue;
        const struct nn_name name = nn_name_of("outputs.weights", l, NULL);
        const int64_t expected[] = {1, heads, tokens, tokens};
        CHECK(attn_check_tensor(name.text, t, CHECK_ALL));
        CHECK(attn_check_f32(name.text, t->dtype));
        for (int axis = 0; axis < 4; axis++)
            CHECK(
                attn_check_axis(name.text, t, axis, expected[axis], "as the weights are 1 x heads x tokens x tokens"));
        CHECK(attn_check_distinct(name.text, t));
        CHECK(attn_check_apart("hidden", call->hidden, name.text, t, 0));
    }
    return ATTN_OK;
}

/** That the states that are wanted of each layer have somewhere to go, apart from all else. */
static attn_status check_states(const struct nn_bert_call *call, int64_t layers, int64_t tokens, int64_t d_model)
{
    for (int64_t l = 0; call->states && l <= layers; l++) {
        const attn_tensor *t = call->states[l];
        if (!t)
            continue;
        const struct nn_name name = nn_name_of("outputs.states", l, NULL);
        CHECK(nn_check_typed_output(name.text, t, 1, tokens, d_model));
        CHECK(attn_check_apart("hidden", call->hidden, name.text, t, 0));
        for (int64_t before = 0; before < l; before++)
            if (call->states[before])
                CHECK(attn_check_apart(name.text, t, nn_name_of("outputs.states", before, NULL).text,
                                       call->states[before], 0));
        for (int64_t w = 0; call->weights && w < layers; w++)
            if (call->weights[w])
                CHECK(attn_check_apart(name.text, t, nn_name_of("outputs.weights", w, NULL).text, call->weights[w], 0));
    }
    return ATTN_OK;
}

attn_status nn_check_encoder_outputs(const struct nn_bert_call *call, int64_t layers, int64_t heads, int64_t d_model)
{
    const int64_t tokens = call->offsets[call->num_sequences];
    CHECK(nn_check_typed_output("hidden", call->hidden, 1, tokens, d_model));
    CHECK(check_weights(call, layers, heads, tokens));
    return check_states(call, layers, tokens, d_model);
}

static attn_status check_types(const attn_bert *bert, const int32_t *types, int64_t tokens)
{
    const int64_t rows = bert->types.data ? bert->types.shape[2] : 0;
    if (types && !rows)
        return attn_fail(ATTN_INVALID_ARGUMENT, "types is set; expected NULL, as this encoder has no token types");
    return types ? nn_check_ids("types", types, 0, tokens, rows) : ATTN_OK;
}

/** Copies states that are wanted, to whatever type they are wanted in. */
static attn_status keep_states(const struct nn_bert_call *call, int64_t layer, const attn_tensor *states)
{
    if (!call->states || !call->states[layer])
        return ATTN_OK;
    return attn_activate(ATTN_ACTIVATION_NONE, states, call->states[layer], call->num_threads);
}

/** Embeddings and layers; all but what goes to hidden has the type of states. */
static attn_status run(const attn_bert *bert, const struct nn_bert_call *call, const attn_tensor *states,
                       const struct pieces *pieces)
{
    const int64_t layers = bert->config.layers;
    const attn_ragged ragged = ragged_of(call->num_sequences, call->offsets);
    attn_params params = attn_params_default();
    attn_block_inputs inputs = attn_block_inputs_default();
    params.ragged = &ragged;
    inputs.self = &params;
    inputs.num_threads = call->num_threads;
    CHECK(embed(bert, call, pieces->positions, states, layers ? states : call->hidden));
    CHECK(keep_states(call, 0, layers ? states : call->hidden));
    for (int64_t layer = 0; layer < layers; layer++) {
        const attn_tensor *out = layer < layers - 1 ? states : call->hidden;
        params.weights = call->weights ? call->weights[layer] : NULL;
        CHECK(attn_block_forward(bert->blocks[layer], states, out, &inputs, pieces->block, pieces->block_size));
        CHECK(keep_states(call, layer + 1, out));
    }
    return ATTN_OK;
}

attn_status nn_bert_encode(const attn_bert *bert, const struct nn_bert_call *call)
{
    CHECK(nn_bert_check_sequences(&bert->config, call->num_sequences, call->offsets, call->ids));
    const int64_t tokens = call->offsets[call->num_sequences];
    CHECK(check_types(bert, call->types, tokens));
    CHECK(nn_check_encoder_outputs(call, bert->config.layers, bert->config.heads, bert->config.d_model));
    CHECK(nn_check_threads(call->num_threads));
    const attn_ragged ragged = ragged_of(call->num_sequences, call->offsets);
    const int own_states = call->hidden->dtype != bert->config.activations;
    struct nn_arena measured = {0};
    take_pieces(&measured, bert, &ragged, tokens, own_states, call->num_threads);
    struct nn_workspace w;
    CHECK(nn_workspace_open(&w, call->workspace, call->workspace_size, &measured));
    const struct pieces pieces = take_pieces(&w.arena, bert, &ragged, tokens, own_states, call->num_threads);
    attn_tensor states = attn_btc(pieces.states, 1, tokens, bert->config.d_model);
    states.dtype = bert->config.activations;
    const attn_status status = run(bert, call, own_states ? &states : call->hidden, &pieces);
    nn_workspace_close(&w);
    return status;
}

attn_status attn_bert_forward(const attn_bert *bert, int64_t num_sequences, const int64_t *offsets, const int32_t *ids,
                              const attn_tensor *hidden, const attn_bert_outputs *outputs, int num_threads,
                              void *workspace, size_t workspace_size)
{
    if (!bert)
        return attn_fail(ATTN_INVALID_ARGUMENT, "bert is NULL; expected an encoder");
    attn_bert_outputs wanted;
    CHECK(attn_take_struct("outputs", &wanted, sizeof wanted, NN_BERT_OUTPUTS_FIRST, outputs));
    const struct nn_bert_call call = {
        .num_sequences = num_sequences,
        .offsets = offsets,
        .ids = ids,
        .hidden = hidden,
        .weights = wanted.weights,
        .num_threads = num_threads,
        .workspace = workspace,
        .workspace_size = workspace_size,
    };
    return nn_bert_encode(bert, &call);
}
