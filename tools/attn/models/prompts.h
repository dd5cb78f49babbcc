/* SPDX-License-Identifier: Apache-2.0 */
/* The prompts of attn generate, and what is printed of their texts. */
#ifndef ATTN_TOOLS_MODELS_PROMPTS_H
#define ATTN_TOOLS_MODELS_PROMPTS_H

#include "io/lines.h"
#include "models/generator.h"
#include "models/growing_text.h"

/* How texts are printed. */
enum prompts_output {
    PROMPTS_STREAM, /* one text, as it is made */
    PROMPTS_LINES,  /* a line for each, in their order; \n, \r and \\ in them written so */
    PROMPTS_JSON    /* an object for each, as they end */
};

/* Begins as {0}; set what the program knows. */
struct prompts {
    const struct lines *lines;
    const struct text_model *model;
    struct stop_texts stops;
    enum prompts_output output;
    struct growing_text *texts; /* [lines->count] */
    bool *ended;
    int64_t printed; /* PROMPTS_LINES: texts */
};

attn_status prompts_begin(struct prompts *p);
/* For the generator's took() and ended(). */
attn_status prompts_take(struct prompts *p, const struct generation *text, bool *stop);
attn_status prompts_end(struct prompts *p, const struct generation *text);
void prompts_free(struct prompts *p);

#endif
