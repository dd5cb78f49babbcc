/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A vector of LANES floats, vec, which the file that includes this has defined:
 * from memory, to memory, of one number, and the sum of its lanes. memcpy of a
 * constant size becomes one unaligned load or store.
 */
#ifndef BENCH_ISA_VECTORS_H
#define BENCH_ISA_VECTORS_H

#include <string.h>

static inline vec vec_load(const float *p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void vec_store(float *p, vec v)
{
    memcpy(p, &v, sizeof v);
}

static inline vec vec_set(float x)
{
    float lanes[LANES];
    for (int i = 0; i < LANES; i++)
        lanes[i] = x;
    return vec_load(lanes);
}

static inline float vec_sum(vec v)
{
    float lanes[LANES], sum = 0.0f;
    vec_store(lanes, v);
    for (int i = 0; i < LANES; i++)
        sum += lanes[i];
    return sum;
}

#endif
