/* SPDX-License-Identifier: Apache-2.0 */
/* Labelled texts as tokens of a sentence encoder, and ragged batches of them. */
#ifndef ATTN_EXAMPLES_TOKEN_TEXTS_H
#define ATTN_EXAMPLES_TOKEN_TEXTS_H

#include <attn/text.h>

#include "labelled_texts.h"

/* Begins as {0}. */
struct token_texts {
    struct labelled_texts source;
    int64_t *lengths; /* [count] in tokens, special ones included */
    int64_t *first;   /* [count] where they begin in ids */
    int32_t *ids;
    int64_t count, longest, used, room;
};

/* Reads a file as labelled_texts_read() does; what exceeds max_tokens of a text is left off. */
attn_status token_texts_read(struct token_texts *texts, const char *path, const attn_tokenizer *tokenizer,
                             int64_t max_tokens, struct lines *classes, bool may_add);
void token_texts_free(struct token_texts *texts);

/* Texts behind each other, without padding. */
struct token_batch {
    int64_t count;
    int64_t *offsets; /* [count + 1] */
    int32_t *ids;     /* [offsets[count]] */
    int32_t *labels;  /* [count] */
};

/* Room for size texts of longest tokens. */
attn_status token_batch_create(struct token_batch *batch, int64_t size, int64_t longest);
/* Fills it with the texts that order names. */
void token_batch_fill(struct token_batch *batch, const struct token_texts *texts, const int64_t *order, int64_t count);
void token_batch_free(struct token_batch *batch);

#endif
