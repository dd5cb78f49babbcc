/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds added tokens: from left to right, at each place the longest. Some are looked for in the text as it is, the
 * others in the normalised one, for what the normaliser makes of them.
 */
#include "text/added.h"

#include <stdlib.h>
#include <string.h>

#include "text/characters.h"

/** The id must be the vocabulary's where that has the token, and no other token's. */
static attn_status check_id(const struct added_token *token, const struct entry *entry,
                            const struct vocabulary *vocabulary)
{
    const int32_t known = vocabulary_find(vocabulary, token->content, strlen(token->content));
    const char *other = vocabulary_token(vocabulary, token->id);
    if (known >= 0 && known != token->id)
        return io_fail(ATTN_INVALID_FILE, "%s: %s.id is %d; expected %d, which '%.60s' has in model.vocab", entry->file,
                       entry->path, (int)token->id, (int)known, token->content);
    if (known < 0 && other != NULL)
        return io_fail(ATTN_INVALID_FILE, "%s: %s.id is %d, which '%.60s' has in model.vocab; expected another",
                       entry->file, entry->path, (int)token->id, other);
    return ATTN_OK;
}

static attn_status read_token(struct added_token *token, const struct entry *entry, const struct normaliser *normaliser,
                              const struct vocabulary *vocabulary)
{
    int64_t id = -1;
    bool first = true;
    token->after = true;
    CHECK(entry_names(entry, "id", "content", "single_word", "lstrip", "rstrip", "normalized", "special", NULL));
    CHECK(entry_text(entry, "content", &token->content));
    CHECK(entry_integer_or(entry, "id", 0, INT32_MAX - 1, &id));
    CHECK(entry_boolean_or(entry, "special", &token->special));
    CHECK(entry_boolean_or(entry, "lstrip", &token->left));
    CHECK(entry_boolean_or(entry, "rstrip", &token->right));
    CHECK(entry_boolean_or(entry, "single_word", &token->single_word));
    CHECK(entry_boolean_or(entry, "normalized", &token->after));
    const struct entry named = entry_at(entry, "id");
    if (id < 0)
        return entry_refuse(ATTN_INVALID_FILE, &named, "a whole number");
    token->id = (int32_t)id;
    CHECK(check_id(token, entry, vocabulary));
    struct bytes text = {0};
    const bool good =
        normaliser_apply(token->after ? normaliser : NULL, token->content, strlen(token->content), &text, &first);
    bytes_add(&text, "", 1);
    if (good && !text.failed) {
        token->normalised = text.at;
        return ATTN_OK;
    }
    bytes_free(&text);
    return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", entry->file);
}

/* Of tokens with the same id the first in the file comes first. */
static int compare_ids(const void *a, const void *b)
{
    const struct added_token *first = *(const struct added_token *const *)a;
    const struct added_token *second = *(const struct added_token *const *)b;
    if (first->id != second->id)
        return first->id < second->id ? -1 : 1;
    return first < second ? -1 : first > second;
}

attn_status added_read(struct added_tokens *a, const struct entry *root, const struct normaliser *normaliser,
                       const struct vocabulary *vocabulary)
{
    struct entry list;
    CHECK(entry_list_or(root, "added_tokens", &list));
    const size_t count = json_array_size(list.value);
    a->list = calloc(count + 1, sizeof *a->list);
    a->by_id = calloc(count + 1, sizeof *a->by_id);
    if (a->list == NULL || a->by_id == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", root->file);
    CHECK(vocabulary_reserve(&a->by_text, count, count, root->file));
    CHECK(vocabulary_reserve(&a->by_normalised, count, count, root->file));
    for (; a->count < count; a->count++) {
        const struct entry element = entry_element(&list, a->count);
        struct added_token *token = &a->list[a->count];
        CHECK(read_token(token, &element, normaliser, vocabulary));
        a->by_id[a->count] = token;
        if (*token->normalised == '\0')
            continue;
        vocabulary_add(token->after ? &a->by_normalised : &a->by_text, token->normalised, strlen(token->normalised),
                       (int32_t)a->count);
        a->first_bytes[token->after][(unsigned char)*token->normalised] = true;
    }
    qsort(a->by_id, count, sizeof *a->by_id, compare_ids);
    return ATTN_OK;
}

void added_free(struct added_tokens *a)
{
    for (size_t i = 0; i < a->count; i++)
        free(a->list[i].normalised);
    free(a->list);
    free(a->by_id);
    vocabulary_free(&a->by_text);
    vocabulary_free(&a->by_normalised);
    *a = (struct added_tokens){0};
}

const struct added_token *added_of_id(const struct added_tokens *a, int32_t id)
{
    size_t low = 0, high = a->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (a->by_id[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < a->count && a->by_id[low]->id == id ? a->by_id[low] : NULL;
}

int32_t added_ids(const struct added_tokens *a)
{
    return a->count > 0 ? a->by_id[a->count - 1]->id + 1 : 0;
}

/** The longest token at a place; NULL: none. */
static const struct added_token *token_at(const struct added_tokens *a, const struct vocabulary *tokens,
                                          const char *text, size_t size)
{
    uint32_t hash = HASH_FIRST;
    const struct added_token *longest = NULL;
    for (size_t i = 0; i < size && i < tokens->longest; i++) {
        hash = hash_on(hash, text[i]);
        const int32_t place = vocabulary_find_hashed(tokens, hash, text, i + 1);
        if (place >= 0)
            longest = &a->list[place];
    }
    return longest;
}

static bool stands_alone(const char *text, size_t size, size_t begin, size_t end)
{
    size_t length, before = begin > 0 ? character_before(text, begin) : 0;
    return (begin == 0 || !is_word_character(character_at(text + before, begin - before, &length))) &&
           (end == size || !is_word_character(character_at(text + end, size - end, &length)));
}

/** Cuts one text, which stands at begin of to's. */
static void find_in(const struct added_tokens *a, bool after, bool special_as_text, struct pieces *to,
                    struct piece piece)
{
    const struct vocabulary *tokens = after ? &a->by_normalised : &a->by_text;
    const char *text = to->text.at + piece.begin;
    size_t done = 0, at = 0, length;
    while (at < piece.size) {
        const struct added_token *token =
            a->first_bytes[after][(unsigned char)text[at]] ? token_at(a, tokens, text + at, piece.size - at) : NULL;
        if (token == NULL) {
            at++;
            continue;
        }
        size_t begin = at, end = at + strlen(token->normalised);
        at = end;
        if ((special_as_text && token->special) || (token->single_word && !stands_alone(text, piece.size, begin, end)))
            continue;
        while (token->left && begin > done) {
            const size_t before = character_before(text, begin);
            if (!is_white_space(character_at(text + before, begin - before, &length)))
                break;
            begin = before;
        }
        while (token->right && end < piece.size && is_white_space(character_at(text + end, piece.size - end, &length)))
            end += length;
        if (done < begin)
            pieces_add(to, (struct piece){piece.begin + done, begin - done, -1, piece.first && done == 0});
        pieces_add(to, (struct piece){piece.begin + begin, end - begin, token->id, piece.first && begin == 0});
        done = end;
        at = end > at ? end : at;
    }
    if (done < piece.size)
        pieces_add(to, (struct piece){piece.begin + done, piece.size - done, -1, piece.first && done == 0});
}

void added_find(const struct added_tokens *a, bool after, bool special_as_text, const struct pieces *from,
                struct pieces *to)
{
    for (size_t i = 0; i < from->count && !to->text.failed; i++) {
        struct piece piece = from->list[i];
        piece.begin = to->text.size;
        bytes_add(&to->text, from->text.at + from->list[i].begin, piece.size);
        if (piece.id >= 0)
            pieces_add(to, piece);
        else if (!to->text.failed)
            find_in(a, after, special_as_text, to, piece);
    }
}
