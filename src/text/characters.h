/* SPDX-License-Identifier: Apache-2.0 */
/* What kinds of characters there are, as Unicode's categories and the rules of tokenizers have them. */
#ifndef ATTN_TEXT_CHARACTERS_H
#define ATTN_TEXT_CHARACTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/bytes.h"

/** The character at a place of a text in valid UTF-8 that is not its end; *length is set to its bytes. */
int32_t character_at(const char *text, size_t size, size_t *length);
/** Where the character before a place begins. */
size_t character_before(const char *text, size_t place);
/** Appends a text with U+FFFD for what is no UTF-8: one for each longest beginning of a character. */
void add_valid_text(struct bytes *to, const char *text, size_t size);

/** Unicode's White_Space. */
bool is_white_space(int32_t c);
/** Categories P*, and of ASCII also its symbols. */
bool is_punctuation(int32_t c);
/** Categories N*. */
bool is_number(int32_t c);
/** What a regular expression calls \\w: Alphabetic, marks, decimal digits, connectors. */
bool is_word_character(int32_t c);
/** The blocks of ideographs that BERT splits at every character. */
bool is_ideograph(int32_t c);

#endif
