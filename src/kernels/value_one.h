/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second product of one query and values that follow each other in memory
 * (score_one.h):
 *
 *     O[channel] += sum_key p[key] * V[key][channel]
 *
 * O stays in registers, a row is read from its first line to its last, and a word
 * of weights is broadcast. The order of a sum is that of the keys, as everywhere.
 */
#ifndef ATTN_VALUE_ONE_H
#define ATTN_VALUE_ONE_H

#include "kernels/rows.h"
#include "simd/words.h"

#if VF_LEN == 1
#define VALUES_OF_ONE NULL
#else
#define VALUES_OF_ONE values_of_one

/** Keys of word u, whose rows begin at row, and their weight. */
#if VF_PACK == 1
ATTN_INLINE void add_keys_of_word(const attn_dtype dtype, const int nw, const struct attn_row_run *v, const char *row,
                                  const float *p, int u, vf *acc)
{
    const int size = (int)attn_element_size(dtype);
    const vf weight = vf_set1(dtype == ATTN_I8 ? p[u] * v->scale[u * v->scale_stride] : p[u]);
    ATTN_UNROLL
    for (int w = 0; w < nw; w++) {
        acc[w] = vf_dot(row_load(dtype, row + w * VF_LEN * size), weight, acc[w]);
        ATTN_LOAD_IN_ORDER(row);
    }
}
#else
ATTN_INLINE void add_keys_of_word(const attn_dtype dtype, const int nw, const struct attn_row_run *v, const char *row,
                                  const float *p, int u, vf *acc)
{
    const int bytes = nw * VF_LEN * (int)attn_element_size(dtype);
    const vw weight = vw_set1((const char *)(p + u));
    vw words[ATTN_ONE_VECTORS];
    ATTN_UNROLL
    for (int w = 0; w < nw; w++) {
        words[w] = vw_of_first((const uint16_t *)(const void *)row + w * VF_LEN);
        ATTN_LOAD_IN_ORDER(row);
    }
    if (2 * u + 1 < v->n) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++) {
            words[w] = vw_add_second(words[w], (const uint16_t *)(const void *)(row + bytes) + w * VF_LEN);
            ATTN_LOAD_IN_ORDER(row);
        }
    }
    ATTN_UNROLL
    for (int w = 0; w < nw; w++)
        acc[w] = vf_dot(words[w], weight, acc[w]);
}
#endif

ATTN_INLINE void one_values(const attn_dtype dtype, const int nw, const struct attn_row_run *v, const float *p,
                            enum attn_accumulate mode, float alpha, float *o)
{
    vf acc[ATTN_ONE_VECTORS];
    ATTN_UNROLL
    for (int w = 0; w < nw; w++) {
        acc[w] = mode == ACCUMULATE_FIRST ? vf_zero() : vf_load(o + w * VF_LEN);
        if (mode == ACCUMULATE_RESCALE)
            acc[w] = vf_mul(acc[w], vf_set1(alpha));
    }
    const int words = (int)key_words(v->n);
    const ptrdiff_t bytes = VF_PACK * nw * VF_LEN * attn_element_size(dtype);
    const char *row = v->first;
#pragma GCC unroll 2
    for (int u = 0; u < words; u++, row += bytes)
        add_keys_of_word(dtype, nw, v, row, p, u, acc);
    ATTN_UNROLL
    for (int w = 0; w < nw; w++)
        vf_store(o + w * VF_LEN, acc[w]);
}

ATTN_INLINE void one_values_of(const attn_dtype dtype, const struct attn_row_run *v, const float *p, int64_t dv,
                               enum attn_accumulate mode, float alpha, float *o)
{
    ATTN_ONE_BY_WIDTH(dv, one_values, dtype, v, p, mode, alpha, o);
}

/** struct attn_value_kernels, values_of_one. */
static void values_of_one(const struct attn_row_run *v, const float *p, int64_t dv, enum attn_accumulate mode,
                          float alpha, float *o)
{
#if VF_PACK == 1
    if (v->dtype == ATTN_I8)
        one_values_of(ATTN_I8, v, p, dv, mode, alpha, o);
    else
        ATTN_BY_DTYPE(v->dtype, one_values_of, v, p, dv, mode, alpha, o);
#else
    one_values_of(ATTN_BF16, v, p, dv, mode, alpha, o);
#endif
}

#endif

#endif
