/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words of a text and their numbers. A word is a longest run of ASCII
 * letters, ASCII digits, apostrophes and bytes from 0x80 on, with A-Z lowered;
 * every other byte only separates. A word that the vocabulary does not have is
 * <unk>, and a text without a word is the one word <unk>.
 */
#ifndef ATTN_EXAMPLES_VOCABULARY_H
#define ATTN_EXAMPLES_VOCABULARY_H

#include "lines.h"

enum { WORD_PADDING = 0, WORD_UNKNOWN = 1 }; /* the first two words of every vocabulary */

/* Begins as {0}. */
struct vocabulary {
    struct lines words;
    int32_t *sorted; /* numbers in the order of their words */
};

/* A text as the model sees it; begins as {0}. */
struct words {
    int32_t *ids;
    struct lines text; /* each word as it was found, in lower case */
    int64_t room;
};

/* Sorts the words, which are all there. */
attn_status vocabulary_sort(struct vocabulary *v);
void vocabulary_free(struct vocabulary *v);

/* Replaces what is in words by those of a text, with their numbers unless there is no vocabulary yet. */
attn_status vocabulary_words(const struct vocabulary *v, const char *text, size_t size, struct words *words);
/* Sets the numbers of words that are there. */
void vocabulary_number(const struct vocabulary *v, struct words *words);
void words_free(struct words *words);

#endif
