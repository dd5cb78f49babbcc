/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the lines of a text file, with one sentence for whatever is wrong with it. */
#include "io/lines.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lines_free(struct lines *lines)
{
    for (int64_t i = 0; i < lines->count; i++)
        free(lines->text[i]);
    free(lines->text);
    free(lines->size);
    *lines = (struct lines){0};
}

static bool grow(struct lines *lines)
{
    const int64_t room = lines->room ? 2 * lines->room : 64;
    char **text = realloc(lines->text, (size_t)room * sizeof *text);
    if (text)
        lines->text = text;
    size_t *sizes = realloc(lines->size, (size_t)room * sizeof *sizes);
    if (sizes)
        lines->size = sizes;
    if (text && sizes)
        lines->room = room;
    return text && sizes;
}

attn_status lines_add(struct lines *lines, const char *text, size_t size)
{
    if (lines->count == lines->room && !grow(lines))
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %lld lines of text", (long long)lines->count + 1);
    char *copy = malloc(size + 1);
    if (!copy)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %lld lines of text", (long long)lines->count + 1);
    memcpy(copy, text, size);
    copy[size] = '\0';
    lines->text[lines->count] = copy;
    lines->size[lines->count++] = size;
    return ATTN_OK;
}

attn_status lines_check_text(const struct lines *lines, const char *what)
{
    for (int64_t i = 0; i < lines->count; i++) {
        /* JSON's strings are UTF-8. */
        json_t *text = json_stringn(lines->text[i], lines->size[i]);
        const bool good = text != NULL;
        json_decref(text);
        if (!good)
            return io_fail(ATTN_INVALID_FILE, "%s %lld is not UTF-8; expected text", what, (long long)i + 1);
    }
    return ATTN_OK;
}

uint64_t lines_digest(const struct lines *lines)
{
    /* FNV-1a (Fowler, Noll & Vo), over the NUL behind each line, too. */
    uint64_t hash = 0xCBF29CE484222325u;
    for (int64_t i = 0; i < lines->count; i++)
        for (size_t c = 0; c <= lines->size[i]; c++)
            hash = (hash ^ (unsigned char)lines->text[i][c]) * 0x100000001B3u;
    return hash;
}

attn_status lines_read(struct lines *lines, const char *path)
{
    FILE *file = path ? fopen(path, "re") : stdin;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    attn_status status = file ? ATTN_OK : io_fail(ATTN_INVALID_FILE, "%s: cannot open: %s", path, strerror(errno));
    while (status == ATTN_OK && (length = getline(&line, &capacity, file)) >= 0) {
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r'))
            length--;
        status = lines_add(lines, line, (size_t)length);
    }
    if (status == ATTN_OK && ferror(file))
        status = io_fail(ATTN_INVALID_FILE, "%s: cannot read: %s", path ? path : "standard input", strerror(errno));
    free(line);
    if (file && path)
        fclose(file);
    return status;
}
