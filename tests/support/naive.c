/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention as one would write it down in f32: a row of scores, its maximum,
 * expf, the sum, the division, and the product with V, all in plain loops.
 *
 * It is the yardstick of accuracy: whoever uses the library instead of this
 * must not lose more than a factor of two (flash-attention's criterion). It
 * shares no arithmetic with the library: natural exponent, the scale applied
 * to the finished dot product, no blocks, no fused multiply-add.
 *
 * In bf16 or f16 a framework stores the scores, the masked scores and the
 * weights in that type between its steps, each of which works in f32.
 */
#include "oracle.h"

#include "dtype.h"

#include <math.h>

void naive_row(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_params *params,
               attn_dtype steps, int64_t b, int64_t h, int64_t i, int order, float *out, float *lse, float *weights)
{
    const int64_t tk = k->shape[2], dk = q->shape[3], dv = v->shape[3], g = h / (q->shape[1] / k->shape[1]);
    const float scale = (float)oracle_scale(params, dk);
    const float *query = (const float *)q->data + (dk ? tensor_offset(q, b, h, i, 0) : 0);
    float max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < tk; j++) {
        weights[j] = -INFINITY;
        if (!oracle_key_is_live(params, q->shape[2], tk, b, h, i, j))
            continue;
        const float *key = (const float *)k->data + (dk ? tensor_offset(k, b, g, j, 0) : 0);
        float dot = 0;
        for (int64_t c = 0; c < dk; c++) {
            const int64_t at = order & 2 ? dk - 1 - c : c;
            dot += query[at] * key[at];
        }
        weights[j] = dtype_round(steps, dtype_round(steps, dk ? scale * dot : 0) + oracle_bias(params, b, h, i, j));
        max = weights[j] > max ? weights[j] : max;
    }
    const float base = max == -INFINITY ? 0 : max;
    for (int64_t n = 0; n < tk; n++) {
        const int64_t j = order & 1 ? tk - 1 - n : n;
        weights[j] = expf(weights[j] - base);
        sum += weights[j];
    }
    *lse = base + logf(sum);
    for (int64_t c = 0; c < dv; c++)
        out[c] = 0;
    for (int64_t n = 0; n < tk; n++) {
        const int64_t j = order & 1 ? tk - 1 - n : n;
        weights[j] = dtype_round(steps, sum == 0 ? 0 : weights[j] / sum);
        if (!oracle_key_is_live(params, q->shape[2], tk, b, h, i, j))
            continue;
        const float *value = (const float *)v->data + (dv ? tensor_offset(v, b, g, j, 0) : 0);
        for (int64_t c = 0; c < dv; c++)
            out[c] += weights[j] * value[c];
    }
}
