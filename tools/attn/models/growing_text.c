/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokenizers decode whole texts, and a token's text may hang on the one before it (a space at the beginning, bytes of
 * one character). So some tokens before the new ones are decoded with them, and what these have without the new ones
 * is taken off.
 */
#include "models/growing_text.h"

#include <stdlib.h>
#include <string.h>

static bool make_room(char **text, size_t *room, size_t size)
{
    if (size <= *room)
        return true;
    const size_t wanted = 2 * size + 64;
    char *larger = realloc(*text, wanted);
    if (larger == NULL)
        return false;
    *text = larger;
    *room = wanted;
    return true;
}

/* Appends the text of tokens to that in scratch, at offset at. */
static attn_status decode(struct growing_text *g, const attn_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                          size_t at, size_t *length)
{
    CHECK(attn_tokenizer_decode(tokenizer, ids, count, 0, NULL, 0, length));
    if (!make_room(&g->scratch, &g->scratch_room, at + *length + 1))
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for a text of %zu bytes", at + *length);
    return attn_tokenizer_decode(tokenizer, ids, count, 0, g->scratch + at, *length, length);
}

/* Whether a text ends with U+FFFD, which stands for a character that is not complete. */
static bool is_cut(const char *text, size_t size)
{
    return size >= 3 && memcmp(text + size - 3, "\xef\xbf\xbd", 3) == 0;
}

/* The first place from on where one of the texts stands; size: none does. */
static size_t find_stop(const struct growing_text *g, size_t from, const struct stop_texts *stops)
{
    size_t place = g->size;
    for (int64_t i = 0; i < stops->count; i++) {
        const char *found =
            g->size > from ? memmem(g->text + from, g->size - from, stops->texts[i], strlen(stops->texts[i])) : NULL;
        if (found != NULL && (size_t)(found - g->text) < place)
            place = (size_t)(found - g->text);
    }
    return place;
}

static attn_status append(struct growing_text *g, const char *text, size_t size, const struct stop_texts *stops)
{
    if (!make_room(&g->text, &g->room, g->size + size))
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for a text of %zu bytes", g->size + size);
    if (size > 0)
        memcpy(g->text + g->size, text, size);
    g->size += size;
    /* What was shown before holds none, nor the beginning of one. */
    const size_t place = find_stop(g, g->shown, stops);
    g->stopped = place < g->size;
    g->size = place;
    return ATTN_OK;
}

attn_status growing_text_take(struct growing_text *g, const attn_tokenizer *tokenizer, const int32_t *ids,
                              int64_t first, int64_t count, const struct stop_texts *stops, bool last)
{
    size_t old, all, common = 0;
    if (g->to < first) {
        g->to = first;
        g->from = first > 0 ? first - 1 : 0;
    }
    if (g->stopped || g->to == count)
        return ATTN_OK;
    CHECK(decode(g, tokenizer, ids + g->from, g->to - g->from, 0, &old));
    CHECK(decode(g, tokenizer, ids + g->from, count - g->from, old, &all));
    if (is_cut(g->scratch + old, all) && !last)
        return ATTN_OK;
    while (common < old && common < all && g->scratch[common] == g->scratch[old + common])
        common++;
    /* Where they part inside of a character (one that is no longer cut), all of it is new. */
    while (common > 0 && common < all && ((unsigned char)g->scratch[old + common] & 0xc0) == 0x80)
        common--;
    g->from = g->to;
    g->to = count;
    return append(g, g->scratch + old + common, all - common, stops);
}

/* Bytes at the end of the text that are the beginning of one that stops it. */
static size_t held_back(const struct growing_text *g, const struct stop_texts *stops)
{
    size_t held = 0;
    for (int64_t i = 0; i < stops->count; i++) {
        const size_t length = strlen(stops->texts[i]), most = g->size - g->shown;
        for (size_t n = length - 1 < most ? length - 1 : most; n > held; n--)
            if (memcmp(g->text + g->size - n, stops->texts[i], n) == 0)
                held = n;
    }
    return held;
}

const char *growing_text_new(struct growing_text *g, const struct stop_texts *stops, bool last, size_t *size)
{
    size_t end = g->size;
    if (!last && !g->stopped) {
        end -= held_back(g, stops);
        /* Not inside of a character. */
        while (end > g->shown && end < g->size && ((unsigned char)g->text[end] & 0xc0) == 0x80)
            end--;
    }
    const char *text = g->size > 0 ? g->text + g->shown : "";
    *size = end - g->shown;
    g->shown = end;
    return text;
}

void growing_text_free(struct growing_text *g)
{
    free(g->text);
    free(g->scratch);
    *g = (struct growing_text){0};
}
