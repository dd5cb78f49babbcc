/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross-entropy of one row of logits x with targets t, and its gradient. With
 * z_c = x_c - max x and S = sum_c exp(z_c)
 *
 *     loss = -sum_c t_c log p_c = log S - sum_c t_c z_c     (targets add up to 1)
 *     gradient_c = (exp(z_c) / S - t_c) * factor
 *
 * No term of the loss is negative, so nothing cancels. Three passes over a row,
 * which stays in a near cache: the maximum; both sums; the gradient, which
 * computes the exponentials again, as in place there is nowhere to keep them.
 * Sums are f32 over LOSS_TERMS vectors and double beyond.
 */
#ifndef ATTN_NN_LOSS_KERNEL_H
#define ATTN_NN_LOSS_KERNEL_H

#include "nn/kernels/typed.h"

#include <math.h>

/** Vectors of terms that are added in f32. */
#define LOSS_TERMS 64

/** Differences are added as 256ths: LOSS_TERMS of the largest that two floats can have do not overflow. */
#define LOSS_SCALE 0x1p-8f

/** Logits from c on; behind the last, what has no probability. */
ATTN_INLINE vf logits_load(const attn_dtype dtype, const void *x, int64_t c, int n)
{
    const vf logits = typed_load(dtype, x, c, n);
    return n < VF_LEN ? vf_select(vf_gt(vf_set1((float)n), vf_iota()), logits, vf_set1(-INFINITY)) : logits;
}

static double double_sum_of_lanes(vf a)
{
    float lanes[VF_LEN];
    double sum = 0;
    vf_store(lanes, a);
    for (int i = 0; i < VF_LEN; i++)
        sum += (double)lanes[i];
    return sum;
}

/** The largest logit; a NaN is none. */
ATTN_INLINE float logits_maximum(const attn_dtype dtype, const void *x, int64_t n)
{
    float lanes[VF_LEN], top = -INFINITY;
    vf most = vf_set1(top);
    for (int64_t c = 0; c < n; c += VF_LEN)
        most = vf_max(logits_load(dtype, x, c, n - c < VF_LEN ? (int)(n - c) : VF_LEN), most);
    vf_store(lanes, most);
    for (int i = 0; i < VF_LEN; i++)
        top = lanes[i] > top ? lanes[i] : top;
    return top;
}

/** sum_c exp(z_c), and sum_c z_c if it is wanted. */
ATTN_INLINE double logits_sums(const attn_dtype dtype, const void *x, int64_t n, float top, double *differences)
{
    const vf shift = vf_set1(top), scale = vf_set1(LOSS_SCALE), scaled_shift = vf_set1(top * LOSS_SCALE);
    double total = 0, all = 0;
    for (int64_t c = 0; c < n;) {
        vf sum = vf_zero(), scaled_sum = vf_zero();
        for (int term = 0; term < LOSS_TERMS && c < n; term++, c += VF_LEN) {
            const int left = n - c < VF_LEN ? (int)(n - c) : VF_LEN;
            const vf logits = logits_load(dtype, x, c, left);
            sum = vf_add(sum, vf_exp(vf_sub(logits, shift)));
            if (differences) {
                const vf scaled = vf_sub(vf_mul(logits, scale), scaled_shift);
                const vm live = vf_gt(vf_set1((float)left), vf_iota());
                scaled_sum = vf_add(scaled_sum, vf_select(live, scaled, vf_zero()));
            }
        }
        total += double_sum_of_lanes(sum);
        all += double_sum_of_lanes(scaled_sum);
    }
    if (differences)
        *differences = all / (double)LOSS_SCALE;
    return total;
}

ATTN_INLINE double cross_entropy_body(const attn_dtype from, const attn_dtype to, const struct nn_loss_work *work)
{
    const int64_t n = work->n, label = work->label;
    const float top = logits_maximum(from, work->x, n);
    double differences = 0;
    const double sum = logits_sums(from, work->x, n, top, work->other > 0 ? &differences : NULL);
    double loss = log(sum);
    /* A target of 0 contributes nothing, not even if the logit is -Inf. */
    if (work->more > 0)
        loss -= work->more * ((double)element_at(from, work->x, label) - (double)top);
    if (work->other > 0)
        loss -= work->other * differences;
    if (work->out) {
        const vf shift = vf_set1(top), scale = vf_set1((float)(work->factor / sum));
        const vf other = vf_set1((float)(-work->other * work->factor));
        const vf both = vf_set1((float)(-(work->other + work->more) * work->factor));
        for (int64_t c = 0; c < n; c += VF_LEN) {
            const int left = n - c < VF_LEN ? (int)(n - c) : VF_LEN;
            vf less = other;
            if (label >= c && label < c + left)
                less = vf_select(vf_eq(vf_iota(), vf_set1((float)(label - c))), both, other);
            const vf e = vf_exp(vf_sub(typed_load(from, work->x, c, left), shift));
            typed_store(to, work->out, c, vf_fma(e, scale, less), left);
        }
    }
    return loss;
}

/** The loss of a row. */
static double cross_entropy_row(const struct nn_loss_work *work)
{
    double loss = 0;
#define LOSS_BODY(from, to, work) loss = cross_entropy_body(from, to, work)
    NN_BY_TYPES(work->dtype, work->out_dtype, LOSS_BODY, work);
#undef LOSS_BODY
    return loss;
}

#endif
