/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the labels of tokens from a text file. A file that has more or fewer lines than there are tokens would
 * put labels on the wrong rows, so it is refused. Long labels are cut where they
 * are drawn, as only there their width is known.
 */
#include "labels.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_status read_lines(struct labels *labels, FILE *file, const char *path, int64_t count, const char *what)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    int64_t lines = 0;
    attn_status status = ATTN_OK;
    while (status == ATTN_OK && (length = getline(&line, &capacity, file)) >= 0) {
        if (lines++ >= count)
            continue;
        if (length > 0 && line[length - 1] == '\n')
            line[--length] = '\0';
        if (length > 0 && line[length - 1] == '\r')
            line[--length] = '\0';
        labels->text[labels->count] = strdup(line);
        status = labels->text[labels->count] != NULL ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", path);
        labels->count += status == ATTN_OK;
    }
    free(line);
    if (status == ATTN_OK && ferror(file))
        status = io_fail(ATTN_INVALID_FILE, "%s: cannot read: %s", path, strerror(errno));
    if (status == ATTN_OK && lines != count)
        status = io_fail(ATTN_INVALID_FILE, "%s has %" PRId64 " lines; expected %" PRId64 ", one for each %s", path,
                         lines, count, what);
    return status;
}

attn_status labels_read(struct labels *labels, const char *path, int64_t count, const char *what)
{
    *labels = (struct labels){.text = calloc((size_t)count + 1, sizeof *labels->text)};
    if (labels->text == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", path);
    FILE *file = fopen(path, "re");
    attn_status status = file != NULL ? read_lines(labels, file, path, count, what)
                                      : io_fail(ATTN_INVALID_FILE, "%s: cannot open: %s", path, strerror(errno));
    if (file != NULL)
        fclose(file);
    if (status != ATTN_OK)
        labels_free(labels);
    return status;
}

void labels_free(struct labels *labels)
{
    for (int64_t i = 0; i < labels->count; i++)
        free(labels->text[i]);
    free(labels->text);
    *labels = (struct labels){.text = NULL};
}
