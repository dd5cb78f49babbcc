/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over disjoint sets of keys, joined by their log-sum-exps. For every
 * row, with x_n the log-sum-exp of part n,
 *
 *     m = max x_n;  s = sum exp(x_n - m);  lse = m + ln s
 *     out = sum (exp(x_n - m) / s) parts[n]
 *
 * in double up to the weights, which are then rounded to f32; the exponent is
 * taken from m and not from lse, where s could be lost beside a huge m. The
 * weights add up to 1 within rounding, so no sum exceeds what it is a mean of.
 *
 * A part at -inf is left out, not multiplied by 0, so what stands in it does
 * not matter. A NaN, or +inf, makes m or s NaN and with it the row.
 *
 * Channels are summed in blocks that stay in L1, part by part, so that every
 * row is read as one stream; out may lie on a part, as it is written when all
 * parts have been read. The order of the sum is that of the parts.
 */
#ifndef ATTN_MERGE_H
#define ATTN_MERGE_H

#include "kernels/rows.h"

#include <assert.h>
#include <math.h>

/** Channels that are summed at a time. */
#define MERGE_CHANNELS 512

/** Parts whose exponentials are kept from the sum for the weights. */
#define MERGE_KEPT 64

struct merge_row {
    const struct attn_merge_work *work;
    int64_t b, h, t;
    double maximum, sum;
    double kept[MERGE_KEPT];
};

ATTN_INLINE char *merge_element(const attn_tensor *t, const struct merge_row *row)
{
    return (char *)t->data +
           (row->b * t->stride[0] + row->h * t->stride[1] + row->t * t->stride[2]) * (t->dtype == ATTN_F32 ? 4 : 2);
}

static inline double merge_lse(const struct merge_row *row, int64_t part)
{
    return (double)*(const float *)merge_element(&row->work->lses[part], row);
}

/** The maximum of the log-sum-exps, NaN if there is one, and the sum of the exponentials. */
static void merge_begin(struct merge_row *row)
{
    const int64_t parts = row->work->num_parts;
    row->maximum = -INFINITY;
    row->sum = 0;
    for (int64_t n = 0; n < parts; n++) {
        const double x = merge_lse(row, n);
        row->maximum = x > row->maximum || x != x ? x : row->maximum; /* nothing is greater than NaN */
    }
    for (int64_t n = 0; n < parts; n++) {
        const double x = merge_lse(row, n), e = x == -INFINITY ? 0 : exp(x - row->maximum);
        if (n < MERGE_KEPT)
            row->kept[n] = e;
        row->sum += e;
    }
}

static float merge_weight(const struct merge_row *row, int64_t part, double x)
{
    return (float)((part < MERGE_KEPT ? row->kept[part] : exp(x - row->maximum)) / row->sum);
}

/** Adds weight times n channels to sums. */
ATTN_INLINE void merge_add(const attn_dtype dtype, float *sums, const char *src, int n, float weight)
{
    const vf w = vf_set1(weight);
    int c = 0;
    for (; c + VF_LEN <= n; c += VF_LEN)
        vf_store(sums + c, vf_fma(w, row_load(dtype, src + c * attn_element_size(dtype)), vf_load(sums + c)));
    if (c < n)
        vf_store(sums + c,
                 vf_fma(w, row_load_tail(dtype, src + c * attn_element_size(dtype), n - c), vf_load(sums + c)));
}

ATTN_INLINE void merge_store(const attn_dtype dtype, char *dst, const float *sums, int n)
{
    int c = 0;
    for (; c + VF_LEN <= n; c += VF_LEN)
        row_store(dtype, dst + c * attn_element_size(dtype), vf_load(sums + c));
    if (c < n)
        row_store_tail(dtype, dst + c * attn_element_size(dtype), vf_load(sums + c), n - c);
}

static void merge_channels(const struct merge_row *row, int64_t first, int n)
{
    float sums[MERGE_CHANNELS] __attribute__((aligned(ATTN_ALIGN)));
    const struct attn_merge_work *work = row->work;
    for (int c = 0; c < n; c += VF_LEN)
        vf_store(sums + c, vf_zero());
    for (int64_t part = 0; part < work->num_parts; part++) {
        const double x = merge_lse(row, part);
        const attn_tensor *t = &work->parts[part];
        if (x == -INFINITY)
            continue;
        const float weight = merge_weight(row, part, x);
        const char *src = merge_element(t, row) + first * attn_element_size(t->dtype);
        ATTN_BY_DTYPE(t->dtype, merge_add, sums, src, n, weight);
    }
    char *dst = merge_element(work->out, row) + first * attn_element_size(work->out->dtype);
    ATTN_BY_DTYPE(work->out->dtype, merge_store, dst, sums, n);
}

static void merge_rows(const struct attn_merge_work *work)
{
    assert(MERGE_CHANNELS % VF_LEN == 0 && work->num_parts > 0);
    const int64_t heads = work->out->shape[1], tokens = work->out->shape[2], dv = work->out->shape[3];
    for (int64_t r = work->first_row; r < work->first_row + work->num_rows; r++) {
        struct merge_row row = {.work = work, .b = r / tokens / heads, .h = r / tokens % heads, .t = r % tokens};
        merge_begin(&row);
        for (int64_t c = 0; c < dv; c += MERGE_CHANNELS)
            merge_channels(&row, c, dv - c < MERGE_CHANNELS ? (int)(dv - c) : MERGE_CHANNELS);
        if (work->lse) /* last, as it may lie on one of lses */
            *(float *)merge_element(work->lse, &row) =
                row.maximum == -INFINITY ? -INFINITY : (float)(row.maximum + log(row.sum));
    }
}

#endif
