/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: what attn_model_open() says of a folder, and the entries of config.json that training needs beside that. */
#include "settings.h"

#include <stdlib.h>
#include <string.h>

#include "io/config.h"

/* ------------------------------------------------------------- config.json -- */

static attn_status read_type(const struct config *config)
{
    const char *type;
    CHECK(config_text(config, "model_type", &type));
    return strcmp(type, "bert") == 0
               ? ATTN_OK
               : io_fail(ATTN_INVALID_FILE,
                         "%s: 'model_type' is '%s'; expected bert, the one kind of encoder that there is here",
                         config->path, type);
}

static attn_status read_activation(attn_activation *activation, const struct config *config)
{
    static const struct {
        const char *name;
        attn_activation activation;
    } activations[] = {
        {"gelu", ATTN_ACTIVATION_GELU}, {"gelu_new", ATTN_ACTIVATION_GELU_TANH}, {"relu", ATTN_ACTIVATION_RELU}};
    const char *act;
    CHECK(config_text(config, "hidden_act", &act));
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (strcmp(act, activations[i].name) == 0) {
            *activation = activations[i].activation;
            return ATTN_OK;
        }
    return io_fail(ATTN_INVALID_FILE, "%s: 'hidden_act' is '%s'; expected gelu, gelu_new or relu", config->path, act);
}

static attn_status read_model(attn_bert_config *c, const char *folder)
{
    struct config config;
    double eps = 0;
    *c = attn_bert_config_default();
    CHECK(config_open(&config, folder));
    attn_status status = read_type(&config);
    if (status == ATTN_OK)
        status = read_activation(&c->activation, &config);
    if (status == ATTN_OK)
        status = config_number(&config, "layer_norm_eps", &eps);
    if (status == ATTN_OK)
        status = config_integer(&config, "num_hidden_layers", 1, &c->layers);
    if (status == ATTN_OK)
        status = config_integer(&config, "hidden_size", 1, &c->d_model);
    if (status == ATTN_OK)
        status = config_integer(&config, "num_attention_heads", 1, &c->heads);
    if (status == ATTN_OK)
        status = config_integer(&config, "intermediate_size", 1, &c->d_ff);
    if (status == ATTN_OK)
        status = config_integer(&config, "vocab_size", 1, &c->vocabulary);
    if (status == ATTN_OK)
        status = config_integer(&config, "max_position_embeddings", 2, &c->positions);
    if (status == ATTN_OK && json_object_get(config.root, "type_vocab_size"))
        status = config_integer(&config, "type_vocab_size", 1, &c->token_types);
    c->eps = (float)eps;
    config_close(&config);
    return status;
}

/* -------------------------------------------------------------- the folder -- */

/* Opening the model checks all that a folder has; of its weights a training makes its own. */
static attn_status read_folder(struct settings *s, const char *folder)
{
    attn_model *model;
    attn_model_info info = attn_model_info_default();
    CHECK(attn_model_open(&model, folder, NULL));
    attn_status status = attn_model_describe(model, &info);
    if (status == ATTN_OK && info.pooling != ATTN_POOLING_MEAN)
        status = io_fail(ATTN_INVALID_FILE,
                         "%s pools otherwise than by the mean; expected mean pooling, which is trained here", folder);
    s->max_tokens = info.max_tokens;
    attn_model_close(model);
    return status;
}

attn_status settings_read(struct settings *s, const char *folder)
{
    CHECK(read_model(&s->bert, folder));
    return read_folder(s, folder);
}
