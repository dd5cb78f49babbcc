/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of characters, by the categories of utf8proc; docs/tokenizers.md says where the reference has other ones. */
#include "text/characters.h"

#include <utf8proc.h>

int32_t character_at(const char *text, size_t size, size_t *length)
{
    utf8proc_int32_t c;
    const utf8proc_ssize_t bytes = utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)size, &c);
    *length = bytes > 0 ? (size_t)bytes : 1;
    return bytes > 0 ? c : 0xfffd;
}

size_t character_before(const char *text, size_t place)
{
    do
        place--;
    while (place > 0 && ((unsigned char)text[place] & 0xc0) == 0x80);
    return place;
}

/** Bytes of the longest beginning of a character that a broken one has, at least 1 (Unicode 15, table 3-7). */
static size_t broken_length(const unsigned char *text, size_t size)
{
    const unsigned char lead = text[0];
    const size_t whole = lead >= 0xc2 && lead <= 0xdf ? 2 : lead >= 0xe0 && lead <= 0xef ? 3 : 4;
    if (lead < 0xc2 || lead > 0xf4)
        return 1;
    size_t length = 1;
    for (; length < whole && length < size; length++) {
        const unsigned char least = length > 1 ? 0x80 : lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
        const unsigned char most = length > 1 ? 0xbf : lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
        if (text[length] < least || text[length] > most)
            break;
    }
    return length;
}

void add_valid_text(struct bytes *to, const char *text, size_t size)
{
    size_t valid = 0;
    for (size_t at = 0; at < size;) {
        utf8proc_int32_t c;
        const utf8proc_ssize_t length =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(size - at), &c);
        if (length > 0) {
            at += (size_t)length;
            continue;
        }
        bytes_add(to, text + valid, at - valid);
        bytes_add_character(to, 0xfffd);
        at += broken_length((const unsigned char *)text + at, size - at);
        valid = at;
    }
    bytes_add(to, text + valid, size - valid);
}

bool is_white_space(int32_t c)
{
    return (c >= '\t' && c <= '\r') || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_punctuation(int32_t c)
{
    if (c < 0x80)
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
    const utf8proc_category_t category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool is_number(int32_t c)
{
    const utf8proc_category_t category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool is_word_character(int32_t c)
{
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        /* Letters in circles and squares, which are symbols by category; and the joiners. */
        return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
               (c >= 0x1f170 && c <= 0x1f189) || c == 0x200c || c == 0x200d;
    }
}

/*
 * The last but one begins at 2B920 in the reference, where the block itself begins at 2B820; what the reference does
 * counts.
 */
bool is_ideograph(int32_t c)
{
    static const struct {
        int32_t first, last;
    } blocks[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},   {0x20000, 0x2a6df},
                  {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f}};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        if (c >= blocks[i].first && c <= blocks[i].last)
            return true;
    return false;
}
