/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the backward pass adds to the tiles of the forward pass: the gradients of
 * scores, and sums over queries for rows of K and V.
 *
 *     dS = P * (dP - D)                                        a query per lane, as P and dP have them
 *     dV[key][c] += sum_r P[key][r] * dO[r][c]                 channels are the lanes
 *     dK[key][c] += sum_r dS[key][r] * Q[r][c]
 *
 * A weight is broadcast from its row of the tile, in which queries lie side by
 * side, against vectors of channels of a row of dO or Q as it lies in memory. So
 * neither the tile nor rows are turned. Register tiles are SUM_KEYS keys by
 * SUM_VECTORS vectors of channels; the order of a sum is that of the queries,
 * whatever their blocks.
 */
#ifndef ATTN_GRADIENTS_H
#define ATTN_GRADIENTS_H

#include "kernels/mask.h"
#include "kernels/rows.h"

/** Vectors of channels of a register tile, and its keys: sums, operands and a broadcast fill the register file. */
#define SUM_VECTORS (VF_STRIP * VF_CHANNELS > 16 ? 4 : 2)
#define SUM_KEYS    (VF_LEN == 1 ? 2 : 6)

/** How vectors lie in a row: all of them whole, or the only one with n channels. */
ATTN_INLINE vf part_load(const int whole, const float *p, int n)
{
    return whole ? vf_load(p) : vf_load_tail(p, n);
}

ATTN_INLINE void part_store(const int whole, float *p, vf a, int n)
{
    if (whole)
        vf_store(p, a);
    else
        vf_store_tail(p, a, n);
}

/** Keys j..j+nk-1, channels c.. of nw vectors; the last keys of a diagonal's tile see fewer queries than the first. */
ATTN_INLINE void sum_tile(const int nk, const int nw, const int whole, const struct attn_row_sums *x, int j, int64_t c,
                          int n)
{
    vf acc[2 * SUM_KEYS][SUM_VECTORS];
    const int64_t channels = x->channels;
    float *const sum = x->sum + j * channels + c;
    ATTN_UNROLL
    for (int i = 0; i < nk; i++) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            acc[i][w] = part_load(whole, sum + i * channels + w * VF_LEN, n);
    }
    const int first = attn_hidden_lanes(x->diagonal, j, x->rows);
    const ptrdiff_t pitch = x->pitch;
    const float *p = x->p + j * pitch + first;
    const char *row = x->x + first * x->x_stride + c * (ptrdiff_t)sizeof(float);
    for (int r = first; r < x->rows; r++, p++, row += x->x_stride) {
        vf b[SUM_VECTORS];
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            b[w] = part_load(whole, (const float *)(const void *)row + w * VF_LEN, n);
        ATTN_UNROLL
        for (int i = 0; i < nk; i++) {
            const vf a = vf_set1(p[i * pitch]);
            ATTN_UNROLL
            for (int w = 0; w < nw; w++)
                acc[i][w] = vf_fma(b[w], a, acc[i][w]);
        }
    }
    ATTN_UNROLL
    for (int i = 0; i < nk; i++) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            part_store(whole, sum + i * channels + w * VF_LEN, acc[i][w], n);
    }
}

/** All keys, channels c.. of nw vectors. */
ATTN_INLINE void sum_keys(const int nk, const int nw, const int whole, const struct attn_row_sums *x, int64_t c, int n)
{
    int j = 0;
    for (; j + nk <= x->keys; j += nk) {
        if (j + 2 * nk <= x->keys) /* the sums of the next tile come from L2 */
            for (int i = 0; i < nk; i++)
                for (int w = 0; w < nw; w++)
                    __builtin_prefetch(x->sum + (j + nk + i) * x->channels + c + w * VF_LEN, 1, 3);
        sum_tile(nk, nw, whole, x, j, c, n);
    }
    if (nk > 4 && j + 4 <= x->keys) {
        sum_tile(4, nw, whole, x, j, c, n);
        j += 4;
    }
    if (nk > 2 && j + 2 <= x->keys) {
        sum_tile(2, nw, whole, x, j, c, n);
        j += 2;
    }
    for (; j < x->keys; j++)
        sum_tile(1, nw, whole, x, j, c, n);
}

/** struct attn_gradient_kernels, add_rows. */
static void add_rows(const struct attn_row_sums *x)
{
    int64_t c = 0;
    for (; c + SUM_VECTORS * VF_LEN <= x->channels; c += SUM_VECTORS * VF_LEN)
        sum_keys(SUM_KEYS, SUM_VECTORS, 1, x, c, VF_LEN);
    if (SUM_VECTORS > 2 && c + 2 * VF_LEN <= x->channels) {
        sum_keys(2 * SUM_KEYS, 2, 1, x, c, VF_LEN);
        c += 2 * VF_LEN;
    }
    for (; c + VF_LEN <= x->channels; c += VF_LEN)
        sum_keys(2 * SUM_KEYS, 1, 1, x, c, VF_LEN);
    if (c < x->channels)
        sum_keys(SUM_KEYS, 1, 0, x, c, (int)(x->channels - c));
}

/** struct attn_gradient_kernels, add_rows_seen. */
static void add_rows_seen(const struct attn_tile_mask *mask, const struct attn_row_sums *x)
{
    const int width = (int)x->pitch;
    float sees[ATTN_MAX_STRIP];
    for (int j = 0; j < x->keys; j++) {
        for (int v = 0; v < width / VF_LEN; v++) {
#define SEES(kind) vf_store(sees + v * VF_LEN, vf_select(mask_lanes(kind, mask, width, j, v), vf_set1(1.0f), vf_zero()))
            ATTN_BY_MASK(mask->kind, SEES);
#undef SEES
        }
        for (int r = 0; r < x->rows; r++) {
            if (sees[r] == 0.0f)
                continue;
            struct attn_row_sums one = *x;
            one.p = x->p + j * x->pitch + r;
            one.rows = one.keys = 1;
            one.diagonal = 0;
            one.x = x->x + r * x->x_stride;
            one.sum = x->sum + j * x->channels;
            add_rows(&one);
        }
    }
}

/** dS of a tile; kept, capped: as in struct attn_score_gradients, or not. */
ATTN_INLINE void score_gradient_tile(const enum attn_mask_kind kind, const int kept, const int capped, const int nv,
                                     const struct attn_score_gradients *x)
{
    for (int j = 0; j < x->keys; j++) {
        ATTN_UNROLL
        for (int v = 0; v < nv; v++) {
            const ptrdiff_t at = ((ptrdiff_t)j * nv + v) * VF_LEN;
            const vf p = vf_load(x->p + at), dp = vf_load(x->dp + at), delta = vf_load(x->delta + v * VF_LEN);
            vf ds;
            if (kept)
                ds = vf_sub(vf_mul(vf_mul(vf_load(x->kept + at), vf_set1(x->keep_scale)), dp), vf_mul(p, delta));
            else
                ds = vf_mul(p, vf_sub(dp, delta));
            if (capped) {
                const vf t = vf_mul(vf_load(x->capped + at), vf_set1(1.0f / x->cap));
                ds = vf_mul(ds, vf_fma(vf_sub(vf_zero(), t), t, vf_set1(1.0f)));
            }
            if (kind != MASK_NONE)
                ds = vf_select(mask_lanes(kind, x->mask, nv * VF_LEN, j, v), ds, vf_zero());
            vf_store(x->dp + at, ds);
        }
    }
}

ATTN_INLINE void score_gradient_body(const int nv, const struct attn_score_gradients *x)
{
    if (x->kept || x->capped) {
#define FORMS(kind)                                                                                                    \
    do {                                                                                                               \
        if (x->kept && x->capped)                                                                                      \
            score_gradient_tile(kind, 1, 1, nv, x);                                                                    \
        else if (x->kept)                                                                                              \
            score_gradient_tile(kind, 1, 0, nv, x);                                                                    \
        else                                                                                                           \
            score_gradient_tile(kind, 0, 1, nv, x);                                                                    \
    } while (0)
        ATTN_BY_MASK(x->mask->kind, FORMS);
#undef FORMS
        return;
    }
#define PLAIN(kind) score_gradient_tile(kind, 0, 0, nv, x)
    ATTN_BY_MASK(x->mask->kind, PLAIN);
#undef PLAIN
}

/** struct attn_gradient_kernels, score_gradients. */
static void score_gradients(int nv, const struct attn_score_gradients *x)
{
    ATTN_BY_WIDTH(nv, score_gradient_body, x);
}

/** VF_LEN elements of a row of any of the three types, or the first n. */
ATTN_INLINE vf any_load(attn_dtype dtype, const char *p, int n)
{
    if (n < VF_LEN)
        return dtype == ATTN_F32    ? row_load_tail(ATTN_F32, p, n)
               : dtype == ATTN_BF16 ? row_load_tail(ATTN_BF16, p, n)
                                    : row_load_tail(ATTN_F16, p, n);
    return dtype == ATTN_F32    ? row_load(ATTN_F32, p)
           : dtype == ATTN_BF16 ? row_load(ATTN_BF16, p)
                                : row_load(ATTN_F16, p);
}

/** struct attn_gradient_kernels, dot_rows. */
static void dot_rows(float *dst, const struct attn_rows *a, const struct attn_rows *b, int n, int64_t channels)
{
    const ptrdiff_t step_a = attn_element_size(a->dtype), step_b = attn_element_size(b->dtype);
    for (int i = 0; i < n; i++) {
        vf sum = vf_zero();
        for (int64_t c = 0; c < channels; c += VF_LEN) {
            const int rest = channels - c < VF_LEN ? (int)(channels - c) : VF_LEN;
            sum = vf_fma(any_load(a->dtype, row_at(a, i) + c * step_a, rest),
                         any_load(b->dtype, row_at(b, i) + c * step_b, rest), sum);
        }
        float lanes[VF_LEN], all = 0.0f;
        vf_store(lanes, sum);
        for (int l = 0; l < VF_LEN; l++)
            all += lanes[l];
        dst[i] = all;
    }
}

static const struct attn_gradient_kernels gradient_kernels = {
    .score_gradients = score_gradients, .add_rows = add_rows, .add_rows_seen = add_rows_seen, .dot_rows = dot_rows};

#endif
