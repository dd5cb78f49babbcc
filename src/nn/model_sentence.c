/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What sentence-transformers has beside an encoder: modules.json, which names the
 * steps behind it, the pooling among them, and sentence_bert_config.json, which
 * says how long a sentence may be.
 */
#include "nn/model.h"

#include "nn/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/** The class of a module, without the package that it is in. */
static const char *class_of(const json_t *module)
{
    const char *type = json_string_value(json_object_get(module, "type"));
    const char *dot = type ? strrchr(type, '.') : NULL;
    return dot ? dot + 1 : type ? type : "nothing";
}

/** One entry of modules.json. *pooling is set to the folder of its Pooling, which the file owns. */
static attn_status read_module(attn_model *model, const json_t *module, const char **pooling, const char *path)
{
    const char *class_name = class_of(module), *place = json_string_value(json_object_get(module, "path"));
    if (!place)
        return io_fail(ATTN_INVALID_FILE, "%s: a module has no 'path'; expected the folder of each", path);
    if (strcmp(class_name, "Transformer") == 0)
        return !*place ? ATTN_OK
                       : io_fail(ATTN_UNSUPPORTED, "%s: the Transformer is in '%s'; expected the model's own folder",
                                 path, place);
    if (strcmp(class_name, "Pooling") == 0 && !*pooling) {
        *pooling = place;
        return ATTN_OK;
    }
    if (strcmp(class_name, "Normalize") == 0) {
        model->info.normalise = 1;
        return ATTN_OK;
    }
    return io_fail(ATTN_UNSUPPORTED, "%s: a module is %s; expected one Transformer, one Pooling and Normalize", path,
                   class_name);
}

static const struct mode {
    const char *key, *name;
    attn_pooling pooling;
} modes[] = {
    {"pooling_mode_cls_token", "cls", ATTN_POOLING_FIRST},
    {"pooling_mode_mean_tokens", "mean", ATTN_POOLING_MEAN},
    {"pooling_mode_max_tokens", "max", ATTN_POOLING_MAX},
    {"pooling_mode_lasttoken", "lasttoken", ATTN_POOLING_LAST},
};
enum { NUM_MODES = sizeof modes / sizeof *modes };

/** The pooling, which is named in one of two ways: by a switch for each kind, or by one text. */
static attn_status read_mode(attn_model *model, const struct config *config)
{
    static const char prefix[] = "pooling_mode_", one[] = "pooling_mode";
    static const char expected[] = "one of mean, cls, max and lasttoken";
    const char *name, *text = NULL;
    json_t *value;
    CHECK(config_text_or(config, one, &text));
    for (int i = 0; text && i < NUM_MODES; i++)
        if (strcmp(text, modes[i].name) == 0)
            model->info.pooling = modes[i].pooling;
    if (text && !model->info.pooling)
        return nn_model_refuse(config, one, expected);
    json_object_foreach(config->root, name, value)
    {
        if (strncmp(name, prefix, sizeof prefix - 1) != 0 || json_is_false(value) || json_is_null(value))
            continue;
        attn_pooling pooling = ATTN_POOLING_NONE;
        for (int i = 0; i < NUM_MODES; i++)
            if (strcmp(name, modes[i].key) == 0)
                pooling = modes[i].pooling;
        if (!pooling || (model->info.pooling && model->info.pooling != pooling))
            return nn_model_refuse(config, name, expected);
        model->info.pooling = pooling;
    }
    return model->info.pooling ? ATTN_OK
                               : io_fail(ATTN_UNSUPPORTED, "%s names no pooling; expected %s", config->path, expected);
}

static attn_status read_pooling(attn_model *model, const char *folder, const char *place)
{
    struct config config;
    bool there;
    char *path = config_beside(folder, place);
    attn_status status = path ? config_open_optional(&config, path, "config.json", &there) : ATTN_OUT_OF_MEMORY;
    int64_t width = model->info.d_model;
    if (status == ATTN_OK && !there)
        status = io_fail(ATTN_INVALID_FILE,
                         "%s has no config.json; expected that of the pooling which modules.json "
                         "names",
                         path);
    if (status == ATTN_OK) {
        status = read_mode(model, &config);
        if (status == ATTN_OK)
            status = config_integer_or(&config, "word_embedding_dimension", 1, &width);
        if (status == ATTN_OK && width != model->info.d_model)
            status = io_fail(ATTN_INVALID_FILE,
                             "%s: 'word_embedding_dimension' is %" PRId64 "; expected %" PRId64 ", the hidden size",
                             config.path, width, model->info.d_model);
        config_close(&config);
    }
    free(path);
    return status;
}

static attn_status read_modules(attn_model *model, const struct nn_folder *folder)
{
    json_error_t json;
    const char *pooling = NULL;
    char *path = config_beside(folder->path, "modules.json");
    if (!path)
        return ATTN_OUT_OF_MEMORY;
    json_t *modules = json_load_file(path, JSON_REJECT_DUPLICATES, &json);
    const int reason = errno;
    attn_status status = ATTN_OK;
    if (!modules && !(json_error_code(&json) == json_error_cannot_open_file && reason == ENOENT))
        status = config_fail_json(path, &json, reason);
    if (modules && !json_is_array(modules))
        status = io_fail(ATTN_INVALID_FILE, "%s is not a JSON array", path);
    for (size_t i = 0; status == ATTN_OK && i < json_array_size(modules); i++)
        status = read_module(model, json_array_get(modules, i), &pooling, path);
    if (status == ATTN_OK && modules && !pooling)
        status = io_fail(ATTN_UNSUPPORTED, "%s names no Pooling; expected one", path);
    if (status == ATTN_OK && pooling)
        status = read_pooling(model, folder->path, pooling);
    json_decref(modules);
    free(path);
    return status;
}

static attn_status read_length(attn_model *model, const struct nn_folder *folder)
{
    static const char name[] = "max_seq_length";
    struct config config;
    bool there;
    CHECK(config_open_optional(&config, folder->path, "sentence_bert_config.json", &there));
    if (!there)
        return ATTN_OK;
    attn_status status = config_integer_or(&config, name, 1, &model->info.max_tokens);
    if (status == ATTN_OK && model->info.max_tokens > model->info.max_positions)
        status =
            io_fail(ATTN_INVALID_FILE, "%s: '%s' is %" PRId64 "; expected 1 to %" PRId64 ", the positions of the model",
                    config.path, name, model->info.max_tokens, model->info.max_positions);
    config_close(&config);
    return status;
}

attn_status nn_model_read_sentence(attn_model *model, const struct nn_folder *folder)
{
    CHECK(read_length(model, folder));
    if (!folder->options.pooling)
        return read_modules(model, folder);
    model->info.pooling = folder->options.pooling;
    model->info.normalise = folder->options.normalise != 0;
    return ATTN_OK;
}
