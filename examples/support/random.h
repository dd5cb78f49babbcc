/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers by their place instead of their order: number index of a
 * stream, such as a parameter or a step of a training, is always the same. So
 * nothing of them has to be kept for a training that goes on later.
 */
#ifndef ATTN_EXAMPLES_RANDOM_H
#define ATTN_EXAMPLES_RANDOM_H

#include <math.h>
#include <stdint.h>

struct stream {
    uint64_t seed, number;
};

/* Steele et al. 2014, "Fast splittable pseudorandom number generators": the mixing of SplitMix64. */
static inline uint64_t random_mix(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline uint64_t random_bits(struct stream s, uint64_t index)
{
    return random_mix(random_mix(random_mix(s.seed) ^ s.number) ^ index);
}

/* From 0 to less than 1. */
static inline double random_uniform(struct stream s, uint64_t index)
{
    return (double)(random_bits(s, index) >> 11) * 0x1p-53;
}

/* Normal, by Box and Muller. */
static inline double random_normal(struct stream s, uint64_t index)
{
    const double radius = sqrt(-2 * log(1 - random_uniform(s, 2 * index)));
    return radius * cos(2 * 3.14159265358979324 * random_uniform(s, 2 * index + 1));
}

#endif
