/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of a text and its date, to train and to test with, and ragged batches of their tokens. */
#ifndef ATTN_EXAMPLES_DATE_PAIRS_H
#define ATTN_EXAMPLES_DATE_PAIRS_H

#include <attn/nn.h>

#include "alphabet.h"

/* Begins as {0}. */
struct date_pairs {
    struct lines dates, texts;          /* pair n is line n of both */
    int64_t longest_date, longest_text; /* in characters */
    uint64_t digest;                    /* of all: another one for other pairs */
};

/*
 * Reads a file with a line DATE TAB TEXT for each pair, both of printable ASCII,
 * of 1 to most_date and 1 to most_text characters.
 */
attn_status date_pairs_read(struct date_pairs *pairs, const char *path, int64_t most_date, int64_t most_text);
/* Notes the bytes that occur. */
void date_pairs_mark(const struct date_pairs *pairs, bool occurs[256]);
void date_pairs_free(struct date_pairs *pairs);

/* Pairs behind each other, without padding. */
struct pair_batch {
    attn_transformer_pairs pairs; /* texts, and dates behind <bos> */
    int32_t *labels;              /* of each target token the one that follows it, <eos> at the end */
    int64_t *source_offsets, *target_offsets;
    int32_t *source_ids, *target_ids;
};

/* Room for so many pairs, texts and dates of so many characters. Begins as {0}. */
attn_status pair_batch_create(struct pair_batch *batch, int64_t size, int64_t longest_date, int64_t longest_text);
/* Fills it with the pairs that order names. */
attn_status pair_batch_fill(struct pair_batch *batch, const struct date_pairs *pairs, const struct alphabet *alphabet,
                            const int64_t *order, int64_t count);
void pair_batch_free(struct pair_batch *batch);

#endif
