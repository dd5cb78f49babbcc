/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text to token ids and back for models with byte-pair tokens, such as SmolLM2:
 *
 *     struct byte_pairs *tokenizer;
 *     struct token_ids ids = {0};
 *     byte_pairs_open(&tokenizer, "tokenizer.json");
 *     byte_pairs_encode(tokenizer, text, strlen(text), &ids);
 *     ... ids.ids[0] to ids.ids[ids.count - 1]
 *     byte_pairs_bytes(tokenizer, ids.ids[0], &length);       and back
 *     token_ids_free(&ids);
 *     byte_pairs_close(tokenizer);
 *
 * The ids are those that Hugging Face's tokenizers gives with the same file, but
 * for the names of special tokens, which are ordinary text here: whoever writes a
 * prompt cannot end the turn that it stands in. An open tokenizer does not change
 * while it encodes: any number of threads may use it at once.
 */
#ifndef ATTN_EXAMPLES_TEXT_BYTE_PAIRS_H
#define ATTN_EXAMPLES_TEXT_BYTE_PAIRS_H

#include <stddef.h>
#include <stdint.h>

#include "io/error.h"
#include "token_ids.h"

struct byte_pairs;

/*
 * Opens a tokenizer.json as the package tokenizers writes it: a BPE model on bytes, digits one by one, no
 * normalisation, no tokens added to a text. A file that asks for anything else is refused with a sentence.
 */
attn_status byte_pairs_open(struct byte_pairs **tokenizer, const char *path);
/* The same from memory; name stands for the file in sentences. */
attn_status byte_pairs_parse(struct byte_pairs **tokenizer, const char *json, size_t size, const char *name);
/* NULL is fine. */
void byte_pairs_close(struct byte_pairs *tokenizer);

/*
 * Appends the tokens of size bytes of text, which is refused if it is not UTF-8. Bytes that the vocabulary lacks, some
 * control characters with SmolLM2, vanish, as the reference has it. On failure ids are what they were.
 */
attn_status byte_pairs_encode(const struct byte_pairs *tokenizer, const char *text, size_t size, struct token_ids *ids);

/* How many tokens there are: ids are 0 to this less 1. */
int32_t byte_pairs_size(const struct byte_pairs *tokenizer);
/* The bytes that a token stands for, *length of them, valid until the tokenizer is closed; none of a special token. */
const char *byte_pairs_bytes(const struct byte_pairs *tokenizer, int32_t id, size_t *length);
/* The token as it stands in the file, valid until the tokenizer is closed; NULL if there is no such id. */
const char *byte_pairs_token(const struct byte_pairs *tokenizer, int32_t id);
/* The id of a special token such as "<|im_start|>", or -1. */
int32_t byte_pairs_special(const struct byte_pairs *tokenizer, const char *name);

#endif
