/* SPDX-License-Identifier: Apache-2.0 */
/* The alphabet of bytes. */
#include "text/alphabet.h"

/* Bytes that are no visible characters of Latin-1: 0 to 20, 7F to A0, AD. */
enum { CONTROLS = 0x21, DELETE = 0x7f, NO_BREAK_SPACE = 0xa0, SOFT_HYPHEN = 0xad, HIDDEN = 0x100 };
enum { BEFORE_HYPHEN = CONTROLS + NO_BREAK_SPACE - DELETE + 1 };

int32_t character_of_byte(unsigned char byte)
{
    if (byte < CONTROLS)
        return HIDDEN + byte;
    if (byte >= DELETE && byte <= NO_BREAK_SPACE)
        return HIDDEN + CONTROLS + byte - DELETE;
    return byte == SOFT_HYPHEN ? HIDDEN + BEFORE_HYPHEN : byte;
}

int byte_of_character(int32_t c)
{
    if (c >= HIDDEN && c < HIDDEN + CONTROLS)
        return c - HIDDEN;
    if (c >= HIDDEN + CONTROLS && c < HIDDEN + BEFORE_HYPHEN)
        return c - HIDDEN - CONTROLS + DELETE;
    if (c == HIDDEN + BEFORE_HYPHEN)
        return SOFT_HYPHEN;
    return c >= 0 && c < 0x100 && character_of_byte((unsigned char)c) == c ? c : -1;
}
