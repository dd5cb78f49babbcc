/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WordPiece (Schuster & Nakajima 2012, as BERT uses it): a word is cut into the
 * longest piece of the vocabulary that it begins with, then the longest that
 * the rest begins with, and so on. Pieces other than the first stand in the
 * vocabulary with "##" before them. If some rest begins with no piece at all,
 * the whole word is [UNK].
 *
 * The names of the special tokens are looked for in the raw text before
 * anything else, and end the words beside them. Encoding stops at the first token
 * too many, so the end of a long text is at most searched for '['.
 */
#include "wordpiece.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "basic_tokens.h"
#include "vocabulary.h"

enum special { PAD, UNK, CLS, SEP, MASK, NUM_SPECIAL };

static const char *const special_names[NUM_SPECIAL] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

struct wordpiece {
    struct vocabulary vocabulary;
    int32_t special[NUM_SPECIAL]; /* ids; only that of [MASK] may be -1 */
    bool keep_case;
};

attn_status wordpiece_parse(struct wordpiece **tokenizer, const char *bytes, size_t size, const char *name)
{
    *tokenizer = NULL;
    struct wordpiece *w = calloc(1, sizeof *w);
    if (w == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", name);
    attn_status status = vocabulary_parse(&w->vocabulary, bytes, size, name);
    for (int i = 0; status == ATTN_OK && i < NUM_SPECIAL; i++) {
        w->special[i] = wordpiece_id(w, special_names[i]);
        if (w->special[i] < 0 && i != MASK)
            status = io_fail(ATTN_INVALID_FILE,
                             "%s: none of its %" PRId32 " lines is %s; expected the vocabulary of a BERT model", name,
                             w->vocabulary.count, special_names[i]);
    }
    if (status != ATTN_OK) {
        wordpiece_close(w);
        return status;
    }
    *tokenizer = w;
    return ATTN_OK;
}

attn_status wordpiece_open(struct wordpiece **tokenizer, const char *vocab_path)
{
    char *bytes;
    size_t size;
    *tokenizer = NULL;
    CHECK(vocabulary_read(&bytes, &size, vocab_path));
    attn_status status = wordpiece_parse(tokenizer, bytes, size, vocab_path);
    free(bytes);
    return status;
}

void wordpiece_keep_case(struct wordpiece *tokenizer)
{
    tokenizer->keep_case = true;
}

void wordpiece_close(struct wordpiece *tokenizer)
{
    if (tokenizer != NULL)
        vocabulary_free(&tokenizer->vocabulary);
    free(tokenizer);
}

int32_t wordpiece_size(const struct wordpiece *tokenizer)
{
    return tokenizer->vocabulary.count;
}

const char *wordpiece_token(const struct wordpiece *tokenizer, int32_t id)
{
    return id >= 0 && id < tokenizer->vocabulary.count ? tokenizer->vocabulary.tokens[id] : NULL;
}

int32_t wordpiece_id(const struct wordpiece *tokenizer, const char *token)
{
    return vocabulary_find(&tokenizer->vocabulary, token, strlen(token));
}

struct encoder {
    const struct wordpiece *tokenizer;
    struct token_ids *ids;
    size_t room; /* for how many ids there may be before [SEP] */
    bool out_of_memory;
};

static bool append(struct encoder *e, int32_t id)
{
    e->out_of_memory = !token_ids_add(e->ids, id);
    return !e->out_of_memory;
}

/* Appends an id if there is room; false when it is the first that there is none for, or when memory is short. */
static bool put(struct encoder *e, int32_t id)
{
    if (e->ids->count < e->room)
        return append(e, id);
    e->ids->cut = true;
    return false;
}

/* Writes the ids of the word's pieces and returns how many, or 0 if it cannot be cut into pieces. */
static int cut_word(const struct vocabulary *vocabulary, const char *word, size_t length,
                    int32_t pieces[WORD_MAX_CHARACTERS])
{
    enum { MARK = 2 };
    char text[MARK + WORD_MAX_BYTES];
    char *at = text + MARK, *const end = at + length;
    size_t mark = 0;
    int count = 0;
    memcpy(at, word, length);
    while (at < end) {
        size_t longest = vocabulary->longest - (mark < vocabulary->longest ? mark : vocabulary->longest);
        char *to = (size_t)(end - at) > longest ? at + longest : end;
        int32_t id = -1;
        for (; to > at; to--) {
            /* A piece does not end inside a character. */
            if (to < end && ((unsigned char)*to & 0xc0) == 0x80)
                continue;
            id = vocabulary_find(vocabulary, at - mark, mark + (size_t)(to - at));
            if (id >= 0)
                break;
        }
        if (id < 0)
            return 0;
        pieces[count++] = id;
        at = to;
        /* The mark goes over the end of what has been cut off, or before the word. */
        mark = MARK;
        memcpy(at - MARK, "##", MARK);
    }
    return count;
}

static bool take_word(void *context, const char *word, size_t length)
{
    struct encoder *e = context;
    int32_t pieces[WORD_MAX_CHARACTERS];
    int count = word != NULL ? cut_word(&e->tokenizer->vocabulary, word, length, pieces) : 0;
    if (count == 0)
        return put(e, e->tokenizer->special[UNK]);
    for (int i = 0; i < count; i++) {
        if (!put(e, pieces[i]))
            return false;
    }
    return true;
}

/* The first name of a special token at or after text, or end; which says whose. */
static const char *find_special(const struct wordpiece *w, const char *text, const char *end, int *which)
{
    for (const char *at = text; at < end && (at = memchr(at, '[', (size_t)(end - at))) != NULL; at++) {
        for (int i = 0; i < NUM_SPECIAL; i++) {
            size_t length = strlen(special_names[i]);
            if (w->special[i] >= 0 && (size_t)(end - at) >= length && memcmp(at, special_names[i], length) == 0) {
                *which = i;
                return at;
            }
        }
    }
    return end;
}

attn_status wordpiece_encode(const struct wordpiece *tokenizer, const char *text, size_t size, size_t max_tokens,
                             struct token_ids *ids)
{
    ids->count = 0;
    ids->cut = false;
    if (max_tokens == 0)
        max_tokens = WORDPIECE_DEFAULT_TOKENS;
    if (max_tokens < 2)
        return io_fail(ATTN_INVALID_ARGUMENT, "max_tokens is %zu; expected at least 2, for [CLS] and [SEP]",
                       max_tokens);

    struct encoder e = {.tokenizer = tokenizer, .ids = ids, .room = max_tokens - 1};
    const char *at = text, *end = size > 0 ? text + size : text; /* text may then be NULL */
    bool going = put(&e, tokenizer->special[CLS]);
    while (going && at < end) {
        int which = 0;
        const char *name = find_special(tokenizer, at, end, &which);
        going = basic_tokens(at, (size_t)(name - at), tokenizer->keep_case, take_word, &e);
        at = name;
        if (going && name < end) {
            going = put(&e, tokenizer->special[which]);
            at += strlen(special_names[which]);
        }
    }
    if (!e.out_of_memory)
        append(&e, tokenizer->special[SEP]);
    if (e.out_of_memory) {
        size_t count = ids->count;
        ids->count = 0;
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory after %zu tokens of a text", count);
    }
    return ATTN_OK;
}
