/* SPDX-License-Identifier: Apache-2.0 */
/* Logistic regression on what an encoder pools, whose own weights stay as they are. */
#ifndef ATTN_EXAMPLES_FROZEN_H
#define ATTN_EXAMPLES_FROZEN_H

#include "adapted_encoder.h"

/* Fits the classifier to texts in batches of most_texts, and tests it: *accuracy is that on test. */
attn_status frozen_fit(struct adapted_encoder *e, struct token_batch *batch, const struct token_texts *train,
                       const struct token_texts *test, double *accuracy);

#endif
