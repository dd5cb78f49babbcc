/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores from pairs of bf16 (q and k are bf16), by vectors (score_tile.h): they
 * leave the tile without the scale (pack_bf16.h).
 */
#ifndef ATTN_SCORES_H
#define ATTN_SCORES_H

#define RAW_SCORES 1
#include "kernels/pack_bf16.h"
#include "kernels/score_few.h"
#include "kernels/score_free.h"
#include "kernels/score_side.h"
#include "kernels/score_tile.h"

#if defined(VW_INT4) && defined(VW_F8)
#define EXACT_PAIRS 1
#else
#define EXACT_PAIRS 0
#endif

static const struct attn_score_kernels score_kernels = {.name = "bf16",
                                                        .channels_per_word = VS_PACK,
                                                        .exact_pairs = EXACT_PAIRS,
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
