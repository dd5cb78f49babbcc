/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions of a tokenizer.json in PCRE2's words. */
#ifndef ATTN_TEXT_EXPRESSION_H
#define ATTN_TEXT_EXPRESSION_H

#include "text/bytes.h"
#include "text/entries.h"

/** Appends the expression as PCRE2 has to be told it; what cannot be is refused in the name of the entry. */
attn_status expression_translate(struct bytes *to, const char *expression, const struct entry *entry);

#endif
