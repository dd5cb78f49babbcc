/* SPDX-License-Identifier: Apache-2.0 */
/* A model's config.json. Sentences name the file and the entry. */
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
bool config_open(struct config *config, const char *folder, struct io_error *error);
void config_close(struct config *config);

/* A whole number of at least least. */
bool config_integer(const struct config *config, const char *name, int64_t least, int64_t *value,
                    struct io_error *error);
bool config_number(const struct config *config, const char *name, double *value, struct io_error *error);
/* Valid until the config is closed. */
bool config_text(const struct config *config, const char *name, const char **value, struct io_error *error);
bool config_boolean(const struct config *config, const char *name, bool *value, struct io_error *error);

/* FOLDER/NAME in memory of its own, or NULL. */
char *config_beside(const char *folder, const char *name, struct io_error *error);

#endif
