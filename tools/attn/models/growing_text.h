/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of tokens that come one by one, in whole characters: what a decoder writes, up to a text that stops it. A
 * character that is cut in two waits for its rest.
 */
#ifndef ATTN_TOOLS_MODELS_GROWING_TEXT_H
#define ATTN_TOOLS_MODELS_GROWING_TEXT_H

#include <attn/text.h>

#include "io/error.h"

/* Texts that end one, none of them empty. */
struct stop_texts {
    const char *const *texts;
    int64_t count;
};

/* Begins as {0}. */
struct growing_text {
    char *text; /* [size], no NUL behind it */
    size_t size, room;
    size_t shown;     /* that growing_text_new() has given */
    bool stopped;     /* at one of the texts that end it, which is left off */
    int64_t from, to; /* tokens that are context for the next ones, and those whose text is there */
    char *scratch;
    size_t scratch_room;
};

/*
 * Takes the text of ids[count]; those before first are what it goes on with, and not part of it. A call has the ids of
 * the one before, and more. last: nothing more comes, so that half a character becomes U+FFFD.
 */
attn_status growing_text_take(struct growing_text *g, const attn_tokenizer *tokenizer, const int32_t *ids,
                              int64_t first, int64_t count, const struct stop_texts *stops, bool last);
/* What can be shown since the last call: all, but for what may be the beginning of a text that stops it. */
const char *growing_text_new(struct growing_text *g, const struct stop_texts *stops, bool last, size_t *size);
void growing_text_free(struct growing_text *g);

#endif
