/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of products of bytes in portable C. The names are those of
 * score_int8_avx512.h, and so are the sums, to the last bit.
 */
#ifndef ATTN_SCORE_SIMD_H
#define ATTN_SCORE_SIMD_H

#include "simd/simd_scalar.h"

#include <string.h>

#define VS_PACK   4
#define VS_OFFSET 0

typedef uint32_t vq;
typedef int32_t vs;

static inline vq vq_load(const void *p)
{
    return vu_load(p);
}

static inline vq vq_set1(const void *p)
{
    return vu_load(p);
}

static inline vs vs_zero(void)
{
    return 0;
}

static inline vs vs_set1(int32_t x)
{
    return x;
}

static inline vs vs_add(vs a, vs b)
{
    return a + b;
}

static inline int32_t vs_sum(vs a)
{
    return a;
}

static inline vf vs_float(vs a)
{
    return (float)a;
}

static inline vs vs_quantize(int8_t *p, vf x)
{
    *p = (int8_t)rintf(x);
    return *p;
}

static inline vs vs_dot(vq k, vq q, vs c)
{
    int8_t a[4], b[4];
    memcpy(a, &k, sizeof a);
    memcpy(b, &q, sizeof b);
    return c + a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3];
}

static inline vs vs_dot_nibbles(vq k, vq q, vs c)
{
    return vs_dot(k, q, c);
}

#endif
