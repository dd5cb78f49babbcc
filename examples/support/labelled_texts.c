/* SPDX-License-Identifier: Apache-2.0 */
/* Reading labelled texts. */
#include "labelled_texts.h"

#include <stdlib.h>
#include <string.h>

static int64_t class_of(const struct lines *classes, const char *name, size_t size)
{
    for (int64_t i = 0; i < classes->count; i++)
        if (classes->size[i] == size && memcmp(classes->text[i], name, size) == 0)
            return i;
    return -1;
}

static attn_status take_line(struct labelled_texts *t, const char *path, struct lines *classes, bool may_add)
{
    const int64_t i = t->count;
    const char *line = t->lines.text[i], *tab = memchr(line, '\t', t->lines.size[i]);
    const size_t name = tab ? (size_t)(tab - line) : 0;
    if (!tab || name == 0)
        return io_fail(ATTN_INVALID_FILE, "%s: line %lld has no class; expected CLASS TAB TEXT", path,
                       (long long)i + 1);
    if (class_of(classes, line, name) < 0) {
        if (!may_add)
            return io_fail(ATTN_INVALID_FILE, "%s: line %lld has the class %.*s, which no training text has", path,
                           (long long)i + 1, (int)name, line);
        CHECK(lines_add(classes, line, name));
    }
    t->labels[i] = (int32_t)class_of(classes, line, name);
    t->text[i] = tab + 1;
    t->size[i] = t->lines.size[i] - name - 1;
    t->count++;
    return ATTN_OK;
}

attn_status labelled_texts_read(struct labelled_texts *t, const char *path, struct lines *classes, bool may_add)
{
    CHECK(lines_read(&t->lines, path));
    const size_t count = (size_t)t->lines.count;
    if (count == 0)
        return io_fail(ATTN_INVALID_FILE, "%s is empty; expected lines CLASS TAB TEXT", path);
    t->text = calloc(count, sizeof *t->text);
    t->size = calloc(count, sizeof *t->size);
    t->labels = calloc(count, sizeof *t->labels);
    t->digest = lines_digest(&t->lines);
    if (!t->text || !t->size || !t->labels)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory for %lld texts", path, (long long)count);
    for (size_t i = 0; i < count; i++)
        CHECK(take_line(t, path, classes, may_add));
    return ATTN_OK;
}

void labelled_texts_free(struct labelled_texts *t)
{
    lines_free(&t->lines);
    free(t->text);
    free(t->size);
    free(t->labels);
    *t = (struct labelled_texts){0};
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

attn_status labelled_texts_sort_classes(struct labelled_texts *t, struct lines *classes)
{
    enum { MOST = 256 };
    int32_t numbers[MOST];
    char *names[MOST];
    const int64_t count = classes->count;
    if (count > MOST)
        return io_fail(ATTN_INVALID_FILE, "the training texts have %lld classes; expected at most %d", (long long)count,
                       MOST);
    memcpy(names, classes->text, (size_t)count * sizeof *names);
    qsort(names, (size_t)count, sizeof *names, by_name);
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < count; j++)
            if (classes->text[i] == names[j])
                numbers[i] = (int32_t)j;
    for (int64_t i = 0; i < t->count; i++)
        t->labels[i] = numbers[t->labels[i]];
    for (int64_t i = 0; i < count; i++) {
        classes->text[i] = names[i];
        classes->size[i] = strlen(names[i]);
    }
    return ATTN_OK;
}
