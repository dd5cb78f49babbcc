/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where byte-pair tokenizers of the kind of SmolLM2's cut a text before they
 * look for tokens: no token goes over such a cut.
 */
#ifndef ATTN_EXAMPLES_TEXT_PRE_TOKENS_H
#define ATTN_EXAMPLES_TEXT_PRE_TOKENS_H

#include <stddef.h>

/*
 * Bytes of the first piece of a text, 0 only of an empty one. What comes before
 * a text has no influence, so the next piece is the first of the rest. Bytes
 * that are not UTF-8 count as characters that are neither letter, number nor
 * white space, one byte each.
 */
size_t pre_token(const char *text, size_t size);

#endif
