/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte-pair tokens (Sennrich et al. 2016). Each character of a piece is a symbol at first. Of all neighbours that the
 * file lists as a pair, those of lowest rank, the leftmost first, become one symbol, until there are none.
 *
 * Pairs wait in a heap, so that a piece of n characters takes n log n steps: a piece may be as long as a text. A pair
 * in the heap of which a symbol has changed since is found out and dropped when its turn comes.
 */
#include <stdlib.h>
#include <string.h>

#include "text/bytes.h"
#include "text/characters.h"
#include "text/model.h"

size_t merge_slot(const struct model *m, int32_t left, int32_t right)
{
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    /* The upper bits of a product with an odd number near 2^64 / golden ratio (Knuth, volume 3, 6.4). */
    size_t slot = (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (m->num_merge_slots - 1);
    while (m->merges[slot].left >= 0 && (m->merges[slot].left != left || m->merges[slot].right != right))
        slot = (slot + 1) & (m->num_merge_slots - 1);
    return slot;
}

/* ------------------------------------------------------------------ reading -- */

/** One merge of two texts, of which the second may begin with the prefix of later pieces, which the result has once. */
static attn_status read_pair(struct model *m, const struct entry *list, size_t rank, const char *left, size_t left_size,
                             const char *right, size_t right_size)
{
    const size_t prefix = strlen(m->prefix), off = right_size < prefix ? right_size : prefix;
    struct bytes both = {0};
    bytes_add(&both, left, left_size);
    bytes_add(&both, right + off, right_size - off);
    if (both.failed) {
        bytes_free(&both);
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", list->file);
    }
    const struct merge merge = {vocabulary_find(&m->vocabulary, left, left_size),
                                vocabulary_find(&m->vocabulary, right, right_size),
                                vocabulary_find(&m->vocabulary, both.at, both.size), (int32_t)rank};
    bytes_free(&both);
    if (merge.left < 0 || merge.right < 0 || merge.result < 0)
        return io_fail(ATTN_INVALID_FILE, "%s: %s[%zu] is '%.*s' and '%.*s'; expected tokens that make a token",
                       list->file, list->path, rank, left_size < 60 ? (int)left_size : 60, left,
                       right_size < 60 ? (int)right_size : 60, right);
    /* Of a pair that is listed twice the last one counts. */
    m->merges[merge_slot(m, merge.left, merge.right)] = merge;
    return ATTN_OK;
}

/** A pair is a list of two texts, or, in older files, one text with a space between. */
static attn_status read_merge(struct model *m, const struct entry *list, size_t rank)
{
    const json_t *item = json_array_get(list->value, rank);
    const json_t *left = json_array_get(item, 0), *right = json_array_get(item, 1);
    if (json_array_size(item) == 2 && json_is_string(left) && json_is_string(right))
        return read_pair(m, list, rank, json_string_value(left), json_string_length(left), json_string_value(right),
                         json_string_length(right));
    const char *line = json_string_value(item), *space = line ? strchr(line, ' ') : NULL;
    if (space == NULL || strchr(space + 1, ' ') != NULL)
        return io_fail(ATTN_INVALID_FILE, "%s: %s[%zu] is neither a pair of texts nor a text with one space",
                       list->file, list->path, rank);
    return read_pair(m, list, rank, line, (size_t)(space - line), space + 1, strlen(space + 1));
}

static attn_status read_merges(struct model *m, const struct entry *entry)
{
    struct entry list;
    CHECK(entry_list_or(entry, "merges", &list));
    const size_t count = json_array_size(list.value);
    if (count > INT32_MAX)
        return io_fail(ATTN_INVALID_FILE, "%s: %s has %zu pairs; expected at most %d", list.file, list.path, count,
                       INT32_MAX);
    for (m->num_merge_slots = 16; m->num_merge_slots < 2 * count;)
        m->num_merge_slots *= 2;
    m->merges = malloc(m->num_merge_slots * sizeof *m->merges);
    if (m->merges == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", list.file);
    for (size_t slot = 0; slot < m->num_merge_slots; slot++)
        m->merges[slot].left = -1;
    for (size_t rank = 0; rank < count; rank++)
        CHECK(read_merge(m, &list, rank));
    return ATTN_OK;
}

attn_status byte_pairs_read(struct model *m, const struct entry *entry)
{
    const struct entry dropout = entry_at(entry, "dropout"), named = entry_at(entry, "unk_token");
    const char *prefix, *suffix, *unknown;
    if (dropout.value != NULL && !(json_is_number(dropout.value) && json_number_value(dropout.value) == 0))
        return entry_refuse(ATTN_UNSUPPORTED, &dropout, "null or 0");
    CHECK(vocabulary_read(&m->vocabulary, entry));
    CHECK(entry_text_or(entry, "continuing_subword_prefix", &prefix));
    CHECK(entry_text_or(entry, "end_of_word_suffix", &suffix));
    CHECK(entry_text_or(entry, "unk_token", &unknown));
    CHECK(entry_boolean_or(entry, "fuse_unk", &m->fuse_unknown));
    CHECK(entry_boolean_or(entry, "byte_fallback", &m->byte_fallback));
    CHECK(entry_boolean_or(entry, "ignore_merges", &m->whole_first));
    m->prefix = prefix != NULL ? prefix : "";
    m->suffix = suffix != NULL ? suffix : "";
    find_byte_tokens(m);
    if (unknown != NULL) {
        m->unknown = vocabulary_find(&m->vocabulary, unknown, strlen(unknown));
        if (m->unknown < 0 && *unknown != '\0')
            return entry_refuse(ATTN_INVALID_FILE, &named, "a token of the vocabulary");
    }
    return read_merges(m, entry);
}

/* ---------------------------------------------------------------- one piece -- */

struct symbol {
    int32_t id; /* -1: has become part of the one before it */
    int32_t before, after;
};

struct candidate {
    int32_t rank, result;
    int32_t at; /* of the left symbol */
};

struct encoder {
    const struct model *model;
    struct symbol *symbols;
    struct candidate *heap;
    int32_t heaped;
};

static bool comes_before(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(struct encoder *e, struct candidate c)
{
    int32_t at = e->heaped++;
    while (at > 0 && comes_before(&c, &e->heap[(at - 1) / 2])) {
        e->heap[at] = e->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    e->heap[at] = c;
}

static struct candidate pop(struct encoder *e)
{
    const struct candidate first = e->heap[0], last = e->heap[--e->heaped];
    int32_t at = 0, child;
    while ((child = 2 * at + 1) < e->heaped) {
        if (child + 1 < e->heaped && comes_before(&e->heap[child + 1], &e->heap[child]))
            child++;
        if (!comes_before(&e->heap[child], &last))
            break;
        e->heap[at] = e->heap[child];
        at = child;
    }
    e->heap[at] = last;
    return first;
}

/** The pair of a symbol and the one after it; left is -1 if they are none. */
static struct merge pair_at(const struct encoder *e, int32_t at)
{
    if (at < 0 || e->symbols[at].id < 0 || e->symbols[at].after < 0)
        return (struct merge){-1, -1, -1, -1};
    return e->model->merges[merge_slot(e->model, e->symbols[at].id, e->symbols[e->symbols[at].after].id)];
}

static void consider(struct encoder *e, int32_t at)
{
    const struct merge pair = pair_at(e, at);
    if (pair.left >= 0)
        push(e, (struct candidate){pair.rank, pair.result, at});
}

static void join(struct encoder *e, const struct candidate *c)
{
    const struct merge pair = pair_at(e, c->at);
    if (pair.left < 0 || pair.result != c->result)
        return;
    struct symbol *left = &e->symbols[c->at], *right = &e->symbols[left->after];
    left->id = c->result;
    right->id = -1;
    left->after = right->after;
    if (left->after >= 0)
        e->symbols[left->after].before = c->at;
    consider(e, left->before);
    consider(e, c->at);
}

/** The first symbols: tokens of characters, or of their bytes, or the unknown one. */
static void add_symbols(const struct model *m, const char *text, size_t size, struct ids *symbols)
{
    struct bytes whole = {0};
    bool waits = false; /* an unknown token, which comes before the next known one */
    for (size_t at = 0, length; at < size; at += length) {
        character_at(text + at, size - at, &length);
        whole.size = 0;
        bytes_add_text(&whole, at > 0 ? m->prefix : "");
        bytes_add(&whole, text + at, length);
        bytes_add_text(&whole, at + length == size ? m->suffix : "");
        const int32_t id = whole.failed ? -1 : vocabulary_find(&m->vocabulary, whole.at, whole.size);
        if (id >= 0) {
            if (waits)
                ids_add(symbols, m->unknown);
            waits = false;
            ids_add(symbols, id);
        } else if (!(m->byte_fallback && !whole.failed && add_byte_tokens(m, whole.at, whole.size, symbols))) {
            if (waits && !m->fuse_unknown)
                ids_add(symbols, m->unknown);
            waits = m->unknown >= 0;
        }
    }
    if (waits)
        ids_add(symbols, m->unknown);
    symbols->failed = symbols->failed || whole.failed;
    bytes_free(&whole);
}

/** Joins symbols and appends what they have become. */
static void add_joined(const struct model *m, const struct ids *symbols, struct ids *ids)
{
    /* A position has one entry at first, and two more for each of the fewer joins. */
    struct encoder e = {.model = m,
                        .symbols = malloc((symbols->count + 1) * sizeof *e.symbols),
                        .heap = malloc((3 * symbols->count + 1) * sizeof *e.heap)};
    const int32_t count = (int32_t)symbols->count;
    if (e.symbols == NULL || e.heap == NULL) {
        ids->failed = true;
    } else if (count > 0) {
        for (int32_t i = 0; i < count; i++)
            e.symbols[i] = (struct symbol){symbols->at[i], i - 1, i + 1 < count ? i + 1 : -1};
        for (int32_t at = 0; at < count; at++)
            consider(&e, at);
        while (e.heaped > 0) {
            const struct candidate next = pop(&e);
            join(&e, &next);
        }
        for (int32_t at = 0; at >= 0; at = e.symbols[at].after)
            ids_add(ids, e.symbols[at].id);
    }
    free(e.symbols);
    free(e.heap);
}

void byte_pairs_encode(const struct model *m, const char *text, size_t size, struct ids *ids)
{
    const int32_t whole = m->whole_first ? vocabulary_find(&m->vocabulary, text, size) : -1;
    if (whole >= 0) {
        ids_add(ids, whole);
        return;
    }
    struct ids symbols = {0};
    add_symbols(m, text, size, &symbols);
    add_joined(m, &symbols, ids);
    ids->failed = ids->failed || symbols.failed;
    free(symbols.at);
}
