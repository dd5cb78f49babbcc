/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Normalisation of rows, and rows of a table.
 *
 * A row is summed in VF_LEN lanes, which are added in their order, so that its
 * bits depend on nothing else. The variance is that of the differences from the
 * mean, in a second pass over a row that is in L1.
 */
#ifndef ATTN_NN_NORM_H
#define ATTN_NN_NORM_H

#include "kernels/rows.h"
#include "nn/kernels/nn_kernels.h"

#include <math.h>

static float sum_of_lanes(vf a)
{
    float lanes[VF_LEN], sum = 0;
    vf_store(lanes, a);
    for (int i = 0; i < VF_LEN; i++)
        sum += lanes[i];
    return sum;
}

static float row_sum(const float *x, int64_t n)
{
    vf sum = vf_zero();
    int64_t c = 0;
    for (; c + VF_LEN <= n; c += VF_LEN)
        sum = vf_add(sum, vf_load(x + c));
    if (c < n)
        sum = vf_add(sum, vf_load_tail(x + c, (int)(n - c)));
    return sum_of_lanes(sum);
}

/** Sum of the squares of x[c] - shift. */
static float row_squares(const float *x, int64_t n, float shift)
{
    const vf s = vf_set1(shift);
    vf sum = vf_zero();
    int64_t c = 0;
    for (; c + VF_LEN <= n; c += VF_LEN) {
        const vf d = vf_sub(vf_load(x + c), s);
        sum = vf_fma(d, d, sum);
    }
    float total = sum_of_lanes(sum);
    for (; c < n; c++)
        total += (x[c] - shift) * (x[c] - shift);
    return total;
}

/** Elements c.. of a vector of weights, n of them or VF_LEN if that is less. */
static inline vf weights_at(const struct nn_vector *w, int64_t c, int n)
{
    const char *p = (const char *)w->data + c * attn_element_size(w->dtype);
    return n < VF_LEN ? row_load_tail(w->dtype, p, n) : row_load(w->dtype, p);
}

static void normalise_rows(const struct nn_row_work *work)
{
    const int64_t n = work->n;
    for (int64_t r = 0; r < work->rows; r++) {
        const float *x = work->x.data + r * work->x.stride;
        float *out = work->out.data + r * work->out.stride;
        const float mean = work->norm == ATTN_NORM_LAYER ? row_sum(x, n) / (float)n : 0.0f;
        const float scale = 1.0f / sqrtf(row_squares(x, n, mean) / (float)n + work->eps);
        for (int64_t c = 0; c < n; c += VF_LEN) {
            const int left = n - c < VF_LEN ? (int)(n - c) : VF_LEN;
            const vf raw = left < VF_LEN ? vf_load_tail(x + c, left) : vf_load(x + c);
            vf y = vf_mul(vf_sub(raw, vf_set1(mean)), vf_set1(scale));
            if (work->gamma.data)
                y = vf_mul(y, weights_at(&work->gamma, c, left));
            if (work->beta.data)
                y = vf_add(y, weights_at(&work->beta, c, left));
            if (left < VF_LEN)
                vf_store_tail(out + c, y, left);
            else
                vf_store(out + c, y);
        }
    }
}

static void embed_row(const struct nn_embed_work *work)
{
    const struct nn_vector row = {work->row, work->dtype};
    const vf scale = vf_set1(work->scale);
    for (int64_t c = 0; c < work->n; c += VF_LEN) {
        const int left = work->n - c < VF_LEN ? (int)(work->n - c) : VF_LEN;
        float *out = work->out + c;
        vf y = vf_mul(weights_at(&row, c, left), scale);
        if (work->accumulate)
            y = vf_add(left < VF_LEN ? vf_load_tail(out, left) : vf_load(out), y);
        if (left < VF_LEN)
            vf_store_tail(out, y, left);
        else
            vf_store(out, y);
    }
}

#endif
