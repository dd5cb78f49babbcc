/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SplitMix64 and the few distributions that the tests draw from. Everything
 * is integer arithmetic up to the last step, and the normal is a sum of
 * uniforms rather than a call to libm, so that a seed means the same case with
 * every compiler, library and processor.
 */
#include "random.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline uint64_t next_bits(struct rng *rng)
{
    uint64_t z = (rng->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t rng_bits(struct rng *rng)
{
    return next_bits(rng);
}

struct rng rng_for_case(uint64_t seed, uint64_t index)
{
    struct rng rng = {seed};
    rng.state = rng_bits(&rng) ^ (index * 0xd1342543de82ef95u);
    rng_bits(&rng);
    return rng;
}

int64_t rng_range(struct rng *rng, int64_t lowest, int64_t highest)
{
    const uint64_t span = (uint64_t)highest - (uint64_t)lowest + 1;
    return (int64_t)((uint64_t)lowest + (span ? rng_bits(rng) % span : rng_bits(rng)));
}

int rng_percent(struct rng *rng, int percent)
{
    return rng_range(rng, 0, 99) < percent;
}

double rng_uniform(struct rng *rng)
{
    return (double)(rng_bits(rng) >> 11) * 0x1p-53;
}

/* The sum of twelve uniforms has variance 1 and a bell that reaches to +-6; as
 * 16-bit pieces they come from three draws, two of which are added at a time. */
float rng_normal(struct rng *rng)
{
    const uint64_t pieces = 0x0000ffff0000ffffu;
    uint64_t sums = 0;
    for (int i = 0; i < 3; i++) {
        const uint64_t bits = next_bits(rng);
        sums += (bits & pieces) + (bits >> 16 & pieces);
    }
    const int64_t sum = (int64_t)((sums & 0xffffffffu) + (sums >> 32));
    return (float)(sum - 6 * 65535) * (1.0f / 65536.0f);
}

int64_t rng_pick(struct rng *rng, const int64_t *values, size_t n)
{
    return values[rng_range(rng, 0, (int64_t)n - 1)];
}

void rng_fill_normal(struct rng *rng, float *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        values[i] = rng_normal(rng);
}

uint64_t rng_seed_of_run(const char *of_what)
{
    const char *text = getenv("ATTN_CHECK_SEED");
    struct rng rng;
    if (text && *text) {
        char *end = NULL;
        errno = 0;
        rng.state = strtoull(text, &end, 0);
        if (errno || *end || *text == '-') {
            fprintf(stderr, "ATTN_CHECK_SEED is %s; expected an integer of at least 0\n", text);
            exit(2);
        }
        if (!of_what)
            return rng.state;
        for (const char *c = of_what; *c; c++)
            rng.state = rng_bits(&rng) ^ (unsigned char)*c;
    } else {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        rng.state = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    }
    return rng_bits(&rng) >> 32; /* 32 bits are easier to type again */
}
