/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An encoder-decoder from named weights. Embeddings stay what they are, and are
 * multiplied by sqrt(d_model) in every lookup.
 */
#include "nn/transformer.h"

#include "nn/check.h"
#include "nn/names.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static attn_status check_id(const char *name, int32_t id, int64_t vocabulary)
{
    if (id < 0 || id >= vocabulary)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is %" PRId32 "; expected 0 to %" PRId64 ", the target tokens known",
                         name, id, vocabulary - 1);
    return ATTN_OK;
}

attn_status nn_complete_transformer_config(attn_transformer_config *c, const attn_transformer_config *theirs)
{
    if (!theirs)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config is NULL; expected an attn_transformer_config");
    CHECK(attn_take_struct("config", c, sizeof *c, NN_TRANSFORMER_CONFIG_FIRST, theirs));
    CHECK(nn_check_layer_type("config.activations", c->activations));
    CHECK(nn_check_length("config.encoder_layers", c->encoder_layers, 0));
    CHECK(nn_check_length("config.decoder_layers", c->decoder_layers, 1));
    CHECK(nn_check_length("config.d_model", c->d_model, 1));
    CHECK(nn_check_length("config.source_vocabulary", c->source_vocabulary, 1));
    CHECK(nn_check_length("config.target_vocabulary", c->target_vocabulary, 1));
    CHECK(nn_check_length("config.positions", c->positions, 1));
    CHECK(check_id("config.bos", c->bos, c->target_vocabulary));
    CHECK(check_id("config.eos", c->eos, c->target_vocabulary));
    CHECK(attn_check_count("config.positions", sizeof(float), c->positions, c->d_model, 1));
    CHECK(attn_check_count("config.encoder_layers", sizeof(attn_block *), c->encoder_layers, 1, 1));
    return attn_check_count("config.decoder_layers", sizeof(attn_block *), c->decoder_layers, 1, 1);
}

static attn_status load_embedding(attn_tensor *table, struct nn_reader *reader, const char *prefix, const char *name,
                                  int64_t vocabulary, int64_t d_model)
{
    attn_tensor tensor;
    CHECK(nn_get(reader, prefix, name, vocabulary, d_model, &tensor));
    return nn_copy_weights(&tensor, table);
}

static attn_status make_positions(attn_transformer *model)
{
    const attn_transformer_config *c = &model->config;
    model->positions = malloc((size_t)(c->positions * c->d_model) * sizeof *model->positions);
    if (!model->positions)
        return attn_fail(ATTN_OUT_OF_MEMORY, "%" PRId64 " positions of %" PRId64 " channels could not be allocated",
                         c->positions, c->d_model);
    return attn_sinusoidal(NULL, c->positions, c->d_model, model->positions);
}

static attn_status load_norm(struct nn_norm *norm, struct nn_reader *reader, const char *prefix, const char *name,
                             int64_t d_model)
{
    struct nn_prefix full;
    attn_tensor gamma, beta;
    CHECK(nn_joined(&full, prefix, name));
    CHECK(nn_get(reader, full.text, ".weight", 0, d_model, &gamma));
    CHECK(nn_get_optional(reader, full.text, ".bias", 0, d_model, &beta));
    CHECK(nn_copy_floats(&gamma, &norm->gamma));
    return nn_copy_floats(&beta, &norm->beta);
}

static attn_status load_stack(attn_block ***blocks, const attn_block_config *config, int64_t layers,
                              struct nn_reader *reader, const char *prefix, const char *name)
{
    *blocks = calloc((size_t)layers + 1, sizeof **blocks);
    if (!*blocks)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a stack of %" PRId64 " layers could not be allocated", layers);
    for (int64_t layer = 0; layer < layers; layer++) {
        struct nn_prefix full;
        CHECK(nn_numbered(&full, prefix, name, layer));
        CHECK(nn_block_load(&(*blocks)[layer], config, reader, full.text, ATTN_NAMING_TORCH));
    }
    return ATTN_OK;
}

attn_block_config nn_transformer_layer(const attn_transformer_config *c, int cross, attn_mha_config *attention)
{
    attn_block_config block = attn_block_config_default();
    *attention = attn_mha_config_default();
    attention->d_model = c->d_model;
    attention->heads = c->heads;
    block.attention = attention;
    block.d_ff = c->d_ff;
    block.activation = c->activation;
    block.eps = c->eps;
    block.norm_first = c->norm_first;
    block.format = c->format;
    block.cross = cross;
    return block;
}

float nn_transformer_scale(const attn_transformer_config *config)
{
    return (float)sqrt((double)config->d_model);
}

static attn_status load_all(attn_transformer *model, struct nn_reader *reader, const char *prefix)
{
    const attn_transformer_config *c = &model->config;
    attn_mha_config attention;
    attn_block_config block = nn_transformer_layer(c, 0, &attention);
    CHECK(load_stack(&model->encoder, &block, c->encoder_layers, reader, prefix, "encoder.layers."));
    block = nn_transformer_layer(c, 1, &attention);
    CHECK(load_stack(&model->decoder, &block, c->decoder_layers, reader, prefix, "decoder.layers."));
    if (c->final_norms) {
        CHECK(load_norm(&model->encoder_norm, reader, prefix, "encoder.norm", c->d_model));
        CHECK(load_norm(&model->decoder_norm, reader, prefix, "decoder.norm", c->d_model));
    }
    CHECK(load_embedding(&model->source_embedding, reader, prefix, "src_embedding.weight", c->source_vocabulary,
                         c->d_model));
    CHECK(load_embedding(&model->target_embedding, reader, prefix, "tgt_embedding.weight", c->target_vocabulary,
                         c->d_model));
    model->embedding_scale = nn_transformer_scale(c);
    CHECK(make_positions(model));
    attn_tensor matrix, bias;
    CHECK(nn_get(reader, prefix, "generator.weight", c->target_vocabulary, c->d_model, &matrix));
    CHECK(nn_get_optional(reader, prefix, "generator.bias", 0, c->target_vocabulary, &bias));
    return attn_linear_quantize(&model->generator, c->format, 1, &matrix, &bias);
}

attn_status attn_transformer_load(attn_transformer **model_out, const attn_transformer_config *config,
                                  const attn_weights *weights, const char *prefix)
{
    if (!model_out)
        return attn_fail(ATTN_INVALID_ARGUMENT, "model is NULL; expected where to put the encoder-decoder");
    *model_out = NULL;
    attn_transformer_config ours;
    struct nn_reader reader;
    CHECK(nn_complete_transformer_config(&ours, config));
    CHECK(nn_reader_open(&reader, "attn_transformer_load", weights, prefix));
    attn_transformer *model = calloc(1, sizeof *model);
    attn_status status = model ? ATTN_OK : attn_fail(ATTN_OUT_OF_MEMORY, "an encoder-decoder could not be allocated");
    if (model)
        model->config = ours;
    if (!status)
        status = load_all(model, &reader, prefix);
    if (model)
        model->config.format = NULL;
    if (!status)
        status = nn_check_all_read(&reader, prefix, NULL);
    nn_reader_close(&reader);
    if (status)
        attn_transformer_destroy(model);
    else
        *model_out = model;
    return status;
}

static void destroy_stack(attn_block **blocks, int64_t layers)
{
    for (int64_t layer = 0; blocks && layer < layers; layer++)
        attn_block_destroy(blocks[layer]);
    free(blocks);
}

void attn_transformer_destroy(attn_transformer *model)
{
    if (!model)
        return;
    destroy_stack(model->encoder, model->config.encoder_layers);
    destroy_stack(model->decoder, model->config.decoder_layers);
    attn_linear_destroy(model->generator);
    free(model->source_embedding.data);
    free(model->target_embedding.data);
    free(model->positions);
    free(model->encoder_norm.gamma);
    free(model->encoder_norm.beta);
    free(model->decoder_norm.gamma);
    free(model->decoder_norm.beta);
    free(model);
}
