/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A page of HTML in memory with JSON in the place of its mark: pieces of text
 * that grow a buffer. After a piece that found no memory the others do nothing.
 */
#ifndef ATTN_TOOLS_VIEW_PAGE_H
#define ATTN_TOOLS_VIEW_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct page {
    char *bytes;
    size_t used, capacity;
    bool failed; /* out of memory */
};

/* What stands before the data and behind it. */
void page_begin(struct page *page);
void page_end(struct page *page);
void page_free(struct page *page);

void page_text(struct page *page, const char *text);
void page_number(struct page *page, int64_t number);
/* A JSON string that may stand inside of a script; bytes that are not UTF-8 become U+FFFD. */
void page_string(struct page *page, const char *text);
/* Base64 of numbers as f16, lowest byte first, the whole in quotes; -Inf, which is a hidden key, as 0. */
void page_halves(struct page *page, const float *values, size_t count);

/* The nearest f16. A positive number that is not 0 does not become 0, but the least that there is. */
uint16_t page_half(float value);

#endif
