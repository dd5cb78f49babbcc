/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Philox4x32-10, one counter at a time (Salmon et al. 2011, "Parallel random
 * numbers: as easy as 1, 2, 3", section 3.3 and table 2): the constants, and
 * what makes a key. dropout.h has the same for vectors.
 */
#ifndef ATTN_PHILOX_H
#define ATTN_PHILOX_H

#include <stdint.h>

#define PHILOX_ROUNDS 10
#define PHILOX_M0     0xD2511F53u
#define PHILOX_M1     0xCD9E8D57u
#define PHILOX_W0     0x9E3779B9u /* the golden ratio */
#define PHILOX_W1     0xBB67AE85u /* the square root of 3, less 1 */

/** word becomes the four words of a counter under a key; word may be counter. */
static inline void attn_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t word[4])
{
    uint32_t w[4] = {counter[0], counter[1], counter[2], counter[3]}, k0 = key[0], k1 = key[1];
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        const uint64_t a = (uint64_t)PHILOX_M0 * w[0], b = (uint64_t)PHILOX_M1 * w[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ w[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ w[3] ^ k1,
                                  (uint32_t)a};
        for (int i = 0; i < 4; i++)
            w[i] = next[i];
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    for (int i = 0; i < 4; i++)
        word[i] = w[i];
}

/** The key that a seed and an offset stand for. */
static inline void attn_dropout_key(uint64_t seed, uint64_t offset, uint32_t key[2])
{
    const uint32_t from[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t word[4] = {(uint32_t)offset, (uint32_t)(offset >> 32), 0, 0};
    attn_philox(word, from, word);
    key[0] = word[0];
    key[1] = word[1];
}

/** Words below this drop their weight. */
static inline uint32_t attn_dropout_threshold(float p)
{
    return (uint32_t)((double)p * 4294967296.0);
}

#endif
