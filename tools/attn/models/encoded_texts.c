/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens of texts lie behind each other. Batches are taken from the longest text on, so that the call that needs most
 * memory is the first one, and the threads of a call have texts of like lengths.
 */
#include "models/encoded_texts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------- tokens -- */

static bool make_room(struct encoded_texts *t)
{
    if (t->count + 2 <= t->room)
        return true;
    const int64_t room = 2 * t->room + 64;
    int64_t *larger = realloc(t->offsets, (size_t)room * sizeof *larger);
    if (larger == NULL)
        return false;
    t->offsets = larger;
    t->room = room;
    return true;
}

attn_status encoded_texts_add(struct encoded_texts *t, const struct text_model *m, int64_t most, const char *text,
                              size_t size, const char *second, size_t second_size)
{
    attn_encode_options options = attn_encode_options_default();
    options.max_tokens = most;
    if (!make_room(t))
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %" PRId64 " texts", t->count + 1);
    if (t->count == 0)
        t->tokens = attn_encoding_default();
    t->offsets[t->count] = t->tokens.count;
    CHECK(second != NULL
              ? attn_tokenizer_encode_pair(m->tokenizer, text, size, second, second_size, &options, &t->tokens)
              : attn_tokenizer_encode(m->tokenizer, text, size, &options, &t->tokens));
    if (t->tokens.truncated && t->cut++ == 0)
        t->first_cut = t->count;
    t->offsets[++t->count] = t->tokens.count;
    return ATTN_OK;
}

attn_status encoded_texts_add_lines(struct encoded_texts *t, const struct text_model *m, int64_t most,
                                    const char *first, const struct lines *lines)
{
    for (int64_t i = 0; i < lines->count; i++) {
        const char *text = lines->text[i];
        const size_t size = lines->size[i];
        const attn_status status = first != NULL ? encoded_texts_add(t, m, most, first, strlen(first), text, size)
                                                 : encoded_texts_add(t, m, most, text, size, NULL, 0);
        if (status != ATTN_OK)
            return io_fail_at(status, "line %" PRId64, i + 1);
    }
    return ATTN_OK;
}

void encoded_texts_free(struct encoded_texts *t)
{
    free(t->offsets);
    attn_encoding_free(&t->tokens);
    *t = (struct encoded_texts){0};
}

/* ------------------------------------------------------------------- batches -- */

struct place {
    int64_t length, index;
};

static int by_length(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->length != y->length ? (x->length < y->length) - (x->length > y->length)
                                  : (x->index > y->index) - (x->index < y->index);
}

/* The texts of a batch, behind each other, and what they give. */
struct batch {
    struct place *places; /* [count] of all texts, the longest first */
    int64_t *offsets;     /* [count + 1] of a batch's texts */
    int32_t *ids, *types; /* [most tokens of a batch] */
    float *rows;          /* [most texts of a batch][width] */
};

/* Texts from first on that share a call. */
static int64_t batch_texts(const struct encoded_texts *t, const struct batch *b, int64_t first, int64_t most,
                           int64_t *tokens)
{
    int64_t count = 0;
    *tokens = 0;
    while (first + count < t->count && (count == 0 || *tokens + b->places[first + count].length <= most))
        *tokens += b->places[first + count++].length;
    return count;
}

static attn_status make_batch(struct batch *b, const struct encoded_texts *t, int64_t most, int64_t width)
{
    int64_t texts = 0, tokens = 0, of_batch;
    b->places = calloc((size_t)t->count, sizeof *b->places);
    if (b->places == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %" PRId64 " texts", t->count);
    for (int64_t i = 0; i < t->count; i++)
        b->places[i] = (struct place){t->offsets[i + 1] - t->offsets[i], i};
    qsort(b->places, (size_t)t->count, sizeof *b->places, by_length);
    for (int64_t first = 0, count; first < t->count; first += count) {
        count = batch_texts(t, b, first, most, &of_batch);
        texts = count > texts ? count : texts;
        tokens = of_batch > tokens ? of_batch : tokens;
    }
    b->offsets = calloc((size_t)texts + 1, sizeof *b->offsets);
    b->ids = calloc((size_t)tokens + 1, sizeof *b->ids);
    b->types = calloc((size_t)tokens + 1, sizeof *b->types);
    b->rows = calloc((size_t)texts * (size_t)width, sizeof *b->rows);
    if (b->offsets == NULL || b->ids == NULL || b->types == NULL || b->rows == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for a batch of %" PRId64 " tokens", tokens);
    return ATTN_OK;
}

static void free_batch(struct batch *b)
{
    free(b->places);
    free(b->offsets);
    free(b->ids);
    free(b->types);
    free(b->rows);
}

static attn_status run_batch(const struct encoded_texts *t, const struct text_model *m, const struct encoded_run *run,
                             const struct batch *b, int64_t first, int64_t count, int64_t width)
{
    for (int64_t i = 0; i < count; i++) {
        const struct place *p = &b->places[first + i];
        const int64_t from = t->offsets[p->index];
        b->offsets[i + 1] = b->offsets[i] + p->length;
        if (p->length == 0)
            continue;
        memcpy(b->ids + b->offsets[i], t->tokens.ids + from, (size_t)p->length * sizeof *b->ids);
        memcpy(b->types + b->offsets[i], t->tokens.types + from, (size_t)p->length * sizeof *b->types);
    }
    attn_model_batch batch = attn_model_batch_default();
    attn_model_outputs outputs = attn_model_outputs_default();
    const attn_tensor rows = attn_btc(b->rows, 1, count, width);
    batch.num_sequences = count, batch.offsets = b->offsets, batch.ids = b->ids;
    batch.token_types = m->info.token_types > 1 ? b->types : NULL;
    batch.num_threads = run->threads;
    *(run->logits ? &outputs.logits : &outputs.embeddings) = &rows;
    return attn_model_encode(m->model, &batch, &outputs);
}

attn_status encoded_texts_run(const struct encoded_texts *t, const struct text_model *m, const struct encoded_run *run,
                              float *rows)
{
    const int64_t width = run->logits ? m->info.logits : m->info.d_model;
    struct batch b = {.places = NULL};
    if (t->count == 0)
        return ATTN_OK;
    attn_status status = make_batch(&b, t, run->batch_tokens, width);
    for (int64_t first = 0, count; status == ATTN_OK && first < t->count; first += count) {
        int64_t tokens;
        count = batch_texts(t, &b, first, run->batch_tokens, &tokens);
        status = run_batch(t, m, run, &b, first, count, width);
        for (int64_t i = 0; status == ATTN_OK && i < count; i++)
            memcpy(rows + b.places[first + i].index * width, b.rows + i * width, (size_t)width * sizeof *rows);
        if (status == ATTN_OK && run->done != NULL)
            run->done(run->user, first + count);
    }
    free_batch(&b);
    return status;
}
