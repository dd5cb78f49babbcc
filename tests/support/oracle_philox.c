/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropout's decision, from the description of Philox in Salmon et al. 2011,
 * "Parallel random numbers: as easy as 1, 2, 3", section 4.
 *
 * The counter is two pairs of 32-bit words, left and right halves of two
 * Feistel-like networks. A round multiplies the left half of each pair by a
 * constant. The high half of the product, xor the right half, xor a round key,
 * is the new left half; the low half of the product is the new right half. The
 * pairs then change places. Round keys are a Weyl sequence: the key plus a
 * multiple of the golden ratio's and of sqrt(3)'s fraction.
 */
#include "oracle.h"

#define ROUNDS 10

void oracle_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t words[4])
{
    uint32_t left[2] = {counter[0], counter[2]}, right[2] = {counter[1], counter[3]};
    static const uint32_t multiplier[2] = {0xd2511f53u, 0xcd9e8d57u}, weyl[2] = {0x9e3779b9u, 0xbb67ae85u};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t new_left[2], new_right[2];
        for (int pair = 0; pair < 2; pair++) {
            const int other = 1 - pair;
            const uint64_t product = (uint64_t)multiplier[other] * left[other];
            const uint32_t round_key = key[pair] + round * weyl[pair];
            new_left[pair] = (uint32_t)(product >> 32) ^ right[pair] ^ round_key;
            new_right[pair] = (uint32_t)product;
        }
        for (int pair = 0; pair < 2; pair++) {
            left[pair] = new_left[pair];
            right[pair] = new_right[pair];
        }
    }
    words[0] = left[0], words[1] = right[0], words[2] = left[1], words[3] = right[1];
}

int oracle_keeps(const attn_params *params, const struct oracle_query *query, int64_t j)
{
    const attn_dropout *d = params->dropout;
    if (!d)
        return 1;
    uint32_t key[4], words[4];
    oracle_philox((const uint32_t[4]){(uint32_t)d->offset, (uint32_t)(d->offset >> 32), 0, 0},
                  (const uint32_t[2]){(uint32_t)d->seed, (uint32_t)(d->seed >> 32)}, key);
    oracle_philox(
        (const uint32_t[4]){(uint32_t)(j / 4), (uint32_t)query->index, (uint32_t)query->h, (uint32_t)query->sequence},
        key, words);
    return words[j % 4] >= (uint32_t)((double)d->p * 4294967296.0);
}
