/* SPDX-License-Identifier: Apache-2.0 */
/* Texts go to standard output while they are made, or when they have ended. */
#include "models/prompts.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

attn_status prompts_begin(struct prompts *p)
{
    p->texts = calloc((size_t)p->lines->count, sizeof *p->texts);
    p->ended = calloc((size_t)p->lines->count, sizeof *p->ended);
    return p->texts != NULL && p->ended != NULL
               ? ATTN_OK
               : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %" PRId64 " prompts", p->lines->count);
}

void prompts_free(struct prompts *p)
{
    for (int64_t i = 0; p->texts != NULL && i < p->lines->count; i++)
        growing_text_free(&p->texts[i]);
    free(p->texts);
    free(p->ended);
}

static attn_status flush(void)
{
    return fflush(stdout) == 0 && !ferror(stdout)
               ? ATTN_OK
               : io_fail(ATTN_INVALID_FILE, "cannot write to standard output: %s", strerror(errno));
}

/* The id that ends a text is none of it. */
static int64_t shown_tokens(const struct generation *text)
{
    return text->count - (text->ending == ENDING_EOS);
}

attn_status prompts_take(struct prompts *p, const struct generation *text, bool *stop)
{
    struct growing_text *g = &p->texts[text->index];
    const bool last = text->ending != ENDING_NONE;
    CHECK(growing_text_take(g, p->model->tokenizer, text->ids, text->prompt, shown_tokens(text), &p->stops, last));
    *stop = g->stopped;
    size_t size;
    const char *new = growing_text_new(g, &p->stops, last || g->stopped, &size);
    if (p->output != PROMPTS_STREAM || size == 0)
        return ATTN_OK;
    fwrite(new, 1, size, stdout);
    return flush();
}

/* ---------------------------------------------------------------------- ends -- */

static void print_line(const struct growing_text *g)
{
    for (size_t i = 0; i < g->size; i++) {
        const char c = g->text[i];
        if (c == '\n')
            fputs("\\n", stdout);
        else if (c == '\r')
            fputs("\\r", stdout);
        else if (c == '\\')
            fputs("\\\\", stdout);
        else
            putchar(c);
    }
    putchar('\n');
}

static json_t *id_array(const int32_t *ids, int64_t count)
{
    json_t *array = json_array();
    for (int64_t i = 0; array != NULL && i < count; i++)
        if (json_array_append_new(array, json_integer(ids[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static attn_status print_json(const struct prompts *p, const struct generation *text)
{
    static const char *const endings[] = {"", "eos", "length", "positions", "stop"};
    const struct growing_text *g = &p->texts[text->index];
    const int32_t *prompt = text->source != NULL ? text->source : text->ids;
    const int64_t tokens = text->source != NULL ? text->source_tokens : text->prompt;
    json_t *object =
        json_pack("{s:I, s:o, s:o, s:s, s:o, s:o}", "prompt_number", (json_int_t)text->index + 1, "prompt",
                  json_stringn(p->lines->text[text->index], p->lines->size[text->index]), "text",
                  json_stringn(g->size > 0 ? g->text : "", g->size), "ended_by", endings[text->ending], "prompt_ids",
                  id_array(prompt, tokens), "ids", id_array(text->ids + text->prompt, text->count - text->prompt));
    const bool written = object != NULL && json_dumpf(object, stdout, JSON_COMPACT) == 0;
    json_decref(object);
    putchar('\n');
    return written ? flush() : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for text %" PRId64, text->index + 1);
}

attn_status prompts_end(struct prompts *p, const struct generation *text)
{
    p->ended[text->index] = true;
    if (p->output == PROMPTS_JSON)
        return print_json(p, text);
    if (p->output == PROMPTS_STREAM)
        putchar('\n');
    for (; p->output == PROMPTS_LINES && p->printed < p->lines->count && p->ended[p->printed]; p->printed++)
        print_line(&p->texts[p->printed]);
    return flush();
}
