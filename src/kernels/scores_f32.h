/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores from single floats: Q transposed with the scale folded in, K where it
 * lies or, when it is bf16 or f16, widened once per block.
 */
#ifndef ATTN_SCORES_H
#define ATTN_SCORES_H

#include "kernels/score_few.h"
#include "kernels/score_free.h"
#include "kernels/score_side.h"
#include "kernels/score_tile.h"
#include "kernels/transpose.h"

static void pack_queries(const struct attn_pack_queries *x)
{
    read_rows(x->q + x->first, x->width, x->fill, x->rows, x->dtype, x->n, x->dk, x->scale);
}

static void pack_keys(const struct attn_rows *src, int n, int64_t dk, const struct attn_int8_memory *memory,
                      const struct attn_packed_keys *dst)
{
    (void)memory;
    widen_stored((float *)(void *)dst->words, src, n, dk);
}

/* The strips of a block share each block of K and V that comes from a far cache; more queries gain nothing. */
static const struct attn_score_kernels score_kernels = {.name = "f32",
                                                        .channels_per_word = VS_PACK,
                                                        .raw = RAW_SCORES,
                                                        .query_block = 288,
                                                        .pack_queries = pack_queries,
                                                        .pack_keys = pack_keys,
                                                        .scores = score_tile,
                                                        .scores_of_few = SCORES_OF_FEW,
                                                        .scores_free = SCORES_FREE,
                                                        .scores_side_by_side = SCORES_SIDE_BY_SIDE,
                                                        .ordered_side_by_side = ORDERED_SIDE_BY_SIDE};

#endif
