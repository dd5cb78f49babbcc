/* SPDX-License-Identifier: Apache-2.0 */
/* The entry "added_tokens": tokens that are looked for in a text before anything else. */
#ifndef ATTN_TEXT_ADDED_H
#define ATTN_TEXT_ADDED_H

#include "text/normalise.h"
#include "text/vocabulary.h"

struct added_token {
    const char *content; /**< the file's */
    char *normalised;    /**< what is looked for; of a token that is looked for before normalisation its content */
    int32_t id;
    bool special, left, right; /**< takes the white space on its left, on its right */
    bool single_word, after;   /**< stands between words; is looked for behind the normaliser */
};

/** Begin as {0}. */
struct added_tokens {
    struct added_token *list;
    size_t count;
    struct vocabulary by_text, by_normalised; /**< of those before and behind the normaliser; ids are places of list */
    bool first_bytes[2][256];                 /**< with which one of them begins */
    const struct added_token **by_id;         /**< the list in the order of ids */
};

/** vocabulary: the model's. */
attn_status added_read(struct added_tokens *added, const struct entry *root, const struct normaliser *normaliser,
                       const struct vocabulary *vocabulary);
void added_free(struct added_tokens *added);
/** The token of an id; NULL: none. */
const struct added_token *added_of_id(const struct added_tokens *added, int32_t id);
/** One more than the highest id; 0 without tokens. */
int32_t added_ids(const struct added_tokens *added);
/** Cuts the texts of from where tokens are, those behind the normaliser or before it. */
void added_find(const struct added_tokens *added, bool after, bool special_as_text, const struct pieces *from,
                struct pieces *to);

#endif
