/* SPDX-License-Identifier: Apache-2.0 */
/* A model's config.json, entry by entry. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

char *config_beside(const char *folder, const char *name, struct io_error *error)
{
    char *path;
    if (asprintf(&path, "%s/%s", folder, name) >= 0)
        return path;
    io_fail(error, "%s: out of memory", folder);
    return NULL;
}

bool config_open(struct config *config, const char *folder, struct io_error *error)
{
    json_error_t json;
    *config = (struct config){.path = config_beside(folder, "config.json", error)};
    if (!config->path)
        return false;
    config->root = json_load_file(config->path, JSON_REJECT_DUPLICATES, &json);
    if (config->root && json_is_object(config->root))
        return true;
    if (config->root)
        io_fail(error, "%s is not a JSON object", config->path);
    else
        io_fail(error, "%s: %s (line %d)", config->path, json.text, json.line);
    config_close(config);
    return false;
}

void config_close(struct config *config)
{
    json_decref(config->root);
    free(config->path);
    *config = (struct config){0};
}

bool config_integer(const struct config *config, const char *name, int64_t least, int64_t *value,
                    struct io_error *error)
{
    const json_t *item = json_object_get(config->root, name);
    *value = json_integer_value(item);
    return (json_is_integer(item) && *value >= least) ||
           io_fail(error, "%s: '%s' is not a whole number of %lld or more", config->path, name, (long long)least);
}

bool config_number(const struct config *config, const char *name, double *value, struct io_error *error)
{
    const json_t *item = json_object_get(config->root, name);
    *value = json_number_value(item);
    return json_is_number(item) || io_fail(error, "%s: '%s' is not a number", config->path, name);
}

bool config_text(const struct config *config, const char *name, const char **value, struct io_error *error)
{
    *value = json_string_value(json_object_get(config->root, name));
    return *value || io_fail(error, "%s: '%s' is not a text", config->path, name);
}

bool config_boolean(const struct config *config, const char *name, bool *value, struct io_error *error)
{
    const json_t *item = json_object_get(config->root, name);
    *value = json_is_true(item);
    return json_is_boolean(item) || io_fail(error, "%s: '%s' is neither true nor false", config->path, name);
}
