/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step of decoding: one token for each living hypothesis. The source's keys
 * and values are projected once and read by all rows with a batch stride of 0.
 * A hypothesis that has ended has no row, so a step costs what lives.
 */
#include "nn/decode.h"
#include "nn/mha.h"

#include "nn/check.h"

#include <stdlib.h>

/** Channels of a cached token: keys and values of all heads. */
static int64_t kv_channels(const attn_transformer *model)
{
    const attn_mha_config c = *nn_mha_config(attn_block_attention(model->decoder[0]));
    return c.kv_heads * (c.head_dim + c.value_dim);
}

/** Bytes of an element of the model's activations. */
static int64_t element_size(const attn_transformer *model)
{
    return (int64_t)attn_dtype_size(model->config.activations);
}

void nn_decoder_take(struct nn_decoder *decoder, struct nn_arena *arena, int64_t most_source_tokens)
{
    const attn_transformer_config *c = &decoder->model->config;
    /* Cannot overflow: the packed weights of as many layers are in memory. */
    const int64_t channels = c->decoder_layers * kv_channels(decoder->model);
    const size_t size = attn_dtype_size(c->activations);
    decoder->cache = nn_take(arena, decoder->most_rows, decoder->capacity, channels, size);
    decoder->other_cache = nn_take(arena, decoder->most_rows, decoder->capacity, channels, size);
    decoder->cross = nn_take(arena, most_source_tokens, channels, 1, size);
    decoder->x = nn_take(arena, decoder->most_rows, c->d_model, 1, size);
    decoder->logits = nn_take(arena, decoder->most_rows, c->target_vocabulary, 1, sizeof(float));
}

/** Keys and values of the source in a layer, for one row. */
static attn_tensor cross_kv(const struct nn_decoder *decoder, int64_t layer)
{
    const int64_t channels = kv_channels(decoder->model);
    const int64_t bytes = decoder->source_tokens * channels * element_size(decoder->model);
    return nn_transformer_states(decoder->model, decoder->cross + layer * bytes, 1, decoder->source_tokens, channels);
}

attn_status nn_decoder_start(struct nn_decoder *decoder, const attn_tensor *source)
{
    const attn_transformer *model = decoder->model;
    decoder->rows = 1;
    decoder->length = 0;
    decoder->source_tokens = source->shape[2];
    for (int64_t layer = 0; layer < model->config.decoder_layers; layer++) {
        const attn_tensor kv = cross_kv(decoder, layer);
        CHECK(attn_block_project_memory(model->decoder[layer], source, &kv, decoder->num_threads));
    }
    return ATTN_OK;
}

static attn_status grow_workspace(struct nn_decoder *decoder, const attn_block_inputs *inputs)
{
    const attn_transformer *model = decoder->model;
    const size_t needed = nn_block_need(model->decoder[0], model->config.activations, decoder->rows, 1, inputs).size;
    if (needed <= decoder->workspace_size)
        return ATTN_OK;
    free(decoder->workspace);
    decoder->workspace_size = 0;
    decoder->workspace = malloc(needed);
    if (!decoder->workspace)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a workspace of %zu bytes could not be allocated", needed);
    decoder->workspace_size = needed;
    return ATTN_OK;
}

/** A layer's part of a cache, of the living rows. */
static char *cache_of(const struct nn_decoder *decoder, char *cache, int64_t layer)
{
    const attn_transformer *model = decoder->model;
    return cache + layer * decoder->most_rows * decoder->capacity * kv_channels(model) * element_size(model);
}

attn_status nn_decoder_step(struct nn_decoder *decoder, const int32_t *ids)
{
    const attn_transformer *model = decoder->model;
    const attn_transformer_config *c = &model->config;
    const attn_tensor x = nn_transformer_states(model, decoder->x, decoder->rows, 1, c->d_model);
    const attn_tensor logits = attn_btc(decoder->logits, decoder->rows, 1, c->target_vocabulary);
    attn_block_inputs inputs = attn_block_inputs_default();
    inputs.cached = decoder->length;
    inputs.num_threads = decoder->num_threads;
    nn_transformer_embed(model, &model->target_embedding, ids, decoder->length, &x, decoder->num_threads);
    for (int64_t layer = 0; layer < c->decoder_layers; layer++) {
        attn_tensor kv = cross_kv(decoder, layer);
        const attn_tensor cache = nn_transformer_states(model, cache_of(decoder, decoder->cache, layer), decoder->rows,
                                                        decoder->capacity, kv_channels(model));
        kv.shape[0] = decoder->rows;
        kv.stride[0] = 0;
        inputs.cross_kv = &kv;
        inputs.cache = &cache;
        if (layer == 0)
            CHECK(grow_workspace(decoder, &inputs));
        CHECK(attn_block_forward(model->decoder[layer], &x, &x, &inputs, decoder->workspace, decoder->workspace_size));
    }
    decoder->length++;
    return nn_transformer_generate(model, &x, &logits, decoder->num_threads);
}

void nn_decoder_reorder(struct nn_decoder *decoder, int64_t rows, const int64_t *parents)
{
    const int64_t token = kv_channels(decoder->model) * element_size(decoder->model);
    const int64_t stride = decoder->capacity * token;
    int moved = 0;
    for (int64_t r = 0; r < rows; r++)
        moved |= parents[r] != r;
    decoder->rows = rows;
    if (!moved)
        return;
    for (int64_t layer = 0; layer < decoder->model->config.decoder_layers; layer++) {
        const char *from = cache_of(decoder, decoder->cache, layer);
        char *to = cache_of(decoder, decoder->other_cache, layer);
        for (int64_t r = 0; r < rows; r++)
            memcpy(to + r * stride, from + parents[r] * stride, (size_t)(decoder->length * token));
    }
    char *const was = decoder->cache;
    decoder->cache = decoder->other_cache;
    decoder->other_cache = was;
}
