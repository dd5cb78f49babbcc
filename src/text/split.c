/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts pieces of a text into smaller ones, in steps. A step says which parts of a piece match; what becomes of them and
 * of what lies between is its behaviour.
 */
#include "text/split.h"

#include <stdlib.h>
#include <string.h>

#include "text/alphabet.h"
#include "text/characters.h"
#include "text/pattern.h"

enum kind { BERT, WORDS, WHITE_SPACE, BYTES, PATTERN, DIGITS, PUNCTUATION, DELIMITER, METASPACE, SEQUENCE };
enum behaviour { REMOVED, ISOLATED, WITH_PREVIOUS, WITH_NEXT, CONTIGUOUS };
enum scheme { ALWAYS, FIRST, NEVER };

enum { MAX_DEPTH = 16 };

/* As GPT-2 cuts (Radford et al. 2019): shortened words, letters, numbers, other characters, white space. */
static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

struct splitter {
    enum kind kind;
    enum behaviour behaviour;
    enum scheme scheme;
    bool invert, prefix,
        cuts;            /* what matches is what the pattern does not; BYTES: a space first; BYTES, METASPACE: cut */
    char replacement[5]; /* of METASPACE, and DELIMITER */
    struct pattern *pattern;
    struct splitter **steps;
    size_t count;
};

void splitter_free(struct splitter *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->count; i++)
        splitter_free(s->steps[i]);
    free(s->steps);
    pattern_free(s->pattern);
    free(s);
}

/* ------------------------------------------------------------------ reading -- */

static attn_status read_step(struct splitter **out, const struct entry *entry, int depth);

static attn_status read_steps(struct splitter *s, const struct entry *entry, int depth)
{
    struct entry list;
    CHECK(entry_list_or(entry, "pretokenizers", &list));
    const size_t count = json_array_size(list.value);
    s->steps = calloc(count + 1, sizeof(struct splitter *));
    if (s->steps == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", entry->file);
    for (; s->count < count; s->count++) {
        const struct entry step = entry_element(&list, s->count);
        CHECK(read_step(&s->steps[s->count], &step, depth + 1));
    }
    return ATTN_OK;
}

static attn_status read_behaviour(struct splitter *s, const struct entry *entry)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *name;
    CHECK(entry_text_or(entry, "behavior", &name));
    for (int i = 0; name != NULL && i < 5; i++)
        if (strcmp(name, names[i]) == 0) {
            s->behaviour = (enum behaviour)i;
            return ATTN_OK;
        }
    const struct entry named = entry_at(entry, "behavior");
    return name == NULL ? ATTN_OK
                        : entry_refuse(ATTN_UNSUPPORTED, &named,
                                       "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

static attn_status read_character(struct splitter *s, const struct entry *entry, const char *name)
{
    const char *text;
    size_t length = 0;
    CHECK(entry_text(entry, name, &text));
    if (*text != '\0')
        character_at(text, strlen(text), &length);
    const struct entry named = entry_at(entry, name);
    if (length == 0 || strlen(text) != length)
        return entry_refuse(ATTN_INVALID_FILE, &named, "one character");
    memcpy(s->replacement, text, length);
    return ATTN_OK;
}

/** prepend_scheme, or add_prefix_space of older files. */
static attn_status read_scheme(struct splitter *s, const struct entry *entry)
{
    static const char *const names[] = {"always", "first", "never"};
    const char *name;
    bool prefix = true;
    CHECK(entry_text_or(entry, "prepend_scheme", &name));
    CHECK(entry_boolean_or(entry, "add_prefix_space", &prefix));
    s->scheme = prefix ? ALWAYS : NEVER;
    for (int i = 0; name != NULL && i < 3; i++)
        if (strcmp(name, names[i]) == 0) {
            s->scheme = (enum scheme)i;
            return ATTN_OK;
        }
    const struct entry named = entry_at(entry, "prepend_scheme");
    return name == NULL ? ATTN_OK : entry_refuse(ATTN_UNSUPPORTED, &named, "always, first or never");
}

static attn_status read_kind(struct splitter *s, const struct entry *entry, int depth)
{
    static const struct {
        const char *type;
        enum kind kind;
        enum behaviour behaviour;
    } types[] = {
        {"BertPreTokenizer", BERT, ISOLATED},
        {"Whitespace", WORDS, REMOVED},
        {"WhitespaceSplit", WHITE_SPACE, REMOVED},
        {"ByteLevel", BYTES, ISOLATED},
        {"Split", PATTERN, ISOLATED},
        {"Digits", DIGITS, CONTIGUOUS},
        {"Punctuation", PUNCTUATION, ISOLATED},
        {"CharDelimiterSplit", DELIMITER, REMOVED},
        {"Metaspace", METASPACE, WITH_NEXT},
        {"Sequence", SEQUENCE, ISOLATED},
    };
    const char *type = entry_type(entry);
    size_t i = 0;
    while (i < sizeof types / sizeof *types && strcmp(type, types[i].type) != 0)
        i++;
    if (i == sizeof types / sizeof *types) {
        const struct entry named = entry_at(entry, "type");
        return entry_refuse(ATTN_UNSUPPORTED, &named,
                            "BertPreTokenizer, Whitespace, WhitespaceSplit, ByteLevel, Split, Digits, Punctuation, "
                            "CharDelimiterSplit, Metaspace or Sequence");
    }
    s->kind = types[i].kind;
    s->behaviour = types[i].behaviour;
    s->prefix = s->cuts = true;
    bool individual = false;
    switch (s->kind) {
    case BYTES:
        CHECK(entry_boolean_or(entry, "add_prefix_space", &s->prefix));
        CHECK(entry_boolean_or(entry, "use_regex", &s->cuts));
        return s->cuts ? pattern_of_expression(&s->pattern, gpt2) : ATTN_OK;
    case PATTERN:
        CHECK(pattern_read(&s->pattern, entry));
        CHECK(entry_boolean_or(entry, "invert", &s->invert));
        return read_behaviour(s, entry);
    case DIGITS:
        CHECK(entry_boolean_or(entry, "individual_digits", &individual));
        s->behaviour = individual ? ISOLATED : CONTIGUOUS;
        return ATTN_OK;
    case PUNCTUATION:
        return read_behaviour(s, entry);
    case DELIMITER:
        return read_character(s, entry, "delimiter");
    case METASPACE:
        CHECK(read_character(s, entry, "replacement"));
        CHECK(entry_boolean_or(entry, "split", &s->cuts));
        return read_scheme(s, entry);
    case SEQUENCE:
        return read_steps(s, entry, depth);
    default:
        return ATTN_OK;
    }
}

static attn_status read_step(struct splitter **out, const struct entry *entry, int depth)
{
    *out = NULL;
    if (depth > MAX_DEPTH)
        return entry_refuse(ATTN_UNSUPPORTED, entry, "sequences in sequences no deeper than 16");
    struct splitter *s = calloc(1, sizeof *s);
    if (s == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", entry->file);
    const attn_status status = read_kind(s, entry, depth);
    if (status == ATTN_OK)
        *out = s;
    else
        splitter_free(s);
    return status;
}

attn_status splitter_read(struct splitter **splitter, const struct entry *entry)
{
    *splitter = NULL;
    return entry->value == NULL ? ATTN_OK : read_step(splitter, entry, 0);
}

/* -------------------------------------------------------------------- parts -- */

/** Parts of a piece, in order and without gaps. */
struct parts {
    const struct splitter *splitter;
    const char *text;
    size_t size, at;
    struct search search; /* of a pattern */
};

/** Whether a character is what a step without a pattern looks for. */
static bool is_looked_for(const struct splitter *s, const char *text, size_t length, int32_t c, bool words)
{
    switch (s->kind) {
    case BERT:
        return words ? is_white_space(c) : is_punctuation(c);
    case WORDS:
    case WHITE_SPACE:
        return is_white_space(c);
    case DIGITS:
        return is_number(c);
    case PUNCTUATION:
        return is_punctuation(c);
    default:
        return strlen(s->replacement) == length && memcmp(text, s->replacement, length) == 0;
    }
}

/** words: of BERT's two cuts the first one, at white space. */
static bool next_part(struct parts *p, bool words, struct found *found)
{
    const struct splitter *s = p->splitter;
    if (s->pattern != NULL)
        return search_next(&p->search, found);
    if (p->at >= p->size)
        return false;
    *found = (struct found){p->at, p->at, false};
    for (size_t length; found->end < p->size; found->end += length) {
        const char *at = p->text + found->end;
        const int32_t c = character_at(at, p->size - found->end, &length);
        if (!is_looked_for(s, at, length, c, words))
            continue;
        if (found->end == found->begin) {
            found->end += length;
            found->matches = true;
        }
        break;
    }
    p->at = found->end;
    return true;
}

/** \w+ and [^\w\s]+ are pieces, white space is none. */
static void split_words(const char *text, size_t size, struct pieces *to, struct piece piece)
{
    for (size_t at = 0, end, length; at < size; at = end) {
        const int32_t c = character_at(text + at, size - at, &length);
        const bool space = is_white_space(c), word = is_word_character(c);
        for (end = at + length; end < size; end += length) {
            const int32_t next = character_at(text + end, size - end, &length);
            if (is_white_space(next) != space || is_word_character(next) != word)
                break;
        }
        if (!space)
            pieces_add(to, (struct piece){piece.begin + at, end - at, -1, piece.first && at == 0});
    }
}

/** Cuts a piece of to's text, which has been taken off its list. False: a pattern has failed. */
static bool cut(const struct splitter *s, bool words, struct pieces *to, struct piece piece)
{
    const char *text = to->text.at + piece.begin;
    struct parts parts = {s, text, piece.size, 0, {.pattern = s->pattern, .text = text, .size = piece.size}};
    const enum behaviour behaviour = s->kind == BERT && words ? REMOVED : s->behaviour;
    const size_t first = to->count;
    struct found found;
    bool before = false;
    if (s->kind == WORDS) {
        split_words(text, piece.size, to, piece);
        return true;
    }
    while (next_part(&parts, words, &found)) {
        const bool matches = found.matches != s->invert;
        struct piece next = {piece.begin + found.begin, found.end - found.begin, -1, piece.first && found.begin == 0};
        struct piece *last = to->count > first ? &to->list[to->count - 1] : NULL;
        const bool joins = behaviour == CONTIGUOUS      ? matches == before && last != NULL
                           : behaviour == WITH_PREVIOUS ? matches && !before && last != NULL
                           : behaviour == WITH_NEXT     ? !matches && before && last != NULL
                                                        : false;
        if (joins)
            last->size += next.size;
        else if (!(matches && behaviour == REMOVED))
            pieces_add(to, next);
        before = matches;
    }
    search_end(&parts.search);
    return !parts.search.failed;
}

/* -------------------------------------------------------------------- steps -- */

/** Cuts all pieces. */
static bool cut_all(const struct splitter *s, bool words, const struct pieces *from, struct pieces *to)
{
    for (size_t i = 0; i < from->count && !to->text.failed; i++) {
        struct piece piece = from->list[i];
        piece.begin = to->text.size;
        bytes_add(&to->text, from->text.at + from->list[i].begin, piece.size);
        if (piece.id >= 0)
            pieces_add(to, piece);
        else if (!to->text.failed && !cut(s, words, to, piece))
            return false;
    }
    return true;
}

/** Bytes: a space before a text, the cuts, and then the alphabet of bytes. */
static bool split_bytes(const struct splitter *s, const struct pieces *from, struct pieces *to)
{
    struct pieces spaced = {0}, parts = {0};
    for (size_t i = 0; i < from->count; i++) {
        const struct piece *piece = &from->list[i];
        const char *text = from->text.at + piece->begin;
        struct piece copy = {spaced.text.size, piece->size, piece->id, piece->first};
        if (s->prefix && piece->id < 0 && text[0] != ' ') {
            bytes_add(&spaced.text, " ", 1);
            copy.size++;
        }
        bytes_add(&spaced.text, text, piece->size);
        pieces_add(&spaced, copy);
    }
    const bool good = !s->cuts || cut_all(s, false, &spaced, &parts);
    const struct pieces *last = s->cuts ? &parts : &spaced;
    for (size_t i = 0; good && i < last->count; i++) {
        const struct piece *piece = &last->list[i];
        struct piece copy = {to->text.size, 0, piece->id, piece->first};
        for (size_t b = 0; b < piece->size && piece->id < 0; b++)
            bytes_add_character(&to->text, character_of_byte((unsigned char)last->text.at[piece->begin + b]));
        copy.size = to->text.size - copy.begin;
        pieces_add(to, copy);
    }
    to->text.failed = to->text.failed || spaced.text.failed || parts.text.failed;
    pieces_free(&spaced);
    pieces_free(&parts);
    return good;
}

/** Spaces become the replacement, one is put before a text, and each begins a piece. */
static bool split_metaspace(const struct splitter *s, const struct pieces *from, struct pieces *to)
{
    struct pieces marked = {0};
    const size_t length = strlen(s->replacement);
    for (size_t i = 0; i < from->count; i++) {
        const struct piece *piece = &from->list[i];
        const char *text = from->text.at + piece->begin;
        struct piece copy = {marked.text.size, 0, piece->id, piece->first};
        const bool marks =
            piece->size > 0 && (text[0] == ' ' || (piece->size >= length && memcmp(text, s->replacement, length) == 0));
        if (piece->id < 0 && !marks && (s->scheme == ALWAYS || (s->scheme == FIRST && piece->first)))
            bytes_add(&marked.text, s->replacement, length);
        for (size_t b = 0; b < piece->size && piece->id < 0; b++) {
            if (text[b] == ' ')
                bytes_add(&marked.text, s->replacement, length);
            else
                bytes_add(&marked.text, text + b, 1);
        }
        copy.size = marked.text.size - copy.begin;
        pieces_add(&marked, copy);
    }
    bool good = true;
    if (s->cuts)
        good = cut_all(s, false, &marked, to);
    else
        for (size_t i = 0; i < marked.count; i++)
            pieces_copy(to, &marked, &marked.list[i]);
    to->text.failed = to->text.failed || marked.text.failed;
    pieces_free(&marked);
    return good;
}

static bool split_steps(const struct splitter *s, const struct pieces *from, struct pieces *to)
{
    struct pieces before = {0};
    bool good = true;
    for (size_t i = 0; i < from->count; i++)
        pieces_copy(&before, from, &from->list[i]);
    for (size_t i = 0; good && i < s->count; i++) {
        struct pieces after = {0};
        good = splitter_apply(s->steps[i], &before, &after);
        after.text.failed = after.text.failed || before.text.failed;
        pieces_free(&before);
        before = after;
    }
    pieces_free(to);
    *to = before;
    return good;
}

static bool split_bert(const struct splitter *s, const struct pieces *from, struct pieces *to)
{
    struct pieces words = {0};
    const bool good = cut_all(s, true, from, &words) && cut_all(s, false, &words, to);
    to->text.failed = to->text.failed || words.text.failed;
    pieces_free(&words);
    return good;
}

bool splitter_apply(const struct splitter *s, const struct pieces *from, struct pieces *to)
{
    switch (s->kind) {
    case BERT:
        return split_bert(s, from, to);
    case BYTES:
        return split_bytes(s, from, to);
    case METASPACE:
        return split_metaspace(s, from, to);
    case SEQUENCE:
        return split_steps(s, from, to);
    default:
        return cut_all(s, false, from, to);
    }
}
