/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of a text file, without their ends. */
#ifndef ATTN_IO_LINES_H
#define ATTN_IO_LINES_H

#include <stddef.h>
#include <stdint.h>

#include "io/error.h"

/* Begins as {0}. */
struct lines {
    char **text; /* each with a NUL behind it, and possibly some inside */
    size_t *size;
    int64_t count, room;
};

/* Adds the lines of a file, or of standard input if path is NULL. */
attn_status lines_read(struct lines *lines, const char *path);
/* Adds one. */
attn_status lines_add(struct lines *lines, const char *text, size_t size);
/* Another number for other lines, so that a training can tell whether it goes on with the same ones. */
uint64_t lines_digest(const struct lines *lines);
/* Refuses lines that are not UTF-8; sentences call them what ("line") and their number, from 1 on. */
attn_status lines_check_text(const struct lines *lines, const char *what);
void lines_free(struct lines *lines);

#endif
