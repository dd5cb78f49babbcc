/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts, or pairs of them, as tokens; and an encoder's outputs for all of them, in batches.
 *
 *     struct encoded_texts texts = {0};
 *     encoded_texts_add(&texts, &model, most, text, size, NULL, 0);        for each
 *     encoded_texts_run(&texts, &model, &how, rows);
 */
#ifndef ATTN_TOOLS_MODELS_ENCODED_TEXTS_H
#define ATTN_TOOLS_MODELS_ENCODED_TEXTS_H

#include "io/lines.h"
#include "models/text_model.h"

/* Begins as {0}. */
struct encoded_texts {
    int64_t count, room;
    int64_t *offsets;       /* [count + 1] first tokens, once there is a text */
    attn_encoding tokens;   /* of all, behind each other */
    int64_t cut, first_cut; /* texts of which the end was left off, and the first of them */
};

/* Adds the tokens of a text, or of a pair where second is not NULL: most of them at most, special ones counted. */
attn_status encoded_texts_add(struct encoded_texts *t, const struct text_model *m, int64_t most, const char *text,
                              size_t size, const char *second, size_t second_size);
/* Adds each of lines, or pairs of first (a line of its own) and each of them. Sentences name the line, from 1 on. */
attn_status encoded_texts_add_lines(struct encoded_texts *t, const struct text_model *m, int64_t most,
                                    const char *first, const struct lines *lines);
void encoded_texts_free(struct encoded_texts *t);

/* What is wanted of each text. */
struct encoded_run {
    bool logits;          /* else embeddings */
    int64_t batch_tokens; /* of a call at most, but for a text that has more by itself */
    int threads;
    /* NULL, or called after each batch: texts that are done. */
    void (*done)(void *user, int64_t texts);
    void *user;
};

/* Writes rows[count][width], width being info.d_model or info.logits. */
attn_status encoded_texts_run(const struct encoded_texts *t, const struct text_model *m, const struct encoded_run *run,
                              float *rows);

#endif
