/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vocabulary of a model: a text file with one token on each line, whose
 * number, counted from 0, is the token's id.
 */
#ifndef ATTN_EXAMPLES_TEXT_VOCABULARY_H
#define ATTN_EXAMPLES_TEXT_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

#include "io/error.h"

struct vocabulary_entry {
    const char *token;
    int32_t id;
};

struct vocabulary {
    char *text;                      /* the file, with a NUL at the end of every line */
    const char **tokens;             /* by id */
    struct vocabulary_entry *sorted; /* by token */
    int32_t count;
    size_t longest; /* bytes of the longest token */
};

/* Reads a whole file of at most 64 MiB into an allocation. */
attn_status vocabulary_read(char **bytes, size_t *size, const char *path);

/* Takes the lines of bytes, which are copied; name is the file's, for sentences. */
attn_status vocabulary_parse(struct vocabulary *vocabulary, const char *bytes, size_t size, const char *name);
void vocabulary_free(struct vocabulary *vocabulary);

/* The id of the token of length bytes, none of them NUL, or -1. */
int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *token, size_t length);

#endif
