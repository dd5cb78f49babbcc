/* SPDX-License-Identifier: Apache-2.0 */
/* Small files of tokenizers for the tests, and what comes out of them. */
#ifndef ATTN_TESTS_TEXT_TOKENIZER_FILES_H
#define ATTN_TESTS_TEXT_TOKENIZER_FILES_H

#include "cmocka_all.h"

#include <attn/text.h>

/* Opens a tokenizer of the text of a file in which ' stands for ". */
attn_tokenizer *open_text(const char *file);
/* The status of such a file, which is refused. */
attn_status refuse_text(const char *file);

/* Encodes a text, and compares the tokens, written with | between, as "[C]|a|##b". options may be NULL. */
void expect_tokens(const attn_tokenizer *tokenizer, const char *text, const attn_encode_options *options,
                   const char *tokens);
/* The same of a pair, with the types, a digit each. */
void expect_pair(const attn_tokenizer *tokenizer, const char *text, const char *second,
                 const attn_encode_options *options, const char *tokens, const char *types);
/* Decodes ids, of which -1 is the last. */
void expect_text(const attn_tokenizer *tokenizer, const int32_t *ids, int keep_special, const char *text);

/*
 * Holds a normalizer and a pre-tokenizer, either of which may be NULL, to the pieces that they make of a text, written
 * with | between. The model is a list of just these words.
 */
void expect_pieces(const char *normalizer, const char *pre_tokenizer, const char *text, const char *pieces);

#endif
