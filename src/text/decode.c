/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a decoder, each from texts to texts; at the end they are put together. */
#include "text/decode.h"

#include <stdlib.h>
#include <string.h>

#include "text/alphabet.h"
#include "text/characters.h"
#include "text/pattern.h"

enum kind { BYTES, WORDPIECE, METASPACE, BYTE_TOKENS, FUSE, STRIP, REPLACE, BPE, SEQUENCE };

enum { MAX_DEPTH = 16 };

struct decoder {
    enum kind kind;
    bool cleanup, prefix; /* WORDPIECE; METASPACE: the first token's replacements vanish */
    int64_t start, stop;  /* STRIP: at most so many characters */
    char *content;        /* WORDPIECE's prefix, METASPACE's replacement, STRIP's character, REPLACE's and BPE's text */
    struct pattern *pattern;
    struct decoder **steps;
    size_t count;
};

void decoder_free(struct decoder *d)
{
    if (d == NULL)
        return;
    for (size_t i = 0; i < d->count; i++)
        decoder_free(d->steps[i]);
    free(d->steps);
    free(d->content);
    pattern_free(d->pattern);
    free(d);
}

/* ------------------------------------------------------------------ reading -- */

static attn_status read_step(struct decoder **out, const struct entry *entry, int depth);

static attn_status read_content(struct decoder *d, const struct entry *entry, const char *name, const char *usual)
{
    const char *text;
    CHECK(entry_text_or(entry, name, &text));
    const struct entry named = entry_at(entry, name);
    if (text == NULL && usual == NULL)
        return entry_refuse(ATTN_INVALID_FILE, &named, "a text");
    d->content = strdup(text != NULL ? text : usual);
    return d->content != NULL ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", entry->file);
}

static attn_status read_steps(struct decoder *d, const struct entry *entry, int depth)
{
    struct entry list;
    CHECK(entry_list_or(entry, "decoders", &list));
    const size_t count = json_array_size(list.value);
    d->steps = calloc(count + 1, sizeof(struct decoder *));
    if (d->steps == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", entry->file);
    for (; d->count < count; d->count++) {
        const struct entry step = entry_element(&list, d->count);
        CHECK(read_step(&d->steps[d->count], &step, depth + 1));
    }
    return ATTN_OK;
}

static attn_status read_kind(struct decoder *d, const struct entry *entry, int depth)
{
    static const char *const types[] = {"ByteLevel", "WordPiece", "Metaspace",  "ByteFallback", "Fuse",
                                        "Strip",     "Replace",   "BPEDecoder", "Sequence"};
    const char *type = entry_type(entry), *scheme;
    int i = 0;
    while (i < 9 && strcmp(type, types[i]) != 0)
        i++;
    const struct entry named = entry_at(entry, "type");
    d->kind = (enum kind)i;
    d->prefix = d->cleanup = true;
    switch (i) {
    case WORDPIECE:
        CHECK(entry_names(entry, "type", "prefix", "cleanup", NULL));
        CHECK(entry_boolean_or(entry, "cleanup", &d->cleanup));
        return read_content(d, entry, "prefix", "##");
    case METASPACE:
        CHECK(
            entry_names(entry, "type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep", NULL));
        CHECK(entry_boolean_or(entry, "add_prefix_space", &d->prefix));
        CHECK(entry_text_or(entry, "prepend_scheme", &scheme));
        d->prefix = scheme != NULL ? strcmp(scheme, "never") != 0 : d->prefix;
        return read_content(d, entry, "replacement", "\xe2\x96\x81");
    case STRIP:
        CHECK(entry_names(entry, "type", "content", "start", "stop", NULL));
        CHECK(entry_integer_or(entry, "start", 0, INT32_MAX, &d->start));
        CHECK(entry_integer_or(entry, "stop", 0, INT32_MAX, &d->stop));
        return read_content(d, entry, "content", " ");
    case REPLACE:
        CHECK(entry_names(entry, "type", "pattern", "content", NULL));
        CHECK(pattern_read(&d->pattern, entry));
        return read_content(d, entry, "content", NULL);
    case BPE:
        CHECK(entry_names(entry, "type", "suffix", NULL));
        return read_content(d, entry, "suffix", "</w>");
    case SEQUENCE:
        CHECK(entry_names(entry, "type", "decoders", NULL));
        return read_steps(d, entry, depth);
    case BYTES:
        return entry_names(entry, "type", "add_prefix_space", "trim_offsets", "use_regex", NULL);
    case 9:
        return entry_refuse(
            ATTN_UNSUPPORTED, &named,
            "ByteLevel, WordPiece, Metaspace, ByteFallback, Fuse, Strip, Replace, BPEDecoder or Sequence");
    default:
        return entry_names(entry, "type", NULL);
    }
}

static attn_status read_step(struct decoder **out, const struct entry *entry, int depth)
{
    *out = NULL;
    if (depth > MAX_DEPTH)
        return entry_refuse(ATTN_UNSUPPORTED, entry, "sequences in sequences no deeper than 16");
    struct decoder *d = calloc(1, sizeof *d);
    if (d == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", entry->file);
    const attn_status status = read_kind(d, entry, depth);
    if (status == ATTN_OK)
        *out = d;
    else
        decoder_free(d);
    return status;
}

attn_status decoder_read(struct decoder **decoder, const struct entry *entry)
{
    *decoder = NULL;
    return entry->value == NULL ? ATTN_OK : read_step(decoder, entry, 0);
}

/* -------------------------------------------------------------------- steps -- */

static void add_replaced(struct bytes *to, const char *text, size_t size, const char *from, const char *with)
{
    const size_t length = strlen(from);
    while (size > 0) {
        const char *at = length > 0 ? memmem(text, size, from, length) : NULL;
        const size_t before = at != NULL ? (size_t)(at - text) : size;
        bytes_add(to, text, before);
        if (at == NULL)
            return;
        bytes_add_text(to, with);
        text += before + length;
        size -= before + length;
    }
}

/** Spaces that English does not write, as the reference finds them in one token with the space before it. */
static void clean_up(struct bytes *text)
{
    static const char *const rules[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                           {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                           {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct bytes next = {0};
        add_replaced(&next, text->at, text->size, rules[i][0], rules[i][1]);
        next.failed = next.failed || text->failed;
        bytes_free(text);
        *text = next;
    }
}

static void add_wordpiece(const struct decoder *d, const char *text, size_t size, bool first, struct bytes *to)
{
    const size_t prefix = strlen(d->content);
    struct bytes word = {0};
    const bool later = !first && size >= prefix && memcmp(text, d->content, prefix) == 0;
    bytes_add_text(&word, first || later ? "" : " ");
    bytes_add(&word, later ? text + prefix : text, later ? size - prefix : size);
    if (d->cleanup)
        clean_up(&word);
    bytes_add(to, word.at, word.size);
    to->failed = to->failed || word.failed;
    bytes_free(&word);
}

static void add_stripped(const struct decoder *d, const char *text, size_t size, struct bytes *to)
{
    const size_t length = strlen(d->content);
    for (int64_t i = 0; i < d->start && length > 0 && size >= length && memcmp(text, d->content, length) == 0; i++) {
        text += length;
        size -= length;
    }
    for (int64_t i = 0; i < d->stop && length > 0 && size >= length; i++) {
        if (memcmp(text + size - length, d->content, length) != 0)
            break;
        size -= length;
    }
    bytes_add(to, text, size);
}

/** The byte of a token such as <0x0A>; -1: it is none. */
static int byte_of_token(const char *text, size_t size)
{
    char digits[3] = "";
    if (size != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    memcpy(digits, text + 3, 2);
    return strspn(digits, "0123456789abcdefABCDEF") == 2 ? (int)strtol(digits, NULL, 16) : -1;
}

/** Bytes of tokens beside each other: their text, or, if they are none, U+FFFD for each. */
static void add_bytes(struct bytes *bytes, struct bytes *to)
{
    struct bytes valid = {0};
    add_valid_text(&valid, bytes->at, bytes->size);
    const bool same = valid.size == bytes->size && (bytes->size == 0 || memcmp(valid.at, bytes->at, valid.size) == 0);
    if (same)
        bytes_add(to, bytes->at, bytes->size);
    for (size_t i = 0; i < bytes->size && !same; i++)
        bytes_add_character(to, 0xfffd);
    to->failed = to->failed || valid.failed;
    bytes->size = 0;
    bytes_free(&valid);
}

static void join_byte_tokens(const struct pieces *from, struct pieces *to)
{
    struct bytes waiting = {0};
    for (size_t i = 0; i <= from->count; i++) {
        const struct piece *piece = i < from->count ? &from->list[i] : NULL;
        const int byte = piece != NULL ? byte_of_token(from->text.at + piece->begin, piece->size) : -1;
        const size_t begin = to->text.size;
        if (byte >= 0) {
            bytes_add(&waiting, &(char){(char)byte}, 1);
            continue;
        }
        if (waiting.size > 0) {
            add_bytes(&waiting, &to->text);
            pieces_add(to, (struct piece){begin, to->text.size - begin, 0, false});
        }
        if (piece != NULL)
            pieces_copy(to, from, piece);
    }
    to->text.failed = to->text.failed || waiting.failed;
    bytes_free(&waiting);
}

/** Characters of the alphabet of bytes as these; a token with others is itself. */
static void add_alphabet(const char *text, size_t size, struct bytes *to)
{
    const size_t before = to->size;
    for (size_t at = 0, length; at < size; at += length) {
        const int byte = byte_of_character(character_at(text + at, size - at, &length));
        if (byte < 0) {
            to->size = before < to->size ? before : to->size;
            bytes_add(to, text, size);
            return;
        }
        bytes_add(to, &(char){(char)byte}, 1);
    }
}

static void add_metaspace(const struct decoder *d, const char *text, size_t size, bool first, struct bytes *to)
{
    add_replaced(to, text, size, d->content, first && d->prefix ? "" : " ");
}

static bool add_pattern(const struct decoder *d, const char *text, size_t size, struct bytes *to)
{
    struct search search = {.pattern = d->pattern, .text = text, .size = size};
    struct found found;
    while (search_next(&search, &found)) {
        if (found.matches)
            bytes_add_text(to, d->content);
        else
            bytes_add(to, text + found.begin, found.end - found.begin);
    }
    search_end(&search);
    return !search.failed;
}

static bool apply(const struct decoder *d, const struct pieces *from, struct pieces *to);

static bool apply_steps(const struct decoder *d, const struct pieces *from, struct pieces *to)
{
    struct pieces before = {0};
    bool good = true;
    for (size_t i = 0; i < from->count; i++)
        pieces_copy(&before, from, &from->list[i]);
    for (size_t i = 0; good && i < d->count; i++) {
        struct pieces after = {0};
        good = apply(d->steps[i], &before, &after);
        after.text.failed = after.text.failed || before.text.failed;
        pieces_free(&before);
        before = after;
    }
    pieces_free(to);
    *to = before;
    return good;
}

/** All texts become one. */
static void fuse(const struct decoder *d, const struct pieces *from, struct pieces *to)
{
    struct bytes all = {0};
    for (size_t i = 0; i < from->count; i++) {
        const struct piece *piece = &from->list[i];
        if (d->kind == BYTES)
            add_alphabet(from->text.at + piece->begin, piece->size, &all);
        else
            bytes_add(&all, from->text.at + piece->begin, piece->size);
    }
    if (d->kind == BYTES)
        add_valid_text(&to->text, all.at, all.size);
    else
        bytes_add(&to->text, all.at, all.size);
    to->text.failed = to->text.failed || all.failed;
    bytes_free(&all);
    /* An empty text is one, too, so that every step after this sees what the reference shows it. */
    pieces_add(to, (struct piece){0, to->text.size, 0, true});
}

/** Pieces have id 0, so that none is dropped for being empty. */
static bool apply(const struct decoder *d, const struct pieces *from, struct pieces *to)
{
    bool good = true;
    if (d->kind == SEQUENCE)
        return apply_steps(d, from, to);
    if (d->kind == BYTE_TOKENS) {
        join_byte_tokens(from, to);
        return true;
    }
    if (d->kind == FUSE || d->kind == BYTES) {
        fuse(d, from, to);
        return true;
    }
    for (size_t i = 0; good && i < from->count; i++) {
        const struct piece *piece = &from->list[i];
        const char *text = from->text.at + piece->begin;
        const size_t begin = to->text.size;
        if (d->kind == WORDPIECE)
            add_wordpiece(d, text, piece->size, i == 0, &to->text);
        else if (d->kind == METASPACE)
            add_metaspace(d, text, piece->size, i == 0, &to->text);
        else if (d->kind == STRIP)
            add_stripped(d, text, piece->size, &to->text);
        else if (d->kind == REPLACE)
            good = add_pattern(d, text, piece->size, &to->text);
        else
            add_replaced(&to->text, text, piece->size, d->content, i + 1 < from->count ? " " : "");
        pieces_add(to, (struct piece){begin, to->text.size - begin, 0, i == 0});
    }
    return good;
}

bool decoder_apply(const struct decoder *d, const struct pieces *from, struct bytes *to)
{
    if (d == NULL) {
        for (size_t i = 0; i < from->count; i++) {
            bytes_add_text(to, i > 0 ? " " : "");
            bytes_add(to, from->text.at + from->list[i].begin, from->list[i].size);
        }
        return true;
    }
    struct pieces texts = {0};
    const bool good = apply(d, from, &texts);
    for (size_t i = 0; i < texts.count; i++)
        bytes_add(to, texts.text.at + texts.list[i].begin, texts.list[i].size);
    to->failed = to->failed || texts.text.failed;
    pieces_free(&texts);
    return good;
}
