/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second product of few queries: channels are the lanes.
 *
 *     O[query][channel] += sum_j P[query][j] * V[j][channel]
 *
 * A word of weights is broadcast against vectors of V, which becomes words in
 * registers. The order of summation is that of j, as in value_tile.h, so the
 * bits are the same. Where that order is free (attn_params.sums), the scale of a
 * quantised row, if it has one, multiplies its weights instead of its elements,
 * of which there are more.
 */
#ifndef ATTN_VALUE_FEW_H
#define ATTN_VALUE_FEW_H

#include "kernels/int4_pairs.h"
#include "kernels/narrow.h"
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

/** Whether weights bring the scales of a type's rows: where a word is a float. */
ATTN_INLINE int scales_weights(const attn_dtype dtype, const int free)
{
    return free && VF_PACK == 1 && attn_is_quantised(dtype) && dtype != ATTN_I4;
}

/** n elements from element c + u of row j on, VF_LEN if whole; without its scale, if its weights bring that. c: where
 * a group begins. */
ATTN_INLINE vf value_elements(const attn_dtype dtype, const int free, const int whole, const struct attn_listed_rows *v,
                              int j, int64_t c, int64_t u, int n)
{
    const char *const at = stored_at(dtype, v->at[j], c);
    if (scales_weights(dtype, free))
        return whole ? stored_numbers(dtype, at, u) : stored_numbers_tail(dtype, at, u, n);
    const float *const scales = scales_in(dtype, attn_is_quantised(dtype) ? v->scale[j] : NULL, c);
    return whole ? stored_load(dtype, at, u, scales) : stored_load_tail(dtype, at, u, n, scales);
}

/** Word i of such elements; keys: those that there are. */
ATTN_INLINE vw value_words(const attn_dtype dtype, const int free, const int whole, const struct attn_few_values *x,
                           int i, int64_t c, int64_t u, int n)
{
#if VF_PACK == 1
    return value_elements(dtype, free, whole, &x->v, i, c, u, n);
#else
    const int j = VF_PACK * i, two = j + 1 < x->keys;
    if (dtype == ATTN_BF16 && whole && two)
        return vw_interleave((const uint16_t *)(const void *)x->v.at[j] + c + u,
                             (const uint16_t *)(const void *)x->v.at[j + 1] + c + u);
    const vf first = value_elements(dtype, free, whole, &x->v, j, c, u, n);
    return vw_pair(first, two ? value_elements(dtype, free, whole, &x->v, j + 1, c, u, n) : vf_zero());
#endif
}

/** Words c.. of nw vectors of keys i, the last of which has n if it is not whole. */
ATTN_INLINE void value_vectors(const attn_dtype dtype, const int free, const int nw, const int whole,
                               const struct attn_few_values *x, int i, int64_t c, int n, vw *b)
{
#if VF_PACK == 1
    const int group = ATTN_I4_GROUP / VF_LEN;
    if (dtype == ATTN_I4 && whole && nw % group == 0) { /* then c is a multiple of one, too */
        ATTN_UNROLL
        for (int w = 0; w < nw; w += group)
            stored_group(x->v.at[i], c + w * VF_LEN, x->v.scale[i], b + w);
        return;
    }
#endif
#ifdef VW_F8
    if (dtype == ATTN_F8_E4M3 && free) { /* weights bring the scales */
        const char *const second = VF_PACK * i + 1 < x->keys ? x->v.at[VF_PACK * i + 1] + c : NULL;
        const int at_once = nw < 4 ? nw : 4;
        vw words[4];
        ATTN_UNROLL
        for (int w = 0; w < nw; w += at_once) {
            vw_zip_f8(x->v.at[VF_PACK * i] + c + w * VF_LEN, second ? second + w * VF_LEN : NULL,
                      whole ? at_once * VF_LEN : n, words);
            memcpy(b + w, words, (size_t)at_once * sizeof *b);
        }
        return;
    }
#endif
    const int64_t begin = nw * VF_LEN % ATTN_I4_GROUP == 0 ? c : 0; /* of a group, for constant bits */
    ATTN_UNROLL
    for (int w = 0; w < nw; w++)
        b[w] = value_words(dtype, free, whole, x, i, begin, c - begin + w * VF_LEN, n);
}

/** The uth word of weights of query r. */
ATTN_INLINE vw weight_word(const attn_dtype dtype, const int free, const struct attn_few_values *x, int u, int r)
{
    const float *const p = x->p + (ptrdiff_t)u * VF_LEN + r;
#if VF_PACK == 1
    return scales_weights(dtype, free) ? vf_set1(*p * *x->v.scale[u]) : vw_set1((const char *)p);
#else
    (void)dtype, (void)free;
    return vw_set1((const char *)p);
#endif
}

/** Channels c.. of nw vectors, the last of which has n if it is not whole, for queries r..r+nr-1. The first of all
 * channels and queries ask for what is wanted next. */
ATTN_INLINE void value_few_tile(const attn_dtype dtype, const int free, const int nr, const int nw, const int whole,
                                const struct attn_few_values *x, int r, int64_t c, int n)
{
    const int asks = r == 0 && c == 0;
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
        if (asks)
            ask_for_rows(&x->v, VF_PACK * u, VF_PACK * (u + 1));
        value_vectors(dtype, free, nw, whole, x, u, c, n, b);
        ATTN_UNROLL
        for (int i = 0; i < nr; i++) {
            const vw a = weight_word(dtype, free, x, u, r + i);
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

#if VF_PACK == 1
/**
 * The same of 4 nh VF_LEN channels of E4M3, which are taken out of words where they lie (narrow.h): lanes of O change
 * places, and its sums stay what they are. Returns 0 and has changed nothing if a number is not finite.
 */
ATTN_INLINE int value_f8_tile(const int free, const int nr, const int nh, const struct attn_few_values *x, int r,
                              int64_t c)
{
    const int asks = r == 0 && c == 0, rescales = x->mode == ACCUMULATE_RESCALE;
    vf acc[4][8];
    float *const o = x->o + r * x->dv + c;
    const int64_t dv = x->dv;
    ATTN_UNROLL
    for (int i = 0; i < nr; i++) {
        ATTN_UNROLL
        for (int w = 0; w < 4 * nh; w++) {
            acc[i][w] = x->mode == ACCUMULATE_FIRST ? vf_zero() : vf_load(o + i * dv + w * VF_LEN);
            if (rescales)
                acc[i][w] = vf_mul(acc[i][w], vf_set1(x->alpha[r + i]));
        }
        ATTN_UNROLL
        for (int h = 0; h < nh; h++)
            to_bytes(acc[i] + 4 * h);
    }
    vu seen = vu_set1(0);
    for (int u = 0; u < x->keys; u++) {
        vf b[8];
        if (asks)
            ask_for_rows(&x->v, u, u + 1);
        ATTN_UNROLL
        for (int h = 0; h < nh; h++) {
            const vu words = vu_load(x->v.at[u] + c + 4 * h * VF_LEN);
            seen = note_nan(seen, words);
            ATTN_UNROLL
            for (int m = 0; m < 4; m++)
                b[4 * h + m] = narrow_f8(words, m);
        }
        if (!free) {
            ATTN_UNROLL
            for (int w = 0; w < 4 * nh; w++)
                b[w] = vf_mul(b[w], vf_set1(*x->v.scale[u]));
        }
        ATTN_UNROLL
        for (int i = 0; i < nr; i++) {
            const vw a = weight_word(ATTN_F8_E4M3, free, x, u, r + i);
            ATTN_UNROLL
            for (int w = 0; w < 4 * nh; w++)
                acc[i][w] = vf_dot(b[w], a, acc[i][w]);
        }
    }
    if (!words_are_finite(seen))
        return 0;
    ATTN_UNROLL
    for (int i = 0; i < nr; i++) {
        ATTN_UNROLL
        for (int h = 0; h < nh; h++)
            from_bytes(acc[i] + 4 * h);
        ATTN_UNROLL
        for (int w = 0; w < 4 * nh; w++)
            vf_store(o + i * dv + w * VF_LEN, acc[i][w]);
    }
    return 1;
}

/** Channels of E4M3 that whole words have, of queries r..r+nr-1, up to the first number that is not finite. Returns
 * how many. */
ATTN_INLINE int64_t value_f8_rows(const int free, const int nr, const struct attn_few_values *x, int r)
{
    const int nh = FEW_VECTORS(nr) >= 8 ? 2 : 1;
    int64_t c = 0;
    if (!keeps_denormals())
        return 0;
    for (; nh == 2 && c + 8 * VF_LEN <= x->dv; c += 8 * VF_LEN)
        if (!value_f8_tile(free, nr, 2, x, r, c))
            return c;
    for (; c + 4 * VF_LEN <= x->dv; c += 4 * VF_LEN)
        if (!value_f8_tile(free, nr, 1, x, r, c))
            return c;
    return c;
}
#endif

/** All channels of queries r..r+nr-1. */
ATTN_INLINE void value_few_rows(const attn_dtype dtype, const int free, const int nr, const struct attn_few_values *x,
                                int r)
{
    const int64_t dv = x->dv, wide = (int64_t)FEW_VECTORS(nr) * VF_LEN;
    int64_t c = 0;
#if VF_PACK == 1
    if (dtype == ATTN_F8_E4M3)
        c = value_f8_rows(free, nr, x, r);
#endif
    for (; c + wide <= dv; c += wide)
        value_few_tile(dtype, free, nr, FEW_VECTORS(nr), 1, x, r, c, VF_LEN);
    if (FEW_VECTORS(nr) > 4 && c + 4 * VF_LEN <= dv) {
        value_few_tile(dtype, free, nr, 4, 1, x, r, c, VF_LEN);
        c += 4 * VF_LEN;
    }
    for (; c + VF_LEN <= dv; c += VF_LEN)
        value_few_tile(dtype, free, nr, 1, 1, x, r, c, VF_LEN);
    if (c < dv)
        value_few_tile(dtype, free, nr, 1, 0, x, r, c, (int)(dv - c));
}

ATTN_INLINE void value_few_queries(const attn_dtype dtype, const int free, const struct attn_few_values *x)
{
    int r = 0;
    for (; FEW >= 4 && r + 4 <= x->rows; r += 4)
        value_few_rows(dtype, free, 4, x, r);
    if (r + 2 <= x->rows) {
        value_few_rows(dtype, free, 2, x, r);
        r += 2;
    }
    if (r < x->rows)
        value_few_rows(dtype, free, 1, x, r);
}

ATTN_INLINE void value_few_body(const attn_dtype dtype, const struct attn_few_values *x)
{
    if (scales_weights(dtype, x->free))
        value_few_queries(dtype, 1, x);
    else
        value_few_queries(dtype, 0, x);
}

#ifdef VW_F8
/** The same of E4M3 in pairs, whose scales multiply weights. */
ATTN_INLINE void value_few_f8_pairs(const struct attn_few_values *x)
{
    float p[ATTN_KEY_BLOCK / VF_PACK * VF_LEN];
    struct attn_few_values scaled = *x;
    for (int j = 0; j < x->keys; j += VF_PACK) {
        const ptrdiff_t at = (ptrdiff_t)(j / VF_PACK) * VF_LEN;
        const float second = j + 1 < x->keys ? *x->v.scale[j + 1] : 0.0f;
        const vw words = vw_load_tail(x->p + at, x->rows);
        vw_store(p + at, vw_weigh(words, vf_set1(*x->v.scale[j]), vf_set1(second)));
    }
    scaled.p = p;
    value_few_queries(ATTN_F8_E4M3, 1, &scaled);
}
#endif

ATTN_APART_STORED(value_few, value_few_body, (const struct attn_few_values *x), x)

/** struct attn_value_kernels, values_of_few. */
static void value_few(const struct attn_few_values *x)
{
#ifdef VW_INT4
    if (x->v.dtype == ATTN_I4 && x->free) {
        int4_values_of_few(x);
        return;
    }
#endif
#ifdef VW_F8
    if (x->v.dtype == ATTN_F8_E4M3 && x->free) {
        value_few_f8_pairs(x);
        return;
    }
#endif
    ATTN_BY_STORED_APART(x->v.dtype, value_few, x);
}

#endif

#endif
