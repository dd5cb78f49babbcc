/* SPDX-License-Identifier: Apache-2.0 */
/* Texts with their classes, to train and to test with: files with a line CLASS TAB TEXT for each. */
#ifndef ATTN_EXAMPLES_SAMPLES_H
#define ATTN_EXAMPLES_SAMPLES_H

#include "random.h"
#include "words.h"

/* Begins as {0}. */
struct samples {
    struct words *texts;
    int32_t *labels;
    int64_t count, longest; /* in words */
    uint64_t digest;        /* of all texts and classes: another one for other samples */
};

/*
 * Reads a file. Classes that are not among classes yet are added if may_add, and
 * an error if not. Words have no numbers yet.
 */
attn_status samples_read(struct samples *samples, const char *path, struct lines *classes, bool may_add);
void samples_number(struct samples *samples, const struct vocabulary *vocabulary);
void samples_free(struct samples *samples);

/* The words that occur least times or more, the most frequent first, behind <pad> and <unk>. */
attn_status samples_vocabulary(const struct samples *samples, int64_t least, struct vocabulary *vocabulary);

/*
 * Puts the samples in an order for batches of size: neighbours in length share
 * one, which saves padding, and chance decides between equals and on the order
 * of the batches. Every order[count] of a stream is another one.
 */
attn_status samples_shuffle(const struct samples *samples, int64_t size, struct stream stream, int64_t *order);

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
