/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A text classifier: embedding, bidirectional LSTM, attention pooling, linear
 * head. examples/train/train_classifier.py and train.c train one.
 */
#ifndef ATTN_EXAMPLES_CLASSIFIER_H
#define ATTN_EXAMPLES_CLASSIFIER_H

#include <attn/nn.h>

#include "words.h"

struct classifier;

attn_status classifier_open(struct classifier **classifier, const char *folder);
void classifier_close(struct classifier *classifier);
const struct vocabulary *classifier_vocabulary(const struct classifier *classifier);
int64_t classifier_classes(const struct classifier *classifier);
const char *classifier_class(const struct classifier *classifier, int64_t i);

/* The logits of a batch of texts, logits[count][classes], and of each word its weight, weights[n][words of text n]. */
attn_status classifier_run(const struct classifier *classifier, const struct words *texts, int64_t count, float *logits,
                           float *const *weights);

#endif
