/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activations of a vector, and the passes over rows that need nothing else.
 * Bodies are inlined with a constant activation; NN_BY_ACTIVATION calls them
 * with one that is known at run time.
 */
#ifndef ATTN_NN_ACTIVATION_H
#define ATTN_NN_ACTIVATION_H

#include "nn/kernels/gelu.h"
#include "nn/kernels/typed.h"

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
    switch (activation) {
    case ATTN_ACTIVATION_RELU: /* a NaN compares false and stays */
        return vf_select(vf_gt(vf_zero(), x), vf_zero(), x);
    case ATTN_ACTIVATION_GELU:
        return vf_gelu(x);
    case ATTN_ACTIVATION_GELU_TANH: {
        const vf cube = vf_mul(vf_mul(x, x), x);
        const vf twice = vf_mul(vf_set1(1.5957691f), vf_fma(vf_set1(0.044715f), cube, x));
        return vf_div(x, one_plus_exp_minus(twice)); /* (1 + tanh a) / 2 = 1 / (1 + exp(-2 a)) */
    }
    case ATTN_ACTIVATION_SILU:
        return vf_div(x, one_plus_exp_minus(x));
    case ATTN_ACTIVATION_TANH:
        return vf_tanh(x);
    case ATTN_ACTIVATION_SIGMOID:
        return vf_div(vf_set1(1.0f), one_plus_exp_minus(x));
    default:
        return x;
    }
}

/*
 * A mixture of types is brought to f32 and back here, so that each activation is compiled for f32 and bf16 only: rows
 * pass through chunks that stay in L1.
 */
#define NN_CHUNK 512

/** Elements c.. of row r as floats: n of them, at most NN_CHUNK. */
static void widen_chunk(float *to, const struct attn_rows *rows, int64_t r, int64_t c, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF_LEN) {
        const int left = n - i < VF_LEN ? (int)(n - i) : VF_LEN;
        typed_store(ATTN_F32, to, i, typed_load(rows->dtype, row_at(rows, r), c + i, left), left);
    }
}

/** Rows by way of chunks of floats, for a body on rows of f32. */
ATTN_INLINE void by_chunks(void (*const body)(const struct nn_row_work *), const struct nn_row_work *work)
{
    float x[NN_CHUNK], up[NN_CHUNK];
    struct nn_row_work chunk = *work;
    chunk.x = chunk.out = (struct attn_rows){x, 0, ATTN_F32, NULL, 0};
    chunk.up = (struct attn_rows){up, 0, ATTN_F32, NULL, 0};
    chunk.rows = 1;
    for (int64_t r = 0; r < work->rows; r++)
        for (int64_t c = 0; c < work->n; c += NN_CHUNK) {
            chunk.n = work->n - c < NN_CHUNK ? work->n - c : NN_CHUNK;
            widen_chunk(x, &work->x, r, c, chunk.n);
            if (work->up.data)
                widen_chunk(up, &work->up, r, c, chunk.n);
            body(&chunk);
            for (int64_t i = 0; i < chunk.n; i += VF_LEN) {
                const int left = chunk.n - i < VF_LEN ? (int)(chunk.n - i) : VF_LEN;
                typed_store(work->out.dtype, row_at(&work->out, r), c + i, typed_load(ATTN_F32, x, i, left), left);
            }
        }
}

ATTN_INLINE void activate_body(const attn_activation activation, const attn_dtype dtype, const struct nn_row_work *work)
{
    for (int64_t r = 0; r < work->rows; r++) {
        const char *x = row_at(&work->x, r);
        char *out = row_at(&work->out, r);
        int64_t c = 0;
        for (; c + VF_LEN <= work->n; c += VF_LEN)
            typed_store(dtype, out, c, activated(activation, typed_load(dtype, x, c, VF_LEN)), VF_LEN);
        if (c < work->n) {
            const int rest = (int)(work->n - c);
            typed_store(dtype, out, c, activated(activation, typed_load(dtype, x, c, rest)), rest);
        }
    }
}

static void activate_f32(const struct nn_row_work *work)
{
    NN_BY_ACTIVATION(work->activation, activate_body, ATTN_F32, work);
}

static void activate_rows(const struct nn_row_work *work)
{
    if (work->x.dtype == ATTN_F32 && work->out.dtype == ATTN_F32)
        activate_f32(work);
    else if (work->x.dtype == ATTN_BF16 && work->out.dtype == ATTN_BF16)
        NN_BY_ACTIVATION(work->activation, activate_body, ATTN_BF16, work);
    else
        by_chunks(activate_f32, work);
}

ATTN_INLINE void gate_body(const attn_activation activation, const attn_dtype dtype, const struct nn_row_work *work)
{
    for (int64_t r = 0; r < work->rows; r++) {
        const char *x = row_at(&work->x, r), *up = row_at(&work->up, r);
        char *out = row_at(&work->out, r);
        int64_t c = 0;
        for (; c + VF_LEN <= work->n; c += VF_LEN) {
            const vf gate = activated(activation, typed_load(dtype, x, c, VF_LEN));
            typed_store(dtype, out, c, vf_mul(gate, typed_load(dtype, up, c, VF_LEN)), VF_LEN);
        }
        if (c < work->n) {
            const int rest = (int)(work->n - c);
            const vf gate = activated(activation, typed_load(dtype, x, c, rest));
            typed_store(dtype, out, c, vf_mul(gate, typed_load(dtype, up, c, rest)), rest);
        }
    }
}

static void gate_f32(const struct nn_row_work *work)
{
    NN_BY_ACTIVATION(work->activation, gate_body, ATTN_F32, work);
}

static void gate_rows(const struct nn_row_work *work)
{
    const attn_dtype x = work->x.dtype, up = work->up.dtype, out = work->out.dtype;
    if (x == ATTN_F32 && up == ATTN_F32 && out == ATTN_F32)
        gate_f32(work);
    else if (x == ATTN_BF16 && up == ATTN_BF16 && out == ATTN_BF16)
        NN_BY_ACTIVATION(work->activation, gate_body, ATTN_BF16, work);
    else
        by_chunks(gate_f32, work);
}

#endif
