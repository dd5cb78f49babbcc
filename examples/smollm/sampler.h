/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which token comes next, from the logits of all: the most likely one, or one
 * drawn at random.
 */
#ifndef ATTN_EXAMPLES_SMOLLM_SAMPLER_H
#define ATTN_EXAMPLES_SMOLLM_SAMPLER_H

#include <stdint.h>

#include "io/error.h"

struct candidate {
    double weight; /* that of the likeliest is 1 */
    int32_t id;
};

struct sampler {
    int64_t vocabulary;
    double temperature, top_p;
    uint64_t state;
    struct candidate *candidates; /* [vocabulary] */
};

/*
 * A temperature of 0 takes the token with the greatest logit, the lowest id among equals. Another one draws tokens with
 * probabilities softmax(logits / temperature), of the likeliest ones alone that together have at least top_p, of (0,
 * 1]. The same seed and logits draw the same tokens.
 */
attn_status sampler_open(struct sampler *sampler, int64_t vocabulary, double temperature, double top_p, uint64_t seed);
void sampler_close(struct sampler *sampler);

/* logits[vocabulary]; NaN counts as -inf. -1 if all are -inf. */
int32_t sampler_take(struct sampler *sampler, const float *logits);

#endif
