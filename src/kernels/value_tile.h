/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second product of attention on a tile:
 *
 *     O[channel][query] += sum_j V[j][channel] * P[j][query]
 *
 * The summation index runs over words: keys j of V and P. A word of V is
 * broadcast against vectors of queries, in register tiles of VF_CHANNELS rows
 * by nv vectors; the order of summation in a lane is that of j, whatever the
 * tile's shape.
 *
 * A hidden key has weight 0, and 0 * V adds nothing, unless V is NaN or Inf:
 * then the product is NaN. So tiles with a mask look whether their rows of V
 * are finite, and the rare ones that are not take values_seen().
 *
 * Words that are multiplied in groups define VALUE_PRODUCTS, value_word(),
 * weight_words() and value_products() before they include this file.
 */
#ifndef ATTN_VALUE_TILE_H
#define ATTN_VALUE_TILE_H

#include "kernels/mask.h"
#include "simd/words.h"

/** c plus the products of one word of V with a vector of P, for each lane those of the keys that it sees. */
ATTN_INLINE vf dot_seen(vw v, vw p, const vm *sees, vf c)
{
#if VF_PACK == 2
    const vf both = vf_dot(v, p, c), first = vf_dot(vw_first(v), p, c), second = vf_dot(vw_second(v), p, c);
    return vf_select(sees[0], vf_select(sees[1], both, first), vf_select(sees[1], second, c));
#else
    return vf_select(sees[0], vf_dot(v, p, c), c);
#endif
}

#ifndef VALUE_PRODUCTS
/** Word c of row u of V, in each lane. */
ATTN_INLINE vw value_word(const struct attn_value_operands *x, ptrdiff_t u, int64_t c)
{
    return vw_set1(x->v + u * x->v_stride + c * ATTN_WORD);
}

/** Words of row u of weights: those of vector w. */
ATTN_INLINE vw weight_words(const struct attn_value_operands *x, int width, ptrdiff_t u, int w)
{
    return vw_load(x->p + u * width + w * VF_LEN);
}
#endif

/** Adds the part of the words before x->ends[w], for vector w, to channels c..c+nc-1. */
ATTN_INLINE void value_columns(const int nc, const int nv, const struct attn_value_operands *x, int64_t c)
{
    vf acc[2 * VF_CHANNELS][VF_STRIP];
    float *o = x->o + c * nv * VF_LEN;
    const char *v = x->v + c * VF_GROUP * ATTN_WORD;
    const float *p = x->p;
    const ptrdiff_t v_stride = x->v_stride;
    ATTN_UNROLL
    for (int i = 0; i < nc; i++) {
        ATTN_UNROLL
        for (int w = 0; w < nv; w++) {
            acc[i][w] = vf_zero();
            if (x->mode != ACCUMULATE_FIRST)
                acc[i][w] = vf_load(o + (i * nv + w) * VF_LEN);
            if (x->mode == ACCUMULATE_RESCALE)
                acc[i][w] = vf_mul(acc[i][w], vf_load(x->alpha + w * VF_LEN));
        }
    }
#ifdef VALUE_PRODUCTS
    value_products(nc, nv, v, v_stride, p, x->ends, acc);
#else
    const int n = x->ends[0];
#pragma GCC unroll 4
    for (int j = 0; j < n; j++) {
        vw a[VF_STRIP];
        ATTN_UNROLL
        for (int w = 0; w < nv; w++)
            a[w] = vw_load(p + ((ptrdiff_t)j * nv + w) * VF_LEN);
        ATTN_UNROLL
        for (int i = 0; i < nc; i++) {
            const vw b = vw_set1(v + j * v_stride + i * ATTN_WORD);
            ATTN_UNROLL
            for (int w = 0; w < nv; w++)
                acc[i][w] = vf_dot(b, a[w], acc[i][w]);
        }
    }
    /* Along the diagonal the later vectors see more keys. */
    ATTN_UNROLL
    for (int w0 = 1; w0 < nv; w0++) {
#pragma GCC unroll 1
        for (int j = x->ends[w0 - 1]; j < x->ends[w0]; j++) {
            ATTN_UNROLL
            for (int i = 0; i < nc; i++) {
                const vw b = vw_set1(v + j * v_stride + i * ATTN_WORD);
                ATTN_UNROLL
                for (int w = w0; w < nv; w++)
                    acc[i][w] = vf_dot(b, vw_load(p + ((ptrdiff_t)j * nv + w) * VF_LEN), acc[i][w]);
            }
        }
    }
#endif
    ATTN_UNROLL
    for (int i = 0; i < nc; i++) {
        ATTN_UNROLL
        for (int w = 0; w < nv; w++)
            vf_store(o + (i * nv + w) * VF_LEN, acc[i][w]);
    }
}

ATTN_INLINE void value_body(const int nv, const struct attn_value_operands *x)
{
    const int64_t dv = x->dv;
    int64_t c = 0;
    for (; c + TILE_ROWS(nv, VF_CHANNELS) <= dv; c += TILE_ROWS(nv, VF_CHANNELS))
        value_columns(TILE_ROWS(nv, VF_CHANNELS), nv, x, c);
    if (nv == 1 && c + VF_CHANNELS <= dv) {
        value_columns(VF_CHANNELS, nv, x, c);
        c += VF_CHANNELS;
    }
    if (VF_CHANNELS > 4 && c + 4 <= dv) {
        value_columns(4, nv, x, c);
        c += 4;
    }
    if (VF_CHANNELS > 2 && c + 2 <= dv) {
        value_columns(2, nv, x, c);
        c += 2;
    }
    if (c < dv)
        value_columns(1, nv, x, c);
}

/** struct attn_value_kernels, values. */
static void value_tile(int nv, const struct attn_value_operands *x)
{
    ATTN_BY_WIDTH(nv, value_body, x);
}

/** struct attn_value_kernels, finite. */
static int values_finite(const char *v, ptrdiff_t stride, int n, int64_t dv)
{
    static const float zeros[VF_LEN];
    const vw zero = vw_load(zeros);
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()}; /* x * 0 is NaN for Inf and NaN */
    for (int j = 0; j < n; j++) {
        const char *row = v + j * stride;
        int64_t c = 0;
        for (; c + 4 * VF_LEN <= dv; c += 4 * VF_LEN) {
            ATTN_UNROLL
            for (int i = 0; i < 4; i++)
                sum[i] = vf_dot(vw_load(row + (c + i * VF_LEN) * ATTN_WORD), zero, sum[i]);
        }
        for (; c + VF_LEN <= dv; c += VF_LEN)
            sum[0] = vf_dot(vw_load(row + c * ATTN_WORD), zero, sum[0]);
        if (c < dv)
            sum[1] = vf_dot(vw_load_tail(row + c * ATTN_WORD, (int)(dv - c)), zero, sum[1]);
    }
    float lanes[VF_LEN];
    vf_store(lanes, vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
    int finite = 1;
    for (int i = 0; i < VF_LEN; i++)
        finite &= lanes[i] == 0.0f;
    return finite;
}

/** struct attn_value_kernels, values_seen. */
static void values_seen(int nv, const struct attn_tile_mask *mask, const struct attn_value_operands *x, int n)
{
    const int width = nv * VF_LEN;
#define VALUES_SEEN(kind)                                                                                              \
    for (int w = 0; w < nv; w++) {                                                                                     \
        for (int64_t c = 0; c < x->dv; c++) {                                                                          \
            float *at = x->o + c * width + w * VF_LEN;                                                                 \
            vf acc = x->mode == ACCUMULATE_FIRST ? vf_zero() : vf_load(at);                                            \
            if (x->mode == ACCUMULATE_RESCALE)                                                                         \
                acc = vf_mul(acc, vf_load(x->alpha + w * VF_LEN));                                                     \
            for (int j = 0; j < n; j += VF_PACK) {                                                                     \
                vm sees[VF_PACK];                                                                                      \
                for (int i = 0; i < VF_PACK; i++)                                                                      \
                    sees[i] = j + i < n ? mask_lanes(kind, mask, width, j + i, w) : vf_gt(vf_zero(), vf_zero());       \
                const ptrdiff_t u = j / VF_PACK;                                                                       \
                acc = dot_seen(value_word(x, u, c), weight_words(x, width, u, w), sees, acc);                          \
            }                                                                                                          \
            vf_store(at, acc);                                                                                         \
        }                                                                                                              \
    }
    ATTN_BY_MASK(mask->kind, VALUES_SEEN);
#undef VALUES_SEEN
}

#endif
