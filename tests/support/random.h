/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers for tests: small, seedable, the same on every machine.
 *
 * The generator is SplitMix64 (Steele, Lea and Flood 2014). A test derives one
 * generator per case from (seed, case), so any case runs again by itself
 * without the cases before it.
 */
#ifndef TEST_RANDOM_H
#define TEST_RANDOM_H

#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t state;
};

/** The generator of case number index of a run that was started with seed. */
struct rng rng_for_case(uint64_t seed, uint64_t index);

uint64_t rng_bits(struct rng *rng);

/** Uniform in lowest..highest, both included. */
int64_t rng_range(struct rng *rng, int64_t lowest, int64_t highest);

/** 1 with probability percent / 100. */
int rng_percent(struct rng *rng, int percent);

/** Uniform in [0, 1). */
double rng_uniform(struct rng *rng);

/** Standard normal. */
float rng_normal(struct rng *rng);

/** One of n values. */
int64_t rng_pick(struct rng *rng, const int64_t *values, size_t n);

#define RNG_PICK(rng, ...)                                                                                             \
    rng_pick((rng), (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/** Fills n floats with standard normals. */
void rng_fill_normal(struct rng *rng, float *values, int64_t n);

/**
 * The seed of a program's run: the number in ATTN_CHECK_SEED, or a new one of 32 bits from the clock. of_what, where it
 * is not NULL, is mixed into the former, so that the instruction sets of one such run do not all draw the same cases;
 * such a seed is given by an argument to be repeated. Ends the program with a sentence when the variable holds no
 * number.
 */
uint64_t rng_seed_of_run(const char *of_what);

#endif
