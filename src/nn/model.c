/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens the model of a folder: finds its architecture and its weights, and has
 * the loader of the architecture make it.
 */
#include "nn/model.h"

#include "cpu/cancellation.h"
#include "nn/bert.h"
#include "nn/check.h"
#include "nn/llama.h"
#include "nn/weights_set.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct architecture {
    const char *model_type, *class_name;
    attn_status (*load)(attn_model *model, struct nn_folder *folder);
} architectures[] = {
    {"bert", "Bert", nn_model_load_bert},
    {"distilbert", "DistilBert", nn_model_load_distilbert},
    {"gemma2", "Gemma2", nn_model_load_gemma2},
    {"gpt2", "GPT2", nn_model_load_gpt2},
    {"llama", "Llama", nn_model_load_llama},
    {"mistral", "Mistral", nn_model_load_mistral},
    {"mt5", "MT5", nn_model_load_mt5},
    {"qwen2", "Qwen2", nn_model_load_qwen2},
    {"qwen3", "Qwen3", nn_model_load_qwen3},
    {"roberta", "Roberta", nn_model_load_roberta},
    {"t5", "T5", nn_model_load_t5},
    {"xlm-roberta", "XLMRoberta", nn_model_load_roberta},
};
enum { NUM_ARCHITECTURES = sizeof architectures / sizeof *architectures };

/* ------------------------------------------------------- entries of config.json -- */

attn_status nn_model_refuse(const struct config *config, const char *name, const char *expected)
{
    return io_fail(ATTN_UNSUPPORTED, "%s: '%s' is %s; expected %s", config->path, name, config_value(config, name).text,
                   expected);
}

attn_status nn_model_expect_off(const struct config *config, const char *name)
{
    return !config_has(config, name) || json_is_false(json_object_get(config->root, name))
               ? ATTN_OK
               : nn_model_refuse(config, name, "false or null, as models are computed without it");
}

attn_status nn_model_read_activation(const struct config *config, const char *name, attn_activation *activation)
{
    static const struct {
        const char *name;
        attn_activation activation;
    } known[] = {
        {"gelu", ATTN_ACTIVATION_GELU},
        {"gelu_new", ATTN_ACTIVATION_GELU_TANH},
        {"gelu_pytorch_tanh", ATTN_ACTIVATION_GELU_TANH},
        {"relu", ATTN_ACTIVATION_RELU},
        {"silu", ATTN_ACTIVATION_SILU},
        {"swish", ATTN_ACTIVATION_SILU},
        {"tanh", ATTN_ACTIVATION_TANH},
    };
    const char *text = NULL;
    CHECK(config_text_or(config, name, &text));
    for (size_t i = 0; text && i < sizeof known / sizeof *known; i++)
        if (strcmp(text, known[i].name) == 0) {
            *activation = known[i].activation;
            return ATTN_OK;
        }
    return text ? nn_model_refuse(config, name, "gelu, gelu_new, gelu_pytorch_tanh, relu, silu, swish or tanh")
                : ATTN_OK;
}

int nn_model_is(const attn_model *model, const char *suffix)
{
    const size_t length = strlen(model->architecture), end = strlen(suffix);
    return length >= end && strcmp(model->architecture + length - end, suffix) == 0;
}

/** The model's type, and its class, of which there may be none. */
static attn_status read_names(attn_model *model, const struct config *config)
{
    const char *type = NULL, *class_name = "";
    CHECK(config_text(config, "model_type", &type));
    if (config_has(config, "architectures")) {
        const json_t *list = json_object_get(config->root, "architectures");
        class_name = json_string_value(json_array_get(list, 0));
        if (json_array_size(list) != 1 || !class_name)
            return io_fail(ATTN_INVALID_FILE, "%s: 'architectures' is %s; expected an array of the name of one class",
                           config->path,
                           json_is_array(list) ? "another array" : config_value(config, "architectures").text);
    }
    model->info.model_type = model->model_type = config_copy(type);
    if (!model->model_type)
        return ATTN_OUT_OF_MEMORY;
    model->info.architecture = model->architecture = config_copy(class_name);
    return model->architecture ? ATTN_OK : ATTN_OUT_OF_MEMORY;
}

static attn_status find_architecture(const struct architecture **found, const attn_model *model,
                                     const struct config *config)
{
    char known[256] = "";
    for (int i = 0; i < NUM_ARCHITECTURES; i++) {
        const size_t length = strlen(known);
        if (strcmp(architectures[i].model_type, model->model_type) == 0) {
            *found = &architectures[i];
            return ATTN_OK;
        }
        snprintf(known + length, sizeof known - length, "%s%s",
                 i == 0                       ? ""
                 : i == NUM_ARCHITECTURES - 1 ? " or "
                                              : ", ",
                 architectures[i].model_type);
    }
    return io_fail(ATTN_UNSUPPORTED, "%s: 'model_type' is '%s'%s%s%s; expected %s", config->path, model->model_type,
                   *model->architecture ? " (" : "", model->architecture, *model->architecture ? ")" : "", known);
}

/** The ids that end a text: a number, or an array of numbers. */
static attn_status read_eos(attn_model *model, const struct config *config)
{
    static const char name[] = "eos_token_id";
    const json_t *item = json_object_get(config->root, name);
    if (!config_has(config, name))
        return ATTN_OK;
    const size_t num = json_is_array(item) ? json_array_size(item) : 1;
    int32_t *eos = malloc((num + 1) * sizeof *eos);
    if (!eos)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a list of ids could not be allocated");
    free(model->eos);
    model->info.eos = model->eos = eos;
    model->info.num_eos = (int64_t)num;
    for (size_t i = 0; i < num; i++) {
        const json_t *id = json_is_array(item) ? json_array_get(item, i) : item;
        const json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value >= model->info.vocabulary)
            return io_fail(ATTN_INVALID_FILE, "%s: '%s' is %s; expected ids from 0 to %" PRId64, config->path, name,
                           json_is_array(item) ? "an array of something else" : config_value(config, name).text,
                           model->info.vocabulary - 1);
        eos[i] = (int32_t)value;
    }
    return ATTN_OK;
}

/** An id, if there is an entry. */
static attn_status read_id(const attn_model *model, const struct config *config, const char *name, int64_t *id)
{
    CHECK(config_integer_or(config, name, 0, id));
    return *id < model->info.vocabulary
               ? ATTN_OK
               : io_fail(ATTN_INVALID_FILE, "%s: '%s' is %s; expected 0 to %" PRId64, config->path, name,
                         config_value(config, name).text, model->info.vocabulary - 1);
}

/** What begins a text, fills it up and ends it. */
static attn_status read_marks(attn_model *model, const struct config *config)
{
    if (model->info.kind == ATTN_MODEL_ENCODER_DECODER) {
        CHECK(read_id(model, config, "decoder_start_token_id", &model->info.decoder_start));
        CHECK(read_id(model, config, "pad_token_id", &model->info.pad));
    }
    return read_eos(model, config);
}

static attn_status read_all_marks(attn_model *model, const struct nn_folder *folder)
{
    struct config config;
    bool there;
    model->info.decoder_start = model->info.pad = -1;
    CHECK(read_marks(model, &folder->config));
    CHECK(config_open_optional(&config, folder->path, "generation_config.json", &there));
    if (!there)
        return ATTN_OK;
    const attn_status status = read_marks(model, &config);
    config_close(&config);
    return status;
}

/* ------------------------------------------------------------------ weights -- */

/** Files in other formats: what a folder without safetensors may have instead. */
static int is_foreign(const char *name)
{
    static const char *const ends[] = {".bin", ".gguf", ".h5", ".msgpack", ".onnx", ".pt", ".pth"};
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (length > strlen(ends[i]) && strcmp(name + length - strlen(ends[i]), ends[i]) == 0)
            return 1;
    return 0;
}

static attn_status fail_without_weights(const char *path)
{
    char found[256] = "";
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        if (is_foreign(entry->d_name) && (!*found || strcmp(entry->d_name, found) < 0))
            snprintf(found, sizeof found, "%s", entry->d_name);
    if (folder)
        closedir(folder);
    if (*found)
        return io_fail(ATTN_UNSUPPORTED,
                       "%s has its weights in %s; expected model.safetensors, which save_pretrained() of Transformers "
                       "writes",
                       path, found);
    return io_fail(ATTN_INVALID_FILE, "%s has neither model.safetensors nor model.safetensors.index.json; expected one",
                   path);
}

static attn_status open_weights(attn_weights **weights, const char *path)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *file = config_beside(path, names[i]);
        if (!file)
            return ATTN_OUT_OF_MEMORY;
        const int there = access(file, F_OK) == 0;
        const attn_status status = there ? attn_weights_open(weights, file) : ATTN_OK;
        free(file);
        if (there)
            return status;
    }
    return fail_without_weights(path);
}

/* ------------------------------------------------------------------ opening -- */

static attn_status take_options(attn_model_options *ours, const attn_model_options *theirs)
{
    CHECK(attn_take_struct("options", ours, sizeof *ours, NN_MODEL_OPTIONS_FIRST, theirs));
    CHECK(nn_check_layer_type("options.activations", ours->activations));
    if ((unsigned)ours->pooling > ATTN_POOLING_MAX)
        return attn_fail(ATTN_INVALID_ARGUMENT, "options.pooling is %d; expected an attn_pooling", (int)ours->pooling);
    if (ours->normalise && !ours->pooling)
        return attn_fail(ATTN_INVALID_ARGUMENT, "options.normalise is %d; expected 0 without options.pooling",
                         ours->normalise);
    if (ours->progress_user && !ours->progress)
        return attn_fail(ATTN_INVALID_ARGUMENT, "options.progress_user is set; expected NULL without options.progress");
    return ATTN_OK;
}

static attn_status load(attn_model *model, struct nn_folder *folder)
{
    const struct architecture *architecture = NULL;
    attn_weights *weights = NULL;
    CHECK(read_names(model, &folder->config));
    CHECK(find_architecture(&architecture, model, &folder->config));
    folder->class_name = architecture->class_name;
    if (strncmp(model->architecture, folder->class_name, *model->architecture ? strlen(folder->class_name) : 0) != 0)
        return io_fail(ATTN_UNSUPPORTED, "%s: 'architectures' is '%s'; expected a class of %s, as 'model_type' says",
                       folder->config.path, model->architecture, folder->class_name);
    CHECK(nn_model_expect_off(&folder->config, "quantization_config"));
    CHECK(open_weights(&weights, folder->path));
    attn_status status = nn_reader_open(&folder->reader, "attn_model_open", weights, "");
    if (!status) {
        nn_reader_watch(&folder->reader, folder->options.progress, folder->options.progress_user);
        status = architecture->load(model, folder);
        if (!status)
            status = read_all_marks(model, folder);
        if (!status)
            nn_reader_done(&folder->reader);
        nn_reader_close(&folder->reader);
    }
    attn_weights_destroy(weights);
    return status;
}

attn_status attn_model_open(attn_model **model_out, const char *path, const attn_model_options *options)
{
    struct stat info;
    struct nn_folder folder = {.path = path};
    ATTN_UNCANCELLED;
    if (!model_out)
        return attn_fail(ATTN_INVALID_ARGUMENT, "model is NULL; expected where to put the model");
    *model_out = NULL;
    if (!path)
        return attn_fail(ATTN_INVALID_ARGUMENT, "folder is NULL; expected the name of a model's folder");
    CHECK(take_options(&folder.options, options));
    if (stat(path, &info) == 0 && !S_ISDIR(info.st_mode))
        return io_fail(is_foreign(path) ? ATTN_UNSUPPORTED : ATTN_INVALID_FILE,
                       "%s is a file; expected a folder with config.json and model.safetensors", path);
    CHECK(config_open(&folder.config, path));
    attn_model *model = calloc(1, sizeof *model);
    attn_status status = ATTN_OK;
    if (!model)
        status = attn_fail(ATTN_OUT_OF_MEMORY, "a model could not be allocated");
    if (!status) {
        model->info.struct_size = sizeof model->info;
        model->activations = folder.options.activations;
        status = load(model, &folder);
    }
    config_close(&folder.config);
    if (status)
        attn_model_close(model);
    else
        *model_out = model;
    return status;
}

void attn_model_close(attn_model *model)
{
    if (!model)
        return;
    attn_bert_destroy(model->bert);
    nn_t5_destroy(model->t5);
    attn_linear_destroy(model->pooler);
    attn_linear_destroy(model->head_dense);
    attn_linear_destroy(model->head);
    attn_linear_destroy(model->tokens.dense);
    attn_linear_destroy(model->tokens.head);
    free(model->tokens.norm.gamma);
    free(model->tokens.norm.beta);
    attn_llama_destroy(model->llama);
    free(model->model_type);
    free(model->architecture);
    free(model->eos);
    free(model);
}

attn_status attn_model_describe(const attn_model *model, attn_model_info *info)
{
    attn_model_info known;
    if (!model)
        return attn_fail(ATTN_INVALID_ARGUMENT, "model is NULL; expected a model");
    if (!info)
        return attn_fail(ATTN_INVALID_ARGUMENT, "info is NULL; expected an attn_model_info");
    CHECK(attn_take_struct("info", &known, sizeof known, NN_MODEL_INFO_FIRST, info));
    const size_t size = info->struct_size;
    memcpy(info, &model->info, size < sizeof known ? size : sizeof known);
    info->struct_size = size;
    return ATTN_OK;
}
