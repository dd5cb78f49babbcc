/* SPDX-License-Identifier: Apache-2.0 */
/* Reading labelled texts, counting their words, and the order of batches. */
#include "samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ reading -- */

attn_status samples_read(struct samples *s, const char *path, struct lines *classes, bool may_add)
{
    CHECK(labelled_texts_read(&s->source, path, classes, may_add));
    s->texts = calloc((size_t)s->source.count, sizeof *s->texts);
    s->lengths = calloc((size_t)s->source.count, sizeof *s->lengths);
    if (!s->texts || !s->lengths)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory for %lld texts", path, (long long)s->source.count);
    for (; s->count < s->source.count; s->count++) {
        struct words *words = &s->texts[s->count];
        CHECK(words_split(NULL, s->source.text[s->count], s->source.size[s->count], words));
        s->lengths[s->count] = words->text.count;
        s->longest = words->text.count > s->longest ? words->text.count : s->longest;
    }
    return ATTN_OK;
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
    free(s->lengths);
    labelled_texts_free(&s->source);
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
        b->lengths[i] = s->lengths[order[i]];
        b->labels[i] = s->source.labels[order[i]];
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
