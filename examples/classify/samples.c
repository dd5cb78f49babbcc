/* SPDX-License-Identifier: Apache-2.0 */
/* Reading labelled texts, counting their words, and the order of batches. */
#include "samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ reading -- */

static int64_t class_of(const struct lines *classes, const char *name, size_t size)
{
    for (int64_t i = 0; i < classes->count; i++)
        if (classes->size[i] == size && memcmp(classes->text[i], name, size) == 0)
            return i;
    return -1;
}

/* FNV-1a (Fowler, Noll & Vo). */
static uint64_t digest(uint64_t hash, const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001B3u;
    return hash;
}

static attn_status take_line(struct samples *s, const char *line, size_t size, const char *path, int64_t number,
                             struct lines *classes, bool may_add)
{
    const char *tab = memchr(line, '\t', size);
    const size_t name = tab ? (size_t)(tab - line) : 0;
    if (!tab || name == 0)
        return io_fail(ATTN_INVALID_FILE, "%s: line %lld has no class; expected CLASS TAB TEXT", path,
                       (long long)number);
    if (class_of(classes, line, name) < 0) {
        if (!may_add)
            return io_fail(ATTN_INVALID_FILE, "%s: line %lld has the class %.*s, which no training text has", path,
                           (long long)number, (int)name, line);
        CHECK(lines_add(classes, line, name));
    }
    s->labels[s->count] = (int32_t)class_of(classes, line, name);
    struct words *words = &s->texts[s->count++];
    CHECK(words_split(NULL, tab + 1, size - name - 1, words));
    s->longest = words->text.count > s->longest ? words->text.count : s->longest;
    s->digest = digest(s->digest, line, size + 1);
    return ATTN_OK;
}

attn_status samples_read(struct samples *s, const char *path, struct lines *classes, bool may_add)
{
    struct lines lines = {0};
    attn_status status = lines_read(&lines, path);
    if (status == ATTN_OK && lines.count == 0)
        status = io_fail(ATTN_INVALID_FILE, "%s is empty; expected lines CLASS TAB TEXT", path);
    if (status == ATTN_OK) {
        s->texts = calloc((size_t)lines.count, sizeof *s->texts);
        s->labels = calloc((size_t)lines.count, sizeof *s->labels);
        s->digest = 0xCBF29CE484222325u;
        if (!s->texts || !s->labels)
            status = io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory for %lld texts", path, (long long)lines.count);
    }
    for (int64_t i = 0; status == ATTN_OK && i < lines.count; i++)
        status = take_line(s, lines.text[i], lines.size[i], path, i + 1, classes, may_add);
    lines_free(&lines);
    return status;
}

void samples_number(struct samples *s, const struct vocabulary *vocabulary)
{
    for (int64_t i = 0; i < s->count; i++)
        words_number(vocabulary, &s->texts[i]);
}

void samples_free(struct samples *s)
{
    for (int64_t i = 0; i < s->count; i++)
        words_free(&s->texts[i]);
    free(s->texts);
    free(s->labels);
    *s = (struct samples){0};
}

/* --------------------------------------------------------------- vocabulary -- */

struct counted {
    const char *word;
    int64_t count;
};

static int by_word(const void *a, const void *b)
{
    return strcmp(((const struct counted *)a)->word, ((const struct counted *)b)->word);
}

static int by_count(const void *a, const void *b)
{
    const struct counted *x = a, *y = b;
    return x->count != y->count ? (x->count < y->count) - (x->count > y->count) : by_word(a, b);
}

/* Joins neighbours with one word; returns how many different ones there are. */
static int64_t join(struct counted *all, int64_t count)
{
    int64_t different = 0;
    for (int64_t i = 0; i < count; i++)
        if (different > 0 && strcmp(all[different - 1].word, all[i].word) == 0)
            all[different - 1].count++;
        else
            all[different++] = all[i];
    return different;
}

/* A vocabulary of those that occur often enough. */
static attn_status list_words(const struct counted *all, int64_t count, int64_t least, struct vocabulary *v)
{
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (!memory)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for a vocabulary");
    fputs("<pad>\n<unk>\n", memory);
    for (int64_t i = 0; i < count && all[i].count >= least; i++)
        fprintf(memory, "%s\n", all[i].word);
    attn_status status = fclose(memory) == 0 ? vocabulary_parse(v, text, size, "the training texts")
                                             : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for a vocabulary");
    free(text);
    return status;
}

attn_status samples_vocabulary(const struct samples *s, int64_t least, struct vocabulary *v)
{
    int64_t count = 0;
    for (int64_t i = 0; i < s->count; i++)
        count += s->texts[i].text.count;
    struct counted *all = calloc((size_t)count + 1, sizeof *all);
    if (!all)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %lld words", (long long)count);
    count = 0;
    for (int64_t i = 0; i < s->count; i++)
        for (int64_t w = 0; w < s->texts[i].text.count; w++)
            all[count++] = (struct counted){s->texts[i].text.text[w], 1};
    qsort(all, (size_t)count, sizeof *all, by_word);
    count = join(all, count);
    qsort(all, (size_t)count, sizeof *all, by_count);
    attn_status status = list_words(all, count, least, v);
    free(all);
    return status;
}

/* ------------------------------------------------------------------ batches -- */

struct place {
    int64_t length, index;
    uint64_t chance;
};

static int by_length(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->length != y->length)
        return x->length < y->length ? -1 : 1;
    return x->chance != y->chance ? (x->chance < y->chance ? -1 : 1) : (x->index > y->index) - (x->index < y->index);
}

attn_status samples_shuffle(const struct samples *s, int64_t size, struct stream stream, int64_t *order)
{
    const int64_t batches = (s->count + size - 1) / size;
    struct place *places = calloc((size_t)s->count, sizeof *places);
    int64_t *turns = calloc((size_t)batches, sizeof *turns);
    if (!places || !turns) {
        free(places);
        free(turns);
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for an order of %lld texts", (long long)s->count);
    }
    for (int64_t i = 0; i < s->count; i++)
        places[i] = (struct place){s->texts[i].text.count / 4, i, random_bits(stream, (uint64_t)i)};
    qsort(places, (size_t)s->count, sizeof *places, by_length);
    /* Fisher and Yates. The last batch stays the last: it may have fewer texts. */
    const int64_t full = s->count / size;
    for (int64_t b = 0; b < batches; b++)
        turns[b] = b;
    for (int64_t b = full - 1; b > 0; b--) {
        const int64_t other = (int64_t)(random_bits(stream, (uint64_t)(s->count + b)) % (uint64_t)(b + 1));
        const int64_t kept = turns[b];
        turns[b] = turns[other];
        turns[other] = kept;
    }
    int64_t at = 0;
    for (int64_t b = 0; b < batches; b++)
        for (int64_t i = turns[b] * size; i < (turns[b] + 1) * size && i < s->count; i++)
            order[at++] = places[i].index;
    free(places);
    free(turns);
    return ATTN_OK;
}

attn_status batch_create(struct batch *b, int64_t size, int64_t longest)
{
    *b = (struct batch){0};
    b->lengths = calloc((size_t)size, sizeof *b->lengths);
    b->labels = calloc((size_t)size, sizeof *b->labels);
    b->ids = calloc((size_t)(size * longest), sizeof *b->ids);
    if (!b->lengths || !b->labels || !b->ids)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for a batch of %lld texts", (long long)size);
    return ATTN_OK;
}

void batch_fill(struct batch *b, const struct samples *s, const int64_t *order, int64_t count)
{
    b->count = count;
    b->longest = 0;
    for (int64_t i = 0; i < count; i++) {
        b->lengths[i] = s->texts[order[i]].text.count;
        b->labels[i] = s->labels[order[i]];
        b->longest = b->lengths[i] > b->longest ? b->lengths[i] : b->longest;
    }
    for (int64_t i = 0; i < count; i++) {
        int32_t *row = b->ids + i * b->longest;
        memcpy(row, s->texts[order[i]].ids, (size_t)b->lengths[i] * sizeof *row);
        for (int64_t t = b->lengths[i]; t < b->longest; t++)
            row[t] = WORD_PADDING;
    }
}

void batch_free(struct batch *b)
{
    free(b->lengths);
    free(b->labels);
    free(b->ids);
    *b = (struct batch){0};
}
