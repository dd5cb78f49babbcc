/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores from int8: integer sums, times the step of K in the tile. The step of
 * Q is the factor of the query (pack_int8.h).
 */
#ifndef ATTN_SCORES_H
#define ATTN_SCORES_H

#include "kernels/pack_int8.h"

#define RAW_SCORES 1
#define SCORE_STEPS

ATTN_INLINE vs score_start(const struct attn_score_operands *x, int j)
{
    return vs_set1(x->start[j]);
}

ATTN_INLINE vf score_finish(const struct attn_score_operands *x, int j, vs sum)
{
    return vf_mul(vs_float(sum), vf_set1(x->k_scale[j]));
}

#include "kernels/score_tile.h"

/* K is surveyed and packed once per block of queries. */
static const struct attn_score_kernels score_kernels = {.name = "int8",
                                                        .channels_per_word = VS_PACK,
                                                        .raw = RAW_SCORES,
                                                        .int8 = 1,
                                                        .query_block = 576,
                                                        .survey = survey_keys,
                                                        .pack_queries = pack_queries,
                                                        .pack_keys = pack_keys,
                                                        .scores = score_tile};

#endif
