/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text becomes words in one pass, a character at a time:
 *
 *     clean       control, format and private-use characters and U+FFFD vanish
 *                 and join what stood beside them; white space ends a word
 *     ideographs  each is a word of its own
 *     decompose   to Unicode's form NFD; nonspacing marks (accents) vanish
 *     lowercase   character by character, so Σ is σ at the end of a word too
 *     punctuation each character is a word of its own
 *
 * A cased model leaves decompose and lowercase out.
 *
 * That is what Hugging Face's tokenizers does in five passes over the string
 * (BertNormalizer and BertPreTokenizer, version 0.23). One pass suffices, as no
 * step looks at more than one character, but for NFD: it puts marks that follow
 * each other in the order of their combining classes. Only spacing marks are
 * left of those, and more than WORD_MAX_CHARACTERS make the word too long
 * whatever their order, so a small buffer holds all that must wait.
 *
 * Categories, decompositions and lower case are utf8proc's. The reference mixes
 * tables of several versions of Unicode, its categories being those of Unicode
 * 8, so characters that are younger may come out differently: tests/models/
 * check_wordpiece.py lists every one. Unassigned ones stay, as in the reference.
 */
#include "basic_tokens.h"

#include <stdint.h>

#include <utf8proc.h>

struct splitter {
    word_taker *take;
    void *context;
    bool keep_case;
    bool going; /* take has not stopped us */
    char word[WORD_MAX_BYTES];
    size_t length;
    int characters; /* stops at one more than the word may have */
    int32_t marks[WORD_MAX_CHARACTERS];
    int num_marks;
};

enum fate { STAYS, VANISHES, SEPARATES };

static enum fate clean(int32_t c)
{
    if (c == '\t' || c == '\n' || c == '\r')
        return SEPARATES;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return SEPARATES;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
        return VANISHES;
    default:
        return c == 0xfffd ? VANISHES : STAYS;
    }
}

/*
 * The blocks that BERT splits at every character. The last but one begins at
 * 2B920 in the reference, where the block itself begins at 2B820; what the
 * reference does counts.
 */
static bool is_ideograph(int32_t c)
{
    static const struct {
        int32_t first, last;
    } blocks[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},   {0x20000, 0x2a6df},
                  {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f}};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        if (c >= blocks[i].first && c <= blocks[i].last)
            return true;
    }
    return false;
}

/* Of ASCII also what Unicode calls symbols: $+<=>^`|~. */
static bool is_punctuation(int32_t c)
{
    if (c < 0x80)
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
    utf8proc_category_t category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

static void append(struct splitter *s, int32_t c)
{
    if (s->characters < WORD_MAX_CHARACTERS)
        s->length += (size_t)utf8proc_encode_char(c, (utf8proc_uint8_t *)s->word + s->length);
    s->characters += s->characters <= WORD_MAX_CHARACTERS;
}

static void settle_marks(struct splitter *s)
{
    for (int i = 0; i < s->num_marks; i++)
        append(s, s->marks[i]);
    s->num_marks = 0;
}

static void end_word(struct splitter *s)
{
    settle_marks(s);
    if (s->characters > 0 && s->going) {
        bool fits = s->characters <= WORD_MAX_CHARACTERS;
        s->going = s->take(s->context, fits ? s->word : NULL, fits ? s->length : 0);
    }
    s->length = 0;
    s->characters = 0;
}

/* Equal classes keep their order. */
static void add_mark(struct splitter *s, int32_t c, int class)
{
    if (s->num_marks == WORD_MAX_CHARACTERS) {
        s->characters = WORD_MAX_CHARACTERS + 1;
        return;
    }
    int at = s->num_marks++;
    for (; at > 0 && utf8proc_get_property(s->marks[at - 1])->combining_class > class; at--)
        s->marks[at] = s->marks[at - 1];
    s->marks[at] = c;
}

/* A character as it will be in the words. */
static void take_final(struct splitter *s, int32_t c)
{
    bool alone = is_punctuation(c);
    if (alone)
        end_word(s);
    append(s, c);
    if (alone)
        end_word(s);
}

/* Takes a character of the decomposed text. */
static void take_decomposed(struct splitter *s, int32_t c)
{
    const utf8proc_property_t *is = utf8proc_get_property(c);
    if (is->combining_class != 0) {
        if (is->category != UTF8PROC_CATEGORY_MN)
            add_mark(s, c, is->combining_class);
        return;
    }
    /* Marks are not moved past a character of class 0, be it one that vanishes. */
    settle_marks(s);
    if (is->category == UTF8PROC_CATEGORY_MN)
        return;
    take_final(s, utf8proc_tolower(c));
}

static void take_character(struct splitter *s, int32_t c)
{
    enum fate fate = clean(c);
    if (fate == VANISHES)
        return;
    bool alone = fate == STAYS && is_ideograph(c);
    if (fate == SEPARATES || alone)
        end_word(s);
    if (fate == SEPARATES)
        return;
    /* Canonical decompositions have four characters at most. */
    utf8proc_int32_t parts[8];
    utf8proc_ssize_t count = s->keep_case ? 0 : utf8proc_decompose_char(c, parts, 8, UTF8PROC_DECOMPOSE, NULL);
    for (utf8proc_ssize_t i = 0; i < count; i++)
        take_decomposed(s, parts[i]);
    if (s->keep_case)
        take_final(s, c);
    if (alone)
        end_word(s);
}

bool basic_tokens(const char *text, size_t size, bool keep_case, word_taker *take, void *context)
{
    struct splitter s = {.take = take, .context = context, .keep_case = keep_case, .going = true};
    for (size_t at = 0; at < size && s.going;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t length =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(size - at), &c);
        if (length > 0)
            take_character(&s, c);
        /* How many bytes one U+FFFD stands for makes no difference: no byte of a broken character begins another. */
        at += length > 0 ? (size_t)length : 1;
    }
    end_word(&s);
    return s.going;
}
