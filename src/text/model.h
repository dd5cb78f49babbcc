/* SPDX-License-Identifier: Apache-2.0 */
/* The entry "model": how a piece of text becomes tokens. */
#ifndef ATTN_TEXT_MODEL_H
#define ATTN_TEXT_MODEL_H

#include "text/vocabulary.h"

/** Ids that grow; begin as {0}. */
struct ids {
    int32_t *at;
    size_t count, room;
    bool failed; /**< memory was short */
};

void ids_add(struct ids *ids, int32_t id);

enum model_kind { MODEL_WORDPIECE, MODEL_BYTE_PAIRS, MODEL_UNIGRAM, MODEL_WORDS };

/** Two tokens that become one; those of lower rank do so first. */
struct merge {
    int32_t left, right; /**< left is -1 in an empty slot */
    int32_t result, rank;
};

struct model {
    enum model_kind kind;
    struct vocabulary vocabulary;
    int32_t unknown;       /**< id of the unknown token; -1: there is none */
    int32_t byte_ids[256]; /**< with byte_fallback, tokens such as <0x0A>; -1 where one is missing */
    bool byte_fallback, fuse_unknown;
    const char *prefix;          /**< of a word's later pieces; "" if there is none */
    const char *suffix;          /**< of a word's last piece, likewise */
    int64_t max_word_characters; /**< MODEL_WORDPIECE: longer ones are unknown */
    bool whole_first;            /**< MODEL_BYTE_PAIRS: a piece that is a token is not cut (ignore_merges) */
    struct merge *merges;        /**< open addressing: a power of 2 of slots */
    size_t num_merge_slots;
    double *scores; /**< MODEL_UNIGRAM: logarithms of probabilities, by id */
    double unknown_score;
};

/** Reads it. A model begins as {0}, and is freed after an error, too. */
attn_status model_read(struct model *model, const struct entry *entry);
void model_free(struct model *model);
/** Appends the tokens of a piece, which is not empty. False: there is no unknown token and would have to be one. */
bool model_encode(const struct model *model, const char *text, size_t size, struct ids *ids);

/** The slot that a pair is in, or the empty one that it would get. */
size_t merge_slot(const struct model *model, int32_t left, int32_t right);
attn_status byte_pairs_read(struct model *model, const struct entry *entry);
void byte_pairs_encode(const struct model *model, const char *text, size_t size, struct ids *ids);
attn_status unigram_read(struct model *model, const struct entry *entry);
bool unigram_encode(const struct model *model, const char *text, size_t size, struct ids *ids);

/** Appends the tokens of the bytes of a text; false, and nothing is added, if one is missing. */
bool add_byte_tokens(const struct model *model, const char *text, size_t size, struct ids *ids);
/** Finds them in the vocabulary. */
void find_byte_tokens(struct model *model);

#endif
