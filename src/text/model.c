/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models of words: WordPiece, and a list of words. WordPiece (Schuster & Nakajima 2012, as BERT uses it) cuts a word
 * into the longest token that it begins with, then the longest that the rest begins with, and so on; tokens other than
 * the first have a prefix in the vocabulary. If some rest begins with no token, the whole word is unknown.
 */
#include "text/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/bytes.h"

void ids_add(struct ids *ids, int32_t id)
{
    if (ids->failed)
        return;
    if (ids->count == ids->room) {
        const size_t room = 2 * ids->room + 16;
        int32_t *more = realloc(ids->at, room * sizeof *more);
        if (more == NULL) {
            ids->failed = true;
            return;
        }
        ids->at = more;
        ids->room = room;
    }
    ids->at[ids->count++] = id;
}

void find_byte_tokens(struct model *m)
{
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        const int size = snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        m->byte_ids[byte] = vocabulary_find(&m->vocabulary, name, (size_t)size);
    }
}

bool add_byte_tokens(const struct model *m, const char *text, size_t size, struct ids *ids)
{
    for (size_t i = 0; i < size; i++)
        if (m->byte_ids[(unsigned char)text[i]] < 0)
            return false;
    for (size_t i = 0; i < size; i++)
        ids_add(ids, m->byte_ids[(unsigned char)text[i]]);
    return true;
}

/* ------------------------------------------------------------------ reading -- */

/** The unknown token, which the vocabulary has to have. */
static attn_status read_unknown(struct model *m, const struct entry *entry)
{
    const char *name;
    CHECK(entry_text(entry, "unk_token", &name));
    m->unknown = vocabulary_find(&m->vocabulary, name, strlen(name));
    const struct entry named = entry_at(entry, "unk_token");
    return m->unknown >= 0 ? ATTN_OK : entry_refuse(ATTN_INVALID_FILE, &named, "a token of the vocabulary");
}

static attn_status read_wordpiece(struct model *m, const struct entry *entry)
{
    const char *prefix;
    CHECK(vocabulary_read(&m->vocabulary, entry));
    CHECK(entry_text_or(entry, "continuing_subword_prefix", &prefix));
    m->prefix = prefix != NULL ? prefix : "##";
    m->max_word_characters = 100;
    CHECK(entry_integer_or(entry, "max_input_chars_per_word", 0, INT32_MAX, &m->max_word_characters));
    return read_unknown(m, entry);
}

static attn_status read_words(struct model *m, const struct entry *entry)
{
    CHECK(vocabulary_read(&m->vocabulary, entry));
    return read_unknown(m, entry);
}

/** What older files, which have no type, describe. */
static const char *guess_type(const struct entry *entry)
{
    if (json_object_get(entry->value, "merges") != NULL)
        return "BPE";
    if (json_is_array(json_object_get(entry->value, "vocab")))
        return "Unigram";
    return json_object_get(entry->value, "max_input_chars_per_word") != NULL ? "WordPiece" : "WordLevel";
}

attn_status model_read(struct model *m, const struct entry *entry)
{
    static const struct {
        const char *type;
        enum model_kind kind;
        attn_status (*read)(struct model *model, const struct entry *entry);
    } types[] = {{"WordPiece", MODEL_WORDPIECE, read_wordpiece},
                 {"BPE", MODEL_BYTE_PAIRS, byte_pairs_read},
                 {"Unigram", MODEL_UNIGRAM, unigram_read},
                 {"WordLevel", MODEL_WORDS, read_words}};
    if (!json_is_object(entry->value))
        return entry_refuse(ATTN_INVALID_FILE, entry, "an object");
    const char *type = *entry_type(entry) ? entry_type(entry) : guess_type(entry);
    m->unknown = -1;
    m->prefix = m->suffix = "";
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i].type) == 0) {
            m->kind = types[i].kind;
            return types[i].read(m, entry);
        }
    const struct entry named = entry_at(entry, "type");
    return entry_refuse(ATTN_UNSUPPORTED, &named, "WordPiece, BPE, Unigram or WordLevel");
}

void model_free(struct model *m)
{
    vocabulary_free(&m->vocabulary);
    free(m->merges);
    free(m->scores);
    *m = (struct model){0};
}

/* ----------------------------------------------------------------- encoding -- */

static size_t characters_of(const char *text, size_t size)
{
    size_t count = 0;
    for (size_t i = 0; i < size; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

/** The longest token that a rest begins with, behind a prefix; *length is set to what it has of the rest. */
static int32_t longest_token(const struct model *m, const char *prefix, const char *rest, size_t size, size_t *length)
{
    uint32_t hash = HASH_FIRST;
    int32_t longest = -1;
    char text[256];
    struct bytes large = {0};
    const size_t before = strlen(prefix), most = m->vocabulary.longest;
    size = before + size > most ? (most > before ? most - before : 0) : size;
    char *all = text;
    if (before + size > sizeof text) {
        bytes_add(&large, prefix, before);
        bytes_add(&large, rest, size);
        if (large.failed) {
            bytes_free(&large);
            return -2;
        }
        all = large.at;
    } else {
        memcpy(text, prefix, before);
        memcpy(text + before, rest, size);
    }
    for (size_t i = 0; i < before + size; i++) {
        hash = hash_on(hash, all[i]);
        if (i < before || (i + 1 < before + size && ((unsigned char)all[i + 1] & 0xc0) == 0x80))
            continue;
        const int32_t id = vocabulary_find_hashed(&m->vocabulary, hash, all, i + 1);
        if (id >= 0) {
            longest = id;
            *length = i + 1 - before;
        }
    }
    bytes_free(&large);
    return longest;
}

static void encode_word(const struct model *m, const char *text, size_t size, struct ids *ids)
{
    const size_t first = ids->count;
    bool known = (int64_t)characters_of(text, size) <= m->max_word_characters;
    for (size_t at = 0, length = 0; known && at < size; at += length) {
        const int32_t id = longest_token(m, at > 0 ? m->prefix : "", text + at, size - at, &length);
        known = id >= 0;
        if (known)
            ids_add(ids, id);
        ids->failed = ids->failed || id == -2;
    }
    if (!known) {
        ids->count = ids->failed ? ids->count : first;
        ids_add(ids, m->unknown);
    }
}

bool model_encode(const struct model *m, const char *text, size_t size, struct ids *ids)
{
    switch (m->kind) {
    case MODEL_WORDPIECE:
        encode_word(m, text, size, ids);
        return true;
    case MODEL_BYTE_PAIRS:
        byte_pairs_encode(m, text, size, ids);
        return true;
    case MODEL_UNIGRAM:
        return unigram_encode(m, text, size, ids);
    case MODEL_WORDS:
        break;
    }
    const int32_t id = vocabulary_find(&m->vocabulary, text, size);
    ids_add(ids, id >= 0 ? id : m->unknown);
    return true;
}
