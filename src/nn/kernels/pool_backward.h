/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backward pass of attention pooling for one sequence, in three steps between
 * which the caller multiplies. Lanes are channels, as in additive.h;
 * softmax over the tokens has its sums in double.
 */
#ifndef ATTN_NN_POOL_BACKWARD_H
#define ATTN_NN_POOL_BACKWARD_H

#include "nn/kernels/cell_backward.h"
#include "nn/kernels/norm.h"

#include <math.h>

/** Replaces a token's projection by u = tanh(projection + bias); returns v·u. */
static float pool_score(const struct nn_pool_gradient_work *work, float *u)
{
    vf sum = vf_zero();
    for (int64_t c = 0; c < work->inner; c += VF_LEN) {
        const int left = work->inner - c < VF_LEN ? (int)(work->inner - c) : VF_LEN;
        const vf value = vf_tanh(vf_add(cell_load(u + c, left), cell_load(work->bias + c, left)));
        cell_store(u + c, value, left);
        sum = vf_fma(value, cell_load(work->v + c, left), sum);
    }
    return sum_of_lanes(sum);
}

static float dot_of_rows(const float *a, const float *b, int64_t n)
{
    vf sum = vf_zero();
    for (int64_t c = 0; c < n; c += VF_LEN) {
        const int left = n - c < VF_LEN ? (int)(n - c) : VF_LEN;
        sum = vf_fma(cell_load(a + c, left), cell_load(b + c, left), sum);
    }
    return sum_of_lanes(sum);
}

/** Replaces scores by weights. */
static void pool_softmax(float *p, int64_t n)
{
    float top = -INFINITY;
    double sum = 0;
    for (int64_t t = 0; t < n; t++)
        top = p[t] > top ? p[t] : top;
    for (int64_t t = 0; t < n; t += VF_LEN) {
        const int left = n - t < VF_LEN ? (int)(n - t) : VF_LEN;
        cell_store(p + t, vf_exp(vf_sub(cell_load(p + t, left), vf_set1(top))), left);
    }
    for (int64_t t = 0; t < n; t++)
        sum += (double)p[t];
    for (int64_t t = 0; t < n; t++)
        p[t] = (float)((double)p[t] / sum);
}

static void pool_scores_backward(const struct nn_pool_gradient_work *work)
{
    double mean = 0;
    for (int64_t t = 0; t < work->tokens; t++) {
        work->p[t] = pool_score(work, work->u + t * work->inner);
        work->d_s[t] = dot_of_rows(work->x + t * work->channels, work->d_out, work->channels);
    }
    pool_softmax(work->p, work->tokens);
    for (int64_t t = 0; t < work->tokens; t++)
        mean += (double)work->p[t] * (double)work->d_s[t];
    for (int64_t t = 0; t < work->tokens; t++)
        work->d_s[t] = (float)((double)work->p[t] * ((double)work->d_s[t] - mean));
}

static void pool_projections_backward(const struct nn_pool_gradient_work *work)
{
    for (int64_t t = 0; t < work->tokens; t++) {
        float *u = work->u + t * work->inner;
        const vf d_s = vf_set1(work->d_s[t]);
        for (int64_t c = 0; c < work->inner; c += VF_LEN) {
            const int left = work->inner - c < VF_LEN ? (int)(work->inner - c) : VF_LEN;
            const vf slope = tanh_slope(cell_load(u + c, left));
            cell_store(u + c, vf_mul(vf_mul(d_s, cell_load(work->v + c, left)), slope), left);
        }
    }
}

static void pool_values_backward(const struct nn_pool_gradient_work *work)
{
    for (int64_t t = 0; t < work->tokens; t++) {
        float *x = work->x + t * work->channels;
        const vf p = vf_set1(work->p[t]);
        for (int64_t c = 0; c < work->channels; c += VF_LEN) {
            const int left = work->channels - c < VF_LEN ? (int)(work->channels - c) : VF_LEN;
            cell_store(x + c, vf_mul(p, cell_load(work->d_out + c, left)), left);
        }
    }
}

#endif
