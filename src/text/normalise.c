/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of a normaliser, each from one text to another. Canonical and compatible forms are utf8proc's.
 */
#include "text/normalise.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "text/alphabet.h"
#include "text/characters.h"
#include "text/charsmap.h"
#include "text/pattern.h"

enum kind { BERT, FORM, LOWER, STRIP_MARKS, STRIP, REPLACE, PREPEND, CHARSMAP, NMT, BYTES, SEQUENCE };

enum { MAX_DEPTH = 16 };

struct normaliser {
    enum kind kind;
    utf8proc_option_t form;
    bool clean, ideographs, accents, lower; /* BERT: accents go */
    bool left, right;                       /* STRIP */
    char *content;                          /* REPLACE, PREPEND */
    struct pattern *pattern;
    struct charsmap *map;
    struct normaliser **steps;
    size_t count;
};

void normaliser_free(struct normaliser *n)
{
    if (n == NULL)
        return;
    for (size_t i = 0; i < n->count; i++)
        normaliser_free(n->steps[i]);
    free(n->steps);
    free(n->content);
    pattern_free(n->pattern);
    charsmap_free(n->map);
    free(n);
}

/* ------------------------------------------------------------------ reading -- */

static attn_status out_of_memory(const struct entry *entry)
{
    return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", entry->file);
}

static attn_status read_content(struct normaliser *n, const struct entry *entry, const char *name)
{
    const char *text;
    CHECK(entry_text(entry, name, &text));
    n->content = strdup(text);
    return n->content != NULL ? ATTN_OK : out_of_memory(entry);
}

static attn_status read_step(struct normaliser **out, const struct entry *entry, int depth);

static attn_status read_steps(struct normaliser *n, const struct entry *entry, int depth)
{
    struct entry list;
    CHECK(entry_list_or(entry, "normalizers", &list));
    const size_t count = json_array_size(list.value);
    n->steps = calloc(count + 1, sizeof(struct normaliser *));
    if (n->steps == NULL)
        return out_of_memory(entry);
    for (; n->count < count; n->count++) {
        const struct entry step = entry_element(&list, n->count);
        CHECK(read_step(&n->steps[n->count], &step, depth + 1));
    }
    return ATTN_OK;
}

static attn_status read_bert(struct normaliser *n, const struct entry *entry)
{
    n->clean = n->ideographs = n->lower = true;
    CHECK(entry_boolean_or(entry, "clean_text", &n->clean));
    CHECK(entry_boolean_or(entry, "handle_chinese_chars", &n->ideographs));
    CHECK(entry_boolean_or(entry, "lowercase", &n->lower));
    n->accents = n->lower;
    return entry_boolean_or(entry, "strip_accents", &n->accents);
}

static attn_status read_kind(struct normaliser *n, const struct entry *entry, int depth)
{
    static const struct {
        const char *type;
        enum kind kind;
        utf8proc_option_t form;
    } types[] = {
        {"BertNormalizer", BERT, 0},
        {"NFC", FORM, UTF8PROC_COMPOSE},
        {"NFD", FORM, UTF8PROC_DECOMPOSE},
        {"NFKC", FORM, UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
        {"NFKD", FORM, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
        {"Lowercase", LOWER, 0},
        {"StripAccents", STRIP_MARKS, 0},
        {"Strip", STRIP, 0},
        {"Replace", REPLACE, 0},
        {"Prepend", PREPEND, 0},
        {"Precompiled", CHARSMAP, 0},
        {"Nmt", NMT, 0},
        {"ByteLevel", BYTES, 0},
        {"Sequence", SEQUENCE, 0},
    };
    const char *type = entry_type(entry);
    size_t i = 0;
    while (i < sizeof types / sizeof *types && strcmp(type, types[i].type) != 0)
        i++;
    if (i == sizeof types / sizeof *types) {
        const struct entry named = entry_at(entry, "type");
        return entry_refuse(ATTN_UNSUPPORTED, &named,
                            "BertNormalizer, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Replace, Prepend, "
                            "Precompiled, Nmt, ByteLevel or Sequence");
    }
    n->kind = types[i].kind;
    n->form = types[i].form;
    switch (n->kind) {
    case BERT:
        return read_bert(n, entry);
    case STRIP:
        n->left = n->right = true;
        CHECK(entry_boolean_or(entry, "strip_left", &n->left));
        return entry_boolean_or(entry, "strip_right", &n->right);
    case REPLACE:
        CHECK(pattern_read(&n->pattern, entry));
        return read_content(n, entry, "content");
    case PREPEND:
        return read_content(n, entry, "prepend");
    case CHARSMAP:
        return charsmap_read(&n->map, entry);
    case SEQUENCE:
        return read_steps(n, entry, depth);
    default:
        return ATTN_OK;
    }
}

static attn_status read_step(struct normaliser **out, const struct entry *entry, int depth)
{
    *out = NULL;
    if (depth > MAX_DEPTH)
        return entry_refuse(ATTN_UNSUPPORTED, entry, "sequences in sequences no deeper than 16");
    struct normaliser *n = calloc(1, sizeof *n);
    if (n == NULL)
        return out_of_memory(entry);
    const attn_status status = read_kind(n, entry, depth);
    if (status == ATTN_OK)
        *out = n;
    else
        normaliser_free(n);
    return status;
}

attn_status normaliser_read(struct normaliser **normaliser, const struct entry *entry)
{
    *normaliser = NULL;
    return entry->value == NULL ? ATTN_OK : read_step(normaliser, entry, 0);
}

/* -------------------------------------------------------------------- steps -- */

/** Rust's to_lowercase(), which is utf8proc's but for the one capital of which two characters are made. */
static void add_lower(struct bytes *to, int32_t c)
{
    bytes_add_character(to, c == 0x130 ? 'i' : utf8proc_tolower(c));
    if (c == 0x130)
        bytes_add_character(to, 0x307);
}

static void add_form(utf8proc_option_t form, const char *text, size_t size, struct bytes *to)
{
    utf8proc_uint8_t *mapped;
    const utf8proc_ssize_t length =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)size, &mapped, form | UTF8PROC_STABLE);
    if (length < 0) {
        to->failed = true;
        return;
    }
    bytes_add(to, (const char *)mapped, (size_t)length);
    free(mapped);
}

/** What BERT's cleaning makes of a character: itself, a space, or nothing (-1). Unassigned ones stay. */
static int32_t clean(int32_t c)
{
    if (c == '\t' || c == '\n' || c == '\r' || is_white_space(c))
        return c == 0x85 || c == 0x0b || c == 0x0c ? -1 : ' ';
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
        return -1;
    default:
        return c == 0xfffd ? -1 : c;
    }
}

static void add_clean(const struct normaliser *n, const char *text, size_t size, struct bytes *to)
{
    for (size_t at = 0, length; at < size; at += length) {
        const int32_t from = character_at(text + at, size - at, &length), c = n->clean ? clean(from) : from;
        const bool apart = n->ideographs && c >= 0 && is_ideograph(c);
        if (apart)
            bytes_add(to, " ", 1);
        if (c >= 0)
            bytes_add_character(to, c);
        if (apart)
            bytes_add(to, " ", 1);
    }
}

/** Without marks: nonspacing ones, or all. */
static void add_without_marks(bool all, const char *text, size_t size, struct bytes *to)
{
    for (size_t at = 0, length; at < size; at += length) {
        const utf8proc_category_t category = utf8proc_category(character_at(text + at, size - at, &length));
        const bool other = category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
        if (category != UTF8PROC_CATEGORY_MN && !(all && other))
            bytes_add(to, text + at, length);
    }
}

static void add_all_lower(const char *text, size_t size, struct bytes *to)
{
    for (size_t at = 0, length; at < size; at += length)
        add_lower(to, character_at(text + at, size - at, &length));
}

static void add_bert(const struct normaliser *n, const char *text, size_t size, struct bytes *to)
{
    struct bytes cleaned = {0}, decomposed = {0}, plain = {0};
    add_clean(n, text, size, &cleaned);
    struct bytes *last = &cleaned;
    if (n->accents) {
        add_form(UTF8PROC_DECOMPOSE, cleaned.at, cleaned.size, &decomposed);
        add_without_marks(false, decomposed.at, decomposed.size, &plain);
        last = &plain;
    }
    if (n->lower)
        add_all_lower(last->at, last->size, to);
    else
        bytes_add(to, last->at, last->size);
    to->failed = to->failed || cleaned.failed || decomposed.failed || plain.failed;
    bytes_free(&cleaned);
    bytes_free(&decomposed);
    bytes_free(&plain);
}

static void add_stripped(const struct normaliser *n, const char *text, size_t size, struct bytes *to)
{
    size_t begin = 0, length;
    while (n->left && begin < size && is_white_space(character_at(text + begin, size - begin, &length)))
        begin += length;
    while (n->right && size > begin) {
        const size_t before = character_before(text, size);
        if (!is_white_space(character_at(text + before, size - before, &length)))
            break;
        size = before;
    }
    bytes_add(to, text + begin, size - begin);
}

static bool add_replaced(const struct normaliser *n, const char *text, size_t size, struct bytes *to)
{
    struct search search = {.pattern = n->pattern, .text = text, .size = size};
    struct found found;
    while (search_next(&search, &found)) {
        if (found.matches)
            bytes_add_text(to, n->content);
        else
            bytes_add(to, text + found.begin, found.end - found.begin);
    }
    search_end(&search);
    return !search.failed;
}

/** As SentencePiece's rules for machine translation have it: controls go, other breaks and blanks become spaces. */
static void add_nmt(const char *text, size_t size, struct bytes *to)
{
    for (size_t at = 0, length; at < size; at += length) {
        const int32_t c = character_at(text + at, size - at, &length);
        if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f)
            continue;
        const bool blank = c == '\t' || c == '\n' || c == 0xc || c == '\r' || c == 0x1680 ||
                           (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff ||
                           c == 0xfffd;
        bytes_add_character(to, blank ? ' ' : c);
    }
}

static bool add_steps(const struct normaliser *n, const char *text, size_t size, struct bytes *to)
{
    struct bytes before = {0};
    bool good = true;
    bytes_add(&before, text, size);
    for (size_t i = 0; good && i < n->count; i++) {
        struct bytes after = {0};
        good = normaliser_apply(n->steps[i], before.at, before.size, &after);
        after.failed = after.failed || before.failed;
        bytes_free(&before);
        before = after;
    }
    bytes_add(to, before.at, before.size);
    to->failed = to->failed || before.failed;
    bytes_free(&before);
    return good;
}

bool normaliser_apply(const struct normaliser *n, const char *text, size_t size, struct bytes *to)
{
    if (n == NULL || size == 0) {
        bytes_add(to, text, size);
        return true;
    }
    switch (n->kind) {
    case BERT:
        add_bert(n, text, size, to);
        break;
    case FORM:
        add_form(n->form, text, size, to);
        break;
    case LOWER:
        add_all_lower(text, size, to);
        break;
    case STRIP_MARKS:
        add_without_marks(true, text, size, to);
        break;
    case STRIP:
        add_stripped(n, text, size, to);
        break;
    case REPLACE:
        return add_replaced(n, text, size, to);
    case PREPEND:
        bytes_add_text(to, n->content);
        bytes_add(to, text, size);
        break;
    case CHARSMAP:
        charsmap_apply(n->map, text, size, to);
        break;
    case NMT:
        add_nmt(text, size, to);
        break;
    case BYTES:
        for (size_t i = 0; i < size; i++)
            bytes_add_character(to, character_of_byte((unsigned char)text[i]));
        break;
    case SEQUENCE:
        return add_steps(n, text, size, to);
    }
    return true;
}
