/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of labelled texts, behind each other in one array. */
#include "token_texts.h"

#include <stdlib.h>
#include <string.h>

static attn_status add_tokens(struct token_texts *t, const attn_encoding *tokens)
{
    const int64_t count = tokens->count;
    if (t->used + count > t->room) {
        const int64_t room = 2 * t->room + count;
        int32_t *larger = realloc(t->ids, (size_t)room * sizeof *larger);
        if (!larger)
            return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %lld tokens", (long long)room);
        t->ids = larger;
        t->room = room;
    }
    if (count > 0)
        memcpy(t->ids + t->used, tokens->ids, (size_t)count * sizeof *tokens->ids);
    t->first[t->count] = t->used;
    t->lengths[t->count++] = count;
    t->longest = count > t->longest ? count : t->longest;
    t->used += count;
    return ATTN_OK;
}

attn_status token_texts_read(struct token_texts *t, const char *path, const attn_tokenizer *tokenizer,
                             int64_t max_tokens, struct lines *classes, bool may_add)
{
    CHECK(labelled_texts_read(&t->source, path, classes, may_add));
    const size_t count = (size_t)t->source.count;
    t->lengths = calloc(count, sizeof *t->lengths);
    t->first = calloc(count, sizeof *t->first);
    if (!t->lengths || !t->first)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory for %zu texts", path, count);
    attn_encode_options options = attn_encode_options_default();
    attn_encoding tokens = attn_encoding_default();
    options.max_tokens = max_tokens;
    attn_status status = ATTN_OK;
    for (size_t i = 0; status == ATTN_OK && i < count; i++) {
        tokens.count = 0;
        status = attn_tokenizer_encode(tokenizer, t->source.text[i], t->source.size[i], &options, &tokens);
        if (status == ATTN_OK)
            status = add_tokens(t, &tokens);
    }
    attn_encoding_free(&tokens);
    return status;
}

void token_texts_free(struct token_texts *t)
{
    labelled_texts_free(&t->source);
    free(t->lengths);
    free(t->first);
    free(t->ids);
    *t = (struct token_texts){0};
}

attn_status token_batch_create(struct token_batch *b, int64_t size, int64_t longest)
{
    const size_t tokens = (size_t)(size * longest);
    *b = (struct token_batch){0};
    b->offsets = calloc((size_t)size + 1, sizeof *b->offsets);
    b->labels = calloc((size_t)size, sizeof *b->labels);
    b->ids = calloc(tokens, sizeof *b->ids);
    if (!b->offsets || !b->labels || !b->ids)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for a batch of %lld texts", (long long)size);
    return ATTN_OK;
}

void token_batch_fill(struct token_batch *b, const struct token_texts *t, const int64_t *order, int64_t count)
{
    b->count = count;
    for (int64_t i = 0; i < count; i++) {
        const int64_t from = order[i], at = b->offsets[i];
        memcpy(b->ids + at, t->ids + t->first[from], (size_t)t->lengths[from] * sizeof *b->ids);
        b->offsets[i + 1] = at + t->lengths[from];
        b->labels[i] = t->source.labels[from];
    }
}

void token_batch_free(struct token_batch *b)
{
    free(b->offsets);
    free(b->labels);
    free(b->ids);
    *b = (struct token_batch){0};
}
