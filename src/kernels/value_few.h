/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second product of few queries: channels are the lanes.
 *
 *     O[query][channel] += sum_j P[query][j] * V[j][channel]
 *
 * A word of weights is broadcast against vectors of V, which becomes words in
 * registers. The order of summation is that of j, as in value_tile.h, so the
 * bits are the same.
 */
#ifndef ATTN_VALUE_FEW_H
#define ATTN_VALUE_FEW_H

#include "kernels/rows.h"
#include "simd/words.h"

#if VF_LEN == 1
#define VALUES_OF_FEW NULL
#else
#define VALUES_OF_FEW   value_few

/** Sums that registers hold beside a vector of V. */
#define FEW_SUMS        (VF_STRIP * VF_CHANNELS > 16 ? 16 : 8)

/** Vectors of channels that nr queries take at once. */
#define FEW_VECTORS(nr) (FEW_SUMS / (nr) < 8 ? FEW_SUMS / (nr) : 8)

/** n elements from element c of row j on, VF_LEN if whole. */
ATTN_INLINE vf value_elements(const attn_dtype dtype, const int whole, const struct attn_rows *v, int j, int64_t c,
                              int n)
{
    const char *const at = row_at(v, j) + c * attn_element_size(dtype);
    const float scale = scale_at(dtype, v, j);
    return whole ? element_load(dtype, at, scale) : element_load_tail(dtype, at, n, scale);
}

/** Word u of such elements; keys: those that there are. */
ATTN_INLINE vw value_words(const attn_dtype dtype, const int whole, const struct attn_few_values *x, int u, int64_t c,
                           int n)
{
#if VF_PACK == 1
    return value_elements(dtype, whole, &x->v, u, c, n);
#else
    const int j = VF_PACK * u, two = j + 1 < x->keys;
    if (dtype == ATTN_BF16 && whole && two)
        return vw_interleave((const uint16_t *)(const void *)row_at(&x->v, j) + c,
                             (const uint16_t *)(const void *)row_at(&x->v, j + 1) + c);
    const vf first = value_elements(dtype, whole, &x->v, j, c, n);
    return vw_pair(first, two ? value_elements(dtype, whole, &x->v, j + 1, c, n) : vf_zero());
#endif
}

/** Channels c.. of nw vectors, the last of which has n if it is not whole, for queries r..r+nr-1. */
ATTN_INLINE void value_few_tile(const attn_dtype dtype, const int nr, const int nw, const int whole,
                                const struct attn_few_values *x, int r, int64_t c, int n)
{
    vf acc[4][8];
    float *const o = x->o + r * x->dv + c;
    const int64_t dv = x->dv;
    ATTN_UNROLL
    for (int i = 0; i < nr; i++) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++) {
            const float *at = o + i * dv + w * VF_LEN;
            acc[i][w] = vf_zero();
            if (x->mode != ACCUMULATE_FIRST)
                acc[i][w] = whole ? vf_load(at) : vf_load_tail(at, n);
            if (x->mode == ACCUMULATE_RESCALE)
                acc[i][w] = vf_mul(acc[i][w], vf_set1(x->alpha[r + i]));
        }
    }
    const int words = (x->keys + VF_PACK - 1) / VF_PACK;
    for (int u = 0; u < words; u++) {
        vw b[8];
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            b[w] = value_words(dtype, whole, x, u, c + w * VF_LEN, n);
        ATTN_UNROLL
        for (int i = 0; i < nr; i++) {
            const vw a = vw_set1((const char *)(x->p + (ptrdiff_t)u * VF_LEN + r + i));
            ATTN_UNROLL
            for (int w = 0; w < nw; w++)
                acc[i][w] = vf_dot(b[w], a, acc[i][w]);
        }
    }
    ATTN_UNROLL
    for (int i = 0; i < nr; i++) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++) {
            float *at = o + i * dv + w * VF_LEN;
            if (whole)
                vf_store(at, acc[i][w]);
            else
                vf_store_tail(at, acc[i][w], n);
        }
    }
}

/** All channels of queries r..r+nr-1. */
ATTN_INLINE void value_few_rows(const attn_dtype dtype, const int nr, const struct attn_few_values *x, int r)
{
    const int64_t dv = x->dv, wide = (int64_t)FEW_VECTORS(nr) * VF_LEN;
    int64_t c = 0;
    for (; c + wide <= dv; c += wide)
        value_few_tile(dtype, nr, FEW_VECTORS(nr), 1, x, r, c, VF_LEN);
    if (FEW_VECTORS(nr) > 4 && c + 4 * VF_LEN <= dv) {
        value_few_tile(dtype, nr, 4, 1, x, r, c, VF_LEN);
        c += 4 * VF_LEN;
    }
    for (; c + VF_LEN <= dv; c += VF_LEN)
        value_few_tile(dtype, nr, 1, 1, x, r, c, VF_LEN);
    if (c < dv)
        value_few_tile(dtype, nr, 1, 0, x, r, c, (int)(dv - c));
}

ATTN_INLINE void value_few_body(const attn_dtype dtype, const struct attn_few_values *x)
{
    int r = 0;
    for (; FEW >= 4 && r + 4 <= x->rows; r += 4)
        value_few_rows(dtype, 4, x, r);
    if (r + 2 <= x->rows) {
        value_few_rows(dtype, 2, x, r);
        r += 2;
    }
    if (r < x->rows)
        value_few_rows(dtype, 1, x, r);
}

/** struct attn_value_kernels, values_of_few. */
static void value_few(const struct attn_few_values *x)
{
    ATTN_BY_STORED(x->v.dtype, value_few_body, x);
}

#endif

#endif
