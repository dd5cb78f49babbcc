/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of activations and gates. With y = f(x), and y = f(gate) up,
 *
 *     d_x = d_out f'(x);    d_up = d_out f(gate),    d_gate = d_out up f'(gate)
 *
 * f' is computed from x in forms whose terms have their digits wherever they are small, and that have a limit where x
 * has none: sigmoid' = s (1 - s) with 1 - s from the exponential, tanh' = 4 e / (1 + e)^2 with e = exp(-2 |x|), and a
 * factor x that is cut where the other factor is 0.
 *
 * Bodies are on rows of f32. Other types pass through chunks that stay in L1, for the same bits.
 */
#ifndef ATTN_NN_ACTIVATION_BACKWARD_H
#define ATTN_NN_ACTIVATION_BACKWARD_H

#include "nn/kernels/activation.h"

/** sigmoid x and 1 - sigmoid x. */
struct sigmoids {
    vf s, rest;
};

static inline struct sigmoids both_sigmoids(vf x)
{
    const vf e = vf_exp(vf_sub(vf_zero(), vf_abs(x)));
    const vf large = vf_div(vf_set1(1.0f), vf_add(vf_set1(1.0f), e)), small = vf_mul(e, large);
    const vm above = vf_gt(x, vf_zero());
    return (struct sigmoids){vf_select(above, large, small), vf_select(above, small, large)};
}

/** x, but not beyond -most and most. NaN stays. */
static inline vf within(vf x, float most)
{
    const vf below = vf_max(vf_set1(-most), vf_sub(vf_zero(), vf_abs(x)));
    return vf_select(vf_gt(x, vf_zero()), vf_sub(vf_zero(), below), below);
}

/** The derivative of an activation. */
ATTN_INLINE vf activated_slope(const attn_activation activation, vf x)
{
    const vf one = vf_set1(1.0f);
    switch (activation) {
    case ATTN_ACTIVATION_RELU: /* a NaN compares false and stays */
        return vf_select(vf_gt(x, vf_zero()), one, vf_select(vf_ge(vf_zero(), x), vf_zero(), x));
    case ATTN_ACTIVATION_GELU:
        return vf_gelu_slope(x);
    case ATTN_ACTIVATION_GELU_TANH: { /* x s(w) with w = 2 sqrt(2 / pi) (x + 0.044715 x^3); at 16 s is 1 */
        const vf y = within(x, 16.0f), square = vf_mul(y, y), root = vf_set1(1.5957691f);
        const vf w = vf_mul(vf_mul(root, y), vf_fma(vf_set1(0.044715f), square, one));
        const vf slope = vf_mul(root, vf_fma(vf_set1(0.134145f), square, one));
        const struct sigmoids of = both_sigmoids(w);
        return vf_fma(vf_mul(y, slope), vf_mul(of.s, of.rest), of.s);
    }
    case ATTN_ACTIVATION_SILU: { /* exp(-128) is 0 */
        const struct sigmoids of = both_sigmoids(x);
        return vf_fma(within(x, 128.0f), vf_mul(of.s, of.rest), of.s);
    }
    case ATTN_ACTIVATION_TANH: {
        const vf e = vf_exp(vf_mul(vf_set1(-2.0f), vf_abs(x))), sum = vf_add(one, e);
        return vf_div(vf_mul(vf_set1(4.0f), e), vf_mul(sum, sum));
    }
    case ATTN_ACTIVATION_SIGMOID: {
        const struct sigmoids of = both_sigmoids(x);
        return vf_mul(of.s, of.rest);
    }
    default:
        return one;
    }
}

/** Rows by way of chunks of floats, for a body on rows of f32. */
ATTN_INLINE void gradients_by_chunks(void (*const body)(const struct nn_gradient_work *),
                                     const struct nn_gradient_work *work)
{
    float buffers[5][NN_CHUNK];
    const struct attn_rows *from[] = {&work->x, &work->up, &work->d_out}, *to[] = {&work->d_x, &work->d_up};
    struct nn_gradient_work chunk = *work;
    struct attn_rows *const rows[] = {&chunk.x, &chunk.up, &chunk.d_out, &chunk.d_x, &chunk.d_up};
    for (int t = 0; t < 5; t++)
        if (rows[t]->data)
            *rows[t] = (struct attn_rows){buffers[t], 0, ATTN_F32, NULL, 0};
    chunk.rows = 1;
    for (int64_t r = 0; r < work->rows; r++)
        for (int64_t c = 0; c < work->n; c += NN_CHUNK) {
            chunk.n = work->n - c < NN_CHUNK ? work->n - c : NN_CHUNK;
            for (int t = 0; t < 3; t++)
                if (from[t]->data)
                    widen_chunk(buffers[t], from[t], r, c, chunk.n);
            body(&chunk);
            for (int t = 0; t < 2; t++)
                for (int64_t i = 0; to[t]->data && i < chunk.n; i += VF_LEN) {
                    const int left = chunk.n - i < VF_LEN ? (int)(chunk.n - i) : VF_LEN;
                    typed_store(to[t]->dtype, row_at(to[t], r), c + i, typed_load(ATTN_F32, buffers[3 + t], i, left),
                                left);
                }
        }
}

ATTN_INLINE void activate_backward_body(const attn_activation activation, const struct nn_gradient_work *work)
{
    for (int64_t r = 0; r < work->rows; r++) {
        const char *x = row_at(&work->x, r), *d_out = row_at(&work->d_out, r);
        char *d_x = row_at(&work->d_x, r);
        for (int64_t c = 0; c < work->n; c += VF_LEN) {
            const int left = work->n - c < VF_LEN ? (int)(work->n - c) : VF_LEN;
            const vf slope = activated_slope(activation, typed_load(ATTN_F32, x, c, left));
            typed_store(ATTN_F32, d_x, c, vf_mul(typed_load(ATTN_F32, d_out, c, left), slope), left);
        }
    }
}

static void activate_backward_f32(const struct nn_gradient_work *work)
{
    NN_BY_ACTIVATION(work->activation, activate_backward_body, work);
}

static void activate_backward_rows(const struct nn_gradient_work *work)
{
    if (work->x.dtype == ATTN_F32 && work->d_out.dtype == ATTN_F32 && work->d_x.dtype == ATTN_F32)
        activate_backward_f32(work);
    else
        gradients_by_chunks(activate_backward_f32, work);
}

ATTN_INLINE void gate_backward_body(const attn_activation activation, const struct nn_gradient_work *work)
{
    for (int64_t r = 0; r < work->rows; r++) {
        const char *gates = row_at(&work->x, r), *ups = row_at(&work->up, r), *d_outs = row_at(&work->d_out, r);
        for (int64_t c = 0; c < work->n; c += VF_LEN) {
            const int left = work->n - c < VF_LEN ? (int)(work->n - c) : VF_LEN;
            /* All three are read before either result is stored, which may replace any of them. */
            const vf gate = typed_load(ATTN_F32, gates, c, left), up = typed_load(ATTN_F32, ups, c, left);
            const vf d_out = typed_load(ATTN_F32, d_outs, c, left);
            if (work->d_x.data) {
                const vf slope = activated_slope(activation, gate);
                typed_store(ATTN_F32, row_at(&work->d_x, r), c, vf_mul(vf_mul(d_out, up), slope), left);
            }
            if (work->d_up.data)
                typed_store(ATTN_F32, row_at(&work->d_up, r), c, vf_mul(d_out, activated(activation, gate)), left);
        }
    }
}

static void gate_backward_f32(const struct nn_gradient_work *work)
{
    NN_BY_ACTIVATION(work->activation, gate_backward_body, work);
}

/** Whether rows are f32, or not wanted. */
static inline int is_f32_or_absent(const struct attn_rows *rows)
{
    return !rows->data || rows->dtype == ATTN_F32;
}

static void gate_backward_rows(const struct nn_gradient_work *work)
{
    if (work->x.dtype == ATTN_F32 && work->up.dtype == ATTN_F32 && work->d_out.dtype == ATTN_F32 &&
        is_f32_or_absent(&work->d_x) && is_f32_or_absent(&work->d_up))
        gate_backward_f32(work);
    else
        gradients_by_chunks(gate_backward_f32, work);
}

#endif
