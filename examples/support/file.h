/* SPDX-License-Identifier: Apache-2.0 */
/* Files that appear whole or not at all, also if the program is killed. */
#ifndef ATTN_EXAMPLES_FILE_H
#define ATTN_EXAMPLES_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "io/error.h"

struct file_part {
    const void *data;
    size_t size;
};

/* Replaces the file at path by parts in their order. */
attn_status file_write(const char *path, const struct file_part *parts, int count);
/* Writes FOLDER/NAME, a line for each. */
attn_status file_write_lines(const char *folder, const char *name, const char *const *lines, int64_t count);
/* Makes a folder, and those above it, unless it is there. */
attn_status file_make_folder(const char *path);

#endif
