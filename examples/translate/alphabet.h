/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens of the translator: three special ones and characters, each of one byte. */
#ifndef ATTN_EXAMPLES_ALPHABET_H
#define ATTN_EXAMPLES_ALPHABET_H

#include "io/lines.h"

enum { ALPHABET_PAD, ALPHABET_BOS, ALPHABET_EOS };

/* Begins as {0}. */
struct alphabet {
    struct lines names;  /* line n is token n; longer than one character if it stands for none */
    int32_t tokens[256]; /* of a byte, or -1 */
};

/* Reads FOLDER/alphabet.txt. */
attn_status alphabet_read(struct alphabet *alphabet, const char *folder);
/* The special tokens and, by their codes, the bytes that occur. */
attn_status alphabet_make(struct alphabet *alphabet, const bool occurs[256]);
attn_status alphabet_copy(struct alphabet *alphabet, const struct alphabet *from);
void alphabet_free(struct alphabet *alphabet);

/* The tokens of a text. A character that has none is an error. */
attn_status alphabet_encode(const struct alphabet *alphabet, const char *text, size_t size, int32_t *ids);

#endif
