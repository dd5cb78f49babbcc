/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of normalised rows. With the normalised row h = (x - mean) r, r = 1 / sqrt(variance + eps), its gradient
 * g = d_out gamma, and means over its channels,
 *
 *     layer norm:  d_x = (g - mean(g) - h mean(g h)) r
 *     RMS norm:    d_x = (g - h mean(g h)) r                (no mean, r = 1 / sqrt(mean of squares + eps))
 *     d_gamma = sum over rows of d_out h,    d_beta = sum of d_out
 *
 * Mean and r are those of the forward pass (norm.h), computed again. A row that is in L1 is read four times: for its
 * sum, its squares, the means of g, and d_x. Only the last of these writes, so that d_x may be d_out.
 */
#ifndef ATTN_NN_NORM_BACKWARD_H
#define ATTN_NN_NORM_BACKWARD_H

#include "nn/kernels/norm.h"

/** Adds elements to c.. of a vector of sums. */
static inline void add_elements(float *sums, int64_t c, vf a, int left)
{
    typed_store(ATTN_F32, sums, c, vf_add(typed_load(ATTN_F32, sums, c, left), a), left);
}

/** d_out * gamma. */
ATTN_INLINE vf before_gamma(const struct nn_gradient_work *work, vf d_out, int64_t c, int left)
{
    return work->gamma.data ? vf_mul(d_out, typed_load(work->gamma.dtype, work->gamma.data, c, left)) : d_out;
}

ATTN_INLINE void normalise_backward_body(const attn_dtype of_x, const attn_dtype of_d_out, const attn_dtype of_d_x,
                                         const struct nn_gradient_work *work)
{
    const int64_t n = work->n;
    for (int64_t r = 0; r < work->rows; r++) {
        const char *x = row_at(&work->x, r), *d_outs = row_at(&work->d_out, r);
        const struct row_moments moments = moments_of_row(of_x, x, n, work->norm, work->eps);
        vf sum = vf_zero(), sum_h = vf_zero();
        for (int64_t c = 0; c < n; c += VF_LEN) {
            const int left = n - c < VF_LEN ? (int)(n - c) : VF_LEN;
            const vf h = normalised(of_x, x, c, left, moments), d_out = typed_load(of_d_out, d_outs, c, left);
            const vf g = before_gamma(work, d_out, c, left); /* 0 behind the last channel, where h is not */
            sum = vf_add(sum, g);
            sum_h = vf_fma(g, h, sum_h);
            if (work->d_gamma)
                add_elements(work->d_gamma, c, vf_mul(d_out, h), left);
            if (work->d_beta)
                add_elements(work->d_beta, c, d_out, left);
        }
        if (!work->d_x.data)
            continue;
        const vf mean = vf_set1(work->norm == ATTN_NORM_LAYER ? sum_of_lanes(sum) / (float)n : 0.0f);
        const vf mean_h = vf_set1(sum_of_lanes(sum_h) / (float)n), scale = vf_set1(moments.scale);
        char *d_x = row_at(&work->d_x, r);
        for (int64_t c = 0; c < n; c += VF_LEN) {
            const int left = n - c < VF_LEN ? (int)(n - c) : VF_LEN;
            const vf h = normalised(of_x, x, c, left, moments);
            const vf g = before_gamma(work, typed_load(of_d_out, d_outs, c, left), c, left);
            const vf rest = vf_sub(vf_sub(g, mean), vf_mul(h, mean_h));
            typed_store(of_d_x, d_x, c, vf_mul(rest, scale), left);
        }
    }
}

static void normalise_backward_rows(const struct nn_gradient_work *work)
{
    const attn_dtype x = work->x.dtype, d_out = work->d_out.dtype, d_x = work->d_x.data ? work->d_x.dtype : x;
    if (x == ATTN_F32 && d_out == ATTN_F32 && d_x == ATTN_F32)
        normalise_backward_body(ATTN_F32, ATTN_F32, ATTN_F32, work);
    else if (x == ATTN_BF16 && d_out == ATTN_BF16 && d_x == ATTN_BF16)
        normalise_backward_body(ATTN_BF16, ATTN_BF16, ATTN_BF16, work);
    else
        normalise_backward_body(x, d_out, d_x, work);
}

#endif
