/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exponentials of a tile and their sums.
 *
 * All numbers are in base 2: a score s stands for 2^s. Everything is vertical,
 * a query per lane. The sum of a tile is made from 0 and then added to l, so
 * that rounding errors grow with the number of tiles, not of keys, and so that
 * the result does not depend on what else the strip holds.
 */
#ifndef ATTN_SOFTMAX_H
#define ATTN_SOFTMAX_H

ATTN_INLINE vf exp2_of(const attn_exp exp, vf x)
{
    return exp == ATTN_EXP_FAST ? vf_exp2_fast(x) : vf_exp2_sleef(x);
}

/** The number to subtract from scores whose maximum is m: m, but 0 where no key has been live yet. */
ATTN_INLINE vf softmax_base(vf m)
{
    return vf_select(vf_eq(m, vf_set1(-INFINITY)), vf_zero(), m);
}

/**
 * Sum of n vectors that lie stride floats apart. Four chains, as an addition has to wait for the one before; which one
 * takes a key follows from the key alone, since n does not (a lane may stop before its vector does).
 */
ATTN_INLINE vf sum_column(const float *p, ptrdiff_t stride, int n)
{
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    int j = 0;
    for (; j + 4 <= n; j += 4) {
        ATTN_UNROLL
        for (int i = 0; i < 4; i++)
            sum[i] = vf_add(sum[i], vf_load(p + (j + i) * stride));
    }
    ATTN_UNROLL
    for (int i = 0; i < 3; i++)
        if (j + i < n)
            sum[i] = vf_add(sum[i], vf_load(p + (j + i) * stride));
    return vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3]));
}

ATTN_INLINE void exponentiate_body(const int nv, const attn_exp exp, const float *m, const int *ends,
                                   const float *factor, float *s, float *sum_out)
{
    const ptrdiff_t stride = nv * VF_LEN;
    vf base[VF_STRIP], sum[VF_STRIP];
    ATTN_UNROLL
    for (int v = 0; v < nv; v++) {
        base[v] = softmax_base(vf_load(m + v * VF_LEN));
        sum[v] = vf_zero();
    }
    int j = 0;
    ATTN_UNROLL
    for (int first = 0; first < nv; first++) { /* along the diagonal the later vectors see more keys */
        for (; j < ends[first]; j++) {
            ATTN_UNROLL
            for (int v = first; v < nv; v++) {
                float *at = s + j * stride + v * VF_LEN;
                const vf score = RAW_SCORES ? vf_mul(vf_load(at), vf_load(factor + v * VF_LEN)) : vf_load(at);
                const vf p = exp2_of(exp, vf_sub(score, base[v]));
                vf_store(at, p);
                if (exp == ATTN_EXP_FAST)
                    sum[v] = vf_add(sum[v], p);
            }
        }
    }
    ATTN_UNROLL
    for (int v = 0; v < nv; v++) {
        if (exp != ATTN_EXP_FAST) /* a call leaves no register alone: the sums are cheaper in a pass of their own */
            sum[v] = sum_column(s + v * VF_LEN, stride, ends[v]);
        vf_store(sum_out + v * VF_LEN, sum[v]);
    }
}

/**
 * The first ends[v] rows of S become 2^(factor S - m) in vector v, for ends that do not fall; sum[lane] becomes their
 * sum. factor, one per query, is not looked at where scores come whole (RAW_SCORES).
 */
ATTN_INLINE void exponentiate(int nv, const attn_exp exp, const float *m, const int *ends, const float *factor,
                              float *s, float *sum)
{
    ATTN_BY_WIDTH(nv, exponentiate_body, exp, m, ends, factor, s, sum);
}

/** dst[i] = 2^src[i]: what the kernels use, laid open for tests. */
ATTN_INLINE void exp2_array(const attn_exp exp, float *dst, const float *src, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF_LEN) {
        const int rest = n - i < VF_LEN ? (int)(n - i) : VF_LEN;
        vf_store_tail(dst + i, exp2_of(exp, vf_load_tail(src + i, rest)), rest);
    }
}

#endif
