/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The alphabet of bytes: a visible character for each byte. Bytes that are visible in Latin-1 are that character, the
 * others, in their order, U+0100, U+0101, and so on; a space is U+0120, for instance (GPT-2's encoder.py).
 */
#ifndef ATTN_TEXT_ALPHABET_H
#define ATTN_TEXT_ALPHABET_H

#include <stdint.h>

/** The character of a byte. */
int32_t character_of_byte(unsigned char byte);
/** The byte of a character, or -1. */
int byte_of_character(int32_t c);

#endif
