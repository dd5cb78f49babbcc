/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and names from a model's config.json. Sentences name the file and the entry. */
#ifndef ATTN_EXAMPLES_CONFIG_H
#define ATTN_EXAMPLES_CONFIG_H

#include <jansson.h>
#include <stdint.h>

#include "io/error.h"

struct config {
    json_t *root;
    char *path;
};

/* Reads FOLDER/config.json. */
attn_status config_open(struct config *config, const char *folder);
/* Reads FOLDER/NAME, if it is there; if not, there is nothing to close. */
attn_status config_open_optional(struct config *config, const char *folder, const char *name, bool *there);
void config_close(struct config *config);

/* A whole number of at least least. */
attn_status config_integer(const struct config *config, const char *name, int64_t least, int64_t *value);
attn_status config_number(const struct config *config, const char *name, double *value);
/* Valid until the config is closed. */
attn_status config_text(const struct config *config, const char *name, const char **value);
attn_status config_boolean(const struct config *config, const char *name, bool *value);

/* FOLDER/NAME in memory of its own, or NULL. */
char *config_beside(const char *folder, const char *name);

#endif
