/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table of tokens, and their list by id. */
#include "text/vocabulary.h"

#include <stdlib.h>
#include <string.h>

/* Ids are rows of a table of embeddings: far fewer than this. */
enum { MOST_IDS = 1 << 26 };

attn_status vocabulary_reserve(struct vocabulary *v, size_t tokens, const char *file)
{
    size_t slots = 16;
    if (tokens > MOST_IDS)
        return io_fail(ATTN_INVALID_FILE, "%s has %zu tokens; expected at most %d", file, tokens, MOST_IDS);
    while (slots < 2 * tokens)
        slots *= 2;
    v->tokens = calloc(tokens + 1, sizeof *v->tokens);
    v->slots = calloc(slots, sizeof *v->slots);
    v->num_slots = slots;
    return v->tokens != NULL && v->slots != NULL ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", file);
}

/** The slot of a text, or the empty one that it would get. */
static struct vocabulary_slot *slot_of(const struct vocabulary *v, uint32_t hash, const char *text, size_t size)
{
    size_t at = (hash ^ hash >> 15) & (v->num_slots - 1);
    while (v->slots[at].text != NULL && (v->slots[at].size != size || memcmp(v->slots[at].text, text, size) != 0))
        at = (at + 1) & (v->num_slots - 1);
    return &v->slots[at];
}

static uint32_t hash_of(const char *text, size_t size)
{
    uint32_t hash = HASH_FIRST;
    for (size_t i = 0; i < size; i++)
        hash = hash_on(hash, text[i]);
    return hash;
}

void vocabulary_add(struct vocabulary *v, const char *text, size_t size, int32_t id)
{
    struct vocabulary_slot *slot = slot_of(v, hash_of(text, size), text, size);
    *slot = (struct vocabulary_slot){text, size, id};
    v->tokens[id] = text;
    v->count = id >= v->count ? id + 1 : v->count;
    v->longest = size > v->longest ? size : v->longest;
}

int32_t vocabulary_find_hashed(const struct vocabulary *v, uint32_t hash, const char *text, size_t size)
{
    const struct vocabulary_slot *slot = v->num_slots > 0 ? slot_of(v, hash, text, size) : NULL;
    return slot != NULL && slot->text != NULL ? slot->id : -1;
}

int32_t vocabulary_find(const struct vocabulary *v, const char *text, size_t size)
{
    return vocabulary_find_hashed(v, hash_of(text, size), text, size);
}

const char *vocabulary_token(const struct vocabulary *v, int32_t id)
{
    return id >= 0 && id < v->count ? v->tokens[id] : NULL;
}

void vocabulary_free(struct vocabulary *v)
{
    free(v->tokens);
    free(v->slots);
    *v = (struct vocabulary){0};
}

attn_status vocabulary_read(struct vocabulary *v, const struct entry *model)
{
    const struct entry vocab = entry_at(model, "vocab");
    const char *text;
    json_t *id;
    int64_t most = -1;
    if (!json_is_object(vocab.value))
        return entry_refuse(ATTN_INVALID_FILE, &vocab, "an object of tokens and their ids");
    json_object_foreach((json_t *)vocab.value, text, id)
    {
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= MOST_IDS)
            return io_fail(ATTN_INVALID_FILE, "%s: the id of token '%.60s' is no whole number from 0 to %d", vocab.file,
                           text, MOST_IDS - 1);
        most = json_integer_value(id) > most ? json_integer_value(id) : most;
    }
    const size_t count = json_object_size(vocab.value);
    CHECK(vocabulary_reserve(v, (size_t)(most + 1) > count ? (size_t)(most + 1) : count, vocab.file));
    json_object_foreach((json_t *)vocab.value, text, id)
    {
        const int32_t value = (int32_t)json_integer_value(id);
        if (v->tokens[value] != NULL)
            return io_fail(ATTN_INVALID_FILE, "%s: tokens '%.60s' and '%.60s' have the same id, %d", vocab.file,
                           v->tokens[value], text, (int)value);
        vocabulary_add(v, text, strlen(text), value);
    }
    return ATTN_OK;
}
