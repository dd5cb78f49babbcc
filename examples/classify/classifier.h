/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A text classifier: embedding, bidirectional LSTM, attention pooling, linear
 * head. examples/train/train_classifier.py trains one and defines its words.
 */
#ifndef ATTN_EXAMPLES_CLASSIFIER_H
#define ATTN_EXAMPLES_CLASSIFIER_H

#include <attn/nn.h>

#include "lines.h"

struct classifier;

/* A text as the model sees it; begins as {0}. */
struct words {
    int32_t *ids;
    struct lines text; /* each word as it was found, in lower case */
    int64_t room;
};

attn_status classifier_open(struct classifier **classifier, const char *folder);
void classifier_close(struct classifier *classifier);
int64_t classifier_classes(const struct classifier *classifier);
const char *classifier_class(const struct classifier *classifier, int64_t i);

/* Replaces what is in words by those of a text; one without a word is the one word <unk>. */
attn_status classifier_words(const struct classifier *classifier, const char *text, size_t size, struct words *words);
void words_free(struct words *words);

/* The logits of a batch of texts, logits[count][classes], and of each word its weight, weights[n][words of text n]. */
attn_status classifier_run(const struct classifier *classifier, const struct words *texts, int64_t count, float *logits,
                           float *const *weights);

#endif
