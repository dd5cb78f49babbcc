/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text to token ids for BERT models, such as the sentence encoder
 * all-MiniLM-L6-v2:
 *
 *     struct wordpiece *tokenizer;
 *     struct token_ids ids = {0};
 *     wordpiece_open(&tokenizer, "vocab.txt", &error);
 *     wordpiece_encode(tokenizer, text, strlen(text), 0, &ids, &error);
 *     ... ids.ids[0] to ids.ids[ids.count - 1]: [CLS] ... [SEP]
 *     token_ids_free(&ids);
 *     wordpiece_close(tokenizer);
 *
 * The ids are those that Hugging Face's tokenizers gives with the model's
 * tokenizer.json, but for characters younger than Unicode 8 (basic_tokens.c).
 * An open tokenizer does not change while it encodes: any number of threads may
 * use it at once.
 */
#ifndef ATTN_EXAMPLES_TEXT_WORDPIECE_H
#define ATTN_EXAMPLES_TEXT_WORDPIECE_H

#include <stddef.h>
#include <stdint.h>

#include "io/error.h"
#include "token_ids.h"

/* What all-MiniLM-L6-v2 is used with; its table of positions would allow 512. */
enum { WORDPIECE_DEFAULT_TOKENS = 256 };

struct wordpiece;

/*
 * Opens a vocabulary file: one token a line, in UTF-8, each once, with [PAD],
 * [UNK], [CLS] and [SEP] among them. A sentence about a bad file names the file
 * and, where there is one, the line.
 */
attn_status wordpiece_open(struct wordpiece **tokenizer, const char *vocab_path);
/* The same from memory, which is copied; name stands for the file in sentences. */
attn_status wordpiece_parse(struct wordpiece **tokenizer, const char *bytes, size_t size, const char *name);
/* Makes it that of a cased model, which keeps capitals and accents. */
void wordpiece_keep_case(struct wordpiece *tokenizer);
/* NULL is fine. */
void wordpiece_close(struct wordpiece *tokenizer);

/*
 * Replaces what is in ids by the tokens of size bytes of text: [CLS] first and
 * [SEP] last. Of a text that has more than max_tokens of them, these two
 * included, the end is left off, which ids->cut says; 0 stands for WORDPIECE_DEFAULT_TOKENS, and 1
 * is refused.
 *
 * The text may hold NUL bytes, which vanish like other control characters, and
 * need not be valid UTF-8: what is not vanishes too. "[PAD]", "[UNK]", "[CLS]",
 * "[SEP]" and "[MASK]" in the text, spelled so, become those tokens, as the
 * reference has it; a program that gets its text from strangers may want to
 * take the brackets away first. On failure there are no ids.
 */
attn_status wordpiece_encode(const struct wordpiece *tokenizer, const char *text, size_t size, size_t max_tokens,
                             struct token_ids *ids);

/* How many tokens there are: a model's table of embeddings must have as many rows. */
int32_t wordpiece_size(const struct wordpiece *tokenizer);
/* The token as it stands in the vocabulary, valid until the tokenizer is closed; NULL if there is no such id. */
const char *wordpiece_token(const struct wordpiece *tokenizer, int32_t id);
/* The id of a token such as "[PAD]", or -1. */
int32_t wordpiece_id(const struct wordpiece *tokenizer, const char *token);

#endif
