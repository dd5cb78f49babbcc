/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece's table of normalised characters ("precompiled_charsmap"). */
#ifndef ATTN_TEXT_CHARSMAP_H
#define ATTN_TEXT_CHARSMAP_H

#include "text/bytes.h"
#include "text/entries.h"

struct charsmap;

/** Reads the entry precompiled_charsmap of a step, in base64. */
attn_status charsmap_read(struct charsmap **map, const struct entry *step);
void charsmap_free(struct charsmap *map);
/** Appends a text as the table normalises it. */
void charsmap_apply(const struct charsmap *map, const char *text, size_t size, struct bytes *to);

#endif
