/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoders from a folder: BERT, RoBERTa and XLM-RoBERTa, DistilBERT.
 *
 * They are one attn_bert; what differs is how config.json calls the sizes, where
 * positions begin, whether there are token types, what stands between the
 * first token's state and the logits of classes, and how the head of words is called.
 */
#include "nn/model.h"

#include "nn/bert.h"
#include "nn/check.h"

#include <inttypes.h>

/** What one of these encoders is called, and has. */
struct names {
    const char *prefix; /* of the body in a model with a head */
    const char *layers, *d_model, *heads, *d_ff, *activation;
    attn_naming naming;
    const char *dense; /* of the head of classes; NULL: the pooler */
    attn_activation dense_activation;
    const char *classes;
    const char *word_dense, *word_norm, *words; /* of the head of words: a layer, its norm, and the output matrix, */
    const char *word_bias, *word_bias_again;    /* whose bias has one of these names */
    const attn_activation *word_activation;     /* of the layer; NULL: that of the networks */
    float word_eps;                             /* of the norm; 0: that of the layers */
};

static attn_status expect_encoder(const struct config *config)
{
    const char *positions = "absolute";
    CHECK(nn_model_expect_off(config, "is_decoder"));
    CHECK(nn_model_expect_off(config, "add_cross_attention"));
    CHECK(config_text_or(config, "position_embedding_type", &positions));
    if (strcmp(positions, "absolute") != 0)
        return nn_model_refuse(config, "position_embedding_type", "absolute");
    return json_object_size(json_object_get(config->root, "pruned_heads")) == 0
               ? ATTN_OK
               : nn_model_refuse(config, "pruned_heads", "none");
}

static attn_status read_sizes(attn_bert_config *c, const struct config *config, const struct names *names)
{
    double eps = 1e-12;
    *c = attn_bert_config_default();
    c->activation = ATTN_ACTIVATION_GELU;
    CHECK(expect_encoder(config));
    CHECK(config_integer(config, names->layers, 1, &c->layers));
    CHECK(config_integer(config, names->d_model, 1, &c->d_model));
    CHECK(config_integer(config, names->heads, 1, &c->heads));
    CHECK(config_integer(config, names->d_ff, 1, &c->d_ff));
    CHECK(config_integer(config, "vocab_size", 1, &c->vocabulary));
    CHECK(config_integer(config, "max_position_embeddings", 1, &c->positions));
    CHECK(nn_model_read_activation(config, names->activation, &c->activation));
    CHECK(config_number_or(config, "layer_norm_eps", &eps));
    c->eps = (float)eps;
    if (c->d_model % c->heads != 0)
        return io_fail(ATTN_INVALID_FILE, "%s: '%s' is %" PRId64 "; expected a multiple of '%s', %" PRId64,
                       config->path, names->d_model, c->d_model, names->heads, c->heads);
    return ATTN_OK;
}

/** A linear layer with a bias, of any number of outputs. */
static attn_status load_linear(attn_linear **linear, const struct nn_folder *folder, struct nn_reader *reader,
                               const char *prefix, const char *name, int64_t outputs, int64_t inputs)
{
    struct nn_prefix full;
    attn_tensor weight, bias;
    CHECK(nn_joined(&full, prefix, name));
    CHECK(nn_get(reader, full.text, ".weight", outputs, inputs, &weight));
    CHECK(nn_get(reader, full.text, ".bias", 0, weight.shape[2], &bias));
    return attn_linear_quantize(linear, folder->options.format, 1, &weight, &bias);
}

static attn_status load_heads(attn_model *model, struct nn_folder *folder, const char *prefix,
                              const struct names *names)
{
    struct nn_reader *reader = &folder->reader;
    const int64_t d = model->info.d_model;
    if (nn_has(reader, prefix, "pooler.dense.weight"))
        CHECK(load_linear(&model->pooler, folder, reader, prefix, "pooler.dense", d, d));
    model->info.pooler = model->pooler != NULL;
    if (!nn_model_is(model, "ForSequenceClassification"))
        return ATTN_OK;
    if (!names->dense && !model->pooler)
        return io_fail(ATTN_INVALID_FILE, "%s has no tensor '%spooler.dense.weight'; expected it in a %s", folder->path,
                       prefix, model->architecture);
    model->head_activation = names->dense_activation;
    if (names->dense)
        CHECK(load_linear(&model->head_dense, folder, reader, "", names->dense, d, d));
    CHECK(load_linear(&model->head, folder, reader, "", names->classes, ATTN_ANY, d));
    model->info.logits = attn_linear_outputs(model->head, 0);
    return ATTN_OK;
}

/** The head of masked words; its output matrix is the table of words, if the file has no other. */
static attn_status load_words(attn_model *model, struct nn_folder *folder, const attn_bert_config *c,
                              const char *prefix, const struct names *names)
{
    struct nn_reader *reader = &folder->reader;
    struct nn_token_head *tokens = &model->tokens;
    const int has_own = nn_has(reader, names->words, ".weight");
    attn_tensor gamma, beta, words, bias;
    tokens->activation = names->word_activation ? *names->word_activation : c->activation;
    tokens->eps = names->word_eps > 0 ? names->word_eps : c->eps;
    CHECK(load_linear(&tokens->dense, folder, reader, "", names->word_dense, c->d_model, c->d_model));
    CHECK(nn_get_norm(reader, "", names->word_norm, c->d_model, &gamma, &beta));
    CHECK(nn_copy_floats(&gamma, &tokens->norm.gamma));
    CHECK(nn_copy_floats(&beta, &tokens->norm.beta));
    CHECK(nn_get(reader, has_own ? names->words : prefix, has_own ? ".weight" : "embeddings.word_embeddings.weight",
                 c->vocabulary, c->d_model, &words));
    CHECK(nn_get(reader, "", nn_has(reader, "", names->word_bias) ? names->word_bias : names->word_bias_again, 0,
                 c->vocabulary, &bias));
    return attn_linear_quantize(&tokens->head, folder->options.format, 1, &words, &bias);
}

/** A head that gives logits of each token, if the class has one. */
static attn_status load_token_head(attn_model *model, struct nn_folder *folder, const attn_bert_config *c,
                                   const char *prefix, const struct names *names)
{
    if (nn_model_is(model, "ForMaskedLM"))
        CHECK(load_words(model, folder, c, prefix, names));
    else if (nn_model_is(model, "ForTokenClassification"))
        CHECK(load_linear(&model->tokens.head, folder, &folder->reader, "", "classifier", ATTN_ANY, c->d_model));
    if (model->tokens.head)
        model->info.token_logits = attn_linear_outputs(model->tokens.head, 0);
    return ATTN_OK;
}

static attn_status load(attn_model *model, struct nn_folder *folder, attn_bert_config *c, const struct names *names)
{
    struct nn_reader *reader = &folder->reader;
    const char *prefix = nn_has(reader, "", "embeddings.word_embeddings.weight") ? "" : names->prefix;
    c->format = folder->options.format;
    c->activations = folder->options.activations;
    model->info.kind = ATTN_MODEL_ENCODER;
    model->info.layers = c->layers;
    model->info.d_model = c->d_model;
    model->info.heads = model->info.kv_heads = c->heads;
    model->info.head_dim = c->d_model / c->heads;
    model->info.d_ff = c->d_ff;
    model->info.vocabulary = c->vocabulary;
    model->info.max_positions = model->info.max_tokens = c->positions - c->first_position;
    model->info.token_types = c->token_types > 0 ? c->token_types : 0;
    /* Before the body, whose loader refuses what is behind its prefix and has not been read. */
    CHECK(load_heads(model, folder, prefix, names));
    CHECK(load_token_head(model, folder, c, prefix, names));
    CHECK(nn_bert_load(&model->bert, c, reader, prefix, names->naming));
    return nn_model_read_sentence(model, folder);
}

/** A table of token types with as many rows as config.json says; none at all if that is 0. */
static attn_status read_token_types(attn_bert_config *c, const struct config *config)
{
    c->token_types = 2;
    CHECK(config_integer_or(config, "type_vocab_size", 0, &c->token_types));
    if (c->token_types == 0)
        c->token_types = -1;
    return ATTN_OK;
}

attn_status nn_model_load_bert(attn_model *model, struct nn_folder *folder)
{
    static const struct names names = {
        .prefix = "bert.",
        .layers = "num_hidden_layers",
        .d_model = "hidden_size",
        .heads = "num_attention_heads",
        .d_ff = "intermediate_size",
        .activation = "hidden_act",
        .naming = ATTN_NAMING_BERT,
        .dense_activation = ATTN_ACTIVATION_TANH,
        .classes = "classifier",
        .word_dense = "cls.predictions.transform.dense",
        .word_norm = "cls.predictions.transform.LayerNorm",
        .words = "cls.predictions.decoder",
        .word_bias = "cls.predictions.bias",
        .word_bias_again = "cls.predictions.decoder.bias",
    };
    attn_bert_config c;
    CHECK(read_sizes(&c, &folder->config, &names));
    CHECK(read_token_types(&c, &folder->config));
    return load(model, folder, &c, &names);
}

attn_status nn_model_load_roberta(attn_model *model, struct nn_folder *folder)
{
    static const attn_activation gelu = ATTN_ACTIVATION_GELU;
    static const struct names names = {
        .prefix = "roberta.",
        .layers = "num_hidden_layers",
        .d_model = "hidden_size",
        .heads = "num_attention_heads",
        .d_ff = "intermediate_size",
        .activation = "hidden_act",
        .naming = ATTN_NAMING_BERT,
        .dense = "classifier.dense",
        .dense_activation = ATTN_ACTIVATION_TANH,
        .classes = "classifier.out_proj",
        .word_dense = "lm_head.dense",
        .word_norm = "lm_head.layer_norm",
        .words = "lm_head.decoder",
        .word_bias = "lm_head.bias",
        .word_bias_again = "lm_head.decoder.bias",
        .word_activation = &gelu,
    };
    attn_bert_config c;
    int64_t padding = 1;
    CHECK(read_sizes(&c, &folder->config, &names));
    CHECK(read_token_types(&c, &folder->config));
    /* Positions count from the one behind that of padding. */
    CHECK(config_integer_or(&folder->config, "pad_token_id", 0, &padding));
    if (padding >= c.positions - 1)
        return io_fail(ATTN_INVALID_FILE,
                       "%s: 'pad_token_id' is %" PRId64 "; expected 0 to %" PRId64
                       ", so that positions are left behind it",
                       folder->config.path, padding, c.positions - 2);
    c.first_position = padding + 1;
    return load(model, folder, &c, &names);
}

attn_status nn_model_load_distilbert(attn_model *model, struct nn_folder *folder)
{
    static const struct names names = {
        .prefix = "distilbert.",
        .layers = "n_layers",
        .d_model = "dim",
        .heads = "n_heads",
        .d_ff = "hidden_dim",
        .activation = "activation",
        .naming = ATTN_NAMING_DISTILBERT,
        .dense = "pre_classifier",
        .dense_activation = ATTN_ACTIVATION_RELU,
        .classes = "classifier",
        .word_dense = "vocab_transform",
        .word_norm = "vocab_layer_norm",
        .words = "vocab_projector",
        .word_bias = "vocab_projector.bias",
        .word_bias_again = "vocab_projector.bias",
        .word_eps = 1e-12f,
    };
    attn_bert_config c;
    CHECK(read_sizes(&c, &folder->config, &names));
    c.token_types = -1;
    return load(model, folder, &c, &names);
}
