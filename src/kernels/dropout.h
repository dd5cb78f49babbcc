/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropout of the weights of a tile. Which ones are dropped follows from
 * Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2,
 * 3"), counted by what a weight is the weight of, so that no tiling, no instruction set and no number
 * of threads makes a difference, and a backward pass can ask again.
 *
 * A vector of counters has a query per lane; its four words are for four keys.
 * In the first of ten rounds nothing differs between lanes but a word that is
 * only added, and half of the products of the next two are the same for all.
 */
#ifndef ATTN_DROPOUT_H
#define ATTN_DROPOUT_H

#include "kernels/philox.h"
#include "kernels/width.h"

/** The key of each round, in memory: a broadcast from there costs nothing beside the operation that uses it. */
struct round_keys {
    uint32_t of[PHILOX_ROUNDS][2];
};

static struct round_keys round_keys_of(const struct attn_drop *drop)
{
    struct round_keys keys;
    for (uint32_t i = 0; i < PHILOX_ROUNDS; i++) {
        keys.of[i][0] = drop->key[0] + i * PHILOX_W0;
        keys.of[i][1] = drop->key[1] + i * PHILOX_W1;
    }
    return keys;
}

/** Ten rounds for the lanes' queries: word[i] decides on key 4 * key_group + i. */
ATTN_INLINE void philox_lanes(const struct attn_drop *drop, const struct round_keys *keys, uint32_t key_group, vu query,
                              vu word[4])
{
    const vu m0 = vu_set1(PHILOX_M0), m1 = vu_set1(PHILOX_M1);
    /* Round 1: word 1 alone differs between lanes. */
    const uint64_t a = (uint64_t)PHILOX_M0 * key_group, b = (uint64_t)PHILOX_M1 * (uint32_t)drop->head;
    const uint32_t w1 = (uint32_t)b, w2 = (uint32_t)(a >> 32) ^ (uint32_t)drop->batch ^ keys->of[0][1];
    word[0] = vu_xor(query, vu_set1((uint32_t)(b >> 32) ^ keys->of[0][0]));
    /* Round 2: word 0 differs. */
    const uint64_t c = (uint64_t)PHILOX_M1 * w2;
    vu high, low, high2, low2;
    vu_mul_wide(word[0], m0, &high, &low);
    word[2] = vu_xor(high, vu_set1((uint32_t)a ^ keys->of[1][1]));
    word[3] = low;
    /* Round 3: word 0 and 1 do not. */
    const uint32_t w0 = (uint32_t)(c >> 32) ^ w1 ^ keys->of[1][0];
    const uint64_t e = (uint64_t)PHILOX_M0 * w0;
    vu_mul_wide(word[2], m1, &high2, &low2);
    word[0] = vu_xor(high2, vu_set1((uint32_t)c ^ keys->of[2][0]));
    word[1] = low2;
    word[2] = vu_xor(word[3], vu_set1((uint32_t)(e >> 32) ^ keys->of[2][1]));
    word[3] = vu_set1((uint32_t)e);
    ATTN_UNROLL
    for (int round = 3; round < PHILOX_ROUNDS; round++) {
        vu_mul_wide(word[0], m0, &high, &low);
        vu_mul_wide(word[2], m1, &high2, &low2);
        word[0] = vu_xor3(high2, word[1], vu_set1(keys->of[round][0]));
        word[1] = low2;
        word[2] = vu_xor3(high, word[3], vu_set1(keys->of[round][1]));
        word[3] = low;
    }
}

/** Clears the dropped ones among weights j..end-1 of vector v, keys of one group: key j is number first of it. */
ATTN_INLINE void drop_group(const int pack, const vu word[4], vu threshold, int first, int nv, int v, int j, int end,
                            float *p)
{
    for (int i = first; i < 4 && j < end; i++, j++) {
        float *at = p + ((ptrdiff_t)(j / pack) * nv + v) * VF_LEN;
        const vu keep = vu_at_least(word[i], threshold);
        if (pack == 1) {
            vu_store(at, vu_and(vu_load(at), keep));
        } else {                                                    /* the first key of a word is its lower half */
            const vu half = vu_set1(j % 2 ? 0xffffu : 0xffff0000u); /* the other key's */
            vu_store(at, vu_and(vu_load(at), vu_or(keep, half)));
        }
    }
}

/** drop_group() for a whole group that begins with a word. */
ATTN_INLINE void drop_whole_group(const int pack, const vu word[4], vu threshold, int nv, int v, int j, float *p)
{
    const vu lower = vu_set1(0xffffu), upper = vu_set1(0xffff0000u);
    ATTN_UNROLL
    for (int i = 0; i < 4; i += pack) {
        float *at = p + ((ptrdiff_t)((j + i) / pack) * nv + v) * VF_LEN;
        vu keep = vu_at_least(word[i], threshold);
        if (pack == 2)
            keep = vu_or(vu_and(keep, lower), vu_and(vu_at_least(word[i + 1], threshold), upper));
        vu_store(at, vu_and(vu_load(at), keep));
    }
}

/** struct attn_value_kernels, drop, for words of pack keys each. */
ATTN_INLINE void drop_words(const int pack, const struct attn_drop *drop, int nv, int n, float *p)
{
    const vu threshold = vu_set1(drop->threshold);
    const uint64_t key = (uint64_t)drop->first;
    const int head = (int)((4 - key % 4) % 4); /* keys before the first whole group */
    const struct round_keys keys = round_keys_of(drop);
    vu word[4];
    for (int v = 0; v < nv; v++) {
        const uint64_t query = (uint64_t)(drop->query_index + v * VF_LEN);
        const vu queries = vu_add(vu_iota(), vu_set1((uint32_t)query));
        int j = 0;
        if (head > 0) {
            philox_lanes(drop, &keys, (uint32_t)(key / 4), queries, word);
            drop_group(pack, word, threshold, 4 - head, nv, v, 0, n, p);
            j = head;
        }
        for (; head % pack == 0 && j + 4 <= n; j += 4) {
            philox_lanes(drop, &keys, (uint32_t)((key + (uint64_t)j) / 4), queries, word);
            drop_whole_group(pack, word, threshold, nv, v, j, p);
        }
        for (; j < n; j += 4) {
            philox_lanes(drop, &keys, (uint32_t)((key + (uint64_t)j) / 4), queries, word);
            drop_group(pack, word, threshold, 0, nv, v, j, n, p);
        }
    }
}

#endif
