/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoders from a folder: Llama, Mistral, Qwen 2 and 3, Gemma 2, GPT-2.
 *
 * They are one attn_llama; what differs is which biases and norms there are, how
 * positions come in, and how far back a layer's queries see. config.json and the files have to agree:
 * a bias that one of them has and the other has not is an error.
 */
#include "nn/model.h"

#include "nn/check.h"
#include "nn/llama.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/** A decoder as config.json has it, for its loader. */
struct decoder {
    attn_llama_config config;
    attn_rope_config rope;
    struct nn_llama_kind kind;
    int64_t positions;
    bool qkv_bias, output_bias, mlp_bias;
};

/** The sizes under the names that all but GPT-2 have; tied: without an entry. */
static attn_status read_sizes(struct decoder *d, const struct config *config, bool tied)
{
    attn_llama_config *c = &d->config;
    double eps = 1e-6;
    *c = attn_llama_config_default();
    CHECK(config_integer(config, "num_hidden_layers", 1, &c->layers));
    CHECK(config_integer(config, "hidden_size", 1, &c->d_model));
    CHECK(config_integer(config, "num_attention_heads", 1, &c->heads));
    c->kv_heads = c->heads;
    CHECK(config_integer_or(config, "num_key_value_heads", 1, &c->kv_heads));
    c->head_dim = c->d_model / c->heads;
    CHECK(config_integer_or(config, "head_dim", 1, &c->head_dim));
    if (c->head_dim < 2)
        return io_fail(ATTN_INVALID_FILE, "%s: 'num_attention_heads' is %" PRId64 "; expected heads of 2 channels",
                       config->path, c->heads);
    CHECK(config_integer(config, "intermediate_size", 1, &c->d_ff));
    CHECK(config_integer(config, "vocab_size", 1, &c->vocabulary));
    CHECK(config_integer(config, "max_position_embeddings", 1, &d->positions));
    CHECK(config_number_or(config, "rms_norm_eps", &eps));
    CHECK(config_boolean_or(config, "tie_word_embeddings", &tied));
    c->eps = (float)eps;
    c->tied = tied;
    CHECK(nn_model_read_rope(&d->rope, config, c->head_dim));
    c->rope = &d->rope;
    return ATTN_OK;
}

/** The same of Llama and those that have no more than its parts. */
static attn_status read_llama(struct decoder *d, const struct config *config)
{
    d->kind = nn_llama_plain;
    CHECK(nn_model_read_activation(config, "hidden_act", &d->kind.activation));
    if (d->kind.activation != ATTN_ACTIVATION_SILU)
        return nn_model_refuse(config, "hidden_act", "silu");
    return read_sizes(d, config, false);
}

/** Whether a bias is in the weights of the first layer where it should be; loaders take what is there. */
static attn_status expect_bias(const struct nn_folder *folder, const struct decoder *d, const char *name, bool expected)
{
    struct nn_prefix layer;
    CHECK(nn_numbered(&layer, d->kind.prefix, d->kind.layers, 0));
    return !nn_has(&folder->reader, layer.text, name) == !expected
               ? ATTN_OK
               : io_fail(ATTN_INVALID_FILE, "%s: %s is %s the weights; expected it %s, as %s says", folder->path, name,
                         expected ? "not in" : "in", expected ? "there" : "not to be", folder->config.path);
}

/** Which class it is, and so where its names are and whether it has an output matrix; whole: of a language model. */
static attn_status choose_class(struct decoder *d, const attn_model *model, const struct nn_folder *folder,
                                const char *whole)
{
    const char *rest = *model->architecture ? model->architecture + strlen(folder->class_name) : whole;
    d->kind.headless = strcmp(rest, "Model") == 0;
    if (!d->kind.headless && strcmp(rest, whole) != 0)
        return io_fail(ATTN_UNSUPPORTED, "%s: 'architectures' is '%s'; expected %s%s or %sModel", folder->config.path,
                       model->architecture, folder->class_name, whole, folder->class_name);
    if (nn_has(&folder->reader, "", d->kind.embedding))
        d->kind.prefix = "";
    return ATTN_OK;
}

static attn_status expect_biases(const struct nn_folder *folder, const struct decoder *d)
{
    CHECK(expect_bias(folder, d, "self_attn.q_proj.bias", d->qkv_bias));
    CHECK(expect_bias(folder, d, "self_attn.o_proj.bias", d->output_bias));
    return expect_bias(folder, d, "mlp.up_proj.bias", d->mlp_bias);
}

static attn_status load(attn_model *model, struct nn_folder *folder, struct decoder *d)
{
    attn_llama_config *c = &d->config;
    const int is_gpt2 = d->kind.naming == ATTN_NAMING_GPT2;
    CHECK(choose_class(d, model, folder, is_gpt2 ? "LMHeadModel" : "ForCausalLM"));
    if (!is_gpt2)
        CHECK(expect_biases(folder, d));
    c->format = folder->options.format;
    c->activations = folder->options.activations;
    CHECK(nn_llama_load(&model->llama, c, &d->kind, &folder->reader));
    model->info.kind = ATTN_MODEL_DECODER;
    model->info.layers = c->layers;
    model->info.d_model = c->d_model;
    model->info.heads = c->heads;
    model->info.kv_heads = c->kv_heads;
    model->info.head_dim = c->head_dim;
    model->info.d_ff = c->d_ff;
    model->info.vocabulary = c->vocabulary;
    model->info.max_positions = model->info.max_tokens = d->positions;
    model->info.logits = d->kind.headless ? 0 : c->vocabulary;
    return ATTN_OK;
}

/* ------------------------------------------------------------------ windows -- */

/** Whether a layer has a window: by layer_types, or else all from first on. */
static attn_status is_windowed(const struct config *config, int64_t layer, int64_t first, bool *windowed)
{
    static const char name[] = "layer_types";
    const json_t *types = json_object_get(config->root, name);
    *windowed = layer >= first;
    if (!config_has(config, name))
        return ATTN_OK;
    const char *type = json_string_value(json_array_get(types, (size_t)layer));
    *windowed = type && strcmp(type, "sliding_attention") == 0;
    return *windowed || (type && strcmp(type, "full_attention") == 0)
               ? ATTN_OK
               : io_fail(ATTN_UNSUPPORTED,
                         "%s: '%s' is %s for layer %" PRId64 "; expected full_attention or sliding_attention",
                         config->path, name, type ? type : "missing", layer);
}

/** Queries of the layers from first on see size keys, their own with them, if layer_types does not say otherwise. */
static attn_status read_windows(struct decoder *d, const struct config *config, int64_t size, int64_t first,
                                int64_t **windows)
{
    const int64_t layers = d->config.layers;
    CHECK(attn_check_count("num_hidden_layers", sizeof **windows, layers, 1, 1));
    *windows = malloc((size_t)layers * sizeof **windows);
    if (!*windows)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a list of windows could not be allocated");
    for (int64_t layer = 0; layer < layers; layer++) {
        bool windowed;
        CHECK(is_windowed(config, layer, first, &windowed));
        (*windows)[layer] = windowed ? size - 1 : ATTN_UNLIMITED;
    }
    d->kind.windows = *windows;
    return ATTN_OK;
}

static attn_status load_windowed(attn_model *model, struct nn_folder *folder, struct decoder *d, int64_t size,
                                 int64_t first)
{
    int64_t *windows = NULL;
    attn_status status = size ? read_windows(d, &folder->config, size, first, &windows) : ATTN_OK;
    if (!status)
        status = load(model, folder, d);
    free(windows);
    return status;
}

/** The window of Qwen, off unless it is switched on. */
static attn_status load_qwen(attn_model *model, struct nn_folder *folder, struct decoder *d)
{
    const struct config *config = &folder->config;
    bool used = false;
    int64_t size = 0, first = 28;
    CHECK(config_boolean_or(config, "use_sliding_window", &used));
    if (used) {
        CHECK(config_integer_or(config, "sliding_window", 1, &size));
        CHECK(config_integer_or(config, "max_window_layers", 0, &first));
    }
    return load_windowed(model, folder, d, size, first);
}

/* ------------------------------------------------------------ architectures -- */

attn_status nn_model_load_llama(attn_model *model, struct nn_folder *folder)
{
    struct decoder d = {.positions = 0};
    CHECK(read_llama(&d, &folder->config));
    CHECK(nn_model_expect_off(&folder->config, "sliding_window"));
    CHECK(config_boolean_or(&folder->config, "attention_bias", &d.qkv_bias));
    CHECK(config_boolean_or(&folder->config, "mlp_bias", &d.mlp_bias));
    d.output_bias = d.qkv_bias;
    return load(model, folder, &d);
}

/** A window's size: without an entry that of the default, none if it is null. */
static attn_status read_window(const struct config *config, int64_t *size, int64_t otherwise)
{
    static const char name[] = "sliding_window";
    *size = json_object_get(config->root, name) ? 0 : otherwise;
    return config_integer_or(config, name, 1, size);
}

attn_status nn_model_load_mistral(attn_model *model, struct nn_folder *folder)
{
    struct decoder d = {.positions = 0};
    int64_t size;
    CHECK(read_llama(&d, &folder->config));
    CHECK(read_window(&folder->config, &size, 4096));
    return load_windowed(model, folder, &d, size, 0);
}

attn_status nn_model_load_qwen2(attn_model *model, struct nn_folder *folder)
{
    struct decoder d = {.qkv_bias = true};
    CHECK(read_llama(&d, &folder->config));
    return load_qwen(model, folder, &d);
}

attn_status nn_model_load_qwen3(attn_model *model, struct nn_folder *folder)
{
    struct decoder d = {.positions = 0};
    CHECK(read_llama(&d, &folder->config));
    if (!config_has(&folder->config, "head_dim"))
        return nn_model_refuse(&folder->config, "head_dim", "the channels of a head, which Qwen 3 names");
    CHECK(config_boolean_or(&folder->config, "attention_bias", &d.qkv_bias));
    d.output_bias = d.qkv_bias;
    d.kind.qk_norm = 1;
    return load_qwen(model, folder, &d);
}

/** A number that may be null for none, and has a value without an entry. */
static attn_status read_cap(const struct config *config, const char *name, double otherwise, float *value)
{
    double cap = json_object_get(config->root, name) ? 0 : otherwise;
    CHECK(config_number_or(config, name, &cap));
    *value = (float)cap;
    return cap >= 0 ? ATTN_OK : nn_model_refuse(config, name, "a number that is not negative, or null");
}

/** Every other layer has a window, the first one too, where layer_types does not say otherwise. */
static attn_status read_alternate(struct decoder *d, const struct config *config, int64_t size, int64_t **windows)
{
    CHECK(read_windows(d, config, size, 0, windows));
    for (int64_t layer = 1; !config_has(config, "layer_types") && layer < d->config.layers; layer += 2)
        (*windows)[layer] = ATTN_UNLIMITED;
    return ATTN_OK;
}

attn_status nn_model_load_gemma2(attn_model *model, struct nn_folder *folder)
{
    const struct config *config = &folder->config;
    struct decoder d = {.kind = nn_llama_plain};
    int64_t size, *windows = NULL;
    double scalar = 256;
    d.kind.post_norms = d.kind.norm_plus_one = 1;
    d.kind.activation = ATTN_ACTIVATION_GELU_TANH;
    CHECK(read_sizes(&d, config, true));
    CHECK(nn_model_read_activation(config, "hidden_activation", &d.kind.activation));
    if (!config_has(config, "head_dim"))
        return nn_model_refuse(config, "head_dim", "the channels of a head, which Gemma 2 names");
    CHECK(nn_model_expect_off(config, "use_bidirectional_attention"));
    CHECK(config_number_or(config, "query_pre_attn_scalar", &scalar));
    if (!(scalar > 0))
        return nn_model_refuse(config, "query_pre_attn_scalar", "a positive number");
    CHECK(read_cap(config, "attn_logit_softcapping", 50, &d.kind.softcap));
    CHECK(read_cap(config, "final_logit_softcapping", 30, &d.kind.logit_softcap));
    CHECK(read_window(config, &size, 4096));
    CHECK(config_boolean_or(config, "attention_bias", &d.qkv_bias));
    d.output_bias = d.qkv_bias;
    d.kind.scale = (float)(1 / sqrt(scalar));
    d.kind.embedding_scale = (float)sqrt((double)d.config.d_model);
    attn_status status = size ? read_alternate(&d, config, size, &windows) : ATTN_OK;
    if (!status)
        status = load(model, folder, &d);
    free(windows);
    return status;
}

attn_status nn_model_load_gpt2(attn_model *model, struct nn_folder *folder)
{
    const struct config *config = &folder->config;
    struct decoder d = {.kind = {.prefix = "transformer.",
                                 .layers = "h.",
                                 .embedding = "wte.weight",
                                 .positions = "wpe.weight",
                                 .norm = "ln_f",
                                 .naming = ATTN_NAMING_GPT2,
                                 .norm_kind = ATTN_NORM_LAYER,
                                 .activation = ATTN_ACTIVATION_GELU_TANH}};
    attn_llama_config *c = &d.config;
    double eps = 1e-5;
    bool tied = true, scaled = true;
    *c = attn_llama_config_default();
    CHECK(config_integer(config, "n_layer", 1, &c->layers));
    CHECK(config_integer(config, "n_embd", 1, &c->d_model));
    CHECK(config_integer(config, "n_head", 1, &c->heads));
    CHECK(config_integer(config, "vocab_size", 1, &c->vocabulary));
    CHECK(config_integer(config, "n_positions", 1, &d.positions));
    if (c->d_model % c->heads != 0 || c->d_model < 2 * c->heads)
        return io_fail(ATTN_INVALID_FILE,
                       "%s: 'n_embd' is %" PRId64 "; expected a multiple of 'n_head', %" PRId64 ", and twice that",
                       config->path, c->d_model, c->heads);
    CHECK(attn_check_count("n_embd", 4, c->d_model, 1, 1));
    c->kv_heads = c->heads;
    c->head_dim = c->d_model / c->heads;
    c->d_ff = 4 * c->d_model;
    CHECK(config_integer_or(config, "n_inner", 1, &c->d_ff));
    CHECK(nn_model_read_activation(config, "activation_function", &d.kind.activation));
    CHECK(config_number_or(config, "layer_norm_epsilon", &eps));
    CHECK(config_boolean_or(config, "tie_word_embeddings", &tied));
    CHECK(config_boolean_or(config, "scale_attn_weights", &scaled));
    CHECK(nn_model_expect_off(config, "scale_attn_by_inverse_layer_idx"));
    CHECK(nn_model_expect_off(config, "add_cross_attention"));
    c->eps = (float)eps;
    c->tied = tied;
    d.kind.scale = scaled ? 0.0f : 1.0f;
    d.kind.num_positions = d.positions;
    return load(model, folder, &d);
}
