/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backward passes of recurrent cells, for one row. An LSTM's: first the gates and c of the
 * forward pass, again: all tokens' products are there, as h is known. Then the
 * gradients of the sums of the gates, step by step from the last. The formulas
 * are those of attn_lstm_backward(); what stays between the two is the gates
 * after their functions, from which the slopes of these follow:
 * sigmoid' = s (1 - s), tanh' = (1 - t) (1 + t).
 *
 * A GRU's, of one step, from the sums of its gates (the names are those of cell.h):
 *
 *     d_n = d_h' (1 - z) (1 - n²),  d_z = d_h' (h - n) z (1 - z),  d_r = d_n h_n r (1 - r)
 *     of what x gives d_r, d_z, d_n;  of what h gives d_r, d_z, d_n r;  past the gates d_h' z
 */
#ifndef ATTN_NN_CELL_BACKWARD_H
#define ATTN_NN_CELL_BACKWARD_H

#include "nn/kernels/cell.h"

ATTN_INLINE vf sigmoid_slope(vf s)
{
    return vf_mul(s, vf_sub(vf_set1(1.0f), s));
}

ATTN_INLINE vf tanh_slope(vf t)
{
    return vf_mul(vf_sub(vf_set1(1.0f), t), vf_add(vf_set1(1.0f), t));
}

/** Replaces the sum of a gate by the gate. */
ATTN_INLINE vf take_gate(const struct nn_cell_gradient_work *work, const attn_activation activation, int gate,
                         int64_t j, int left)
{
    float *at = work->gates + gate * work->n + j;
    const vf value =
        activated(activation, vf_add(cell_load(at, left), cell_load(work->bias + gate * work->n + j, left)));
    cell_store(at, value, left);
    return value;
}

static void lstm_gates(const struct nn_cell_gradient_work *work)
{
    for (int64_t j = 0; j < work->n; j += VF_LEN) {
        const int left = work->n - j < VF_LEN ? (int)(work->n - j) : VF_LEN;
        const vf input = take_gate(work, ATTN_ACTIVATION_SIGMOID, 0, j, left);
        const vf forget = take_gate(work, ATTN_ACTIVATION_SIGMOID, 1, j, left);
        const vf fresh = take_gate(work, ATTN_ACTIVATION_TANH, 2, j, left);
        take_gate(work, ATTN_ACTIVATION_SIGMOID, 3, j, left);
        cell_store(work->c + j, vf_fma(forget, cell_load(work->c_before + j, left), vf_mul(input, fresh)), left);
    }
}

ATTN_INLINE void lstm_cell_backward_body(const attn_dtype of_d_out, const attn_dtype unused,
                                         const struct nn_cell_gradient_work *work)
{
    (void)unused;
    float *input_at = work->gates, *forget_at = work->gates + work->n, *fresh_at = work->gates + 2 * work->n,
          *output_at = work->gates + 3 * work->n;
    for (int64_t j = 0; j < work->n; j += VF_LEN) {
        const int left = work->n - j < VF_LEN ? (int)(work->n - j) : VF_LEN;
        const vf input = cell_load(input_at + j, left), forget = cell_load(forget_at + j, left);
        const vf fresh = cell_load(fresh_at + j, left), output = cell_load(output_at + j, left);
        const vf t = activated(ATTN_ACTIVATION_TANH, cell_load(work->c + j, left));
        vf d_h = cell_load(work->d_h + j, left);
        if (work->d_out.data)
            d_h = vf_add(d_h, typed_load(of_d_out, work->d_out.data, j, left));
        const vf d_c = vf_fma(vf_mul(d_h, output), tanh_slope(t), cell_load(work->d_c + j, left));
        cell_store(input_at + j, vf_mul(vf_mul(d_c, fresh), sigmoid_slope(input)), left);
        cell_store(forget_at + j, vf_mul(vf_mul(d_c, cell_load(work->c_before + j, left)), sigmoid_slope(forget)),
                   left);
        cell_store(fresh_at + j, vf_mul(vf_mul(d_c, input), tanh_slope(fresh)), left);
        cell_store(output_at + j, vf_mul(vf_mul(d_h, t), sigmoid_slope(output)), left);
        cell_store(work->d_c + j, vf_mul(d_c, forget), left);
    }
}

static void lstm_cell_backward(const struct nn_cell_gradient_work *work)
{
    NN_BY_TYPES(work->d_out.dtype, work->d_out.dtype, lstm_cell_backward_body, work);
}

/** The sum of a gate from one of its two sides. */
ATTN_INLINE vf gru_sum(const float *sums, const float *bias, int64_t at, int left)
{
    return vf_add(cell_load(sums + at, left), cell_load(bias + at, left));
}

static void gru_cell_backward(const struct nn_gru_gradient_work *work)
{
    const int64_t n = work->n;
    for (int64_t j = 0; j < n; j += VF_LEN) {
        const int left = n - j < VF_LEN ? (int)(n - j) : VF_LEN;
        const int64_t at[3] = {j, n + j, 2 * n + j};
        const vf from_h = gru_sum(work->h, work->bias_h, at[2], left);
        const vf reset = activated(ATTN_ACTIVATION_SIGMOID, vf_add(gru_sum(work->x, work->bias_x, at[0], left),
                                                                   gru_sum(work->h, work->bias_h, at[0], left)));
        const vf update = activated(ATTN_ACTIVATION_SIGMOID, vf_add(gru_sum(work->x, work->bias_x, at[1], left),
                                                                    gru_sum(work->h, work->bias_h, at[1], left)));
        const vf fresh =
            activated(ATTN_ACTIVATION_TANH, vf_fma(reset, from_h, gru_sum(work->x, work->bias_x, at[2], left)));
        const vf d = cell_load(work->d_state + j, left), old = cell_load(work->state + j, left);
        const vf d_fresh = vf_mul(vf_mul(d, vf_sub(vf_set1(1.0f), update)), tanh_slope(fresh));
        const vf d_update = vf_mul(vf_mul(d, vf_sub(old, fresh)), sigmoid_slope(update));
        const vf d_reset = vf_mul(vf_mul(d_fresh, from_h), sigmoid_slope(reset));
        cell_store(work->x + at[0], d_reset, left);
        cell_store(work->h + at[0], d_reset, left);
        cell_store(work->x + at[1], d_update, left);
        cell_store(work->h + at[1], d_update, left);
        cell_store(work->x + at[2], d_fresh, left);
        cell_store(work->h + at[2], vf_mul(d_fresh, reset), left);
        cell_store(work->d_state + j, vf_mul(d, update), left);
    }
}

#endif
