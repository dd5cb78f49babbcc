/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Aligned memory, and random numbers: splitmix64, a counter passed through a mixing function, with
 * the transform of Box and Muller on top.
 */
#include "numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

uint64_t bench_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

float *bench_alloc_floats(int64_t n)
{
    /* aligned_alloc wants a multiple of the alignment, and a length of 0 is no request. */
    const size_t bytes = ((size_t)(n > 0 ? n : 1) * sizeof(float) + 63u) / 64u * 64u;
    return aligned_alloc(64, bytes);
}

void *bench_alloc_workspace(size_t bytes)
{
    void *memory = bench_alloc_floats((int64_t)(bytes / sizeof(float) + 1));
    if (memory == NULL)
        fprintf(stderr, "attn-bench: there is not enough memory for a workspace of %zu bytes\n", bytes);
    return memory;
}

void *bench_alloc_large(size_t bytes)
{
    void *memory = aligned_alloc(HUGE_PAGE, (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
#ifdef MADV_HUGEPAGE
    if (memory != NULL)
        madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
    return memory;
}

void bench_fill_normal(float *x, int64_t n, uint64_t seed)
{
    const float two_pi = 6.28318530718f;
    uint64_t state = seed;
    for (int64_t i = 0; i < n; i += 2) {
        const uint64_t bits = bench_random(&state);
        const float u = ((float)(bits >> 40) + 1.0f) * 0x1p-24f; /* in (0, 1]: its logarithm is finite */
        const float angle = two_pi * ((float)(bits & 0xffffffu) * 0x1p-24f);
        const float radius = sqrtf(-2.0f * logf(u));
        x[i] = radius * cosf(angle);
        if (i + 1 < n)
            x[i + 1] = radius * sinf(angle);
    }
}

float *bench_normal(int64_t n, uint64_t seed, double deviation)
{
    float *x = bench_alloc_floats(n);
    if (x == NULL)
        return NULL;
    bench_fill_normal(x, n, seed);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((double)x[i] * deviation);
    return x;
}
