/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of the score tile where Q and K are made of the same words as V and P:
 * floats. The names of every score_*.h:
 *   VS_PACK              channels in a word of Q or K
 *   vq, vq_load, vq_set1 a vector of such words, from memory, from one word
 *   vs, vs_zero          a vector of VF_LEN sums
 *   vs_dot(k, q, c)      c plus the products of the elements of words of K and Q
 */
#ifndef ATTN_SCORE_SIMD_H
#define ATTN_SCORE_SIMD_H

/* All dot_*.h share one guard: where words.h has included other words, this adds nothing. */
#include "simd/dot_f32.h"

#define VS_PACK VF_PACK

typedef vw vq;
typedef vf vs;

static inline vq vq_load(const void *p)
{
    return vw_load(p);
}

static inline vq vq_set1(const void *p)
{
    return vw_set1(p);
}

static inline vs vs_zero(void)
{
    return vf_zero();
}

static inline vs vs_dot(vq k, vq q, vs c)
{
    return vf_dot(k, q, c);
}

#endif
