/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores from single floats: Q transposed with the scale folded in, K where it
 * lies or, when it is bf16 or f16, widened once per block.
 *
 * The names of every qk_*.h: RAW_SCORES says whether scores leave the tile
 * without their scale, which a factor per query then brings, in the
 * exponential at the latest.
 */
#ifndef ATTN_QK_H
#define ATTN_QK_H

/* The strips of a block share each block of K and V that comes from a far cache; more queries gain nothing. */
#define QUERY_BLOCK 288

#include "kernels/qk_plain.h"

#define RAW_SCORES 0

/** Q^T of the rows of a strip. */
static void pack_queries(const struct attn_work *work, const struct attn_scratch *scratch, const struct strip *strip)
{
    const int width = strip->nv * VF_LEN, step = work->rotations.q.data ? VF_LEN : width;
    for (int r = 0; r < width; r += step) {
        const int n = strip->rows - r < step ? strip->rows - r : step;
        const struct attn_rows rows = query_rows(work, scratch, strip, r, n);
        transpose_in(strip->q + r, width, step, &rows, n, work->dk, work->scale);
    }
}

/** n rows of K as words, from row at of the copy on. */
static void pack_keys(const struct attn_scratch *scratch, const struct attn_rows *src, int at, int n, int64_t dk)
{
    ATTN_BY_DTYPE(src->dtype, widen_rows, scratch->k + at * dk, src, n, dk);
}

#endif
