/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activations of a vector, and the passes over rows that need nothing else.
 * Bodies are inlined with a constant activation; NN_BY_ACTIVATION calls them
 * with one that is known at run time.
 */
#ifndef ATTN_NN_ACTIVATION_H
#define ATTN_NN_ACTIVATION_H

#include "kernels/width.h"
#include "nn/kernels/nn_kernels.h"

#define NN_BY_ACTIVATION(activation, body, ...)                                                                        \
    do {                                                                                                               \
        switch (activation) {                                                                                          \
        case ATTN_ACTIVATION_NONE:                                                                                     \
            body(ATTN_ACTIVATION_NONE, __VA_ARGS__);                                                                   \
            break;                                                                                                     \
        case ATTN_ACTIVATION_RELU:                                                                                     \
            body(ATTN_ACTIVATION_RELU, __VA_ARGS__);                                                                   \
            break;                                                                                                     \
        case ATTN_ACTIVATION_GELU:                                                                                     \
            body(ATTN_ACTIVATION_GELU, __VA_ARGS__);                                                                   \
            break;                                                                                                     \
        case ATTN_ACTIVATION_GELU_TANH:                                                                                \
            body(ATTN_ACTIVATION_GELU_TANH, __VA_ARGS__);                                                              \
            break;                                                                                                     \
        case ATTN_ACTIVATION_SILU:                                                                                     \
            body(ATTN_ACTIVATION_SILU, __VA_ARGS__);                                                                   \
            break;                                                                                                     \
        case ATTN_ACTIVATION_TANH:                                                                                     \
            body(ATTN_ACTIVATION_TANH, __VA_ARGS__);                                                                   \
            break;                                                                                                     \
        case ATTN_ACTIVATION_SIGMOID:                                                                                  \
            body(ATTN_ACTIVATION_SIGMOID, __VA_ARGS__);                                                                \
            break;                                                                                                     \
        }                                                                                                              \
    } while (0)

/** 1 + e^-x: what sigmoid and SiLU divide by. */
static inline vf one_plus_exp_minus(vf x)
{
    return vf_add(vf_set1(1.0f), vf_exp(vf_sub(vf_zero(), x)));
}

ATTN_INLINE vf activated(const attn_activation activation, vf x)
{
    const vf half = vf_mul(vf_set1(0.5f), x), one = vf_set1(1.0f);
    switch (activation) {
    case ATTN_ACTIVATION_RELU: /* a NaN compares false and stays */
        return vf_select(vf_gt(vf_zero(), x), vf_zero(), x);
    case ATTN_ACTIVATION_GELU:
        return vf_fma(half, vf_erf(vf_mul(x, vf_set1(0.70710678f))), half);
    case ATTN_ACTIVATION_GELU_TANH: {
        const vf cube = vf_mul(vf_mul(x, x), x);
        const vf inner = vf_mul(vf_set1(0.79788456f), vf_fma(vf_set1(0.044715f), cube, x));
        return vf_mul(half, vf_add(one, vf_tanh(inner)));
    }
    case ATTN_ACTIVATION_SILU:
        return vf_div(x, one_plus_exp_minus(x));
    case ATTN_ACTIVATION_TANH:
        return vf_tanh(x);
    case ATTN_ACTIVATION_SIGMOID:
        return vf_div(one, one_plus_exp_minus(x));
    default:
        return x;
    }
}

ATTN_INLINE void activate_body(const attn_activation activation, const struct nn_row_work *work)
{
    for (int64_t r = 0; r < work->rows; r++) {
        const float *x = work->x.data + r * work->x.stride;
        float *out = work->out.data + r * work->out.stride;
        int64_t c = 0;
        for (; c + VF_LEN <= work->n; c += VF_LEN)
            vf_store(out + c, activated(activation, vf_load(x + c)));
        if (c < work->n) {
            const int rest = (int)(work->n - c);
            vf_store_tail(out + c, activated(activation, vf_load_tail(x + c, rest)), rest);
        }
    }
}

static void activate_rows(const struct nn_row_work *work)
{
    NN_BY_ACTIVATION(work->activation, activate_body, work);
}

ATTN_INLINE void gate_body(const attn_activation activation, const struct nn_row_work *work)
{
    for (int64_t r = 0; r < work->rows; r++) {
        const float *x = work->x.data + r * work->x.stride, *up = work->up.data + r * work->up.stride;
        float *out = work->out.data + r * work->out.stride;
        int64_t c = 0;
        for (; c + VF_LEN <= work->n; c += VF_LEN)
            vf_store(out + c, vf_mul(activated(activation, vf_load(x + c)), vf_load(up + c)));
        if (c < work->n) {
            const int rest = (int)(work->n - c);
            const vf gate = activated(activation, vf_load_tail(x + c, rest));
            vf_store_tail(out + c, vf_mul(gate, vf_load_tail(up + c, rest)), rest);
        }
    }
}

static void gate_rows(const struct nn_row_work *work)
{
    NN_BY_ACTIVATION(work->activation, gate_body, work);
}

#endif
