/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The products of score_tile.h by instructions that multiply 2 x 2 blocks:
 *
 *     S[2 keys][2 queries] += K[2 keys][2 words] * Q[2 words][2 queries]
 *
 * Rows of K are taken in pairs, in place; the words of Q lie in groups of two
 * (words.h), so that a vector of it is the groups of two queries. An
 * accumulator is a block of sums, and two of them become two rows of the tile
 * when all words have been multiplied. A last word that has no other one is
 * multiplied as in score_tile.h, and a last row is paired with itself.
 *
 * A register tile of 6 x 16 sums is 24 accumulators. A step of two words loads
 * 8 vectors of Q, one at a time, and 3 pairs of rows, for 24 products.
 */
#ifndef ATTN_SCORE_MM_H
#define ATTN_SCORE_MM_H

#include "kernels/rows.h"
#include "simd/words.h"

#if VS_GROUP != 2
#error "score_mm.h needs words in groups of two"
#endif

/** Adds the products of nk rows of K with vectors v0..nv-1 of queries to their sums. */
ATTN_INLINE void score_products(const int nk, const int v0, const int nv, const float *q, const char *const *row,
                                int64_t words, vs (*acc)[VF_STRIP])
{
    vs block[VF_KEYS][2 * VF_STRIP];
    ATTN_UNROLL
    for (int i = 0; i < nk; i += 2) {
        ATTN_UNROLL
        for (int v = v0; v < nv; v++)
            vs_halves(acc[i][v], acc[i + 1 < nk ? i + 1 : i][v], &block[i / 2][2 * v], &block[i / 2][2 * v + 1]);
    }
    int64_t c = 0;
#pragma GCC unroll 2
    for (; c + 2 <= words; c += 2) {
        vq b[VF_KEYS];
        ATTN_UNROLL
        for (int i = 0; i < nk; i += 2)
            b[i / 2] = vq_rows(row[i] + c * ATTN_WORD, row[i + 1 < nk ? i + 1 : i] + c * ATTN_WORD);
        ATTN_UNROLL
        for (int u = 2 * v0; u < 2 * nv; u++) {
            const vq a = vq_load(q + (c * nv + u) * VF_LEN);
            ATTN_LOAD_NO_FURTHER();
            ATTN_UNROLL
            for (int i = 0; i < nk; i += 2)
                block[i / 2][u] = vs_mm(b[i / 2], a, block[i / 2][u]);
        }
    }
    if (c < words) {
        ATTN_UNROLL
        for (int i = 0; i < nk; i += 2) {
            const vq b = vq_rows_word(row[i] + c * ATTN_WORD, row[i + 1 < nk ? i + 1 : i] + c * ATTN_WORD);
            ATTN_UNROLL
            for (int u = 2 * v0; u < 2 * nv; u++)
                block[i / 2][u] = vs_dot(b, vq_load_twice(q + c * nv * VF_LEN + u * (VF_LEN / 2)), block[i / 2][u]);
        }
    }
    ATTN_UNROLL
    for (int i = 0; i < nk; i += 2) {
        ATTN_UNROLL
        for (int v = v0; v < nv; v++) {
            vs first, second;
            vs_halves(block[i / 2][2 * v], block[i / 2][2 * v + 1], &first, &second);
            acc[i][v] = first;
            if (i + 1 < nk)
                acc[i + 1][v] = second;
        }
    }
}

#endif
