/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model of examples/train/train_translator.py: written-out English dates
 * in, ISO dates out, character by character.
 */
#ifndef ATTN_EXAMPLES_TRANSLATOR_H
#define ATTN_EXAMPLES_TRANSLATOR_H

#include "alphabet.h"
#include "attn/nn.h"

struct translator;

/* What config.json says. */
struct translator_sizes {
    attn_transformer_config config;
    int64_t max_output; /* tokens of a translation at most, with the end */
    int64_t beams;
};

/* Opens FOLDER/config.json, alphabet.txt and translator.safetensors. */
attn_status translator_open(struct translator **translator, const char *folder);
/* Makes one of parts, of which nothing has to stay. */
attn_status translator_create(struct translator **translator, const struct translator_sizes *sizes,
                              const struct alphabet *alphabet, const attn_weights *weights);
void translator_close(struct translator *translator);

/* Hypotheses that the model was searched with where it was trained. */
int64_t translator_beams(const struct translator *translator);

/* Adds what it makes of texts first to first + count - 1, which must not be empty, to found. */
attn_status translator_run(const struct translator *translator, const struct lines *texts, int64_t first, int64_t count,
                           int64_t beams, struct lines *found);

/* Where each character of a translation came from. */
struct translator_view {
    int64_t rows, columns;      /* characters that were written, with the end; that were read */
    float *weights;             /* [rows][columns], the mean over the heads of the last layer */
    struct lines written, read; /* a label for each */
};

/* Translates one text and looks at its attention; the view, which begins as {0}, is to be freed in any case. */
attn_status translator_look(const struct translator *translator, const char *text, size_t size, int64_t beams,
                            struct translator_view *view);
void translator_view_free(struct translator_view *view);

#endif
