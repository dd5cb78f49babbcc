/* SPDX-License-Identifier: Apache-2.0 */
/* Finds texts and regular expressions, the latter by PCRE2, in whose words expression.c puts them. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "text/expression.h"

struct pattern {
    char *text; /* to look for; NULL: the expression is */
    size_t size;
    pcre2_code *code;
};

static attn_status out_of_memory(const char *file)
{
    return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", file);
}

static attn_status compile(struct pattern *p, const char *expression, const struct entry *entry)
{
    struct bytes words = {0};
    int error = 0;
    PCRE2_SIZE place;
    const attn_status status = expression_translate(&words, expression, entry);
    pcre2_compile_context *context = status == ATTN_OK ? pcre2_compile_context_create(NULL) : NULL;
    bytes_add(&words, "", 1);
    if (context != NULL && !words.failed) {
        /* ^ and $ are those of a line in Ruby's syntax, which ends with a newline alone. */
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        p->code =
            pcre2_compile((PCRE2_SPTR)words.at, PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &place, context);
    }
    const bool failed = context == NULL || words.failed || error == PCRE2_ERROR_HEAP_FAILED;
    pcre2_compile_context_free(context);
    bytes_free(&words);
    CHECK(status);
    if (failed)
        return out_of_memory(entry->file);
    if (p->code == NULL) {
        char expected[160] = "a regular expression: ";
        pcre2_get_error_message(error, (PCRE2_UCHAR *)expected + strlen(expected), sizeof expected - strlen(expected));
        return entry_refuse(ATTN_INVALID_FILE, entry, expected);
    }
    /* Where it is not possible the expression is interpreted. */
    pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
    return ATTN_OK;
}

attn_status pattern_of_expression(struct pattern **pattern, const char *expression)
{
    const struct entry none = {NULL, "a tokenizer", "expression"};
    *pattern = calloc(1, sizeof **pattern);
    return *pattern != NULL ? compile(*pattern, expression, &none) : out_of_memory(none.file);
}

attn_status pattern_read(struct pattern **pattern, const struct entry *step)
{
    struct entry entry = entry_at(step, "pattern");
    const char *text = json_string_value(entry.value), *expression = NULL;
    *pattern = NULL;
    if (json_is_object(entry.value)) {
        CHECK(entry_text_or(&entry, "String", &text));
        CHECK(entry_text_or(&entry, "Regex", &expression));
        entry = entry_at(&entry, expression != NULL ? "Regex" : "String");
    }
    if ((text == NULL) == (expression == NULL))
        return entry_refuse(ATTN_INVALID_FILE, &entry, "an object with String or Regex");
    *pattern = calloc(1, sizeof **pattern);
    if (*pattern == NULL)
        return out_of_memory(step->file);
    if (expression == NULL && *text == '\0')
        expression = ""; /* which is everywhere, as in the reference */
    if (expression != NULL)
        return compile(*pattern, expression, &entry);
    (*pattern)->size = strlen(text);
    (*pattern)->text = strdup(text);
    return (*pattern)->text != NULL ? ATTN_OK : out_of_memory(step->file);
}

void pattern_free(struct pattern *p)
{
    if (p == NULL)
        return;
    free(p->text);
    pcre2_code_free(p->code);
    free(p);
}

static void find_text(struct search *s, size_t from)
{
    const struct pattern *p = s->pattern;
    const char *at = from < s->size ? memmem(s->text + from, s->size - from, p->text, p->size) : NULL;
    s->waits = at != NULL;
    s->begin = s->waits ? (size_t)(at - s->text) : s->size;
    s->end = s->begin + p->size;
}

static void find_expression(struct search *s, size_t from)
{
    const struct pattern *p = s->pattern;
    if (s->memory == NULL)
        s->memory = pcre2_match_data_create_from_pattern(p->code, NULL);
    s->waits = false;
    if (s->memory == NULL) {
        s->failed = true;
        return;
    }
    while (from <= s->size) {
        int result = pcre2_match(p->code, (PCRE2_SPTR)s->text, s->size, from, PCRE2_NO_UTF_CHECK, s->memory, NULL);
        if (result == PCRE2_ERROR_JIT_STACKLIMIT)
            result = pcre2_match(p->code, (PCRE2_SPTR)s->text, s->size, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                                 s->memory, NULL);
        if (result < 0) {
            s->failed = result != PCRE2_ERROR_NOMATCH;
            return;
        }
        const PCRE2_SIZE *place = pcre2_get_ovector_pointer(s->memory);
        s->begin = place[0];
        s->end = place[1];
        s->waits = s->end > s->begin || !s->any || s->last != s->end;
        s->any = true;
        s->last = s->end;
        if (s->waits)
            return;
        /* No match of nothing directly behind another match. */
        from = s->end + 1;
        while (from < s->size && ((unsigned char)s->text[from] & 0xc0) == 0x80)
            from++;
    }
}

bool search_next(struct search *s, struct found *found)
{
    if (s->failed || s->size == 0)
        return false;
    if (!s->waits && !s->ended) {
        if (s->pattern->code != NULL)
            find_expression(s, s->at);
        else
            find_text(s, s->at);
        s->ended = !s->waits;
        if (s->failed)
            return false;
    }
    const bool now = s->waits && s->begin == s->at;
    if (!now && s->at == s->size)
        return false;
    *found = (struct found){s->at, now ? s->end : s->waits ? s->begin : s->size, now};
    s->waits = s->waits && !now;
    s->at = found->end;
    return true;
}

void search_end(struct search *s)
{
    pcre2_match_data_free(s->memory);
    s->memory = NULL;
}
