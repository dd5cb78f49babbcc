/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The expressions of a tokenizer.json are written for Oniguruma with the syntax of Ruby. What PCRE2 takes for something
 * else is put in its words:
 *
 *     \s \S         Unicode's White_Space; PCRE2 has U+180E besides
 *     \w \W \b \B   letters, marks, Nd, Nl, Pc and letters in circles and squares; PCRE2 before 10.43 has no marks
 *     \h \H         a hexadecimal digit; horizontal space in PCRE2
 *     \uHHHH        a code point
 *     [:punct:]     symbols, too
 *
 * What has no such words is refused: classes in classes ([a[bc]]) and intersections ([a&&b]), {m,n}+, which Ruby reads
 * as a repetition of a repetition, verbs, rarer escape sequences, \W and \H in a class, and further classes in colons.
 */
#include "text/expression.h"

#include <stdio.h>
#include <string.h>

#define SPACES                                                                                                         \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define OTHERS_THAN_SPACES                                                                                             \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}" \
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define WORDS                                                                                                          \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-"        \
    "\\x{1f189}"
/* Outside of classes Oniguruma has small numbers and fractions of Latin-1 among them. */
#define WORDS_ALONE WORDS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define WORD        "[" WORDS_ALONE "]"
#define HEXADECIMAL "0-9a-fA-F"

struct translator {
    const struct entry *entry;
    const char *from, *at; /* the whole, and what is left of it */
    struct bytes *to;
    bool in_class;
};

static attn_status refuse(const struct translator *t, const char *what)
{
    char expected[160];
    snprintf(expected, sizeof expected, "an expression without %s (at its byte %zu)", what, (size_t)(t->at - t->from));
    return entry_refuse(ATTN_UNSUPPORTED, t->entry, expected);
}

static void copy(struct translator *t, size_t size)
{
    bytes_add(t->to, t->at, size);
    t->at += size;
}

/** Writes ranges in place of size bytes: a class of them, or of what is not among them, or a part of a class. */
static void put_ranges(struct translator *t, size_t size, bool others, const char *ranges)
{
    bytes_add_text(t->to, t->in_class ? "" : others ? "[^" : "[");
    bytes_add_text(t->to, ranges);
    bytes_add_text(t->to, t->in_class ? "" : "]");
    t->at += size;
}

static void put_text(struct translator *t, size_t size, const char *text)
{
    bytes_add_text(t->to, text);
    t->at += size;
}

/** \uHHHH */
static attn_status put_code_point(struct translator *t)
{
    char text[16] = "\\x{";
    if (strspn(t->at + 2, "0123456789abcdefABCDEF") < 4)
        return refuse(t, "\\u but with four digits");
    memcpy(text + 3, t->at + 2, 4);
    strcpy(text + 7, "}");
    put_text(t, 6, text);
    return ATTN_OK;
}

static attn_status take_escape(struct translator *t)
{
    const char c = t->at[1];
    /* Letters and digits that mean the same to both, or are refused by PCRE2: the rest has been looked at. */
    static const char known[] = "adefnprtvxzADPZ0", rare[] = "CEGHKNOQRUWXYcghikloquy123456789";
    switch (c) {
    case 's':
        put_ranges(t, 2, false, SPACES);
        return ATTN_OK;
    case 'S':
        put_ranges(t, 2, !t->in_class, t->in_class ? OTHERS_THAN_SPACES : SPACES);
        return ATTN_OK;
    case 'w':
        put_ranges(t, 2, false, t->in_class ? WORDS : WORDS_ALONE);
        return ATTN_OK;
    case 'h':
        put_ranges(t, 2, false, HEXADECIMAL);
        return ATTN_OK;
    case 'u':
        return put_code_point(t);
    case 'W':
    case 'H':
        if (t->in_class)
            return refuse(t, c == 'W' ? "\\W in a class" : "\\H in a class");
        put_ranges(t, 2, true, c == 'W' ? WORDS_ALONE : HEXADECIMAL);
        return ATTN_OK;
    case 'b':
    case 'B':
        if (t->in_class)
            return refuse(t, "\\b in a class");
        put_text(t, 2,
                 c == 'b' ? "(?:(?<=" WORD ")(?!" WORD ")|(?<!" WORD ")(?=" WORD "))"
                          : "(?:(?<=" WORD ")(?=" WORD ")|(?<!" WORD ")(?!" WORD "))");
        return ATTN_OK;
    default:
        if (c != '\0' && strchr(rare, c) != NULL)
            return refuse(t, "a rare escape sequence");
        if (((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) && strchr(known, c) == NULL)
            return refuse(t, "an unknown escape sequence");
        copy(t, c != '\0' ? 2 : 1);
        return ATTN_OK;
    }
}

/** [:name:], which stands in a class. */
static attn_status take_named_class(struct translator *t)
{
    static const struct {
        const char *name, *ranges;
    } known[] = {{"[:digit:]", "\\p{Nd}"},
                 {"[:space:]", SPACES},
                 {"[:punct:]", "\\p{P}\\p{S}"},
                 {"[:word:]", WORDS},
                 {"[:xdigit:]", HEXADECIMAL}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncmp(t->at, known[i].name, strlen(known[i].name)) == 0) {
            put_ranges(t, strlen(known[i].name), false, known[i].ranges);
            return ATTN_OK;
        }
    return refuse(t, "such a class in colons");
}

static attn_status take_in_class(struct translator *t)
{
    if (t->at[0] == '[')
        return t->at[1] == ':' ? take_named_class(t) : refuse(t, "a class in a class");
    if (t->at[0] == '&' && t->at[1] == '&')
        return refuse(t, "&& in brackets");
    t->in_class = *t->at != ']';
    copy(t, 1);
    return ATTN_OK;
}

/** Whether the closing brace that is next ends {m}, {m,}, {,n} or {m,n}. */
static bool ends_interval(const struct translator *t)
{
    const char *begin = t->at;
    while (begin > t->from && ((begin[-1] >= '0' && begin[-1] <= '9') || begin[-1] == ','))
        begin--;
    return begin < t->at && begin > t->from && begin[-1] == '{';
}

/** (?m) and the like, of which (?i) alone means the same to both. */
static bool sets_flags(const char *at)
{
    const size_t flags = strncmp(at, "(?", 2) == 0 ? strspn(at + 2, "adimnsuxy-") : 0;
    return flags > 0 && (at[2 + flags] == ')' || at[2 + flags] == ':') && strspn(at + 2, "i-") < flags;
}

static attn_status take_character(struct translator *t)
{
    if (sets_flags(t->at))
        return refuse(t, "flags other than (?i)");
    if (t->at[0] == '}' && t->at[1] == '+' && ends_interval(t))
        return refuse(t, "a repetition of a repetition");
    if (t->at[0] == '(' && t->at[1] == '*')
        return refuse(t, "(*");
    t->in_class = *t->at == '[';
    copy(t, 1);
    if (t->in_class && *t->at == '^')
        copy(t, 1);
    /* What stands first in a class is no end of it to PCRE2, and none to Oniguruma if there is another. */
    if (t->in_class && *t->at == ']')
        return refuse(t, "] at the beginning of a class");
    return ATTN_OK;
}

attn_status expression_translate(struct bytes *to, const char *expression, const struct entry *entry)
{
    struct translator t = {entry, expression, expression, to, false};
    while (*t.at != '\0') {
        if (*t.at == '\\')
            CHECK(take_escape(&t));
        else if (t.in_class)
            CHECK(take_in_class(&t));
        else
            CHECK(take_character(&t));
    }
    return ATTN_OK;
}
