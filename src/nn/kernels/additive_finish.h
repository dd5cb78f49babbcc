/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What follows when keys have passed a query of additive attention: the sums of a
 * split of the keys are joined to those of the splits before it, and the row is
 * written.
 *
 *     M = max(m, m');  a = 2^(m - M);  b = 2^(m' - M)
 *     l = l a + l' b;  o = o a + o' b
 *     out = o / l,  lse = m ln 2 + ln l,  weight_j = 2^(score_j - m) / l
 *
 * A maximum of -inf stands for no key: then l and o are 0 on that side, and the
 * factor of the other one is exactly 1, as in kernels/join.h.
 */
#ifndef ATTN_NN_ADDITIVE_FINISH_H
#define ATTN_NN_ADDITIVE_FINISH_H

#include "nn/kernels/additive.h"

/** struct attn_nn_kernels, additive_join. */
static void additive_join(const struct nn_additive_query *next, int64_t values, struct nn_additive_query *query)
{
    const float higher = next->m > query->m ? next->m : query->m, base = additive_base(higher);
    const float a = next->m == -INFINITY ? 1.0f : additive_exp2(query->m - base);
    const float b = query->m == -INFINITY ? 1.0f : additive_exp2(next->m - base);
    vf_store(query->l, vf_fma(vf_load(next->l), vf_set1(b), vf_mul(vf_load(query->l), vf_set1(a))));
    query->m = higher;
    for (int64_t c = 0; c < values; c += VF_LEN) {
        const int n = values - c < VF_LEN ? (int)(values - c) : VF_LEN;
        const vf kept = vf_mul(vf_load_tail(query->o + c, n), vf_set1(a));
        vf_store_tail(query->o + c, vf_fma(vf_load_tail(next->o + c, n), vf_set1(b), kept), n);
    }
}

/** The scores of a row become weights; those of keys that it does not see are 0. */
static void additive_weights(const struct nn_additive_result *result, float base, float inverse)
{
    const ptrdiff_t stride = result->weight_stride;
    float *at = result->weights;
    for (int64_t j = 0; j < result->keys; j += VF_LEN) {
        const int count = result->keys - j < VF_LEN ? (int)(result->keys - j) : VF_LEN;
        float lanes[VF_LEN];
        for (int i = 0; i < VF_LEN; i++)
            lanes[i] = i < count ? at[(j + i) * stride] : -INFINITY;
        const vf score = vf_load(lanes);
        const vf weight = vf_mul(vf_exp2(vf_sub(score, vf_set1(base))), vf_set1(inverse));
        vf_store(lanes, vf_select(vf_eq(score, vf_set1(-INFINITY)), vf_zero(), weight));
        for (int i = 0; i < count; i++)
            at[(j + i) * stride] = lanes[i];
    }
    for (int64_t j = -result->keys_before; j < 0; j++)
        at[j * stride] = 0.0f;
    for (int64_t j = result->keys; j < result->keys + result->keys_after; j++)
        at[j * stride] = 0.0f;
}

ATTN_INLINE void additive_write(const attn_dtype dtype, const struct nn_additive_result *result, float inverse)
{
    for (int64_t c = 0; c < result->values; c += VF_LEN) {
        const int n = result->values - c < VF_LEN ? (int)(result->values - c) : VF_LEN;
        /* The sum with +0 gives every zero one sign. */
        typed_store(dtype, result->out, c, vf_fma(vf_load_tail(result->query->o + c, n), vf_set1(inverse), vf_zero()),
                    n);
    }
}

/** struct attn_nn_kernels, additive_finish. */
static void additive_finish(const struct nn_additive_result *result)
{
    const float m = result->query->m, l = sum_of_lanes(vf_load(result->query->l));
    const int dead = l == 0.0f; /* a NaN is not */
    const float inverse = dead ? 0.0f : 1.0f / l;
    ATTN_BY_DTYPE(result->dtype, additive_write, result, inverse);
    if (result->lse) {
        float lanes[VF_LEN];
        vf_store(lanes, vf_fma(vf_set1(additive_base(m)), vf_set1(ATTN_LN2), vf_log(vf_set1(l))));
        *result->lse = dead ? -INFINITY : lanes[0];
    }
    if (result->weights)
        additive_weights(result, additive_base(m), inverse);
}

#endif
