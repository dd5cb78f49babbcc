/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f16 has 11 bits, more than 256 colours can show, and reaches down to 6e-8. Base64 makes 8 bytes of 3 weights, which
 * is a third of what decimal numbers would take.
 */
#include "view/page.h"

#include <glib.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_page.h"

static const char mark[] = "@DATA@";

static char *more(struct page *page, size_t size)
{
    if (page->failed)
        return NULL;
    if (size > page->capacity - page->used) {
        size_t capacity = (page->capacity + size) * 3 / 2;
        char *grown = realloc(page->bytes, capacity);
        if (grown == NULL) {
            page->failed = true;
            return NULL;
        }
        page->bytes = grown;
        page->capacity = capacity;
    }
    page->used += size;
    return page->bytes + page->used - size;
}

static void add(struct page *page, const void *text, size_t size)
{
    char *to = more(page, size);
    if (to != NULL)
        memcpy(to, text, size);
}

static size_t mark_at(void)
{
    const unsigned char *found = memmem(attn_page, sizeof attn_page, mark, sizeof mark - 1);
    return (size_t)(found - attn_page);
}

void page_begin(struct page *page)
{
    *page = (struct page){.bytes = NULL};
    add(page, attn_page, mark_at());
}

void page_end(struct page *page)
{
    const size_t at = mark_at() + sizeof mark - 1;
    add(page, attn_page + at, sizeof attn_page - at);
}

void page_free(struct page *page)
{
    free(page->bytes);
    *page = (struct page){.bytes = NULL};
}

void page_text(struct page *page, const char *text)
{
    add(page, text, strlen(text));
}

void page_number(struct page *page, int64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, number);
    page_text(page, text);
}

void page_string(struct page *page, const char *text)
{
    char *valid = g_utf8_make_valid(text, -1);
    page_text(page, "\"");
    for (const char *c = valid; *c != '\0'; c++) {
        char escape[8];
        /* Without < no text can end the script. */
        if ((unsigned char)*c >= 0x20 && *c != '"' && *c != '\\' && *c != '<') {
            add(page, c, 1);
            continue;
        }
        snprintf(escape, sizeof escape, "\\u%04x", (unsigned)(unsigned char)*c);
        page_text(page, escape);
    }
    page_text(page, "\"");
    g_free(valid);
}

uint16_t page_half(float value)
{
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (isnan(value))
        return 0x7e00;
    if (value == -INFINITY)
        return 0;
    const float size = fabsf(value);
    if (size >= 65520)
        return sign | 0x7c00;
    if (size < 0x1p-14f) {
        /* Below the normal numbers: multiples of 2^-24. The carry into the exponent is right, too. */
        uint16_t steps = (uint16_t)lrintf(size * 0x1p24f);
        return sign | (steps == 0 && size > 0 ? 1 : steps);
    }
    int exponent;
    const float digits = frexpf(size, &exponent); /* from a half on */
    return (uint16_t)(sign | (uint16_t)(((exponent + 13) << 10) + lrintf(digits * 2048)));
}

void page_halves(struct page *page, const float *values, size_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t bytes = 2 * count;
    page_text(page, "\"");
    char *to = more(page, (bytes + 2) / 3 * 4);
    for (size_t i = 0; to != NULL && i < bytes; i += 3) {
        uint32_t word = 0;
        for (size_t k = i; k < i + 3; k++) {
            uint16_t half = k < bytes ? page_half(values[k / 2]) : 0;
            word = word << 8 | (k % 2 == 0 ? half & 255u : (uint32_t)half >> 8);
        }
        for (int k = 0; k < 4; k++)
            *to++ = i + (size_t)k > bytes ? '=' : digits[word >> (18 - 6 * k) & 63];
    }
    page_text(page, "\"");
}
