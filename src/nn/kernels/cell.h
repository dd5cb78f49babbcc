/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a recurrent cell does to the sums of its gates, for one row. The products
 * with the weights are done; what is left are the functions of four (LSTM) or
 * three (GRU) gates, element by element:
 *
 *     LSTM    c' = sigmoid(f) c + sigmoid(i) tanh(g),  h' = sigmoid(o) tanh(c')
 *     GRU     n = tanh(x_n + sigmoid(x_r + h_r) h_n),  z = sigmoid(x_z + h_z),  h' = (1 - z) n + z h
 *
 * (Hochreiter & Schmidhuber 1997 with the forget gate of Gers et al. 2000; Cho et
 * al. 2014.) The GRU's new gate multiplies only what comes from h, so the two
 * products stay apart until here.
 */
#ifndef ATTN_NN_CELL_H
#define ATTN_NN_CELL_H

#include "nn/kernels/activation.h"

ATTN_INLINE vf cell_load(const float *p, int n)
{
    return n < VF_LEN ? vf_load_tail(p, n) : vf_load(p);
}

ATTN_INLINE void cell_store(float *p, vf a, int n)
{
    if (n < VF_LEN)
        vf_store_tail(p, a, n);
    else
        vf_store(p, a);
}

ATTN_INLINE void lstm_body(const attn_dtype state, const attn_dtype out, const struct nn_cell_work *work)
{
    const float *gates = work->x;
    for (int64_t j = 0; j < work->n; j += VF_LEN) {
        const int left = work->n - j < VF_LEN ? (int)(work->n - j) : VF_LEN;
        const vf input = activated(ATTN_ACTIVATION_SIGMOID, cell_load(gates + j, left));
        const vf forget = activated(ATTN_ACTIVATION_SIGMOID, cell_load(gates + work->n + j, left));
        const vf fresh = activated(ATTN_ACTIVATION_TANH, cell_load(gates + 2 * work->n + j, left));
        const vf output = activated(ATTN_ACTIVATION_SIGMOID, cell_load(gates + 3 * work->n + j, left));
        const vf c = vf_fma(forget, cell_load(work->c + j, left), vf_mul(input, fresh));
        const vf h = vf_mul(output, activated(ATTN_ACTIVATION_TANH, c));
        cell_store(work->c + j, c, left);
        typed_store(state, work->state, j, h, left);
        typed_store(out, work->out, j, h, left);
    }
}

static void lstm_cell(const struct nn_cell_work *work)
{
    NN_BY_TYPES(work->state_dtype, work->out_dtype, lstm_body, work);
}

static void gru_cell(const struct nn_cell_work *work)
{
    const int64_t n = work->n;
    float *state = work->state;
    for (int64_t j = 0; j < n; j += VF_LEN) {
        const int left = n - j < VF_LEN ? (int)(n - j) : VF_LEN;
        const vf reset =
            activated(ATTN_ACTIVATION_SIGMOID, vf_add(cell_load(work->x + j, left), cell_load(work->h + j, left)));
        const vf update = activated(ATTN_ACTIVATION_SIGMOID,
                                    vf_add(cell_load(work->x + n + j, left), cell_load(work->h + n + j, left)));
        const vf fresh = activated(ATTN_ACTIVATION_TANH, vf_fma(reset, cell_load(work->h + 2 * n + j, left),
                                                                cell_load(work->x + 2 * n + j, left)));
        /* fresh + update (old - fresh) */
        const vf old = cell_load(state + j, left);
        cell_store(state + j, vf_fma(update, vf_sub(old, fresh), fresh), left);
    }
}

#endif
