/* SPDX-License-Identifier: Apache-2.0 */
/* What byte_pairs.c encodes with, and byte_pairs_file.c reads. */
#ifndef ATTN_EXAMPLES_TEXT_BYTE_PAIRS_TABLE_H
#define ATTN_EXAMPLES_TEXT_BYTE_PAIRS_TABLE_H

#include <jansson.h>

#include "byte_pairs.h"

struct byte_pairs_token {
    const char *text;  /* as in the file */
    const char *bytes; /* what it stands for */
    int32_t num_bytes; /* 0 of special tokens, and of no others */
};

/* Two tokens that become one. Those of lower rank do so first. */
struct byte_pairs_merge {
    int32_t left, right; /* left is -1 in an empty slot */
    int32_t result, rank;
};

struct byte_pairs {
    json_t *file; /* owns the names of special tokens, and those of the others */
    struct byte_pairs_token *tokens;
    int32_t count;
    char *bytes;                     /* of all tokens */
    int32_t byte_ids[256];           /* the token of a single byte, or -1 */
    struct byte_pairs_merge *merges; /* open addressing: a power of 2 of slots, at most half of them taken */
    size_t slots;
};

/* The slot that a pair is in, or the empty one that it would get. */
size_t byte_pairs_slot(const struct byte_pairs *tokenizer, int32_t left, int32_t right);

#endif
