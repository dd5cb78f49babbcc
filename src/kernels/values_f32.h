/* SPDX-License-Identifier: Apache-2.0 */
/*
 * P V in single floats: V where it lies or, when it is bf16 or f16, widened
 * once per block, and weights in the place of their scores.
 */
#ifndef ATTN_VALUES_H
#define ATTN_VALUES_H

#include "kernels/dropout.h"
#include "kernels/rows.h"
#include "kernels/softmax.h"
#include "kernels/value_few.h"
#include "kernels/value_side.h"
#include "kernels/value_rows.h"
#include "kernels/value_tile.h"

static void pack_values(float *dst, const struct attn_rows *src, int n, int64_t dv)
{
    widen_stored(dst, src, n, dv);
}

/** Exponentials of the first ends[v] rows of S in vector v; those of vectors before first end where they ended. */
ATTN_INLINE void weights_body(const int nv, const int raw, const float *m, const int *ends, const float *factor,
                              float *s, float *l)
{
    const ptrdiff_t stride = nv * VF_LEN;
    vf base[VF_STRIP], sum[VF_STRIP];
    ATTN_UNROLL
    for (int v = 0; v < nv; v++) {
        base[v] = softmax_base(vf_load(m + v * VF_LEN));
        sum[v] = vf_zero();
    }
    int j = 0;
    ATTN_UNROLL
    for (int first = 0; first < nv; first++) { /* along the diagonal the later vectors see more keys */
        for (; j < ends[first]; j++) {
            ATTN_UNROLL
            for (int v = first; v < nv; v++) {
                float *at = s + j * stride + v * VF_LEN;
                const vf score = raw ? vf_mul(vf_load(at), vf_load(factor + v * VF_LEN)) : vf_load(at);
                const vf p = vf_exp2(vf_sub(score, base[v]));
                vf_store(at, p);
                sum[v] = vf_add(sum[v], p);
            }
        }
    }
    add_tile(nv, sum, l);
}

static void make_weights(int nv, const float *m, const int *ends, int n, const float *factor, float *s, float *l)
{
    (void)n;
    if (factor)
        ATTN_BY_WIDTH(nv, weights_body, 1, m, ends, factor, s, l);
    else
        ATTN_BY_WIDTH(nv, weights_body, 0, m, ends, factor, s, l);
}

#if VF_LEN == 1
#define WEIGHTS_OF_FEW NULL
#define WEIGHTS_OF_ONE NULL
#else
#define WEIGHTS_OF_FEW weights_of_few

#define FEW_WEIGHTS    (FEW < ATTN_FEW_WEIGHTS ? FEW : ATTN_FEW_WEIGHTS)

/** Weights of VF_LEN keys, which become the lanes while they are made. */
ATTN_INLINE void few_weights(const int raw, int rows, const float *factor, const vf *base, float *s, vf *sum)
{
    vf a[VF_LEN];
    ATTN_UNROLL
    for (int j = 0; j < VF_LEN; j++)
        a[j] = vf_load(s + j * VF_LEN);
#if VF_LEN == 4
    vf_transpose(a);
#else
    vf_transpose_to4(a);
#endif
    ATTN_UNROLL
    for (int r = 0; r < FEW_WEIGHTS; r++)
        if (r < rows)
            a[r] = vf_exp2(vf_sub(raw ? vf_mul(a[r], vf_set1(factor[r])) : a[r], base[r]));
#if VF_LEN == 4
    vf_transpose(a);
#else
    vf_transpose_from4(a);
#endif
    ATTN_UNROLL
    for (int j = 0; j < VF_LEN; j++) {
        vf_store(s + j * VF_LEN, a[j]);
        *sum = vf_add(*sum, a[j]);
    }
}

/** struct attn_value_kernels, weights_of_few. */
static void weights_of_few(int rows, const float *m, int n, const float *factor, float *s, float *l)
{
    const vf lanes = softmax_base(vf_load(m));
    float lane[VF_LEN];
    vf base[FEW_WEIGHTS], sum = vf_zero();
    vf_store(lane, lanes);
    for (int r = 0; r < FEW_WEIGHTS; r++)
        base[r] = vf_set1(lane[r]);
    int j = 0;
    for (; j + VF_LEN <= n; j += VF_LEN) {
        if (factor)
            few_weights(1, rows, factor, base, s + j * VF_LEN, &sum);
        else
            few_weights(0, rows, NULL, base, s + j * VF_LEN, &sum);
    }
    for (; j < n; j++) {
        float *const at = s + j * VF_LEN;
        const vf score = factor ? vf_mul(vf_load(at), vf_load(factor)) : vf_load(at);
        const vf p = vf_exp2(vf_sub(score, lanes));
        vf_store(at, p);
        sum = vf_add(sum, p);
    }
    add_tile(1, &sum, l);
}
#endif

#if VF_LEN > 1
#define WEIGHTS_OF_ONE weights_of_one

/** struct attn_value_kernels, weights_of_one: keys are the lanes, but l is summed key by key, as in a lane. */
static void weights_of_one(float m, int n, float factor, float *s, float *l)
{
    const vf base = softmax_base(vf_set1(m)), f = vf_set1(factor);
    float sum = 0.0f;
    for (int j = 0; j < n; j += VF_LEN) {
        const int there = n - j < VF_LEN ? n - j : VF_LEN;
        const vf scores = there == VF_LEN ? vf_load(s + j) : vf_load_tail(s + j, there);
        const vf p = vf_exp2(vf_sub(vf_mul(scores, f), base));
        if (there == VF_LEN)
            vf_store(s + j, p);
        else
            vf_store_tail(s + j, p, there);
        for (int i = 0; i < there; i++)
            sum += s[j + i];
    }
    *l += sum;
}
#endif

static void drop_weights(const struct attn_drop *drop, int nv, int n, float *p)
{
    drop_words(1, drop, nv, n, p);
}

static const struct attn_value_kernels value_kernels = {.name = "f32",
                                                        .keys_per_word = VF_PACK,
                                                        .pack_values = pack_values,
                                                        .values_of_few = VALUES_OF_FEW,
                                                        .weights = make_weights,
                                                        .weights_of_few = WEIGHTS_OF_FEW,
                                                        .weights_of_one = WEIGHTS_OF_ONE,
                                                        .values_side_by_side = VALUES_SIDE_BY_SIDE,
                                                        .drop = drop_weights,
                                                        .values = value_tile,
                                                        .values_to_rows = values_to_rows,
                                                        .finite = values_finite,
                                                        .values_seen = values_seen};

#endif
