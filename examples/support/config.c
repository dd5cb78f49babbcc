/* SPDX-License-Identifier: Apache-2.0 */
/* A model's config.json, entry by entry. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

char *config_beside(const char *folder, const char *name)
{
    char *path;
    if (asprintf(&path, "%s/%s", folder, name) >= 0)
        return path;
    io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", folder);
    return NULL;
}

attn_status config_open_optional(struct config *config, const char *folder, const char *name, bool *there)
{
    json_error_t json;
    *there = false;
    *config = (struct config){.path = config_beside(folder, name)};
    if (!config->path)
        return ATTN_OUT_OF_MEMORY;
    config->root = json_load_file(config->path, JSON_REJECT_DUPLICATES, &json);
    *there = config->root && json_is_object(config->root);
    if (*there)
        return ATTN_OK;
    const bool missing = !config->root && json_error_code(&json) == json_error_cannot_open_file && errno == ENOENT;
    attn_status status = ATTN_OK;
    if (config->root)
        status = io_fail(ATTN_INVALID_FILE, "%s is not a JSON object", config->path);
    else if (!missing)
        status = io_fail(ATTN_INVALID_FILE, "%s: %s (line %d)", config->path, json.text, json.line);
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

attn_status config_integer(const struct config *config, const char *name, int64_t least, int64_t *value)
{
    const json_t *item = json_object_get(config->root, name);
    *value = json_integer_value(item);
    return json_is_integer(item) && *value >= least
               ? ATTN_OK
               : io_fail(ATTN_INVALID_FILE, "%s: '%s' is not a whole number of %lld or more", config->path, name,
                         (long long)least);
}

attn_status config_number(const struct config *config, const char *name, double *value)
{
    const json_t *item = json_object_get(config->root, name);
    *value = json_number_value(item);
    return json_is_number(item) ? ATTN_OK : io_fail(ATTN_INVALID_FILE, "%s: '%s' is not a number", config->path, name);
}

attn_status config_text(const struct config *config, const char *name, const char **value)
{
    *value = json_string_value(json_object_get(config->root, name));
    return *value ? ATTN_OK : io_fail(ATTN_INVALID_FILE, "%s: '%s' is not a text", config->path, name);
}

attn_status config_boolean(const struct config *config, const char *name, bool *value)
{
    const json_t *item = json_object_get(config->root, name);
    *value = json_is_true(item);
    return json_is_boolean(item) ? ATTN_OK
                                 : io_fail(ATTN_INVALID_FILE, "%s: '%s' is neither true nor false", config->path, name);
}
