/* SPDX-License-Identifier: Apache-2.0 */
/* Settings, file by file. Files other than config.json may be missing: then all-MiniLM-L6-v2's settings hold. */
#include "settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/config.h"

/* Fails unless a switch that would change the numbers is off, or not there. */
static attn_status expect_off(const struct config *config, const char *name)
{
    const json_t *item = json_object_get(config->root, name);
    return !item || json_is_false(item) || json_is_null(item)
               ? ATTN_OK
               : io_fail(ATTN_INVALID_FILE, "%s: '%s' is set; expected false, as embed runs a plain encoder",
                         config->path, name);
}

/* An entry that may be missing; if not, it is the text that is expected. */
static attn_status expect_text(const struct config *config, const char *name, const char *expected)
{
    const char *text;
    if (!json_object_get(config->root, name))
        return ATTN_OK;
    CHECK(config_text(config, name, &text));
    return strcmp(text, expected) == 0
               ? ATTN_OK
               : io_fail(ATTN_INVALID_FILE, "%s: '%s' is '%s'; expected %s, which is what this program computes",
                         config->path, name, text, expected);
}

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
        status = expect_off(&config, "is_decoder");
    if (status == ATTN_OK)
        status = expect_text(&config, "position_embedding_type", "absolute");
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

/* ------------------------------------------------- modules.json and pooling -- */

/* The class of a module, without the package that it is in. */
static const char *class_of(const json_t *module)
{
    const char *type = json_string_value(json_object_get(module, "type"));
    const char *dot = type ? strrchr(type, '.') : NULL;
    return dot ? dot + 1 : type ? type : "nothing";
}

/* One entry of modules.json. *pooling is set to the folder of its Pooling, which the file owns. */
static attn_status read_module(struct settings *s, const json_t *module, const char **pooling, const char *path)
{
    const char *class = class_of(module), *place = json_string_value(json_object_get(module, "path"));
    if (!place)
        return io_fail(ATTN_INVALID_FILE, "%s: a module has no 'path'; expected the folder of each", path);
    if (strcmp(class, "Transformer") == 0)
        return !*place ? ATTN_OK
                       : io_fail(ATTN_INVALID_FILE, "%s: the Transformer is in '%s'; expected the model's own folder",
                                 path, place);
    if (strcmp(class, "Pooling") == 0 && !*pooling) {
        *pooling = place;
        return ATTN_OK;
    }
    if (strcmp(class, "Normalize") == 0) {
        s->normalise = true;
        return ATTN_OK;
    }
    return io_fail(ATTN_INVALID_FILE, "%s: a module is %s; expected one Transformer, one Pooling and Normalize", path,
                   class);
}

/* Mean pooling is named in one of two ways: by a switch for each kind, or by one text. */
static attn_status check_pooling(const struct config *config, int64_t width)
{
    static const char prefix[] = "pooling_mode_", mean[] = "pooling_mode_mean_tokens";
    bool is_mean = json_is_true(json_object_get(config->root, mean)) || json_object_get(config->root, "pooling_mode");
    const char *name;
    json_t *value;
    CHECK(expect_text(config, "pooling_mode", "mean"));
    json_object_foreach(config->root, name, value)
    {
        if (strncmp(name, prefix, sizeof prefix - 1) == 0 && strcmp(name, mean) != 0 && !json_is_false(value))
            return io_fail(ATTN_INVALID_FILE,
                           "%s: '%s' is set; expected mean pooling alone, which is what this program computes",
                           config->path, name);
    }
    if (!is_mean)
        return io_fail(ATTN_INVALID_FILE,
                       "%s: '%s' is not true; expected mean pooling, which is what this program computes", config->path,
                       mean);
    int64_t given = width;
    if (json_object_get(config->root, "word_embedding_dimension"))
        CHECK(config_integer(config, "word_embedding_dimension", 1, &given));
    return given == width
               ? ATTN_OK
               : io_fail(ATTN_INVALID_FILE, "%s: 'word_embedding_dimension' is %lld; expected %lld, the hidden size",
                         config->path, (long long)given, (long long)width);
}

static attn_status read_pooling(const struct settings *s, const char *folder, const char *pooling, bool must_be)
{
    struct config config;
    bool there;
    char *place = config_beside(folder, pooling);
    attn_status status = place ? config_open_optional(&config, place, "config.json", &there) : ATTN_OUT_OF_MEMORY;
    if (status == ATTN_OK && there) {
        status = check_pooling(&config, s->bert.d_model);
        config_close(&config);
    } else if (status == ATTN_OK && must_be) {
        status = io_fail(ATTN_INVALID_FILE,
                         "%s has no config.json; expected that of the pooling which modules.json names", place);
    }
    free(place);
    return status;
}

static attn_status read_steps(struct settings *s, const char *folder)
{
    json_error_t json;
    const char *pooling = NULL;
    char *path = config_beside(folder, "modules.json");
    if (!path)
        return ATTN_OUT_OF_MEMORY;
    json_t *modules = json_load_file(path, JSON_REJECT_DUPLICATES, &json), *module;
    size_t i;
    attn_status status = ATTN_OK;
    s->normalise = !modules;
    if (!modules && !(json_error_code(&json) == json_error_cannot_open_file && errno == ENOENT))
        status = io_fail(ATTN_INVALID_FILE, "%s: %s (line %d)", path, json.text, json.line);
    if (status == ATTN_OK && modules && !json_is_array(modules))
        status = io_fail(ATTN_INVALID_FILE, "%s is not a JSON array", path);
    for (i = 0; status == ATTN_OK && i < json_array_size(modules); i++) {
        module = json_array_get(modules, i);
        status = read_module(s, module, &pooling, path);
    }
    if (status == ATTN_OK && modules && !pooling)
        status = io_fail(ATTN_INVALID_FILE,
                         "%s names no Pooling; expected one, as embed makes one embedding of a sentence", path);
    if (status == ATTN_OK)
        status = read_pooling(s, folder, pooling ? pooling : "1_Pooling", pooling != NULL);
    json_decref(modules);
    free(path);
    return status;
}

/* ------------------------------------------------------------------- tokens -- */

static attn_status read_length(struct settings *s, const char *folder, bool *lower)
{
    static const char name[] = "max_seq_length";
    struct config config;
    bool there;
    attn_status status = ATTN_OK;
    s->max_tokens = s->bert.positions < WORDPIECE_DEFAULT_TOKENS ? s->bert.positions : WORDPIECE_DEFAULT_TOKENS;
    CHECK(config_open_optional(&config, folder, "sentence_bert_config.json", &there));
    if (!there)
        return ATTN_OK;
    const json_t *length = json_object_get(config.root, name);
    if (length && !json_is_null(length))
        status = config_integer(&config, name, 2, &s->max_tokens);
    if (status == ATTN_OK && s->max_tokens > s->bert.positions)
        status = io_fail(ATTN_INVALID_FILE, "%s: '%s' is %lld; expected 2 to %lld, the positions of the model",
                         config.path, name, (long long)s->max_tokens, (long long)s->bert.positions);
    if (status == ATTN_OK && json_object_get(config.root, "do_lower_case"))
        status = config_boolean(&config, "do_lower_case", lower);
    config_close(&config);
    return status;
}

/* Capitals and accents stay or go together here. */
static attn_status read_case(struct settings *s, const char *folder, bool lower_first)
{
    struct config config;
    bool there, lower = true;
    attn_status status = ATTN_OK;
    CHECK(config_open_optional(&config, folder, "tokenizer_config.json", &there));
    if (there) {
        const json_t *accents = json_object_get(config.root, "strip_accents"),
                     *ideographs = json_object_get(config.root, "tokenize_chinese_chars");
        if (json_object_get(config.root, "do_lower_case"))
            status = config_boolean(&config, "do_lower_case", &lower);
        if (status == ATTN_OK && accents && !json_is_null(accents) && json_is_true(accents) != lower)
            status =
                io_fail(ATTN_INVALID_FILE,
                        "%s: 'strip_accents' differs from 'do_lower_case'; expected null or the same", config.path);
        if (status == ATTN_OK && ideographs && !json_is_true(ideographs))
            status = io_fail(ATTN_INVALID_FILE,
                             "%s: 'tokenize_chinese_chars' is not true; expected true, as embed splits at ideographs",
                             config.path);
        if (status == ATTN_OK && lower_first && !lower)
            status =
                io_fail(ATTN_INVALID_FILE,
                        "%s: 'do_lower_case' is false, and true in sentence_bert_config.json; expected them to agree",
                        config.path);
        config_close(&config);
    }
    s->keep_case = !lower;
    return status;
}

attn_status settings_read(struct settings *s, const char *folder)
{
    bool lower_first = false;
    *s = (struct settings){.keep_case = false};
    CHECK(read_model(&s->bert, folder));
    CHECK(read_steps(s, folder));
    CHECK(read_length(s, folder, &lower_first));
    return read_case(s, folder, lower_first);
}

attn_status settings_open_tokenizer(const struct settings *settings, const char *folder, struct wordpiece **tokenizer)
{
    char *vocabulary = config_beside(folder, "vocab.txt");
    attn_status status = vocabulary ? wordpiece_open(tokenizer, vocabulary) : ATTN_OUT_OF_MEMORY;
    if (status == ATTN_OK && wordpiece_size(*tokenizer) != settings->bert.vocabulary)
        status = io_fail(ATTN_INVALID_FILE, "%s has %d tokens; expected %lld, the model's vocab_size", vocabulary,
                         (int)wordpiece_size(*tokenizer), (long long)settings->bert.vocabulary);
    if (status == ATTN_OK && settings->keep_case)
        wordpiece_keep_case(*tokenizer);
    free(vocabulary);
    return status;
}
