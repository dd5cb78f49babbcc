/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropout: which weights are dropped follows from Philox4x32-10 (Salmon et al.
 * 2011, "Parallel random numbers: as easy as 1, 2, 3"), counted by what a
 * weight is the weight of, so that no tiling, no instruction set and no number
 * of threads makes a difference, and a backward pass can ask again.
 *
 * A vector of counters has a query per lane; its four words are for four keys.
 * Of the first of ten rounds nothing differs between lanes but a word that is
 * only added, and half of the second is the same for all as well.
 */
#ifndef ATTN_DROPOUT_H
#define ATTN_DROPOUT_H

#include "kernels/philox.h"

/** Ten rounds for the lanes' queries: word[i] decides on key 4 * key_group + i. */
ATTN_INLINE void philox_lanes(const struct attn_work *work, uint32_t key_group, vu query, vu word[4])
{
    const uint32_t counter[4] = {key_group, 0, (uint32_t)work->head, (uint32_t)work->batch};
    uint32_t k0 = work->drop.key[0], k1 = work->drop.key[1];
    /* Round 1: word 1 alone differs between lanes. */
    const uint64_t a = (uint64_t)PHILOX_M0 * counter[0], b = (uint64_t)PHILOX_M1 * counter[2];
    word[0] = vu_xor(query, vu_set1((uint32_t)(b >> 32) ^ k0));
    const uint32_t w1 = (uint32_t)b, w2 = (uint32_t)(a >> 32) ^ counter[3] ^ k1, w3 = (uint32_t)a;
    k0 += PHILOX_W0, k1 += PHILOX_W1;
    /* Round 2: word 0 differs. */
    const uint64_t c = (uint64_t)PHILOX_M1 * w2;
    vu high, low;
    vu_mul_wide(word[0], vu_set1(PHILOX_M0), &high, &low);
    word[0] = vu_set1((uint32_t)(c >> 32) ^ w1 ^ k0);
    word[1] = vu_set1((uint32_t)c);
    word[2] = vu_xor(high, vu_set1(w3 ^ k1));
    word[3] = low;
    ATTN_UNROLL
    for (int round = 2; round < PHILOX_ROUNDS; round++) {
        vu high2, low2;
        k0 += PHILOX_W0, k1 += PHILOX_W1;
        vu_mul_wide(word[0], vu_set1(PHILOX_M0), &high, &low);
        vu_mul_wide(word[2], vu_set1(PHILOX_M1), &high2, &low2);
        word[0] = vu_xor(vu_xor(high2, word[1]), vu_set1(k0));
        word[1] = low2;
        word[2] = vu_xor(vu_xor(high, word[3]), vu_set1(k1));
        word[3] = low;
    }
}

/**
 * Sets dropped ones of n weights to 0: keys from first on, in words of pack
 * keys each (tile.h), [word][nv * VF_LEN].
 */
ATTN_INLINE void drop_weights(const int pack, const struct attn_work *work, const struct strip *strip, int64_t first,
                              int n, float *p)
{
    const vu threshold = vu_set1(work->drop.threshold);
    const uint64_t key = (uint64_t)(work->key_index + first);
    for (int v = 0; v < strip->nv; v++) {
        const uint64_t query = (uint64_t)(work->query_index + strip->first + v * VF_LEN);
        const vu queries = vu_add(vu_iota(), vu_set1((uint32_t)query));
        vu word[4], kept = threshold;
        for (int j = 0; j < n; j++) {
            const int i = (int)((key + (uint64_t)j) % 4);
            if (j == 0 || i == 0)
                philox_lanes(work, (uint32_t)((key + (uint64_t)j) / 4), queries, word);
            const vu keep = vu_at_least(word[i], threshold);
            float *at = p + ((ptrdiff_t)(j / pack) * strip->nv + v) * VF_LEN;
            if (pack == 1) {
                vu_store(at, vu_and(vu_load(at), keep));
            } else if (j % 2 == 0 && j + 1 < n) {
                kept = keep;
            } else { /* the first key of a word is its lower half; an odd last key has no second */
                const vu lower = j % 2 ? kept : keep;
                vu_store(
                    at, vu_and(vu_load(at), vu_or(vu_and(lower, vu_set1(0xffff)), vu_and(keep, vu_set1(0xffff0000u)))));
            }
        }
    }
}

#endif
