/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Normalisation of rows, and rows of a table.
 *
 * A row is summed in VF_LEN lanes, which are added in their order, so that its
 * bits depend on nothing else. The variance is that of the differences from the
 * mean, in a second pass over a row that is in L1. Whatever the types of x and
 * out, the arithmetic is that of f32, so that the result in bf16 is the one in
 * f32, rounded.
 */
#ifndef ATTN_NN_NORM_H
#define ATTN_NN_NORM_H

#include "nn/kernels/typed.h"

#include <math.h>

static float sum_of_lanes(vf a)
{
    float lanes[VF_LEN], sum = 0;
    vf_store(lanes, a);
    for (int i = 0; i < VF_LEN; i++)
        sum += lanes[i];
    return sum;
}

ATTN_INLINE float row_sum(const attn_dtype dtype, const char *x, int64_t n)
{
    vf sum = vf_zero();
    int64_t c = 0;
    for (; c + VF_LEN <= n; c += VF_LEN)
        sum = vf_add(sum, typed_load(dtype, x, c, VF_LEN));
    if (c < n)
        sum = vf_add(sum, typed_load(dtype, x, c, (int)(n - c)));
    return sum_of_lanes(sum);
}

/** Sum of the squares of x[c] - shift. */
ATTN_INLINE float row_squares(const attn_dtype dtype, const char *x, int64_t n, float shift)
{
    const vf s = vf_set1(shift);
    vf sum = vf_zero();
    int64_t c = 0;
    for (; c + VF_LEN <= n; c += VF_LEN) {
        const vf d = vf_sub(typed_load(dtype, x, c, VF_LEN), s);
        sum = vf_fma(d, d, sum);
    }
    float total = sum_of_lanes(sum);
    for (; c < n; c++) {
        const float d = element_at(dtype, x, c) - shift;
        total += d * d;
    }
    return total;
}

/** A row is (x - mean) * scale before gamma. */
struct row_moments {
    float mean, scale;
};

ATTN_INLINE struct row_moments moments_of_row(const attn_dtype dtype, const char *x, int64_t n, attn_norm norm,
                                              float eps)
{
    const float mean = norm == ATTN_NORM_LAYER ? row_sum(dtype, x, n) / (float)n : 0.0f;
    return (struct row_moments){mean, 1.0f / sqrtf(row_squares(dtype, x, n, mean) / (float)n + eps)};
}

/** Elements c.. of a normalised row, left of them. */
ATTN_INLINE vf normalised(const attn_dtype dtype, const char *x, int64_t c, int left, struct row_moments moments)
{
    return vf_mul(vf_sub(typed_load(dtype, x, c, left), vf_set1(moments.mean)), vf_set1(moments.scale));
}

ATTN_INLINE void normalise_body(const attn_dtype from, const attn_dtype to, const struct nn_row_work *work)
{
    const int64_t n = work->n;
    for (int64_t r = 0; r < work->rows; r++) {
        const char *x = row_at(&work->x, r);
        char *out = row_at(&work->out, r);
        const struct row_moments moments = moments_of_row(from, x, n, work->norm, work->eps);
        for (int64_t c = 0; c < n; c += VF_LEN) {
            const int left = n - c < VF_LEN ? (int)(n - c) : VF_LEN;
            vf y = normalised(from, x, c, left, moments);
            if (work->gamma.data)
                y = vf_mul(y, typed_load(work->gamma.dtype, work->gamma.data, c, left));
            if (work->beta.data)
                y = vf_add(y, typed_load(work->beta.dtype, work->beta.data, c, left));
            typed_store(to, out, c, y, left);
        }
    }
}

static void normalise_rows(const struct nn_row_work *work)
{
    NN_BY_TYPES(work->x.dtype, work->out.dtype, normalise_body, work);
}

static void embed_row(const struct nn_embed_work *work)
{
    const struct nn_vector *place = work->place;
    const vf scale = vf_set1(work->scale);
    for (int64_t c = 0; c < work->n; c += VF_LEN) {
        const int left = work->n - c < VF_LEN ? (int)(work->n - c) : VF_LEN;
        vf y = vf_mul(typed_load(work->row.dtype, work->row.data, c, left), scale);
        if (work->accumulate)
            y = vf_add(typed_load(work->out_dtype, work->out, c, left), y);
        if (place[0].data) {
            vf added = typed_load(place[0].dtype, place[0].data, c, left);
            if (place[1].data)
                added = vf_add(added, typed_load(place[1].dtype, place[1].data, c, left));
            y = vf_add(y, added);
        }
        typed_store(work->out_dtype, work->out, c, y, left);
    }
}

#endif
