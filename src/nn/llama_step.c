/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of a Llama over an attn_cache: the tokens of all sequences are rows of
 * one (1, 1, tokens, d_model) tensor, and only attention knows whose they are.
 */
#include "attn/nn/models.h"

#include "nn/check.h"
#include "nn/elementwise.h"
#include "nn/llama.h"
#include "nn/memory.h"
#include "nn/tensor_rows.h"

#include <inttypes.h>
#include <string.h>

/** Keys before its own that the query of some layer sees; ATTN_UNLIMITED: all. */
static int64_t largest_window(const attn_llama *llama)
{
    int64_t largest = llama->kind.windows ? 0 : ATTN_UNLIMITED;
    for (int64_t layer = 0; llama->kind.windows && layer < llama->config.layers; layer++)
        if (llama->kind.windows[layer] > largest)
            largest = llama->kind.windows[layer];
    return largest;
}

attn_status attn_llama_cache_config(const attn_llama *llama, attn_cache_config *config)
{
    if (!llama || !config)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL; expected %s", llama ? "config" : "llama",
                         llama ? "one of attn_cache_config_default()" : "a decoder");
    if (config->struct_size < sizeof *config)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "config.struct_size is %zu; expected what attn_cache_config_default() "
                         "sets",
                         config->struct_size);
    const attn_llama_config *c = &llama->config;
    config->layers = c->layers;
    config->kv_heads = c->kv_heads;
    config->dk = config->dv = c->head_dim;
    config->dtype = c->activations;
    config->rope = nn_llama_rotates(&llama->kind) ? &llama->rope : NULL;
    config->rope_layout = ATTN_ROPE_HALF_SPLIT; /* 0, as it has to be without rotations */
    const int64_t window = largest_window(llama);
    if (window != ATTN_UNLIMITED)
        config->window = window ? window : 1; /* as 0 would be all */
    return ATTN_OK;
}

/** Tokens of the cache's step. */
static attn_status tokens_of(const attn_cache *cache, int64_t *tokens)
{
    attn_tensor step;
    CHECK(attn_cache_rotations(cache, &step));
    *tokens = step.shape[2];
    return ATTN_OK;
}

/** Outputs of all tokens: the hidden states and those before each layer. */
static attn_status check_states(const attn_llama *llama, const struct nn_llama_call *call, int64_t tokens)
{
    const attn_llama_config *c = &llama->config;
    if (call->hidden)
        CHECK(nn_check_typed_output("hidden", call->hidden, 1, tokens, c->d_model));
    if (call->hidden && call->logits)
        CHECK(attn_check_apart("logits", call->logits, "hidden", call->hidden, 0));
    for (int64_t l = 0; call->states && l <= c->layers; l++) {
        const attn_tensor *t = call->states[l];
        if (!t)
            continue;
        const struct nn_name name = nn_name_of("outputs.states", l, NULL);
        CHECK(nn_check_typed_output(name.text, t, 1, tokens, c->d_model));
        if (call->hidden)
            CHECK(attn_check_apart("hidden", call->hidden, name.text, t, 0));
        if (call->logits)
            CHECK(attn_check_apart("logits", call->logits, name.text, t, 0));
    }
    return ATTN_OK;
}

static attn_status check_step(const attn_llama *llama, int64_t tokens, const struct nn_llama_call *call)
{
    const attn_llama_config *c = &llama->config;
    const int64_t *rows = call->rows;
    CHECK(nn_check_ids("ids", call->ids, 0, tokens, c->vocabulary));
    if (rows && call->num_rows < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "num_rows is %" PRId64 "; expected 0 or more", call->num_rows);
    for (int64_t i = 0; rows && i < call->num_rows; i++)
        if (rows[i] < 0 || rows[i] >= tokens)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "rows[%" PRId64 "] is %" PRId64 "; expected 0 to %" PRId64 ", a token of the step", i,
                             rows[i], tokens - 1);
    if (call->logits && !llama->head)
        return attn_fail(ATTN_INVALID_ARGUMENT, "logits is set; expected NULL, as this model has no output matrix");
    if (call->logits)
        CHECK(nn_check_output("logits", call->logits, 1, rows ? call->num_rows : tokens, c->vocabulary));
    CHECK(check_states(llama, call, tokens));
    return nn_check_threads(call->num_threads);
}

/** Working memory of a call: states, those whose logits are wanted, and that of a layer. */
struct pieces {
    void *hidden, *wanted, *block;
    int32_t *places; /* of tokens, in a model with a table of positions */
    size_t block_size;
};

static struct pieces take_pieces(struct nn_arena *arena, const attn_llama *llama, int64_t tokens, int64_t wanted,
                                 const attn_block_inputs *inputs)
{
    const attn_dtype dtype = llama->config.activations;
    const size_t size = attn_dtype_size(dtype);
    struct pieces pieces = {.hidden = nn_take(arena, 1, tokens, llama->config.d_model, size),
                            .wanted = nn_take(arena, 1, wanted, llama->config.d_model, size)};
    if (llama->kind.positions)
        pieces.places = nn_take(arena, tokens, 1, 1, sizeof *pieces.places);
    struct nn_need need = {0};
    if (!arena->base)
        need = nn_block_need(llama->blocks[0], dtype, 1, tokens, inputs);
    pieces.block = nn_take_workspace(arena, need, &pieces.block_size);
    return pieces;
}

/** Positions that the model's table has, if it has one, as row numbers. */
static attn_status check_positions(const attn_llama *llama, const attn_cache *cache, int64_t tokens)
{
    const int64_t *positions = attn_cache_positions(cache, NULL);
    for (int64_t i = 0; llama->kind.positions && i < tokens; i++)
        if (positions[i] < 0 || positions[i] >= llama->kind.num_positions)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "token %" PRId64 " of the cache's step has position %" PRId64 "; expected 0 to %" PRId64
                             ", the model's positions",
                             i, positions[i], llama->kind.num_positions - 1);
    return ATTN_OK;
}

static attn_status embed(const attn_llama *llama, const attn_cache *cache, const struct nn_llama_call *call,
                         const attn_tensor *hidden, int32_t *places)
{
    if (!llama->kind.positions)
        return attn_embed(&llama->embedding, call->ids, llama->kind.embedding_scale, 0, hidden, call->num_threads);
    const int64_t *positions = attn_cache_positions(cache, NULL);
    for (int64_t i = 0; i < hidden->shape[2]; i++)
        places[i] = (int32_t)positions[i];
    const struct nn_lookup lookup = {
        .table = &llama->embedding, .ids = call->ids, .scale = 1, .places = &llama->positions, .place_ids = places};
    nn_look_up(&lookup, hidden, call->num_threads);
    return ATTN_OK;
}

/** The layers, in place; params are those that inputs have for attention. */
static attn_status run_layers(const attn_llama *llama, const struct nn_llama_call *call, const attn_tensor *hidden,
                              attn_params *params, attn_block_inputs *inputs, const struct pieces *pieces)
{
    const int64_t layers = llama->config.layers;
    attn_tensor pool = {0};
    if (call->sources) {
        pool = call->sources->pool;
        inputs->cross_kv = &pool;
    }
    CHECK(embed(llama, inputs->kv_cache, call, hidden, pieces->places));
    for (int64_t layer = 0; layer < layers; layer++) {
        attn_window window = {.right = ATTN_UNLIMITED};
        if (call->states && call->states[layer])
            CHECK(attn_activate(ATTN_ACTIVATION_NONE, hidden, call->states[layer], call->num_threads));
        window.left = llama->kind.windows ? llama->kind.windows[layer] : ATTN_UNLIMITED;
        params->window = window.left == ATTN_UNLIMITED ? NULL : &window;
        inputs->kv_layer = layer;
        if (call->sources && pool.data)
            pool.data = (char *)call->sources->pool.data + layer * call->sources->layer_stride;
        CHECK(attn_block_forward(llama->blocks[layer], hidden, hidden, inputs, pieces->block, pieces->block_size));
    }
    if (call->hidden)
        CHECK(nn_llama_normalise(llama, hidden, call->hidden, call->num_threads));
    return call->states && call->states[layers]
               ? nn_llama_normalise(llama, hidden, call->states[layers], call->num_threads)
               : ATTN_OK;
}

/** The logits of the rows that are wanted. */
static attn_status run_head(const attn_llama *llama, const struct nn_llama_call *call, const attn_tensor *hidden,
                            void *wanted)
{
    if (!call->rows)
        return nn_llama_logits(llama, hidden, call->logits, call->num_threads);
    attn_tensor some = attn_btc(wanted, 1, call->num_rows, llama->config.d_model);
    some.dtype = hidden->dtype;
    for (int64_t i = 0; i < call->num_rows; i++)
        memcpy(nn_row_address(&some, 0, i), nn_row_address(hidden, 0, call->rows[i]),
               (size_t)some.shape[3] * attn_dtype_size(some.dtype));
    return nn_llama_logits(llama, &some, call->logits, call->num_threads);
}

attn_status nn_llama_step(const attn_llama *llama, attn_cache *cache, const struct nn_llama_call *call)
{
    int64_t tokens;
    CHECK(tokens_of(cache, &tokens));
    CHECK(check_step(llama, tokens, call));
    CHECK(check_positions(llama, cache, tokens));
    const int64_t wanted = call->logits && call->rows ? call->num_rows : 0;
    attn_params params = attn_params_default();
    attn_block_inputs inputs = attn_block_inputs_default();
    params.tree = call->tree;
    params.scale = llama->kind.scale;
    params.softcap = llama->kind.softcap;
    params.relative_bias = llama->kind.bias;
    inputs.self = &params;
    if (call->sources) {
        inputs.cross = &call->sources->params;
        inputs.cross_kv = &call->sources->pool;
    }
    inputs.kv_cache = cache;
    inputs.num_threads = call->num_threads;
    struct nn_arena measured = {0};
    struct nn_workspace w;
    take_pieces(&measured, llama, tokens, wanted, &inputs);
    CHECK(nn_workspace_open(&w, NULL, 0, &measured));
    const struct pieces pieces = take_pieces(&w.arena, llama, tokens, wanted, &inputs);
    attn_tensor hidden = attn_btc(pieces.hidden, 1, tokens, llama->config.d_model);
    hidden.dtype = llama->config.activations;
    attn_status status = run_layers(llama, call, &hidden, &params, &inputs, &pieces);
    if (!status && call->logits)
        status = run_head(llama, call, &hidden, pieces.wanted);
    nn_workspace_close(&w);
    return status;
}

attn_status attn_llama_step(const attn_llama *llama, attn_cache *cache, const int32_t *ids, const attn_tree *tree,
                            int64_t num_rows, const int64_t *rows, const attn_tensor *logits, int num_threads)
{
    if (!llama)
        return attn_fail(ATTN_INVALID_ARGUMENT, "llama is NULL; expected a decoder");
    if (!logits)
        return attn_fail(ATTN_INVALID_ARGUMENT, "logits is NULL; expected a tensor");
    const struct nn_llama_call call = {ids, tree, num_rows, rows, logits, NULL, NULL, num_threads, NULL};
    return nn_llama_step(llama, cache, &call);
}
