/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights in pairs of bf16 from scores, by a polynomial (vf_exp2_bf16) that is
 * as short as rounding to bf16 allows.
 *
 * Scores come raw (RAW_SCORES) and are multiplied by the factor of the query
 * before its maximum is subtracted, in two roundings: a fused multiply-add
 * would leave the largest score at what the rounding of the maximum cut off,
 * which is anything for huge scores, instead of at 0.
 */
#ifndef ATTN_WEIGHTS_POLYNOMIAL_H
#define ATTN_WEIGHTS_POLYNOMIAL_H

#include "kernels/softmax.h"
#include "simd/words.h"

#define WEIGHTS_HEADROOM 0.0f

/** One word of weights: keys 2u and, if there are two, 2u + 1, of vectors first..nv-1. */
ATTN_INLINE void make_word(const int nv, const int first, const int two, int u, const vf *factor, const vf *base,
                           float *s, vf *sum)
{
    ATTN_UNROLL
    for (int v = first; v < nv; v++) {
        const float *at = s + ((ptrdiff_t)2 * u * nv + v) * VF_LEN;
        const vf p0 = vf_exp2_bf16(vf_sub(vf_mul(vf_load(at), factor[v]), base[v]));
        const vf p1 = two ? vf_exp2_bf16(vf_sub(vf_mul(vf_load(at + nv * VF_LEN), factor[v]), base[v])) : vf_zero();
        const vw p = vw_pair(p0, p1);
        vw_store(s + ((ptrdiff_t)u * nv + v) * VF_LEN, p);
        sum[v] = vf_dot(vw_ones(), p, sum[v]);
    }
}

ATTN_INLINE void weights_body(const int nv, const float *m, const int *ends, int n, const float *factor, float *s,
                              float *l)
{
    vf f[VF_STRIP], base[VF_STRIP], sum[VF_STRIP];
    start_tile(nv, m, factor, f, base, sum);
    int u = 0;
    ATTN_UNROLL
    for (int first = 0; first < nv; first++) { /* along the diagonal the later vectors see more keys */
        for (; u < (int)key_words(ends[first]) && 2 * u + 1 < n; u++)
            make_word(nv, first, 1, u, f, base, s, sum);
        if (u < (int)key_words(ends[first])) {
            make_word(nv, first, 0, u, f, base, s, sum);
            u++;
        }
    }
    add_tile(nv, sum, l);
}

#endif
