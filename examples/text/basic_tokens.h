/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first half of BERT's tokenizer: from raw text to words. What a word is,
 * the model was trained with, so it is not a matter of taste: the rules are
 * those of BERT, and basic_tokens.c lists them. A cased one keeps capitals and
 * accents, which an uncased one takes away.
 */
#ifndef ATTN_EXAMPLES_TEXT_BASIC_TOKENS_H
#define ATTN_EXAMPLES_TEXT_BASIC_TOKENS_H

#include <stdbool.h>
#include <stddef.h>

/* BERT gives up on words that have more characters; UTF-8 takes at most four bytes for each. */
enum { WORD_MAX_CHARACTERS = 100, WORD_MAX_BYTES = 4 * WORD_MAX_CHARACTERS };

/*
 * Takes one word in UTF-8, which is not terminated and holds no NUL. A word of
 * more than WORD_MAX_CHARACTERS comes as NULL with length 0. False stops.
 */
typedef bool word_taker(void *context, const char *word, size_t length);

/*
 * Hands the words of the text to take, in their order, for an uncased BERT or, with
 * keep_case, for a cased one. The text need not be
 * valid UTF-8: what is not counts as U+FFFD, which is removed. No memory is
 * allocated, however long the text. False when take said so.
 */
bool basic_tokens(const char *text, size_t size, bool keep_case, word_taker *take, void *context);

#endif
