/* SPDX-License-Identifier: Apache-2.0 */
/* The entry "normalizer": what a text is changed into before it is cut. */
#ifndef ATTN_TEXT_NORMALISE_H
#define ATTN_TEXT_NORMALISE_H

#include "text/bytes.h"
#include "text/entries.h"

struct normaliser;

/** Reads it; *normaliser is NULL where the file has none. */
attn_status normaliser_read(struct normaliser **normaliser, const struct entry *entry);
void normaliser_free(struct normaliser *normaliser);
/** Appends a text, in valid UTF-8, as it is normalised; a normaliser of NULL copies. False: a pattern has failed. */
bool normaliser_apply(const struct normaliser *normaliser, const char *text, size_t size, struct bytes *to);

#endif
