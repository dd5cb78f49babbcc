/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of a Llama over an attn_cache: the tokens of all sequences are rows of
 * one (1, 1, tokens, d_model) tensor, and only attention knows whose they are.
 */
#include "attn/nn/models.h"

#include "nn/check.h"
#include "nn/llama.h"
#include "nn/memory.h"
#include "nn/tensor_rows.h"

#include <inttypes.h>
#include <string.h>

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
    config->rope = &llama->rope;
    config->rope_layout = ATTN_ROPE_HALF_SPLIT;
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

static attn_status check_step(const attn_llama *llama, int64_t tokens, const int32_t *ids, int64_t num_rows,
                              const int64_t *rows, const attn_tensor *logits, int num_threads)
{
    const attn_llama_config *c = &llama->config;
    CHECK(nn_check_ids("ids", ids, 0, tokens, c->vocabulary));
    if (rows && num_rows < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "num_rows is %" PRId64 "; expected 0 or more", num_rows);
    for (int64_t i = 0; rows && i < num_rows; i++)
        if (rows[i] < 0 || rows[i] >= tokens)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "rows[%" PRId64 "] is %" PRId64 "; expected 0 to %" PRId64 ", a token of the step", i,
                             rows[i], tokens - 1);
    CHECK(nn_check_output("logits", logits, 1, rows ? num_rows : tokens, c->vocabulary));
    return nn_check_threads(num_threads);
}

/** Working memory of a call: states, those whose logits are wanted, and that of a layer. */
struct pieces {
    void *hidden, *wanted, *block;
    size_t block_size;
};

static struct pieces take_pieces(struct nn_arena *arena, const attn_llama *llama, int64_t tokens, int64_t wanted,
                                 const attn_block_inputs *inputs)
{
    const attn_dtype dtype = llama->config.activations;
    const size_t size = attn_dtype_size(dtype);
    struct pieces pieces = {.hidden = nn_take(arena, 1, tokens, llama->config.d_model, size),
                            .wanted = nn_take(arena, 1, wanted, llama->config.d_model, size)};
    struct nn_need need = {0};
    if (!arena->base)
        need = nn_block_need(llama->blocks[0], dtype, 1, tokens, inputs);
    pieces.block = nn_take_workspace(arena, need, &pieces.block_size);
    return pieces;
}

/** The layers, in place. */
static attn_status run_layers(const attn_llama *llama, const int32_t *ids, const attn_tensor *hidden,
                              attn_block_inputs *inputs, const struct pieces *pieces)
{
    CHECK(attn_embed(&llama->embedding, ids, 1, 0, hidden, inputs->num_threads));
    for (int64_t layer = 0; layer < llama->config.layers; layer++) {
        inputs->kv_layer = layer;
        CHECK(attn_block_forward(llama->blocks[layer], hidden, hidden, inputs, pieces->block, pieces->block_size));
    }
    return ATTN_OK;
}

attn_status attn_llama_step(const attn_llama *llama, attn_cache *cache, const int32_t *ids, const attn_tree *tree,
                            int64_t num_rows, const int64_t *rows, const attn_tensor *logits, int num_threads)
{
    int64_t tokens;
    if (!llama)
        return attn_fail(ATTN_INVALID_ARGUMENT, "llama is NULL; expected a decoder");
    CHECK(tokens_of(cache, &tokens));
    CHECK(check_step(llama, tokens, ids, num_rows, rows, logits, num_threads));
    const attn_llama_config *c = &llama->config;
    const int64_t wanted = rows ? num_rows : 0;
    attn_params params = attn_params_default();
    attn_block_inputs inputs = attn_block_inputs_default();
    params.tree = tree;
    inputs.self = &params;
    inputs.kv_cache = cache;
    inputs.num_threads = num_threads;
    struct nn_arena measured = {0};
    struct nn_workspace w;
    take_pieces(&measured, llama, tokens, wanted, &inputs);
    CHECK(nn_workspace_open(&w, NULL, 0, &measured));
    const struct pieces pieces = take_pieces(&w.arena, llama, tokens, wanted, &inputs);
    attn_tensor hidden = attn_btc(pieces.hidden, 1, tokens, c->d_model);
    attn_tensor some = attn_btc(pieces.wanted, 1, wanted, c->d_model);
    hidden.dtype = some.dtype = c->activations;
    attn_status status = run_layers(llama, ids, &hidden, &inputs, &pieces);
    for (int64_t i = 0; i < wanted && !status; i++)
        memcpy(nn_row_address(&some, 0, i), nn_row_address(&hidden, 0, rows[i]),
               (size_t)c->d_model * attn_dtype_size(c->activations));
    if (!status)
        status = nn_llama_logits(llama, rows ? &some : &hidden, logits, num_threads);
    nn_workspace_close(&w);
    return status;
}
