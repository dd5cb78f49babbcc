/* SPDX-License-Identifier: Apache-2.0 */
/* The entry "decoder": how tokens become text. */
#ifndef ATTN_TEXT_DECODE_H
#define ATTN_TEXT_DECODE_H

#include "text/bytes.h"
#include "text/entries.h"

struct decoder;

/** Reads it; *decoder is NULL where the file has none. */
attn_status decoder_read(struct decoder **decoder, const struct entry *entry);
void decoder_free(struct decoder *decoder);
/** Appends the text of tokens, the pieces of from. A decoder of NULL puts spaces between. False: a pattern has failed.
 */
bool decoder_apply(const struct decoder *decoder, const struct pieces *from, struct bytes *to);

#endif
