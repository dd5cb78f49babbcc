/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The softmax of a strip: maxima, exponentials, sums, and the end of a row.
 *
 * All numbers are in base 2: a score s stands for 2^s. Everything is vertical,
 * a query per lane. The sum of a tile is made from 0 and then added to l, so
 * that rounding errors grow with the number of tiles, not of keys, and so that
 * the result does not depend on what else the strip holds.
 */
#ifndef ATTN_SOFTMAX_H
#define ATTN_SOFTMAX_H

#include "kernels/mask.h"

/** The number to subtract from scores whose maximum is m: m, but 0 where no key has been live yet. */
ATTN_INLINE vf softmax_base(vf m)
{
    return vf_select(vf_eq(m, vf_set1(-INFINITY)), vf_zero(), m);
}

/** Before the weights 2^(s f - base) of a tile are made: factor NULL means that scores have been multiplied by it. */
ATTN_INLINE void start_tile(const int nv, const float *m, const float *factor, vf *f, vf *base, vf *sum)
{
    ATTN_UNROLL
    for (int v = 0; v < nv; v++) {
        base[v] = softmax_base(vf_load(m + v * VF_LEN));
        f[v] = factor ? vf_load(factor + v * VF_LEN) : vf_set1(1.0f);
        sum[v] = vf_zero();
    }
}

/** After it: l of all tiles so far. */
ATTN_INLINE void add_tile(const int nv, const vf *sum, float *l)
{
    ATTN_UNROLL
    for (int v = 0; v < nv; v++)
        vf_store(l + v * VF_LEN, vf_add(vf_load(l + v * VF_LEN), sum[v]));
}

/** The nearest number of the grid, of numbers that are not huge. */
ATTN_INLINE vf on_grid(vf x)
{
    const vf steps = vf_floor(vf_fma(x, vf_set1(1.0f / ATTN_RAISED_GRID), vf_set1(0.5f)));
    const vf limit = vf_set1(ATTN_RAISED_LIMIT);
    const vf size = vf_max(x, vf_sub(vf_zero(), x));
    return vf_select(vf_gt(limit, size), vf_mul(steps, vf_set1(ATTN_RAISED_GRID)), x);
}

/** struct attn_vector_kernels, raise_maximum. */
static inline int raise_maximum(int nv, float headroom, const float *max, float *m, float *l, float *alpha)
{
    const int width = nv * VF_LEN;
    int grew = 0;
    for (int i = 0; i < width; i += VF_LEN)
        grew |= vm_any(vf_gt(vf_load(max + i), vf_load(m + i)));
    if (!grew)
        return 0;
    for (int i = 0; i < width; i += VF_LEN) {
        const vf old = vf_load(m + i), top = vf_load(max + i);
        const vf raised = headroom == 0.0f ? top : vf_add(on_grid(top), vf_set1(headroom));
        const vf higher = vf_select(vf_gt(top, old), raised, old);
        const vf a = vf_exp2(vf_sub(old, softmax_base(higher)));
        vf_store(alpha + i, a);
        vf_store(m + i, higher);
        vf_store(l + i, vf_mul(vf_load(l + i), a));
    }
    return 1;
}

/** struct attn_vector_kernels, finish. */
static inline void finish(int nv, const struct attn_finish *x)
{
    const vf headroom = vf_set1(x->headroom), scale = vf_exp2(headroom);
    for (int i = 0; i < nv * VF_LEN; i += VF_LEN) {
        const vf l = vf_load(x->l + i);
        const vm empty = vf_eq(l, vf_zero());
        const vf one = x->validity ? vf_load(x->validity + i) : vf_set1(1.0f);
        const vf inverse = vf_select(empty, vf_zero(), vf_div(one, l));
        vf_store(x->inverse + i, vf_mul(inverse, vf_set1(x->keep_scale)));
        if (x->lse) {
            /* The headroom leaves both terms first: it would cancel, with their roundings. */
            const vf m = vf_sub(vf_load(x->m + i), headroom), log_l = vf_log(vf_mul(l, scale));
            const vf base2 = x->shift ? vf_add(m, vf_load(x->shift + i)) : m;
            vf_store(x->lse + i,
                     vf_select(empty, vf_set1(-INFINITY), vf_mul(one, vf_fma(base2, vf_set1(ATTN_LN2), log_l))));
        }
    }
}

/** struct attn_vector_kernels, normalise. */
static inline void normalise(int nv, const struct attn_tile_mask *mask, int n, const float *inverse, float *p)
{
    const int width = nv * VF_LEN;
#define NORMALISE(kind)                                                                                                \
    for (int j = 0; j < n; j++)                                                                                        \
        for (int v = 0; v < nv; v++) {                                                                                 \
            float *at = p + (ptrdiff_t)j * width + v * VF_LEN;                                                         \
            const vf w = vf_mul(vf_load(at), vf_load(inverse + v * VF_LEN));                                           \
            /* 0 where hidden, also in a row of NaN */                                                                 \
            vf_store(at, kind == MASK_NONE ? w : vf_select(mask_lanes(kind, mask, width, j, v), w, vf_zero()));        \
        }
    ATTN_BY_MASK(mask->kind, NORMALISE);
#undef NORMALISE
}

/** struct attn_vector_kernels, multiply. */
static inline void multiply(float *s, int64_t n, float x)
{
    for (int64_t i = 0; i < n; i += VF_LEN)
        vf_store(s + i, vf_mul(vf_load(s + i), vf_set1(x)));
}

ATTN_INLINE void finish_scores_body(const enum attn_mask_kind kind, int nv, const struct attn_tile_mask *mask, int n,
                                    const float *factor, float cap, float *s, float *max)
{
    for (int v = 0; v < nv; v++) {
        vf top = vf_set1(-INFINITY);
        for (int j = 0; j < n; j++) {
            float *at = s + ((ptrdiff_t)j * nv + v) * VF_LEN;
            vf x = vf_load(at);
            if (factor)
                x = vf_mul(x, vf_load(factor + v * VF_LEN));
            if (cap != 0.0f)
                x = vf_mul(vf_set1(cap), vf_tanh(vf_div(x, vf_set1(cap))));
            x = masked_score(kind, 0, mask, nv * VF_LEN, j, v, NULL, x);
            top = vf_max(x, top);
            vf_store(at, x);
        }
        vf_store(max + v * VF_LEN, top);
    }
}

/** struct attn_vector_kernels, finish_scores. */
static inline void finish_scores(int nv, const struct attn_tile_mask *mask, int n, const float *factor, float cap,
                                 float *s, float *max)
{
#define FINISH_SCORES(kind) finish_scores_body(kind, nv, mask, n, factor, cap, s, max)
    ATTN_BY_MASK(mask->kind, FINISH_SCORES);
#undef FINISH_SCORES
}

ATTN_INLINE int hide_again_body(const enum attn_mask_kind kind, int nv, const struct attn_tile_mask *mask, int n,
                                float *s, float *max)
{
    const vf minus_inf = vf_set1(-INFINITY);
    vf hides = vf_zero();
    for (int v = 0; v < nv; v++) {
        vf top = minus_inf;
        for (int j = 0; j < n; j++) {
            float *at = s + ((ptrdiff_t)j * nv + v) * VF_LEN;
            vf x = vf_mul(vf_load(at), vf_set1(ATTN_LOG2E));
            const vm sees = mask_lanes(kind, mask, nv * VF_LEN, j, v);
            hides = vf_select(vf_eq(x, minus_inf), vf_select(sees, vf_set1(1.0f), hides), hides);
            x = kind == MASK_NONE ? x : vf_select(sees, x, minus_inf);
            top = vf_max(x, top);
            vf_store(at, x);
        }
        vf_store(max + v * VF_LEN, top);
    }
    return vm_any(vf_gt(hides, vf_zero()));
}

/** struct attn_vector_kernels, hide_again. */
static inline int hide_again(int nv, const struct attn_tile_mask *mask, int n, float *s, float *max)
{
    int hides = 0;
#define HIDE_AGAIN(kind) hides = hide_again_body(kind, nv, mask, n, s, max)
    ATTN_BY_MASK(mask->kind, HIDE_AGAIN);
#undef HIDE_AGAIN
    return hides;
}

/** struct attn_vector_kernels, exp2. */
static inline void exp2_array(float *dst, const float *src, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF_LEN) {
        const int rest = n - i < VF_LEN ? (int)(n - i) : VF_LEN;
        vf_store_tail(dst + i, vf_exp2(vf_load_tail(src + i, rest)), rest);
    }
}

#endif
