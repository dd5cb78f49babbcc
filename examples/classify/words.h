/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words of a text and their numbers. A word is a longest run of ASCII
 * letters, ASCII digits, apostrophes and bytes from 0x80 on, with A-Z lowered;
 * every other byte only separates. A word that the vocabulary does not have is
 * <unk>, and a text without a word is the one word <unk>.
 */
#ifndef ATTN_EXAMPLES_WORDS_H
#define ATTN_EXAMPLES_WORDS_H

#include "io/lines.h"
#include "vocabulary.h"

enum { WORD_PADDING = 0, WORD_UNKNOWN = 1 }; /* the first two words of every vocabulary */

/* A text as the model sees it; begins as {0}. */
struct words {
    int32_t *ids;
    struct lines text; /* each word as it was found, in lower case */
    int64_t room;
};

/* Replaces what is in words by those of a text, with their numbers unless there is no vocabulary yet. */
attn_status words_split(const struct vocabulary *vocabulary, const char *text, size_t size, struct words *words);
/* Sets the numbers of words that are there. */
void words_number(const struct vocabulary *vocabulary, struct words *words);
void words_free(struct words *words);

#endif
