/* SPDX-License-Identifier: Apache-2.0 */
/* The entry "pre_tokenizer": where a text is cut before its pieces become tokens. */
#ifndef ATTN_TEXT_SPLIT_H
#define ATTN_TEXT_SPLIT_H

#include "text/bytes.h"
#include "text/entries.h"

struct splitter;

/** Reads it; *splitter is NULL where the file has none. */
attn_status splitter_read(struct splitter **splitter, const struct entry *entry);
void splitter_free(struct splitter *splitter);
/** Cuts the pieces of from that are text; tokens stay. False: a pattern has failed. */
bool splitter_apply(const struct splitter *splitter, const struct pieces *from, struct pieces *to);

#endif
