/* SPDX-License-Identifier: Apache-2.0 */
/*
 * P V in single floats: V where it lies or, when it is bf16 or f16, widened
 * once per block, and weights in the place of their scores.
 */
#ifndef ATTN_PV_H
#define ATTN_PV_H

/** n rows of V as words of keys. */
static void pack_values(float *dst, const struct attn_rows *src, int n, int64_t dv)
{
    ATTN_BY_DTYPE(src->dtype, widen_rows, dst, src, n, dv);
}

/** S becomes P, and sum[lane] its sum: the first ends[v] keys of vector v, of n. */
ATTN_INLINE void make_weights(int nv, const attn_exp exp, const float *m, const int *ends, int n, const float *factor,
                              float *s, float *sum)
{
    (void)n;
    exponentiate(nv, exp, m, ends, factor, s, sum);
}

/** c plus the product of one word of V with a vector of P in the lanes that see its key. */
ATTN_INLINE vf dot_visible(vw v, vw p, const vm *sees, vf c)
{
    return vf_select(sees[0], vf_dot(v, p, c), c);
}

#endif
