/* SPDX-License-Identifier: Apache-2.0 */
/* What a step of a tokenizer looks for in a text: a text or a regular expression, {"String": ...} or {"Regex": ...}. */
#ifndef ATTN_TEXT_PATTERN_H
#define ATTN_TEXT_PATTERN_H

#include "text/bytes.h"
#include "text/entries.h"

struct pattern;

/** Reads the entry "pattern" of a step. */
attn_status pattern_read(struct pattern **pattern, const struct entry *step);
/** That of a regular expression that is no file's. */
attn_status pattern_of_expression(struct pattern **pattern, const char *expression);
void pattern_free(struct pattern *pattern);

/** A part of a text: matched or what lies between matches. */
struct found {
    size_t begin, end;
    bool matches;
};

/** Where a search is; begin as {.pattern, .text, .size}. */
struct search {
    const struct pattern *pattern;
    const char *text;
    size_t size;
    size_t at;         /**< how far the parts go that have been given */
    size_t begin, end; /**< of the match that comes next */
    void *memory;      /**< of a regular expression */
    bool waits, ended; /**< there is such a match; there is none any more */
    bool failed;       /**< memory was short, or an expression goes back too often */
};

/** The next part of the text, in order and without gaps; false at its end. */
bool search_next(struct search *search, struct found *found);
void search_end(struct search *search);

#endif
