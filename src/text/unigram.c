/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unigram tokens (Kudo 2018): of all ways to cut a piece into tokens the one whose probabilities have the largest
 * product, found by Viterbi's algorithm. A character that begins no token of its own length may be an unknown one,
 * whose score is 10 below the lowest of all; of equal ways the first found stays, so ids are those of the reference.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/characters.h"
#include "text/model.h"

static const double unknown_penalty = 10.0;

attn_status unigram_read(struct model *m, const struct entry *entry)
{
    struct entry list;
    int64_t unknown = -1;
    CHECK(entry_list_or(entry, "vocab", &list));
    const size_t count = json_array_size(list.value);
    double least = INFINITY;
    CHECK(vocabulary_reserve(&m->vocabulary, count, entry->file));
    m->scores = calloc(count + 1, sizeof *m->scores);
    if (m->scores == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", entry->file);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(list.value, i), *text = json_array_get(item, 0);
        if (json_array_size(item) != 2 || !json_is_string(text) || !json_is_number(json_array_get(item, 1)))
            return io_fail(ATTN_INVALID_FILE, "%s: %s[%zu] is no pair of a token and its score", list.file, list.path,
                           i);
        m->scores[i] = json_number_value(json_array_get(item, 1));
        least = m->scores[i] < least ? m->scores[i] : least;
        vocabulary_add(&m->vocabulary, json_string_value(text), json_string_length(text), (int32_t)i);
    }
    CHECK(entry_integer_or(entry, "unk_id", 0, (int64_t)count - 1, &unknown));
    CHECK(entry_boolean_or(entry, "byte_fallback", &m->byte_fallback));
    m->unknown = (int32_t)unknown;
    m->unknown_score = least - unknown_penalty;
    find_byte_tokens(m);
    return ATTN_OK;
}

/** The best way to a place of the text. */
struct way {
    double score;
    size_t from;
    int32_t id; /* of the token that ends here; -1: no way leads here */
};

/** Takes a way to a place if it is better than those before. */
static void offer(struct way *to, double score, size_t from, int32_t id)
{
    if (to->id < 0 || score > to->score)
        *to = (struct way){score, from, id};
}

static bool find_ways(const struct model *m, const char *text, size_t size, struct way *ways)
{
    for (size_t at = 0, length; at < size; at += length) {
        const double here = ways[at].score;
        const size_t most = size - at < m->vocabulary.longest ? size - at : m->vocabulary.longest;
        uint32_t hash = HASH_FIRST;
        bool single = false;
        character_at(text + at, size - at, &length);
        for (size_t i = 0; i < most; i++) {
            hash = hash_on(hash, text[at + i]);
            if (at + i + 1 < size && ((unsigned char)text[at + i + 1] & 0xc0) == 0x80)
                continue;
            const int32_t id = vocabulary_find_hashed(&m->vocabulary, hash, text + at, i + 1);
            if (id < 0)
                continue;
            offer(&ways[at + i + 1], m->scores[id] + here, at, id);
            single = single || i + 1 == length;
        }
        if (!single) {
            if (m->unknown < 0)
                return false;
            offer(&ways[at + length], m->unknown_score + here, at, m->unknown);
        }
    }
    return true;
}

/** The token of a part, those of its bytes, or the unknown one. */
static bool add_part(const struct model *m, const char *text, size_t size, struct ids *ids)
{
    const int32_t id = vocabulary_find(&m->vocabulary, text, size);
    if (id < 0 && m->byte_fallback && add_byte_tokens(m, text, size, ids))
        return true;
    if (id < 0 && m->unknown < 0)
        return false;
    ids_add(ids, id >= 0 ? id : m->unknown);
    return true;
}

bool unigram_encode(const struct model *m, const char *text, size_t size, struct ids *ids)
{
    struct way *ways = malloc((size + 1) * sizeof *ways);
    if (ways == NULL) {
        ids->failed = true;
        return true;
    }
    for (size_t at = 0; at <= size; at++)
        ways[at] = (struct way){.id = -1};
    bool good = find_ways(m, text, size, ways);
    /* Back along the way; then forth, where unknown tokens beside each other are one. What a place is left by goes into
     * the way of where it comes from, whose own is read before. */
    size_t next = size;
    for (size_t at = size; good && at > 0;) {
        const size_t from = ways[at].from;
        const bool unknown = ways[at].id == m->unknown && m->unknown >= 0;
        ways[at].from = next;
        ways[at].score = unknown;
        next = at;
        at = from;
    }
    ways[0].from = next;
    for (size_t begin = 0, at; good && begin < size; begin = at) {
        at = ways[begin].from;
        while (ways[at].score != 0 && at < size && ways[ways[at].from].score != 0)
            at = ways[at].from;
        good = add_part(m, text + begin, at - begin, ids);
    }
    free(ways);
    return good;
}
