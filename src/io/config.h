/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of the JSON files in a model's folder: config.json and those beside it.
 * Sentences name the file, the entry, its value, and what was expected.
 */
#ifndef ATTN_IO_CONFIG_H
#define ATTN_IO_CONFIG_H

#include <jansson.h>
#include <stdint.h>

#include "io/error.h"

/* A file, or an object in one. */
struct config {
    json_t *root;
    char *path;
};

/* Reads FOLDER/config.json. */
attn_status config_open(struct config *config, const char *folder);
/* Reads a file by its path. */
attn_status config_open_file(struct config *config, const char *path);
/* Reads FOLDER/NAME, if it is there; if not, there is nothing to close. */
attn_status config_open_optional(struct config *config, const char *folder, const char *name, bool *there);
void config_close(struct config *config);
/* Says why Jansson has not read a file: what is wrong in which line, or reason, an errno, where it could not be opened.
 */
attn_status config_fail_json(const char *path, const json_error_t *json, int reason);

/* A whole number of at least least. */
attn_status config_integer(const struct config *config, const char *name, int64_t least, int64_t *value);
attn_status config_number(const struct config *config, const char *name, double *value);
/* Valid until the config is closed. */
attn_status config_text(const struct config *config, const char *name, const char **value);
attn_status config_boolean(const struct config *config, const char *name, bool *value);

/* Whether there is an entry of that name that is not null. */
bool config_has(const struct config *config, const char *name);

/* The same where an entry may be missing or null: *value stays then. */
attn_status config_integer_or(const struct config *config, const char *name, int64_t least, int64_t *value);
attn_status config_number_or(const struct config *config, const char *name, double *value);
attn_status config_text_or(const struct config *config, const char *name, const char **value);
attn_status config_boolean_or(const struct config *config, const char *name, bool *value);

/* What stands under a name, for a sentence: a number, a text in quotes, "null", "an object", "missing". */
struct config_value {
    char text[64];
};
struct config_value config_value(const struct config *config, const char *name);

/* FOLDER/NAME in memory of its own, or NULL with a sentence. */
char *config_beside(const char *folder, const char *name);
/* A copy of a text, likewise. */
char *config_copy(const char *text);

#endif
