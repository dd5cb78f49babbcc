/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens by text, and by id. */
#ifndef ATTN_TEXT_VOCABULARY_H
#define ATTN_TEXT_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

#include "text/entries.h"

struct vocabulary_slot {
    const char *text; /* NULL: empty */
    size_t size;
    int32_t id;
};

/** Texts are the file's. Begin as {0}. */
struct vocabulary {
    const char **tokens; /**< [count] by id; NULL where there is none */
    int32_t count;
    size_t longest;                /**< bytes of a token */
    struct vocabulary_slot *slots; /**< open addressing; a power of 2 of them */
    size_t num_slots, used;
};

/** Makes room for tokens. */
attn_status vocabulary_reserve(struct vocabulary *vocabulary, size_t tokens, const char *file);
/** Adds a token for which there is room, or gives its text another id; the place is one below room. */
void vocabulary_add(struct vocabulary *vocabulary, const char *text, size_t size, int32_t id);
/** The id of a text; -1: none. */
int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *text, size_t size);
/** The token of an id; NULL: none. */
const char *vocabulary_token(const struct vocabulary *vocabulary, int32_t id);
void vocabulary_free(struct vocabulary *vocabulary);

/** Begins a hash, and goes on with a byte: texts that begin alike can be looked up byte by byte. */
enum { HASH_FIRST = 0x811c9dc5 };
static inline uint32_t hash_on(uint32_t hash, char byte)
{
    return (hash ^ (unsigned char)byte) * 0x01000193U; /* FNV-1a (Fowler, Noll, Vo) */
}
int32_t vocabulary_find_hashed(const struct vocabulary *vocabulary, uint32_t hash, const char *text, size_t size);

/** Reads model.vocab where it is an object of texts and ids. */
attn_status vocabulary_read(struct vocabulary *vocabulary, const struct entry *model);

#endif
