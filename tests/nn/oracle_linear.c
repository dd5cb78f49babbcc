/* SPDX-License-Identifier: Apache-2.0 */
/* y = activation(W x + b) + residual (linear.h). */
#include "real.h"

double ORACLE(oracle_dot)(int64_t n, const double *a, const double *b)
{
    real sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = oracle_backwards ? n - 1 - i : i;
        sum += (real)a[at] * (real)b[at];
    }
    return sum;
}

double ORACLE(oracle_activate)(attn_activation activation, double value)
{
    const real x = (real)value, root_half = (real)0.70710678118654752440, root_2_pi = (real)0.79788456080286535588;
    switch (activation) {
    case ATTN_ACTIVATION_RELU:
        return x < 0 ? 0 : x;
    case ATTN_ACTIVATION_GELU:
        return x * (1 + erf(x * root_half)) / 2;
    case ATTN_ACTIVATION_GELU_TANH:
        return x * (1 + tanh(root_2_pi * (x + (real)0.044715 * x * x * x))) / 2;
    case ATTN_ACTIVATION_SILU:
        return x / (1 + exp(-x));
    case ATTN_ACTIVATION_TANH:
        return tanh(x);
    case ATTN_ACTIVATION_SIGMOID:
        return sigmoid(x);
    case ATTN_ACTIVATION_NONE:
    default:
        return x;
    }
}

void ORACLE(oracle_linear)(const struct oracle_dense *dense, int64_t rows, const double *x, attn_activation activation,
                           const double *residual, double *y)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t n = 0; n < dense->out; n++) {
            real sum = (real)ORACLE(oracle_dot)(dense->in, x + r * dense->in, dense->w + n * dense->in);
            if (dense->b)
                sum += (real)dense->b[n];
            real result = (real)KEPT(ORACLE(oracle_activate)(activation, KEPT(sum)));
            if (residual)
                result += (real)residual[r * dense->out + n];
            y[r * dense->out + n] = KEPT(result);
        }
}
