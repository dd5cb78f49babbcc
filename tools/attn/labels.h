/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Token labels from a text file, one on each line.
 */
#ifndef ATTN_TOOLS_LABELS_H
#define ATTN_TOOLS_LABELS_H

#include <stdint.h>

#include "io/error.h"

struct labels {
    char **text; /* count of them, NULL before labels_read() */
    int64_t count;
};

/* Reads the file, which must have exactly count lines; what names the axis in a sentence. */
attn_status labels_read(struct labels *labels, const char *path, int64_t count, const char *what);
void labels_free(struct labels *labels);

#endif
