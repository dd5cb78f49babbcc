/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte-pair tokens (Sennrich et al. 2016; on bytes: Radford et al. 2019). Each
 * byte of a piece (pre_tokens.h) is a symbol at first. Of all neighbours that
 * the file lists as a pair, those of lowest rank, the leftmost first, become one
 * symbol, until there are none.
 *
 * Pairs wait in a heap, so that a piece of n bytes takes n log n steps: a piece may
 * be as long as a text. A pair in the heap of which a symbol has changed since is
 * found out and dropped when its turn comes.
 */
#include "byte_pairs.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "byte_pairs_table.h"
#include "pre_tokens.h"

/* Positions are int32_t, and a heap has up to three entries for each. */
static const size_t longest_text = (size_t)1 << 29;

void byte_pairs_close(struct byte_pairs *tokenizer)
{
    if (tokenizer == NULL)
        return;
    json_decref(tokenizer->file);
    free(tokenizer->tokens);
    free(tokenizer->bytes);
    free(tokenizer->merges);
    free(tokenizer);
}

int32_t byte_pairs_size(const struct byte_pairs *tokenizer)
{
    return tokenizer->count;
}

const char *byte_pairs_bytes(const struct byte_pairs *tokenizer, int32_t id, size_t *length)
{
    const bool known = id >= 0 && id < tokenizer->count;
    *length = known ? (size_t)tokenizer->tokens[id].num_bytes : 0;
    return known ? tokenizer->tokens[id].bytes : "";
}

const char *byte_pairs_token(const struct byte_pairs *tokenizer, int32_t id)
{
    return id >= 0 && id < tokenizer->count ? tokenizer->tokens[id].text : NULL;
}

int32_t byte_pairs_special(const struct byte_pairs *tokenizer, const char *name)
{
    for (int32_t id = 0; id < tokenizer->count; id++)
        if (tokenizer->tokens[id].num_bytes == 0 && strcmp(tokenizer->tokens[id].text, name) == 0)
            return id;
    return -1;
}

size_t byte_pairs_slot(const struct byte_pairs *tokenizer, int32_t left, int32_t right)
{
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    /* The upper bits of a product with an odd number near 2^64 / golden ratio (Knuth, volume 3, 6.4). */
    size_t slot = (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (tokenizer->slots - 1);
    const struct byte_pairs_merge *m = tokenizer->merges;
    while (m[slot].left >= 0 && (m[slot].left != left || m[slot].right != right))
        slot = (slot + 1) & (tokenizer->slots - 1);
    return slot;
}

/* ------------------------------------------------------------ one piece -- */

struct symbol {
    int32_t id; /* -1: has become part of the one before it */
    int32_t before, after;
};

struct candidate {
    const struct byte_pairs_merge *merge;
    int32_t at; /* of the left symbol */
};

struct encoder {
    const struct byte_pairs *tokenizer;
    struct symbol *symbols;
    struct candidate *heap;
    int32_t count, heaped;
    size_t room; /* bytes of the longest piece that there is memory for */
};

static bool comes_before(const struct candidate *a, const struct candidate *b)
{
    return a->merge->rank != b->merge->rank ? a->merge->rank < b->merge->rank : a->at < b->at;
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

/* Notes that the symbol and the one after it are a pair, if they are. */
static void consider(struct encoder *e, int32_t at)
{
    if (at < 0 || e->symbols[at].after < 0)
        return;
    const struct byte_pairs *t = e->tokenizer;
    const int32_t left = e->symbols[at].id, right = e->symbols[e->symbols[at].after].id;
    const struct byte_pairs_merge *merge = &t->merges[byte_pairs_slot(t, left, right)];
    if (merge->left >= 0)
        push(e, (struct candidate){merge, at});
}

static void join(struct encoder *e, const struct candidate *c)
{
    struct symbol *left = &e->symbols[c->at];
    if (left->id != c->merge->left || left->after < 0 || e->symbols[left->after].id != c->merge->right)
        return;
    struct symbol *right = &e->symbols[left->after];
    left->id = c->merge->result;
    right->id = -1;
    left->after = right->after;
    if (left->after >= 0)
        e->symbols[left->after].before = c->at;
    consider(e, left->before);
    consider(e, c->at);
}

static bool make_room(struct encoder *e, size_t length)
{
    if (length <= e->room)
        return true;
    const size_t room = length > 2 * e->room ? length : 2 * e->room;
    struct symbol *symbols = realloc(e->symbols, room * sizeof *symbols);
    if (symbols != NULL)
        e->symbols = symbols;
    struct candidate *heap = realloc(e->heap, 3 * room * sizeof *heap);
    if (heap != NULL)
        e->heap = heap;
    if (symbols == NULL || heap == NULL)
        return false;
    e->room = room;
    return true;
}

static bool encode_piece(struct encoder *e, const char *text, size_t length, struct token_ids *ids)
{
    if (!make_room(e, length))
        return false;
    e->count = e->heaped = 0;
    for (size_t i = 0; i < length; i++) {
        const int32_t id = e->tokenizer->byte_ids[(unsigned char)text[i]];
        if (id >= 0) {
            e->symbols[e->count] = (struct symbol){id, e->count - 1, e->count + 1};
            e->count++;
        }
    }
    if (e->count == 0)
        return true;
    e->symbols[e->count - 1].after = -1;
    for (int32_t at = 0; at < e->count; at++)
        consider(e, at);
    while (e->heaped > 0) {
        const struct candidate next = pop(e);
        join(e, &next);
    }
    for (int32_t at = 0; at >= 0; at = e->symbols[at].after)
        if (!token_ids_add(ids, e->symbols[at].id))
            return false;
    return true;
}

/* ------------------------------------------------------------------ a text -- */

static attn_status check_text(const char *text, size_t size)
{
    utf8proc_int32_t c;
    if (size > longest_text)
        return io_fail(ATTN_INVALID_ARGUMENT, "the text has %zu bytes; expected at most %zu", size, longest_text);
    for (size_t at = 0; at < size;) {
        const utf8proc_ssize_t length =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(size - at), &c);
        if (length <= 0)
            return io_fail(ATTN_INVALID_ARGUMENT, "byte %zu of the text is 0x%02x; expected valid UTF-8", at,
                           (unsigned char)text[at]);
        at += (size_t)length;
    }
    return ATTN_OK;
}

attn_status byte_pairs_encode(const struct byte_pairs *tokenizer, const char *text, size_t size, struct token_ids *ids)
{
    CHECK(check_text(text, size));
    const size_t before = ids->count;
    struct encoder e = {.tokenizer = tokenizer};
    bool good = true;
    for (size_t at = 0; good && at < size;) {
        const size_t length = pre_token(text + at, size - at);
        good = encode_piece(&e, text + at, length, ids);
        at += length;
    }
    free(e.symbols);
    free(e.heap);
    if (good)
        return ATTN_OK;
    ids->count = before;
    return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for the tokens of a text of %zu bytes", size);
}
