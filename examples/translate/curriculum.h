/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pairs each step of a training learns from: short texts first, as where
 * to look is learnt from them sooner (Platanios et al. 2019, "Competence-based
 * curriculum learning for neural machine translation").
 */
#ifndef ATTN_EXAMPLES_CURRICULUM_H
#define ATTN_EXAMPLES_CURRICULUM_H

#include "date_pairs.h"

struct curriculum {
    int64_t batch, steps; /* pairs of a step; of the training */
    uint64_t seed;
    /* The longest text at the start; where all lengths have come in, and after which share of the steps. */
    int64_t shortest, longest;
    double growth;
};

/*
 * Makes order[steps * batch], the pairs of all steps. Steps have groups, each of
 * which draws from the texts that are not too long for it, and none again before
 * all of those have been drawn. Texts of like length share a batch.
 */
attn_status curriculum_order(const struct curriculum *curriculum, const struct date_pairs *pairs, int64_t *order);

#endif
