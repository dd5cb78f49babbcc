/* SPDX-License-Identifier: Apache-2.0 */
/* Settings, file by file. Files other than config.json may be missing: then all-MiniLM-L6-v2's settings hold. */
#include "settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "wordpiece.h"

/* Fails unless a switch that would change the numbers is off, or not there. */
static bool expect_off(const struct config *config, const char *name, struct io_error *error)
{
    const json_t *item = json_object_get(config->root, name);
    return !item || json_is_false(item) || json_is_null(item) ||
           io_fail(error, "%s: '%s' is set; expected false, as embed runs a plain encoder", config->path, name);
}

/* An entry that may be missing; if not, it is the text that is expected. */
static bool expect_text(const struct config *config, const char *name, const char *expected, struct io_error *error)
{
    const char *text;
    if (!json_object_get(config->root, name))
        return true;
    return config_text(config, name, &text, error) &&
           (strcmp(text, expected) == 0 || io_fail(error, "%s: '%s' is '%s'; expected %s, which is what embed computes",
                                                   config->path, name, text, expected));
}

/* ------------------------------------------------------------- config.json -- */

static bool read_type(const struct config *config, struct io_error *error)
{
    const char *type;
    return config_text(config, "model_type", &type, error) &&
           (strcmp(type, "bert") == 0 ||
            io_fail(error, "%s: 'model_type' is '%s'; expected bert, the one kind of encoder that embed computes",
                    config->path, type));
}

static bool read_activation(attn_activation *activation, const struct config *config, struct io_error *error)
{
    static const struct {
        const char *name;
        attn_activation activation;
    } activations[] = {
        {"gelu", ATTN_ACTIVATION_GELU}, {"gelu_new", ATTN_ACTIVATION_GELU_TANH}, {"relu", ATTN_ACTIVATION_RELU}};
    const char *act;
    if (!config_text(config, "hidden_act", &act, error))
        return false;
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (strcmp(act, activations[i].name) == 0) {
            *activation = activations[i].activation;
            return true;
        }
    return io_fail(error, "%s: 'hidden_act' is '%s'; expected gelu, gelu_new or relu", config->path, act);
}

static bool read_model(attn_bert_config *c, const char *folder, struct io_error *error)
{
    struct config config;
    double eps = 0;
    *c = attn_bert_config_default();
    if (!config_open(&config, folder, error))
        return false;
    bool ok = read_type(&config, error) && expect_off(&config, "is_decoder", error) &&
              expect_text(&config, "position_embedding_type", "absolute", error) &&
              read_activation(&c->activation, &config, error) &&
              config_number(&config, "layer_norm_eps", &eps, error) &&
              config_integer(&config, "num_hidden_layers", 1, &c->layers, error) &&
              config_integer(&config, "hidden_size", 1, &c->d_model, error) &&
              config_integer(&config, "num_attention_heads", 1, &c->heads, error) &&
              config_integer(&config, "intermediate_size", 1, &c->d_ff, error) &&
              config_integer(&config, "vocab_size", 1, &c->vocabulary, error) &&
              config_integer(&config, "max_position_embeddings", 2, &c->positions, error);
    if (ok && json_object_get(config.root, "type_vocab_size"))
        ok = config_integer(&config, "type_vocab_size", 1, &c->token_types, error);
    c->eps = (float)eps;
    config_close(&config);
    return ok;
}

/* ------------------------------------------------- modules.json and pooling -- */

/* The class of a module, without the package that it is in. */
static const char *class_of(const json_t *module)
{
    const char *type = json_string_value(json_object_get(module, "type"));
    const char *dot = type ? strrchr(type, '.') : NULL;
    return dot ? dot + 1 : type ? type : "nothing";
}

/* One entry of modules.json. *pooling is set to the folder of its Pooling, which the file owns. */
static bool read_module(struct settings *s, const json_t *module, const char **pooling, const char *path,
                        struct io_error *error)
{
    const char *class = class_of(module), *place = json_string_value(json_object_get(module, "path"));
    if (!place)
        return io_fail(error, "%s: a module has no 'path'; expected the folder of each", path);
    if (strcmp(class, "Transformer") == 0)
        return !*place ||
               io_fail(error, "%s: the Transformer is in '%s'; expected the model's own folder", path, place);
    if (strcmp(class, "Pooling") == 0 && !*pooling) {
        *pooling = place;
        return true;
    }
    if (strcmp(class, "Normalize") == 0) {
        s->normalise = true;
        return true;
    }
    return io_fail(error, "%s: a module is %s; expected one Transformer, one Pooling and Normalize", path, class);
}

/* Mean pooling is named in one of two ways: by a switch for each kind, or by one text. */
static bool check_pooling(const struct config *config, int64_t width, struct io_error *error)
{
    static const char prefix[] = "pooling_mode_", mean[] = "pooling_mode_mean_tokens";
    bool is_mean = json_is_true(json_object_get(config->root, mean)) || json_object_get(config->root, "pooling_mode");
    const char *name;
    json_t *value;
    if (!expect_text(config, "pooling_mode", "mean", error))
        return false;
    json_object_foreach(config->root, name, value)
    {
        if (strncmp(name, prefix, sizeof prefix - 1) == 0 && strcmp(name, mean) != 0 && !json_is_false(value))
            return io_fail(error, "%s: '%s' is set; expected mean pooling alone, which is what embed computes",
                           config->path, name);
    }
    if (!is_mean)
        return io_fail(error, "%s: '%s' is not true; expected mean pooling, which is what embed computes", config->path,
                       mean);
    int64_t given = width;
    if (json_object_get(config->root, "word_embedding_dimension") &&
        !config_integer(config, "word_embedding_dimension", 1, &given, error))
        return false;
    return given == width || io_fail(error, "%s: 'word_embedding_dimension' is %lld; expected %lld, the hidden size",
                                     config->path, (long long)given, (long long)width);
}

static bool read_pooling(const struct settings *s, const char *folder, const char *pooling, bool must_be,
                         struct io_error *error)
{
    struct config config;
    bool there;
    char *place = config_beside(folder, pooling, error);
    bool ok = place && config_open_optional(&config, place, "config.json", &there, error);
    if (ok && there) {
        ok = check_pooling(&config, s->bert.d_model, error);
        config_close(&config);
    } else if (ok && must_be) {
        ok = io_fail(error, "%s has no config.json; expected that of the pooling which modules.json names", place);
    }
    free(place);
    return ok;
}

static bool read_steps(struct settings *s, const char *folder, struct io_error *error)
{
    json_error_t json;
    const char *pooling = NULL;
    char *path = config_beside(folder, "modules.json", error);
    if (!path)
        return false;
    json_t *modules = json_load_file(path, JSON_REJECT_DUPLICATES, &json), *module;
    size_t i;
    bool ok = true;
    s->normalise = !modules;
    if (!modules && !(json_error_code(&json) == json_error_cannot_open_file && errno == ENOENT))
        ok = io_fail(error, "%s: %s (line %d)", path, json.text, json.line);
    if (ok && modules && !json_is_array(modules))
        ok = io_fail(error, "%s is not a JSON array", path);
    for (i = 0; ok && i < json_array_size(modules); i++) {
        module = json_array_get(modules, i);
        ok = read_module(s, module, &pooling, path, error);
    }
    if (ok && modules && !pooling)
        ok = io_fail(error, "%s names no Pooling; expected one, as embed makes one embedding of a sentence", path);
    ok = ok && read_pooling(s, folder, pooling ? pooling : "1_Pooling", pooling != NULL, error);
    json_decref(modules);
    free(path);
    return ok;
}

/* ------------------------------------------------------------------- tokens -- */

static bool read_length(struct settings *s, const char *folder, bool *lower, struct io_error *error)
{
    static const char name[] = "max_seq_length";
    struct config config;
    bool there, ok = true;
    s->max_tokens = s->bert.positions < WORDPIECE_DEFAULT_TOKENS ? s->bert.positions : WORDPIECE_DEFAULT_TOKENS;
    if (!config_open_optional(&config, folder, "sentence_bert_config.json", &there, error))
        return false;
    if (!there)
        return true;
    const json_t *length = json_object_get(config.root, name);
    if (length && !json_is_null(length))
        ok = config_integer(&config, name, 2, &s->max_tokens, error);
    if (ok && s->max_tokens > s->bert.positions)
        ok = io_fail(error, "%s: '%s' is %lld; expected 2 to %lld, the positions of the model", config.path, name,
                     (long long)s->max_tokens, (long long)s->bert.positions);
    if (ok && json_object_get(config.root, "do_lower_case"))
        ok = config_boolean(&config, "do_lower_case", lower, error);
    config_close(&config);
    return ok;
}

/* Capitals and accents stay or go together here. */
static bool read_case(struct settings *s, const char *folder, bool lower_first, struct io_error *error)
{
    struct config config;
    bool there, lower = true, ok = true;
    if (!config_open_optional(&config, folder, "tokenizer_config.json", &there, error))
        return false;
    if (there) {
        const json_t *accents = json_object_get(config.root, "strip_accents"),
                     *ideographs = json_object_get(config.root, "tokenize_chinese_chars");
        if (json_object_get(config.root, "do_lower_case"))
            ok = config_boolean(&config, "do_lower_case", &lower, error);
        if (ok && accents && !json_is_null(accents) && json_is_true(accents) != lower)
            ok = io_fail(error, "%s: 'strip_accents' differs from 'do_lower_case'; expected null or the same",
                         config.path);
        if (ok && ideographs && !json_is_true(ideographs))
            ok =
                io_fail(error, "%s: 'tokenize_chinese_chars' is not true; expected true, as embed splits at ideographs",
                        config.path);
        if (ok && lower_first && !lower)
            ok = io_fail(error,
                         "%s: 'do_lower_case' is false, and true in sentence_bert_config.json; expected them to agree",
                         config.path);
        config_close(&config);
    }
    s->keep_case = !lower;
    return ok;
}

bool settings_read(struct settings *s, const char *folder, struct io_error *error)
{
    bool lower_first = false;
    *s = (struct settings){.keep_case = false};
    return read_model(&s->bert, folder, error) && read_steps(s, folder, error) &&
           read_length(s, folder, &lower_first, error) && read_case(s, folder, lower_first, error);
}
