/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tokenizer.json, and the way of a text through it: added tokens are found, the rest is normalised and searched for
 * those behind the normaliser, cut into pieces, and each piece encoded; at the end tokens are put around. It is the way
 * of Hugging Face's tokenizers, version 0.23.
 */
#include "attn/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api/check.h"
#include "cpu/cancellation.h"
#include "io/config.h"
#include "text/added.h"
#include "text/characters.h"
#include "text/decode.h"
#include "text/model.h"
#include "text/normalise.h"
#include "text/split.h"
#include "text/template.h"

/* Sizes of structs in their first versions. */
#define ENCODING_FIRST       (offsetof(attn_encoding, truncated) + sizeof(int))
#define ENCODE_OPTIONS_FIRST (offsetof(attn_encode_options, max_tokens) + sizeof(int64_t))

/* Places in pieces are 32 bits, and a heap of pairs has three entries for each. */
static const size_t longest_text = (size_t)1 << 29;

enum strategy { LONGEST_FIRST, ONLY_FIRST, ONLY_SECOND };

struct attn_tokenizer {
    json_t *file; /* owns the texts of tokens */
    struct normaliser *normaliser;
    struct splitter *splitter;
    struct model model;
    struct added_tokens added;
    struct templates templates;
    struct decoder *decoder;
    int64_t max_tokens; /* of the file's truncation; 0: none */
    enum strategy strategy;
    bool from_left; /* tokens are left off at the beginning */
};

/* ------------------------------------------------------------------ reading -- */

void attn_tokenizer_close(attn_tokenizer *t)
{
    if (t == NULL)
        return;
    json_decref(t->file);
    normaliser_free(t->normaliser);
    splitter_free(t->splitter);
    model_free(&t->model);
    added_free(&t->added);
    templates_free(&t->templates);
    decoder_free(t->decoder);
    free(t);
}

/** One of some names, or an error. */
static attn_status read_choice(const struct entry *entry, const char *name, const char *const *names, int count,
                               int *choice)
{
    const char *text;
    CHECK(entry_text_or(entry, name, &text));
    const struct entry named = entry_at(entry, name);
    for (int i = 0; text != NULL && i < count; i++)
        if (strcmp(text, names[i]) == 0) {
            *choice = i;
            return ATTN_OK;
        }
    return text == NULL ? ATTN_OK : entry_refuse(ATTN_UNSUPPORTED, &named, names[count]);
}

/** stride is of the parts that are left off, which are not kept here; padding there is none. */
static attn_status read_truncation(attn_tokenizer *t, const struct entry *root)
{
    static const char *const strategies[] = {"LongestFirst", "OnlyFirst", "OnlySecond",
                                             "LongestFirst, OnlyFirst or OnlySecond"};
    static const char *const directions[] = {"Right", "Left", "Right or Left"};
    const struct entry truncation = entry_at(root, "truncation");
    int strategy = 0, direction = 0;
    if (truncation.value == NULL)
        return ATTN_OK;
    CHECK(entry_names(&truncation, "max_length", "strategy", "direction", "stride", NULL));
    CHECK(entry_integer_or(&truncation, "max_length", 1, INT64_MAX, &t->max_tokens));
    CHECK(read_choice(&truncation, "strategy", strategies, 3, &strategy));
    CHECK(read_choice(&truncation, "direction", directions, 2, &direction));
    t->strategy = (enum strategy)strategy;
    t->from_left = direction == 1;
    return ATTN_OK;
}

static attn_status read_all(attn_tokenizer *t, const struct entry *root)
{
    if (!json_is_object(root->value))
        return io_fail(ATTN_INVALID_FILE, "%s is not a JSON object", root->file);
    /* Padding is not looked at: batches here have none. */
    CHECK(entry_names(root, "version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                      "post_processor", "decoder", "model", NULL));
    struct entry entry = entry_at(root, "version");
    if (entry.value != NULL && (!json_is_string(entry.value) || strcmp(json_string_value(entry.value), "1.0") != 0))
        return entry_refuse(ATTN_UNSUPPORTED, &entry, "1.0");
    entry = entry_at(root, "normalizer");
    CHECK(normaliser_read(&t->normaliser, &entry));
    entry = entry_at(root, "pre_tokenizer");
    CHECK(splitter_read(&t->splitter, &entry));
    entry = entry_at(root, "model");
    CHECK(model_read(&t->model, &entry));
    CHECK(added_read(&t->added, root, t->normaliser, &t->model.vocabulary));
    entry = entry_at(root, "post_processor");
    CHECK(templates_read(&t->templates, &entry));
    entry = entry_at(root, "decoder");
    CHECK(decoder_read(&t->decoder, &entry));
    return read_truncation(t, root);
}

/** Takes the file over, or says why there is no tokenizer. */
static attn_status make(attn_tokenizer **out, json_t *file, const json_error_t *error, const char *name)
{
    if (file == NULL)
        return config_fail_json(name, error, errno);
    attn_tokenizer *t = calloc(1, sizeof *t);
    if (t == NULL) {
        json_decref(file);
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", name);
    }
    t->file = file;
    const struct entry root = {file, name, ""};
    const attn_status status = read_all(t, &root);
    if (status == ATTN_OK)
        *out = t;
    else
        attn_tokenizer_close(t);
    return status;
}

attn_status attn_tokenizer_parse(attn_tokenizer **tokenizer, const char *json, size_t size, const char *name)
{
    json_error_t error;
    if (tokenizer == NULL)
        return attn_fail(ATTN_INVALID_ARGUMENT, "tokenizer is NULL; expected where to put the tokenizer");
    *tokenizer = NULL;
    if (json == NULL || name == NULL)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL; expected a text", json == NULL ? "json" : "name");
    return make(tokenizer, json_loadb(json, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error), &error, name);
}

attn_status attn_tokenizer_open(attn_tokenizer **tokenizer, const char *path)
{
    json_error_t error;
    struct stat status;
    ATTN_UNCANCELLED;
    if (tokenizer == NULL)
        return attn_fail(ATTN_INVALID_ARGUMENT, "tokenizer is NULL; expected where to put the tokenizer");
    *tokenizer = NULL;
    if (path == NULL)
        return attn_fail(ATTN_INVALID_ARGUMENT, "path is NULL; expected a tokenizer.json or its folder");
    struct bytes name = {0};
    bytes_add_text(&name, path);
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        bytes_add_text(&name, "/tokenizer.json");
    bytes_add(&name, "", 1);
    if (name.failed) {
        bytes_free(&name);
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", path);
    }
    const attn_status result =
        make(tokenizer, json_load_file(name.at, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error), &error, name.at);
    bytes_free(&name);
    return result;
}

/* ------------------------------------------------------------------- tokens -- */

int32_t attn_tokenizer_size(const attn_tokenizer *t)
{
    if (t == NULL)
        return 0;
    const int32_t added = added_ids(&t->added), known = t->model.vocabulary.count;
    return added > known ? added : known;
}

const char *attn_tokenizer_token(const attn_tokenizer *t, int32_t id)
{
    if (t == NULL)
        return NULL;
    const struct added_token *added = added_of_id(&t->added, id);
    return added != NULL ? added->content : vocabulary_token(&t->model.vocabulary, id);
}

int32_t attn_tokenizer_id(const attn_tokenizer *t, const char *token)
{
    if (t == NULL || token == NULL)
        return -1;
    for (size_t i = 0; i < t->added.count; i++)
        if (strcmp(t->added.list[i].content, token) == 0)
            return t->added.list[i].id;
    return vocabulary_find(&t->model.vocabulary, token, strlen(token));
}

int attn_tokenizer_is_special(const attn_tokenizer *t, int32_t id)
{
    const struct added_token *added = t != NULL ? added_of_id(&t->added, id) : NULL;
    return added != NULL && added->special;
}

/* ----------------------------------------------------------------- encoding -- */

static attn_status out_of_memory(size_t size)
{
    return io_fail(ATTN_OUT_OF_MEMORY, "no memory for the tokens of a text of %zu bytes", size);
}

static attn_status fail_pattern(void)
{
    return io_fail(ATTN_UNSUPPORTED, "a regular expression of the tokenizer gave up on the text");
}

/** Normalises what is text. */
static bool normalise(const attn_tokenizer *t, const struct pieces *from, struct pieces *to)
{
    for (size_t i = 0; i < from->count; i++) {
        struct piece piece = from->list[i];
        const char *text = from->text.at + piece.begin;
        piece.begin = to->text.size;
        if (!normaliser_apply(piece.id < 0 ? t->normaliser : NULL, text, piece.size, &to->text, &piece.first))
            return false;
        piece.size = to->text.size - piece.begin;
        pieces_add(to, piece);
    }
    return true;
}

/** Steps of pieces: each replaces what the one before has left. */
static attn_status cut(const attn_tokenizer *t, bool special_as_text, struct pieces *pieces)
{
    struct pieces found = {0}, normal = {0}, after = {0}, parts = {0};
    added_find(&t->added, false, special_as_text, pieces, &found);
    bool good = normalise(t, &found, &normal);
    if (good)
        added_find(&t->added, true, special_as_text, &normal, &after);
    if (good && t->splitter != NULL)
        good = splitter_apply(t->splitter, &after, &parts);
    const bool failed = found.text.failed || normal.text.failed || after.text.failed || parts.text.failed;
    struct pieces *last = t->splitter != NULL ? &parts : &after;
    pieces_free(pieces);
    *pieces = *last;
    *last = (struct pieces){0};
    pieces_free(&found);
    pieces_free(&normal);
    pieces_free(&after);
    pieces_free(&parts);
    return failed ? out_of_memory(pieces->text.size) : good ? ATTN_OK : fail_pattern();
}

static attn_status encode_text(const attn_tokenizer *t, const char *text, size_t size, bool special_as_text,
                               struct ids *ids)
{
    struct pieces pieces = {0};
    bool known = true;
    add_valid_text(&pieces.text, text, size);
    pieces_add(&pieces, (struct piece){0, pieces.text.size, -1, true});
    attn_status status = pieces.text.failed ? out_of_memory(size) : cut(t, special_as_text, &pieces);
    for (size_t i = 0; status == ATTN_OK && known && i < pieces.count; i++) {
        const struct piece *piece = &pieces.list[i];
        if (piece->id >= 0)
            ids_add(ids, piece->id);
        else
            known = model_encode(&t->model, pieces.text.at + piece->begin, piece->size, ids);
    }
    pieces_free(&pieces);
    if (status == ATTN_OK && !known)
        status = io_fail(ATTN_UNSUPPORTED, "the text has a character that is in no token; the tokenizer has no unk_id");
    if (status == ATTN_OK && ids->failed)
        status = out_of_memory(size);
    return status;
}

/** How many tokens of each text there may be: at most room. False: those of one text are too few to be left off. */
static bool limit(enum strategy strategy, int64_t room, int64_t *first, int64_t *second, bool pair)
{
    const int64_t all = *first + *second;
    if (all <= room)
        return true;
    int64_t *only = strategy == ONLY_SECOND && pair ? second : first;
    if (strategy != LONGEST_FIRST || !pair) {
        *only -= all - room;
        return *only > 0 || (*only == 0 && !pair);
    }
    int64_t *shorter = *first > *second ? second : first, *longer = *first > *second ? first : second;
    if (*shorter > room)
        *longer = *shorter;
    else
        *longer = *shorter > room - *shorter ? *shorter : room - *shorter;
    if (*shorter + *longer > room) {
        *shorter = room / 2;
        *longer = *shorter + room % 2;
    }
    return true;
}

static attn_status reserve(attn_encoding *e, int64_t count)
{
    if (count <= e->capacity - e->count)
        return ATTN_OK;
    const int64_t needed = e->count + count, room = needed > 2 * e->capacity ? needed : 2 * e->capacity;
    int32_t *ids = realloc(e->ids, (size_t)room * sizeof *ids);
    if (ids != NULL)
        e->ids = ids;
    int32_t *types = ids != NULL ? realloc(e->types, (size_t)room * sizeof *types) : NULL;
    if (types == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "no memory for %" PRId64 " more tokens", count);
    e->types = types;
    e->capacity = room;
    return ATTN_OK;
}

/** Puts texts and tokens together; takes are how many tokens of the texts. */
static attn_status put_together(const attn_tokenizer *t, const struct ids texts[2], const int64_t takes[2], bool pair,
                                bool bare, attn_encoding *e)
{
    const struct template_steps *steps = pair ? &t->templates.pair : &t->templates.single;
    int64_t count = 0;
    for (size_t i = 0; i < steps->count; i++)
        count += steps->list[i].id < 0 ? takes[-1 - steps->list[i].id] : !bare;
    CHECK(reserve(e, count));
    for (size_t i = 0; i < steps->count; i++) {
        const struct template_step *step = &steps->list[i];
        const int which = -1 - step->id;
        if (step->id >= 0 && bare)
            continue;
        const int64_t from = step->id < 0 && t->from_left ? (int64_t)texts[which].count - takes[which] : 0;
        for (int64_t k = 0; k < (step->id < 0 ? takes[which] : 1); k++) {
            e->ids[e->count] = step->id < 0 ? texts[which].at[from + k] : step->id;
            e->types[e->count++] = step->type;
        }
    }
    return ATTN_OK;
}

static attn_status check_text(const char *name, const char *text, size_t size)
{
    if (text == NULL && size > 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL; expected %zu bytes", name, size);
    if (size > longest_text)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s has %zu bytes; expected at most %zu", name, size, longest_text);
    return ATTN_OK;
}

static attn_status encode(const attn_tokenizer *t, const char *const text[2], const size_t size[2], bool pair,
                          const attn_encode_options *options, attn_encoding *e)
{
    attn_encode_options o;
    if (t == NULL)
        return attn_fail(ATTN_INVALID_ARGUMENT, "tokenizer is NULL; expected a tokenizer");
    CHECK(check_text("text", text[0], size[0]));
    CHECK(check_text("second", text[1], size[1]));
    CHECK(attn_take_struct("options", &o, sizeof o, ENCODE_OPTIONS_FIRST, options));
    if (e == NULL || e->struct_size < ENCODING_FIRST)
        return attn_fail(ATTN_INVALID_ARGUMENT, "encoding is %s; expected one of attn_encoding_default()",
                         e == NULL ? "NULL" : "without a size");
    if (o.max_tokens < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "options.max_tokens is %" PRId64 "; expected 0 or more", o.max_tokens);
    const bool own = o.max_tokens > 0;
    const int64_t most = own ? o.max_tokens : t->max_tokens;
    const int64_t added = o.bare ? 0 : template_tokens(pair ? &t->templates.pair : &t->templates.single);
    if (most > 0 && most < added)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "%s is %" PRId64 "; expected at least %" PRId64 ", the tokens around a text",
                         own ? "options.max_tokens" : "truncation.max_length of the tokenizer", most, added);
    struct ids ids[2] = {{0}, {0}};
    attn_status status = encode_text(t, text[0], size[0], o.special_as_text, &ids[0]);
    if (status == ATTN_OK && pair)
        status = encode_text(t, text[1], size[1], o.special_as_text, &ids[1]);
    int64_t takes[2] = {(int64_t)ids[0].count, (int64_t)ids[1].count};
    if (status == ATTN_OK && most > 0 &&
        !limit(own ? LONGEST_FIRST : t->strategy, most - added, &takes[0], &takes[1], pair))
        status = io_fail(ATTN_INVALID_ARGUMENT,
                         "the texts have %zu and %zu tokens, of which the file's truncation leaves off those of one; "
                         "expected at most %" PRId64,
                         ids[0].count, ids[1].count, most);
    if (status == ATTN_OK)
        status = put_together(t, ids, takes, pair, o.bare, e);
    if (status == ATTN_OK)
        e->truncated = (size_t)takes[0] < ids[0].count || (size_t)takes[1] < ids[1].count;
    free(ids[0].at);
    free(ids[1].at);
    return status;
}

attn_status attn_tokenizer_encode(const attn_tokenizer *tokenizer, const char *text, size_t size,
                                  const attn_encode_options *options, attn_encoding *encoding)
{
    return encode(tokenizer, (const char *[]){text, NULL}, (size_t[]){size, 0}, false, options, encoding);
}

attn_status attn_tokenizer_encode_pair(const attn_tokenizer *tokenizer, const char *text, size_t size,
                                       const char *second, size_t second_size, const attn_encode_options *options,
                                       attn_encoding *encoding)
{
    return encode(tokenizer, (const char *[]){text, second}, (size_t[]){size, second_size}, true, options, encoding);
}

void attn_encoding_free(attn_encoding *e)
{
    if (e == NULL)
        return;
    free(e->ids);
    free(e->types);
    e->ids = e->types = NULL;
    e->count = e->capacity = 0;
}

/* ----------------------------------------------------------------- decoding -- */

attn_status attn_tokenizer_decode(const attn_tokenizer *t, const int32_t *ids, int64_t count, int keep_special,
                                  char *text, size_t capacity, size_t *length)
{
    if (t == NULL || length == NULL)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL; expected %s", t == NULL ? "tokenizer" : "length",
                         t == NULL ? "a tokenizer" : "where to put the length");
    if (count < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "count is %" PRId64 "; expected 0 or more ids", count);
    if (ids == NULL && count > 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "ids is NULL; expected %" PRId64 " of them", count);
    if (text == NULL && capacity > 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "text is NULL; expected room for %zu bytes", capacity);
    struct pieces tokens = {0};
    struct bytes all = {0};
    for (int64_t i = 0; i < count; i++) {
        const char *token = attn_tokenizer_token(t, ids[i]);
        if (token == NULL || (!keep_special && attn_tokenizer_is_special(t, ids[i])))
            continue;
        const size_t begin = tokens.text.size;
        bytes_add_text(&tokens.text, token);
        pieces_add(&tokens, (struct piece){begin, tokens.text.size - begin, 0, false});
    }
    const bool good = decoder_apply(t->decoder, &tokens, &all);
    attn_status status = !good                              ? fail_pattern()
                         : all.failed || tokens.text.failed ? out_of_memory(tokens.text.size)
                                                            : ATTN_OK;
    if (status == ATTN_OK) {
        *length = all.size;
        if (text != NULL && all.size > 0)
            memcpy(text, all.at, all.size < capacity ? all.size : capacity);
    }
    pieces_free(&tokens);
    bytes_free(&all);
    return status;
}
