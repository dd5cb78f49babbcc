/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts of a text, a character at a time. First every number character (Unicode's
 * categories N*) is a piece of its own. In what lies between two of them, or
 * at the ends of the text, a piece is the first of these that fits:
 *
 *     's 't 're 've 'm 'll 'd         as English shortens words
 *     a space or none, then letters (L*), as many as there are
 *     a space or none, then other characters that are no white space
 *     white space up to the end
 *     white space but its last character, which may be the space of what follows
 *     the last character of white space
 *
 * So GPT-2 cuts (Radford et al. 2019, who write it as a regular expression), with
 * numbers taken out first, as the step Digits of Hugging Face's tokenizers does:
 * that is the pre-tokenizer that GGUF files call "smollm". Case counts, and only
 * U+0020 is "a space".
 *
 * Categories are utf8proc's; tests/models/check_byte_pairs.py lists the code
 * points on which the reference has those of another version of Unicode.
 */
#include "pre_tokens.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <utf8proc.h>

enum kind { END, SPACE, LETTER, NUMBER, OTHER };

/* Unicode's property White_Space. */
static bool is_space(int32_t c)
{
    return (c >= '\t' && c <= '\r') || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* What the character at a place is, and its bytes. */
static enum kind look(const char *text, size_t size, size_t at, size_t *length)
{
    utf8proc_int32_t c;
    *length = 0;
    if (at == size)
        return END;
    utf8proc_ssize_t bytes = utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(size - at), &c);
    *length = bytes > 0 ? (size_t)bytes : 1;
    if (bytes <= 0)
        return OTHER;
    if (is_space(c))
        return SPACE;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return NUMBER;
    default:
        return OTHER;
    }
}

/* The end of the characters of one kind from a place on. */
static size_t run_end(const char *text, size_t size, size_t at, enum kind kind)
{
    size_t length;
    while (look(text, size, at, &length) == kind)
        at += length;
    return at;
}

static size_t contraction(const char *text, size_t size)
{
    static const char *const endings[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        size_t length = strlen(endings[i]);
        if (size >= length && memcmp(text, endings[i], length) == 0)
            return length;
    }
    return 0;
}

/* White space begins the text: how much of it is a piece. */
static size_t spaces(const char *text, size_t size, size_t first)
{
    size_t last = 0, end = first, length;
    while (look(text, size, end, &length) == SPACE) {
        last = end;
        end += length;
    }
    const enum kind next = look(text, size, end, &length);
    if (last == 0 || next == END || next == NUMBER)
        return end;
    return last;
}

size_t pre_token(const char *text, size_t size)
{
    size_t length, after;
    enum kind kind = look(text, size, 0, &length);
    if (kind == END || kind == NUMBER)
        return length;
    if (kind == SPACE && text[0] == ' ') {
        const enum kind next = look(text, size, 1, &after);
        if (next == LETTER || next == OTHER)
            return run_end(text, size, 1, next);
    }
    if (kind == SPACE)
        return spaces(text, size, length);
    const size_t ending = contraction(text, size);
    return ending > 0 ? ending : run_end(text, size, 0, kind);
}
