/* SPDX-License-Identifier: Apache-2.0 */
/* Text that grows, and texts that are cut into pieces. Memory that is short is noted, and said once at the end of a
 * call. */
#ifndef ATTN_TEXT_BYTES_H
#define ATTN_TEXT_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Bytes that grow; begin as {0}. */
struct bytes {
    char *at;
    size_t size, room;
    bool failed; /**< memory was short; nothing has been added since */
};

void bytes_add(struct bytes *bytes, const char *from, size_t size);
void bytes_add_text(struct bytes *bytes, const char *text);
/** In UTF-8. */
void bytes_add_character(struct bytes *bytes, int32_t c);
void bytes_free(struct bytes *bytes);

/** A part of a text: either still text, or a token that was found in it. */
struct piece {
    size_t begin, size; /**< of the text's bytes */
    int32_t id;         /**< of a token; -1: text */
    bool first;         /**< where the whole text begins */
};

/** A text and its pieces, in order. Begin as {0}. */
struct pieces {
    struct bytes text;
    struct piece *list;
    size_t count, room;
};

/** Appends a piece whose text is, or will be, at begin; none without text, unless it is a token. */
void pieces_add(struct pieces *pieces, struct piece piece);
/** Appends a copy of one. */
void pieces_copy(struct pieces *pieces, const struct pieces *from, const struct piece *piece);
void pieces_free(struct pieces *pieces);

#endif
