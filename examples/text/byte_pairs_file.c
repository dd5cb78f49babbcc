/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a tokenizer.json. Every entry that would change the ids is looked at, and
 * one that asks for something else than byte_pairs.c does is refused.
 *
 * The file writes bytes as characters that can be seen: bytes that are visible
 * in Latin-1 as that character, the others, in their order, as U+0100, U+0101, and
 * so on; a space is U+0120, for instance (GPT-2's encoder.py).
 */
#include "byte_pairs_table.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

struct reader {
    struct byte_pairs *tokenizer;
    const char *name;         /* of the file */
    const json_t *vocabulary; /* text to id */
    int16_t byte_of[0x144];   /* by code point: the byte that it stands for, or -1 */
};

static void learn_alphabet(struct reader *r)
{
    int hidden = 0;
    memset(r->byte_of, -1, sizeof r->byte_of);
    for (int byte = 0; byte < 256; byte++) {
        const bool visible = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        r->byte_of[visible ? byte : 0x100 + hidden++] = (int16_t)byte;
    }
}

/* ----------------------------------------------------------------- settings -- */

static attn_status out_of_memory(const struct reader *r)
{
    return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", r->name);
}

/* Whether an entry is missing, null, false or "": what all that could be asked for here is when it is not. */
static bool is_off(const json_t *object, const char *key)
{
    const json_t *item = json_object_get(object, key);
    return !item || json_is_null(item) || json_is_false(item) ||
           (json_is_string(item) && json_string_length(item) == 0);
}

static const char *type_of(const json_t *step)
{
    const char *type = json_string_value(json_object_get(step, "type"));
    return type ? type : "";
}

static attn_status check_off(const struct reader *r, const json_t *object, const char *where, const char *const *keys)
{
    for (; *keys != NULL; keys++)
        if (!is_off(object, *keys))
            return io_fail(ATTN_UNSUPPORTED, "%s: %s%s is set; expected null or false", r->name, where, *keys);
    return ATTN_OK;
}

static attn_status check_settings(const struct reader *r, const json_t *root)
{
    static const char *const outer[] = {"normalizer", "truncation", "padding", NULL};
    static const char *const inner[] = {
        "dropout",       "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback",
        "ignore_merges", NULL};
    const json_t *model = json_object_get(root, "model"), *pre = json_object_get(root, "pre_tokenizer");
    const json_t *steps = json_object_get(pre, "pretokenizers"), *digits = json_array_get(steps, 0),
                 *bytes = json_array_get(steps, 1), *post = json_object_get(root, "post_processor");
    CHECK(check_off(r, root, "", outer));
    if (strcmp(type_of(model), "BPE") != 0)
        return io_fail(ATTN_UNSUPPORTED, "%s: model.type is '%s'; expected BPE", r->name, type_of(model));
    CHECK(check_off(r, model, "model.", inner));
    if (strcmp(type_of(pre), "Sequence") != 0 || json_array_size(steps) != 2 ||
        strcmp(type_of(digits), "Digits") != 0 || strcmp(type_of(bytes), "ByteLevel") != 0 ||
        !json_is_true(json_object_get(digits, "individual_digits")) ||
        !json_is_false(json_object_get(bytes, "add_prefix_space")) ||
        json_is_false(json_object_get(bytes, "use_regex")))
        return io_fail(ATTN_UNSUPPORTED,
                       "%s: pre_tokenizer is not what SmolLM2 has; expected Digits with individual_digits, then "
                       "ByteLevel without add_prefix_space and with use_regex",
                       r->name);
    /* This one changes offsets alone. */
    if (!is_off(root, "post_processor") && strcmp(type_of(post), "ByteLevel") != 0)
        return io_fail(ATTN_UNSUPPORTED, "%s: post_processor is '%s'; expected null or ByteLevel", r->name,
                       type_of(post));
    return ATTN_OK;
}

/* ------------------------------------------------------------------- tokens -- */

/* Enters a token whose id nobody has, or the same token has already. */
static attn_status enter(struct reader *r, const char *text, const json_t *id, json_int_t end)
{
    struct byte_pairs *t = r->tokenizer;
    const json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    if (value < 0 || value >= end)
        return io_fail(ATTN_INVALID_FILE, "%s: the id of token '%s' is not a whole number from 0 to %lld", r->name,
                       text, (long long)end - 1);
    struct byte_pairs_token *token = &t->tokens[value];
    if (token->text != NULL && strcmp(token->text, text) != 0)
        return io_fail(ATTN_INVALID_FILE, "%s: tokens '%s' and '%s' have the same id, %lld", r->name, token->text, text,
                       (long long)value);
    token->text = text;
    t->count = value >= t->count ? (int32_t)value + 1 : t->count;
    return ATTN_OK;
}

/* Special tokens may, but need not, be in the vocabulary, too. num_bytes -1 marks the others until it is known. */
static attn_status enter_all(struct reader *r, const json_t *added)
{
    const json_int_t end = (json_int_t)(json_object_size(r->vocabulary) + json_array_size(added));
    const char *text;
    json_t *item;
    size_t i;
    json_object_foreach((json_t *)r->vocabulary, text, item) CHECK(enter(r, text, item, end));
    for (int32_t id = 0; id < r->tokenizer->count; id++)
        r->tokenizer->tokens[id].num_bytes = -1;
    json_array_foreach(added, i, item)
    {
        text = json_string_value(json_object_get(item, "content"));
        if (text == NULL || *text == '\0')
            return io_fail(ATTN_INVALID_FILE, "%s: added_tokens[%zu] has no 'content'", r->name, i);
        if (!json_is_true(json_object_get(item, "special")))
            return io_fail(ATTN_UNSUPPORTED, "%s: the added token '%s' is not special; expected special ones alone",
                           r->name, text);
        CHECK(enter(r, text, json_object_get(item, "id"), end));
        r->tokenizer->tokens[json_integer_value(json_object_get(item, "id"))].num_bytes = 0;
    }
    for (int32_t id = 0; id < r->tokenizer->count; id++)
        if (r->tokenizer->tokens[id].text == NULL)
            return io_fail(ATTN_INVALID_FILE, "%s: no token has the id %d; expected ids without gaps", r->name,
                           (int)id);
    return r->tokenizer->count > 0 ? ATTN_OK : io_fail(ATTN_INVALID_FILE, "%s: the vocabulary is empty", r->name);
}

/* Writes the bytes that a token stands for; -1 if a character stands for none. */
static int32_t spell(const struct reader *r, const char *text, char *bytes)
{
    int32_t count = 0;
    utf8proc_int32_t c;
    for (utf8proc_ssize_t length; *text != '\0'; text += length) {
        length = utf8proc_iterate((const utf8proc_uint8_t *)text, -1, &c);
        if (length <= 0 || c >= (int32_t)(sizeof r->byte_of / sizeof *r->byte_of) || r->byte_of[c] < 0)
            return -1;
        bytes[count++] = (char)r->byte_of[c];
    }
    return count;
}

static attn_status spell_all(struct reader *r)
{
    struct byte_pairs *t = r->tokenizer;
    size_t size = 0;
    for (int32_t id = 0; id < t->count; id++)
        size += strlen(t->tokens[id].text);
    char *at = t->bytes = malloc(size + 1);
    if (at == NULL)
        return out_of_memory(r);
    for (size_t i = 0; i < 256; i++)
        t->byte_ids[i] = -1;
    for (int32_t id = 0; id < t->count; id++) {
        struct byte_pairs_token *token = &t->tokens[id];
        token->bytes = at;
        if (token->num_bytes == 0)
            continue;
        token->num_bytes = spell(r, token->text, at);
        if (token->num_bytes <= 0)
            return io_fail(ATTN_INVALID_FILE, "%s: token '%s' is not written in the alphabet of bytes", r->name,
                           token->text);
        if (token->num_bytes == 1)
            t->byte_ids[(unsigned char)*at] = id;
        at += token->num_bytes;
    }
    return ATTN_OK;
}

/* ------------------------------------------------------------------- merges -- */

/* The id of a text of the vocabulary, which may not be special, or -1. */
static int32_t find(const struct reader *r, const char *text)
{
    const json_t *id = json_object_get(r->vocabulary, text);
    const int32_t value = json_is_integer(id) ? (int32_t)json_integer_value(id) : -1;
    return value >= 0 && r->tokenizer->tokens[value].num_bytes > 0 ? value : -1;
}

/* One merge, with texts of the reader's to write to, each with room for both halves. */
static attn_status enter_merge(struct reader *r, const char *left, const char *right, char *both, size_t rank)
{
    struct byte_pairs *t = r->tokenizer;
    strcpy(stpcpy(both, left), right);
    const struct byte_pairs_merge merge = {find(r, left), find(r, right), find(r, both), (int32_t)rank};
    if (merge.left < 0 || merge.right < 0 || merge.result < 0)
        return io_fail(ATTN_INVALID_FILE, "%s: model.merges[%zu] is '%s' and '%s'; expected tokens that make a token",
                       r->name, rank, left, right);
    struct byte_pairs_merge *slot = &t->merges[byte_pairs_slot(t, merge.left, merge.right)];
    if (slot->left >= 0)
        return io_fail(ATTN_INVALID_FILE, "%s: model.merges[%zu] is '%s' and '%s', as model.merges[%d] is", r->name,
                       rank, left, right, (int)slot->rank);
    *slot = merge;
    return ATTN_OK;
}

/* A pair is an array of two texts, or, in older files, one text with a space between. */
static attn_status read_merge(struct reader *r, const json_t *item, size_t rank)
{
    const char *left = json_string_value(json_array_get(item, 0)), *right = json_string_value(json_array_get(item, 1));
    const char *line = json_string_value(item), *space = line ? strchr(line, ' ') : NULL;
    const bool pair = json_array_size(item) == 2 && left != NULL && right != NULL;
    if (!pair && (space == NULL || strchr(space + 1, ' ') != NULL))
        return io_fail(ATTN_INVALID_FILE, "%s: model.merges[%zu] is neither a pair of texts nor a text with one space",
                       r->name, rank);
    const size_t size = pair ? strlen(left) + strlen(right) : strlen(line);
    char *texts = malloc(2 * (size + 1));
    if (texts == NULL)
        return out_of_memory(r);
    if (!pair) {
        left = strcpy(texts + size + 1, line);
        texts[size + 1 + (size_t)(space - line)] = '\0';
        right = left + (space - line) + 1;
    }
    const attn_status status = enter_merge(r, left, right, texts, rank);
    free(texts);
    return status;
}

static attn_status read_merges(struct reader *r, const json_t *merges)
{
    struct byte_pairs *t = r->tokenizer;
    json_t *item;
    size_t i;
    if (!json_is_array(merges) || json_array_size(merges) > INT32_MAX)
        return io_fail(ATTN_INVALID_FILE, "%s: model.merges is not a list of pairs", r->name);
    for (t->slots = 16; t->slots < 2 * json_array_size(merges);)
        t->slots *= 2;
    t->merges = malloc(t->slots * sizeof *t->merges);
    if (t->merges == NULL)
        return out_of_memory(r);
    for (size_t slot = 0; slot < t->slots; slot++)
        t->merges[slot].left = -1;
    json_array_foreach(merges, i, item) CHECK(read_merge(r, item, i));
    return ATTN_OK;
}

/* --------------------------------------------------------------------- file -- */

static attn_status read_all(struct reader *r, const json_t *root)
{
    const json_t *model = json_object_get(root, "model"), *added = json_object_get(root, "added_tokens");
    CHECK(check_settings(r, root));
    r->vocabulary = json_object_get(model, "vocab");
    if (!json_is_object(r->vocabulary))
        return io_fail(ATTN_INVALID_FILE, "%s: model.vocab is not an object of tokens and their ids", r->name);
    const size_t most = json_object_size(r->vocabulary) + json_array_size(added);
    if (most > INT32_MAX)
        return io_fail(ATTN_INVALID_FILE, "%s has %zu tokens; expected at most %d", r->name, most, INT32_MAX);
    r->tokenizer->tokens = calloc(most + 1, sizeof *r->tokenizer->tokens);
    if (r->tokenizer->tokens == NULL)
        return out_of_memory(r);
    learn_alphabet(r);
    CHECK(enter_all(r, added));
    CHECK(spell_all(r));
    return read_merges(r, json_object_get(model, "merges"));
}

/* Takes the file over, or says why there is none. */
static attn_status open_json(struct byte_pairs **out, json_t *file, const json_error_t *error, const char *name)
{
    struct reader r = {.tokenizer = calloc(1, sizeof *r.tokenizer), .name = name};
    attn_status status = ATTN_OK;
    if (r.tokenizer == NULL) {
        json_decref(file);
        return out_of_memory(&r);
    }
    r.tokenizer->file = file;
    if (file == NULL)
        status = io_fail(ATTN_INVALID_FILE, "%s: %s (line %d)", name, error->text, error->line);
    else if (!json_is_object(file))
        status = io_fail(ATTN_INVALID_FILE, "%s is not a JSON object", name);
    if (status == ATTN_OK)
        status = read_all(&r, file);
    if (status == ATTN_OK)
        *out = r.tokenizer;
    else
        byte_pairs_close(r.tokenizer);
    return status;
}

attn_status byte_pairs_open(struct byte_pairs **tokenizer, const char *path)
{
    json_error_t error;
    *tokenizer = NULL;
    return open_json(tokenizer, json_load_file(path, JSON_REJECT_DUPLICATES, &error), &error, path);
}

attn_status byte_pairs_parse(struct byte_pairs **tokenizer, const char *json, size_t size, const char *name)
{
    json_error_t error;
    *tokenizer = NULL;
    return open_json(tokenizer, json_loadb(json, size, JSON_REJECT_DUPLICATES, &error), &error, name);
}
