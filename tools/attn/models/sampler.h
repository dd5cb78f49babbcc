/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which token comes next, from the logits of all: the most likely one, or one
 * drawn at random.
 */
#ifndef ATTN_TOOLS_MODELS_SAMPLER_H
#define ATTN_TOOLS_MODELS_SAMPLER_H

#include <stdint.h>

#include "io/error.h"

struct candidate {
    double weight; /* that of the likeliest is 1 */
    int32_t id;
};

struct sampling {
    double temperature, top_p;
    int64_t top_k; /* 0: all */
};

struct sampler {
    int64_t vocabulary;
    struct sampling how;
    struct candidate *candidates; /* [vocabulary] */
};

/*
 * A temperature of 0 takes the token with the greatest logit, the lowest id among equals. Another one draws tokens with
 * probabilities softmax(logits / temperature): of the top_k likeliest ones alone, and of these alone the likeliest that
 * together have at least top_p, of (0, 1], of what they have. The lower id is the likelier of equals.
 */
attn_status sampler_open(struct sampler *sampler, int64_t vocabulary, const struct sampling *how);
void sampler_close(struct sampler *sampler);

/*
 * logits[vocabulary]; NaN counts as -inf. -1 if all are -inf. Random numbers go on from *state, which begins as a seed:
 * texts that share a sampler have one each. The same state and logits draw the same token.
 */
int32_t sampler_take(struct sampler *sampler, uint64_t *state, const float *logits);

#endif
