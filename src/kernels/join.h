/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The softmax of a split of the keys, joined to that of the splits before it:
 *
 *     M = max(m, m');  a = 2^(m - M);  b = 2^(m' - M)
 *     l = l a + l' b;  O = O a + O' b
 *
 * A maximum of -inf stands for no key: then l and O are 0 on that side, and the
 * factor of the other one is exactly 1. So a query that sees nothing of a split
 * keeps the bits that it has, and one that has seen nothing before takes those of
 * the split, but for the sign of zeros, which write_rows() levels. What is no
 * number stays none. A headroom of the maxima is part of both and needs no care.
 *
 * O lies in lane order, or row by row where queries are few; the operations on
 * an element are the same, and so are its bits.
 */
#ifndef ATTN_JOIN_H
#define ATTN_JOIN_H

#include "kernels/rows.h"
#include "kernels/softmax.h"

/** O in lane order. */
ATTN_INLINE void join_lanes(int nv, const struct attn_join *x, const float *before, const float *after)
{
    const ptrdiff_t width = (ptrdiff_t)nv * VF_LEN;
    for (int64_t c = 0; c < x->channels; c++)
        for (int i = 0; i < width; i += VF_LEN) {
            float *const o = x->o + c * width + i;
            const vf kept = vf_mul(vf_load(o), vf_load(before + i));
            vf_store(o, vf_fma(vf_load(x->next_o + c * width + i), vf_load(after + i), kept));
        }
}

/** O of few queries. */
ATTN_INLINE void join_rows(const struct attn_join *x, const float *before, const float *after)
{
    for (int r = 0; r < x->rows; r++) {
        const vf a = vf_set1(before[r]), b = vf_set1(after[r]);
        float *const o = x->o + r * x->channels;
        const float *const next = x->next_o + r * x->channels;
        for (int64_t c = 0; c < x->channels; c += VF_LEN) {
            const int rest = x->channels - c < VF_LEN ? (int)(x->channels - c) : VF_LEN;
            if (rest == VF_LEN)
                vf_store(o + c, vf_fma(vf_load(next + c), b, vf_mul(vf_load(o + c), a)));
            else
                vf_store_tail(o + c, vf_fma(vf_load_tail(next + c, rest), b, vf_mul(vf_load_tail(o + c, rest), a)),
                              rest);
        }
    }
}

/** struct attn_vector_kernels, join. */
static void join(int nv, const struct attn_join *x)
{
    float before[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
    float after[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
    for (int i = 0; i < nv * VF_LEN; i += VF_LEN) {
        const vf old = vf_load(x->m + i), next = vf_load(x->next_m + i);
        const vf higher = vf_max(old, next), base = softmax_base(higher);
        const vf none = vf_set1(-INFINITY), one = vf_set1(1.0f); /* also beside a maximum of +inf */
        const vf a = vf_select(vf_eq(next, none), one, vf_exp2(vf_sub(old, base)));
        const vf b = vf_select(vf_eq(old, none), one, vf_exp2(vf_sub(next, base)));
        vf_store(before + i, a);
        vf_store(after + i, b);
        vf_store(x->m + i, higher);
        vf_store(x->l + i, vf_fma(vf_load(x->next_l + i), b, vf_mul(vf_load(x->l + i), a)));
    }
    if (!x->o)
        return;
    if (x->rows > 0)
        join_rows(x, before, after);
    else
        join_lanes(nv, x, before, after);
}

#endif
