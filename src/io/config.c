/* SPDX-License-Identifier: Apache-2.0 */
/* JSON files of a model's folder, entry by entry. */
#include "io/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *config_beside(const char *folder, const char *name)
{
    const size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s/%s", folder, name);
    else
        io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", folder);
    return path;
}

char *config_copy(const char *text)
{
    const size_t size = strlen(text) + 1;
    char *copy = malloc(size);
    if (copy)
        memcpy(copy, text, size);
    else
        io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", text);
    return copy;
}

attn_status config_fail_json(const char *path, const json_error_t *json, int reason)
{
    if (*json->text == '\0') /* all that jansson says where memory is short */
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", path);
    if (json_error_code(json) == json_error_cannot_open_file)
        return io_fail(ATTN_INVALID_FILE, "%s: cannot open: %s", path, strerror(reason));
    return io_fail(ATTN_INVALID_FILE, "%s: %s (line %d)", path, json->text, json->line);
}

/* Reads the file of the path that config has got; *there: it exists and is an object. */
static attn_status read_file(struct config *config, bool *there)
{
    json_error_t json;
    *there = false;
    if (!config->path)
        return ATTN_OUT_OF_MEMORY;
    config->root = json_load_file(config->path, JSON_REJECT_DUPLICATES, &json);
    *there = config->root && json_is_object(config->root);
    if (*there)
        return ATTN_OK;
    const int reason = errno;
    const bool missing = !config->root && *json.text != '\0' && json_error_code(&json) == json_error_cannot_open_file &&
                         reason == ENOENT;
    if (config->root)
        return io_fail(ATTN_INVALID_FILE, "%s is not a JSON object", config->path);
    return missing ? ATTN_OK : config_fail_json(config->path, &json, reason);
}

attn_status config_open_optional(struct config *config, const char *folder, const char *name, bool *there)
{
    *config = (struct config){.path = config_beside(folder, name)};
    const attn_status status = read_file(config, there);
    if (!*there)
        config_close(config);
    return status;
}

attn_status config_open_file(struct config *config, const char *path)
{
    bool there;
    *config = (struct config){.path = config_copy(path)};
    attn_status status = read_file(config, &there);
    if (status == ATTN_OK && !there)
        status = io_fail(ATTN_INVALID_FILE, "%s: cannot open: %s", path, strerror(ENOENT));
    if (status != ATTN_OK)
        config_close(config);
    return status;
}

attn_status config_open(struct config *config, const char *folder)
{
    bool there;
    CHECK(config_open_optional(config, folder, "config.json", &there));
    return there ? ATTN_OK : io_fail(ATTN_INVALID_FILE, "%s has no config.json; expected a model's folder", folder);
}

void config_close(struct config *config)
{
    json_decref(config->root);
    free(config->path);
    *config = (struct config){0};
}

struct config_value config_value(const struct config *config, const char *name)
{
    const json_t *item = json_object_get(config->root, name);
    struct config_value value;
    char *const text = value.text;
    const size_t size = sizeof value.text;
    if (json_is_string(item))
        snprintf(text, size, "'%.56s'", json_string_value(item));
    else if (json_is_integer(item))
        snprintf(text, size, "%lld", (long long)json_integer_value(item));
    else if (json_is_real(item))
        snprintf(text, size, "%g", json_real_value(item));
    else if (json_is_boolean(item))
        snprintf(text, size, "%s", json_is_true(item) ? "true" : "false");
    else
        snprintf(text, size, "%s",
                 !item                 ? "missing"
                 : json_is_null(item)  ? "null"
                 : json_is_array(item) ? "an array"
                                       : "an object");
    return value;
}

static attn_status fail_value(const struct config *config, const char *name, const char *expected)
{
    return io_fail(ATTN_INVALID_FILE, "%s: '%s' is %s; expected %s", config->path, name,
                   config_value(config, name).text, expected);
}

attn_status config_integer(const struct config *config, const char *name, int64_t least, int64_t *value)
{
    const json_t *item = json_object_get(config->root, name);
    *value = json_integer_value(item);
    return json_is_integer(item) && *value >= least
               ? ATTN_OK
               : io_fail(ATTN_INVALID_FILE, "%s: '%s' is %s; expected a whole number of %lld or more", config->path,
                         name, config_value(config, name).text, (long long)least);
}

attn_status config_number(const struct config *config, const char *name, double *value)
{
    const json_t *item = json_object_get(config->root, name);
    *value = json_number_value(item);
    return json_is_number(item) ? ATTN_OK : fail_value(config, name, "a number");
}

attn_status config_text(const struct config *config, const char *name, const char **value)
{
    *value = json_string_value(json_object_get(config->root, name));
    return *value ? ATTN_OK : fail_value(config, name, "a text");
}

attn_status config_boolean(const struct config *config, const char *name, bool *value)
{
    const json_t *item = json_object_get(config->root, name);
    *value = json_is_true(item);
    return json_is_boolean(item) ? ATTN_OK : fail_value(config, name, "true or false");
}

bool config_has(const struct config *config, const char *name)
{
    const json_t *item = json_object_get(config->root, name);
    return item && !json_is_null(item);
}

attn_status config_integer_or(const struct config *config, const char *name, int64_t least, int64_t *value)
{
    return config_has(config, name) ? config_integer(config, name, least, value) : ATTN_OK;
}

attn_status config_number_or(const struct config *config, const char *name, double *value)
{
    return config_has(config, name) ? config_number(config, name, value) : ATTN_OK;
}

attn_status config_text_or(const struct config *config, const char *name, const char **value)
{
    return config_has(config, name) ? config_text(config, name, value) : ATTN_OK;
}

attn_status config_boolean_or(const struct config *config, const char *name, bool *value)
{
    return config_has(config, name) ? config_boolean(config, name, value) : ATTN_OK;
}
