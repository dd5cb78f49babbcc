/* SPDX-License-Identifier: Apache-2.0 */
/* Labelled texts as words, and batches of them. */
#ifndef ATTN_EXAMPLES_SAMPLES_H
#define ATTN_EXAMPLES_SAMPLES_H

#include "labelled_texts.h"
#include "words.h"

/* Begins as {0}. */
struct samples {
    struct labelled_texts source;
    struct words *texts;    /* [count] */
    int64_t *lengths;       /* [count] in words */
    int64_t count, longest; /* in words */
};

/* Reads a file as labelled_texts_read() does. Words have no numbers yet. */
attn_status samples_read(struct samples *samples, const char *path, struct lines *classes, bool may_add);
void samples_number(struct samples *samples, const struct vocabulary *vocabulary);
void samples_free(struct samples *samples);

/* The words that occur least times or more, the most frequent first, behind <pad> and <unk>. */
attn_status samples_vocabulary(const struct samples *samples, int64_t least, struct vocabulary *vocabulary);

/* A batch, padded to its longest text. */
struct batch {
    int64_t count, longest;
    int64_t *lengths; /* [count] */
    int32_t *labels;
    int32_t *ids; /* [count][longest] */
};

/* Room for size texts of the samples; fails if there is not as much memory. */
attn_status batch_create(struct batch *batch, int64_t size, int64_t longest);
/* Fills it with the samples that order names. */
void batch_fill(struct batch *batch, const struct samples *samples, const int64_t *order, int64_t count);
void batch_free(struct batch *batch);

#endif
