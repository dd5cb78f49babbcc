/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file text.h
 * @brief Tokenizers: text to the ids of a model's tokens and back, as tokenizer.json of its folder says.
 *
 * libattn_text reads the files that Hugging Face's library tokenizers writes: WordPiece, byte-pair, Unigram and
 * WordLevel models with their normalizers, pre-tokenizers, added tokens, post-processors and decoders. What it does is
 * what that library does with the same file; what it does not do is refused by the entry that asks for it.
 * docs/tokenizers.md lists both, and has an example.
 *
 * A tokenizer is immutable, and any number of threads may use it at once. Errors are those of attn.h.
 */
#ifndef ATTN_TEXT_H
#define ATTN_TEXT_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What a tokenizer.json describes. */
typedef struct attn_tokenizer attn_tokenizer;

/**
 * Reads a tokenizer.
 *
 * @param tokenizer set to the tokenizer, or to NULL on an error
 * @param path      a tokenizer.json, or the folder that has one
 * @return ATTN_INVALID_FILE for a file that is missing or wrong, ATTN_UNSUPPORTED for an entry that asks for something
 * that is not done here; the sentence names file, entry and value
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_tokenizer_open(attn_tokenizer **tokenizer, const char *path);
/**
 * The same from memory, of which nothing is needed afterwards.
 *
 * @param tokenizer set to the tokenizer, or to NULL on an error
 * @param json      size bytes
 * @param size      of them
 * @param name      stands for the file in sentences
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_tokenizer_parse(attn_tokenizer **tokenizer, const char *json, size_t size, const char *name);
/** Frees a tokenizer; NULL is allowed. @since 0.1, experimental */
ATTN_API void attn_tokenizer_close(attn_tokenizer *tokenizer);

/** Tokens of texts: arrays that calls append to and enlarge. Ids are the caller's to read and to change. */
typedef struct attn_encoding {
    size_t struct_size; /**< sizeof of this struct as the caller compiled it */
    int32_t *ids;       /**< [count] by malloc(); NULL at first */
    int32_t *types;     /**< [count] types of the tokens, as models of pairs want them (token_type_ids); likewise */
    int64_t count;      /**< how many there are; may be set to less */
    int64_t capacity;   /**< for how many there is room */
    int truncated;      /**< not 0: the last call has left off tokens, as there would have been more than max_tokens */
} attn_encoding;

/** An encoding without tokens. @since 0.1, experimental */
static inline attn_encoding attn_encoding_default(void)
{
    attn_encoding e;
    memset(&e, 0, sizeof e);
    e.struct_size = sizeof e;
    return e;
}

/** Frees the arrays of an encoding, which has no tokens afterwards; NULL is allowed. @since 0.1, experimental */
ATTN_API void attn_encoding_free(attn_encoding *encoding);

/** How to encode. Zero is the default of all but struct_size. */
typedef struct attn_encode_options {
    size_t struct_size;  /**< sizeof of this struct as the caller compiled it */
    int bare;            /**< not 0: without the tokens that the post-processor adds, such as [CLS] and [SEP] */
    int special_as_text; /**< not 0: names of special tokens in a text are text like any other */
    /**
     * 0: as many tokens as the file's truncation allows, or as there are. Else at most so many, those that the
     * post-processor adds among them; of a pair, tokens of the longer text are left off first.
     */
    int64_t max_tokens;
} attn_encode_options;

/** Options with every field at its default. @since 0.1, experimental */
static inline attn_encode_options attn_encode_options_default(void)
{
    attn_encode_options o;
    memset(&o, 0, sizeof o);
    o.struct_size = sizeof o;
    return o;
}

/**
 * Appends the tokens of a text to an encoding. On an error the encoding is as it was.
 *
 * @param tokenizer a tokenizer
 * @param text      UTF-8, without a NUL at its end; what is no UTF-8 counts as U+FFFD. May be NULL if size is 0
 * @param size      bytes of it, at most 2^29
 * @param options   NULL or how
 * @param encoding  appended to
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_tokenizer_encode(const attn_tokenizer *tokenizer, const char *text, size_t size,
                                           const attn_encode_options *options, attn_encoding *encoding);
/**
 * The same of two texts that a model looks at together: a question and a passage, say.
 *
 * @param tokenizer   a tokenizer
 * @param text        the first one, as above
 * @param size        bytes of it
 * @param second      the second one
 * @param second_size bytes of it
 * @param options     NULL or how
 * @param encoding    appended to
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_tokenizer_encode_pair(const attn_tokenizer *tokenizer, const char *text, size_t size,
                                                const char *second, size_t second_size,
                                                const attn_encode_options *options, attn_encoding *encoding);
/**
 * Writes the text of tokens. Bytes of a character that is not complete count as U+FFFD, so the text of some tokens may
 * differ in its last characters from how the text of more tokens begins.
 *
 * @param tokenizer    a tokenizer
 * @param ids          [count] ids; those that no token has are left out
 * @param count        how many
 * @param keep_special not 0: special tokens are written, too
 * @param text         written to, capacity bytes at most; may be NULL if capacity is 0
 * @param capacity     bytes that there is room for
 * @param length       set to the bytes of the whole text, which has no NUL at its end
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_tokenizer_decode(const attn_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                                           int keep_special, char *text, size_t capacity, size_t *length);

/** One more than the highest id of a token: a model's table of embeddings has as many rows or more. @since 0.1,
 * experimental */
ATTN_API int32_t attn_tokenizer_size(const attn_tokenizer *tokenizer);
/** The token of an id as it stands in the file, valid until the tokenizer is closed; NULL if there is none. @since 0.1,
 * experimental */
ATTN_API const char *attn_tokenizer_token(const attn_tokenizer *tokenizer, int32_t id);
/** The id of a token as it stands in the file; -1 if there is none. @since 0.1, experimental */
ATTN_API int32_t attn_tokenizer_id(const attn_tokenizer *tokenizer, const char *token);
/** Not 0 for the id of a special token. @since 0.1, experimental */
ATTN_API int attn_tokenizer_is_special(const attn_tokenizer *tokenizer, int32_t id);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_TEXT_H */
