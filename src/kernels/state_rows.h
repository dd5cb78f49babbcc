/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of linear attention on their way into a chunk, and their decays.
 *
 * A decay is a factor between 0 and 1. What several of them make together is
 * their product, one factor after the other, as the recurrence has it: never a
 * quotient of products, which underflow, nor the exponential of a difference
 * of sums, which forgets small decays beside large ones.
 */
#ifndef ATTN_STATE_ROWS_H
#define ATTN_STATE_ROWS_H

#include "kernels/rows.h"
#include "kernels/states.h"

#include <float.h>

ATTN_INLINE void take_rows_body(const attn_dtype dtype, float *dst, ptrdiff_t pitch, const struct attn_rows *src, int n,
                                int64_t cols, float factor)
{
    const vf f = vf_set1(factor);
    for (int i = 0; i < n; i++, dst += pitch) {
        const char *row = row_at(src, i);
        int64_t c = 0;
        for (; c + VF_LEN <= cols; c += VF_LEN)
            vf_store(dst + c, vf_mul(row_load(dtype, row + c * attn_element_size(dtype)), f));
        if (c < cols)
            vf_store(dst + c, vf_mul(row_load_tail(dtype, row + c * attn_element_size(dtype), (int)(cols - c)), f));
    }
}

/** struct attn_state_kernels, take_rows. */
static void take_state_rows(float *dst, ptrdiff_t pitch, const struct attn_rows *src, int n, int64_t cols, float factor)
{
    ATTN_BY_DTYPE(src->dtype, take_rows_body, dst, pitch, src, n, cols, factor);
}

/**
 * e^x for x up to 0, -inf among them, in the time of 2^x: at most 1.32 ULP (over all floats), as what x log2(e) loses
 * by rounding is made good for. All that is below -200 gives 0.
 */
ATTN_INLINE vf decay_of(vf x)
{
#if VF_LEN == 1 /* which has no multiply-add of one rounding */
    return vf_exp(x);
#else
    const vf log2e = vf_set1(0x1.715476p+0f), rest = vf_set1(0x1.4ae0cp-26f), ln2 = vf_set1(0x1.62e43p-1f);
    x = vf_max(x, vf_set1(-200.0f));
    const vf y = vf_mul(x, log2e), lost = vf_fma(x, log2e, vf_sub(vf_zero(), y));
    const vf power = vf_exp2(y);
    return vf_fma(power, vf_mul(vf_fma(x, rest, lost), ln2), power);
#endif
}

ATTN_INLINE void take_decays_body(const attn_dtype dtype, float *dst, ptrdiff_t pitch, const struct attn_rows *src,
                                  int n, int64_t cols)
{
    for (int i = 0; i < n; i++, dst += pitch) {
        const char *row = row_at(src, i);
        int64_t c = 0;
        for (; c + VF_LEN <= cols; c += VF_LEN)
            vf_store(dst + c, decay_of(row_load(dtype, row + c * attn_element_size(dtype))));
        if (c < cols)
            vf_store(dst + c, decay_of(row_load_tail(dtype, row + c * attn_element_size(dtype), (int)(cols - c))));
    }
}

/** struct attn_state_kernels, take_decays. */
static void take_decays(float *dst, ptrdiff_t pitch, const struct attn_rows *src, int n, int64_t cols)
{
    ATTN_BY_DTYPE(src->dtype, take_decays_body, dst, pitch, src, n, cols);
}

/** The exponent of a key's feature at most: the sum of many, and its product with values, is far from the largest
 * float. */
#define HIGHEST 60.0f

/** elu(x) + 1. */
ATTN_INLINE vf elu_feature(vf x)
{
    const vm above = vf_gt(x, vf_zero());
    return vf_select(above, vf_add(x, vf_set1(1.0f)), vf_exp(vf_select(above, vf_zero(), x)));
}

/** e^(x - less), and no more than e^HIGHEST. */
ATTN_INLINE vf positive_feature(vf x, vf less)
{
    const vf y = vf_sub(x, less), highest = vf_set1(HIGHEST);
    return vf_exp(vf_select(vf_gt(y, highest), highest, y)); /* a NaN is one */
}

/** The largest of n numbers. */
static float largest_of(const float *x, int64_t n)
{
    vf largest = vf_set1(-FLT_MAX);
    int64_t c = 0;
    for (; c + VF_LEN <= n; c += VF_LEN)
        largest = vf_max(vf_load(x + c), largest);
    float most = vf_max_across(largest);
    for (; c < n; c++)
        most = x[c] > most ? x[c] : most;
    return most;
}

/** struct attn_state_kernels, features. */
static void make_features(const struct attn_features *f)
{
    for (int i = 0; i < f->n; i++) {
        float *const row = f->rows + i * f->pitch;
        const vf less = vf_set1(!f->positive ? 0.0f : f->half ? f->half[i] : largest_of(row, f->m));
        for (int64_t c = 0; c < f->m; c += VF_LEN) {
            const int n = f->m - c < VF_LEN ? (int)(f->m - c) : VF_LEN;
            const vf x = vf_load_tail(row + c, n);
            vf_store_tail(row + c, f->positive ? positive_feature(x, less) : elu_feature(x), n);
        }
    }
}

/** struct attn_state_kernels, within. */
static void decays_within(float *within, const float *decay, int n)
{
    for (int i = 0; i < n; i++) {
        float *const row = within + i * ATTN_CHUNK;
        const vf by = vf_set1(decay[i]);
        for (int j = 0; j < i; j += VF_LEN)
            vf_store(row + j, vf_mul(vf_load(row + j - ATTN_CHUNK), by));
        if (i % VF_LEN == 0)
            vf_store(row + i, vf_zero());
        row[i] = 1.0f;
    }
}

/** struct attn_state_kernels, scale_keys. */
static void scale_keys(float *kt, int64_t rows, const float *by, int n)
{
    for (int j = 0; j < n; j += VF_LEN) {
        const vf factor = vf_load(by + j);
        for (int64_t c = 0; c < rows; c++)
            vf_store(kt + c * ATTN_CHUNK + j, vf_mul(vf_load(kt + c * ATTN_CHUNK + j), factor));
    }
}

/** Vectors of channels that fade side by side: a product has to wait for the one before it. */
#define FADE_VECTORS 4

/** Vector w of those at p, or, where it is not whole, its first rest channels. */
#define FADE_LOAD(p, w) (whole ? vf_load((p) + (w)*VF_LEN) : vf_load_tail((p) + (w)*VF_LEN, rest))
#define FADE_STORE(p, w, a)                                                                                            \
    do {                                                                                                               \
        if (whole)                                                                                                     \
            vf_store((p) + (w)*VF_LEN, a);                                                                             \
        else                                                                                                           \
            vf_store_tail((p) + (w)*VF_LEN, a, rest);                                                                  \
    } while (0)

/** Calls body for all of dk channels: many vectors, one, and what is left of one. */
#define BY_CHANNELS(dk, body, ...)                                                                                     \
    do {                                                                                                               \
        int64_t c = 0;                                                                                                 \
        for (; c + FADE_VECTORS * VF_LEN <= (dk); c += FADE_VECTORS * VF_LEN)                                          \
            body(FADE_VECTORS, 1, c, VF_LEN, __VA_ARGS__);                                                             \
        for (; c + VF_LEN <= (dk); c += VF_LEN)                                                                        \
            body(1, 1, c, VF_LEN, __VA_ARGS__);                                                                        \
        if (c < (dk))                                                                                                  \
            body(1, 0, c, (int)((dk)-c), __VA_ARGS__);                                                                 \
    } while (0)

ATTN_INLINE void since_channels(const int nv, const int whole, int64_t c, int rest, float *dst, const float *src,
                                ptrdiff_t pitch, const float *decay, int n, int64_t dk)
{
    vf product[FADE_VECTORS];
    ATTN_UNROLL
    for (int v = 0; v < nv; v++)
        product[v] = vf_set1(1.0f);
    for (int i = 0; i < n; i++) {
        ATTN_UNROLL
        for (int v = 0; v < nv; v++) {
            product[v] = vf_mul(product[v], FADE_LOAD(decay + i * dk + c, v));
            FADE_STORE(dst + i * dk + c, v, vf_mul(FADE_LOAD(src + i * pitch + c, v), product[v]));
        }
    }
}

/** struct attn_state_kernels, decay_since. */
static void decay_since(float *dst, const float *src, ptrdiff_t pitch, const float *decay, int n, int64_t dk)
{
    BY_CHANNELS(dk, since_channels, dst, src, pitch, decay, n, dk);
}

ATTN_INLINE void until_channels(const int nv, const int whole, int64_t c, int rest, float *dst, const float *src,
                                ptrdiff_t pitch, const float *decay, int n, int64_t dk, float *all)
{
    vf product[FADE_VECTORS];
    ATTN_UNROLL
    for (int v = 0; v < nv; v++)
        product[v] = vf_set1(1.0f);
    for (int i = n - 1; i >= 0; i--) {
        ATTN_UNROLL
        for (int v = 0; v < nv; v++) {
            FADE_STORE(dst + i * dk + c, v, vf_mul(FADE_LOAD(src + i * pitch + c, v), product[v]));
            product[v] = vf_mul(product[v], FADE_LOAD(decay + i * dk + c, v));
        }
    }
    ATTN_UNROLL
    for (int v = 0; v < nv && all; v++)
        FADE_STORE(all + c, v, product[v]);
}

/** struct attn_state_kernels, decay_until. */
static void decay_until(float *dst, const float *src, ptrdiff_t pitch, const float *decay, int n, int64_t dk,
                        float *whole)
{
    BY_CHANNELS(dk, until_channels, dst, src, pitch, decay, n, dk, whole);
}

#endif
