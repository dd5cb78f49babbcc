/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backward pass of additive attention for one query and its keys, in steps
 * between which the caller multiplies, or adds up what several queries give to a
 * key. A pool is the query whose part of the scores is the bias. Lanes are
 * channels, as in additive.h; softmax over the keys has its sums in double.
 *
 *     u_j = tanh(k_j + bias),  s_j = v·u_j + mask_j,  p = softmax(s)     additive_scores_backward()
 *     d_p_j = d_out·x_j,  d_s_j = p_j (d_p_j - sum_i p_i d_p_i)
 *     d_v = sum_j d_s_j u_j                                              additive_projections_backward()
 *     d_u_j = d_s_j v (1 - u_j²) in place of u_j,  d_bias = sum_j d_u_j
 *     d_k_j += d_u_j,  d_x_j += p_j d_out                                additive_keys_backward()
 *
 * A key's numbers follow from the key and from three numbers of the query's row.
 * So some of the keys alone give the bits that they have among all, once these
 * are known.
 */
#ifndef ATTN_NN_ADDITIVE_BACKWARD_H
#define ATTN_NN_ADDITIVE_BACKWARD_H

#include "nn/kernels/cell_backward.h"
#include "nn/kernels/norm.h"

#include <math.h>

/** Which row of k and x a key is. */
static inline int64_t additive_row_of(const struct nn_additive_gradient_work *work, int64_t t)
{
    return work->live ? work->live[t] : t;
}

/** u = tanh(k + bias) of a key; returns v·u. */
static float additive_score_again(const struct nn_additive_gradient_work *work, const float *k, float *u)
{
    vf sum = vf_zero();
    for (int64_t c = 0; c < work->inner; c += VF_LEN) {
        const int left = work->inner - c < VF_LEN ? (int)(work->inner - c) : VF_LEN;
        const vf value = vf_tanh(vf_add(cell_load(k + c, left), cell_load(work->bias + c, left)));
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

/** Replaces scores by weights, with the row's numbers as they are known or as they become. */
static void additive_softmax(float *p, int64_t n, struct nn_additive_row *row, int is_known)
{
    if (!is_known) {
        row->top = -INFINITY;
        row->sum = 0;
        for (int64_t t = 0; t < n; t++)
            row->top = p[t] > row->top ? p[t] : row->top;
    }
    /* Where all scores are -inf, so are those that are subtracted from 0: no key has a weight. */
    const vf base = vf_set1(row->top == -INFINITY ? 0.0f : row->top);
    for (int64_t t = 0; t < n; t += VF_LEN) {
        const int left = n - t < VF_LEN ? (int)(n - t) : VF_LEN;
        cell_store(p + t, vf_exp(vf_sub(cell_load(p + t, left), base)), left);
    }
    for (int64_t t = 0; t < n && !is_known; t++)
        row->sum += (double)p[t];
    for (int64_t t = 0; t < n; t++)
        p[t] = row->sum == 0 ? 0.0f : (float)((double)p[t] / row->sum);
}

static void additive_scores_backward(const struct nn_additive_gradient_work *work)
{
    struct nn_additive_row *row = work->row;
    for (int64_t t = 0; t < work->keys; t++) {
        const int64_t at = additive_row_of(work, t);
        work->p[t] += additive_score_again(work, work->k.data + at * work->k.stride, work->u + t * work->inner);
        work->d_s[t] = dot_of_rows(work->x.data + at * work->x.stride, work->d_out, work->channels);
    }
    additive_softmax(work->p, work->keys, row, work->is_known);
    if (!work->is_known) {
        row->mean = 0;
        for (int64_t t = 0; t < work->keys; t++)
            row->mean += (double)work->p[t] * (double)work->d_s[t];
    }
    for (int64_t t = 0; t < work->keys; t++)
        work->d_s[t] = (float)((double)work->p[t] * ((double)work->d_s[t] - row->mean));
}

/** Terms of a sum before it goes to the sum of all: errors grow with this and the number of such sums. */
#define ADDITIVE_SPAN 1024

/** The columns of u from one on, for keys first to end - 1: to their gradients, whose sums are added to those of all.
 */
static void additive_project_span(const struct nn_additive_gradient_work *work, int64_t first, int64_t end, int64_t c,
                                  int left, vf *d_bias, vf *d_v)
{
    const vf v = cell_load(work->v + c, left);
    vf sum_of_bias = vf_zero(), sum_of_v = vf_zero();
    for (int64_t t = first; t < end; t++) {
        float *at = work->u + t * work->inner + c;
        const vf u = cell_load(at, left), d_s = vf_set1(work->d_s[t]);
        const vf d_u = vf_mul(vf_mul(d_s, v), tanh_slope(u));
        cell_store(at, d_u, left);
        sum_of_bias = vf_add(sum_of_bias, d_u);
        sum_of_v = vf_fma(d_s, u, sum_of_v);
    }
    *d_bias = vf_add(*d_bias, sum_of_bias);
    *d_v = vf_add(*d_v, sum_of_v);
}

static void additive_projections_backward(const struct nn_additive_gradient_work *work)
{
    for (int64_t c = 0; c < work->inner; c += VF_LEN) {
        const int left = work->inner - c < VF_LEN ? (int)(work->inner - c) : VF_LEN;
        vf d_bias = vf_zero(), d_v = vf_zero();
        for (int64_t first = 0; first < work->keys; first += ADDITIVE_SPAN) {
            const int64_t end = work->keys - first < ADDITIVE_SPAN ? work->keys : first + ADDITIVE_SPAN;
            additive_project_span(work, first, end, c, left, &d_bias, &d_v);
        }
        if (work->d_bias)
            cell_store(work->d_bias + c, d_bias, left);
        if (work->d_v)
            cell_store(work->d_v + c, vf_mul(d_v, vf_set1(work->v_scale)), left);
    }
}

/** to = factor * row, or with adds: += . */
static void additive_row_times(float *to, const float *row, float factor, int64_t n, int adds)
{
    const vf f = vf_set1(factor);
    for (int64_t c = 0; c < n; c += VF_LEN) {
        const int left = n - c < VF_LEN ? (int)(n - c) : VF_LEN;
        const vf x = cell_load(row + c, left);
        cell_store(to + c, adds ? vf_fma(f, x, cell_load(to + c, left)) : vf_mul(f, x), left);
    }
}

static void additive_keys_backward(const struct nn_additive_gradient_work *work)
{
    for (int64_t t = 0; t < work->keys; t++) {
        const int64_t at = additive_row_of(work, t);
        if (work->d_k.data)
            additive_row_times(work->d_k.data + at * work->d_k.stride, work->u + t * work->inner, 1.0f, work->inner, 1);
        if (work->d_x.data)
            additive_row_times(work->d_x.data + at * work->d_x.stride, work->d_out, work->p[t], work->channels,
                               work->adds_to_x);
    }
}

#endif
