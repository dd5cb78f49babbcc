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

#include "kernels/int4_pairs.h"
#include "kernels/value_few.h"
#include "simd/words.h"

#if VF_LEN == 1
#define VALUES_OF_ONE NULL
#else
#define VALUES_OF_ONE values_of_one

/** Keys of word u, whose rows begin at row, and their weight. */
#if VF_PACK == 1
ATTN_INLINE void add_keys_of_word(const attn_dtype dtype, const int free, const int nw, const struct attn_row_run *v,
                                  const char *row, const float *p, int u, vf *acc)
{
    const int brings = scales_weights(dtype, free), group = ATTN_I4_GROUP / VF_LEN;
    const int whole = dtype == ATTN_I4 && nw % group == 0;
    const float *const scales = attn_is_quantised(dtype) ? v->scale + u * v->scale_stride : NULL;
    const vf weight = vf_set1(brings ? p[u] * *scales : p[u]);
    vf of_group[ATTN_I4_GROUP / VF_LEN];
    ATTN_UNROLL
    for (int w = 0; w < nw; w++) {
        if (whole && w % group == 0)
            stored_group(row, w * VF_LEN, scales, of_group);
        const vf elements = whole    ? of_group[w % group]
                            : brings ? stored_numbers(dtype, row, w * VF_LEN)
                                     : stored_load(dtype, row, w * VF_LEN, scales);
        acc[w] = vf_dot(elements, weight, acc[w]);
        ATTN_LOAD_IN_ORDER(row);
    }
}
#else
ATTN_INLINE void add_keys_of_word(const attn_dtype dtype, const int free, const int nw, const struct attn_row_run *v,
                                  const char *row, const float *p, int u, vf *acc)
{
    (void)free;
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

#if VF_PACK == 1
/** Adds all keys of E4M3, taken out of words where they lie: value_few.h. Returns 0, and sums of nothing, if a number
 * is not finite. */
ATTN_INLINE int add_f8_keys(const int free, const int nw, const struct attn_row_run *v, const float *p, vf *acc)
{
    const ptrdiff_t bytes = nw * VF_LEN;
    const char *row = v->first;
    const float *scale = v->scale;
    vu seen = vu_set1(0);
    ATTN_UNROLL
    for (int w = 0; w < nw; w += 4)
        to_bytes(acc + w);
    for (int u = 0; u < v->n; u++, row += bytes, scale += v->scale_stride) {
        const vf weight = vf_set1(free ? p[u] * *scale : p[u]);
        ATTN_UNROLL
        for (int w = 0; w < nw; w += 4) {
            const vu words = vu_load(row + w * VF_LEN);
            seen = note_nan(seen, words);
            ATTN_LOAD_IN_ORDER(row);
            ATTN_UNROLL
            for (int m = 0; m < 4; m++) {
                const vf number = narrow_f8(words, m);
                acc[w + m] = vf_dot(free ? number : vf_mul(number, vf_set1(*scale)), weight, acc[w + m]);
            }
        }
    }
    ATTN_UNROLL
    for (int w = 0; w < nw; w += 4)
        from_bytes(acc + w);
    return words_are_finite(seen);
}
#endif

/** What O has, where there is something, for the weights that follow. */
ATTN_INLINE void load_sums(const int nw, enum attn_accumulate mode, float alpha, const float *o, vf *acc)
{
    ATTN_UNROLL
    for (int w = 0; w < nw; w++) {
        acc[w] = mode == ACCUMULATE_FIRST ? vf_zero() : vf_load(o + w * VF_LEN);
        if (mode == ACCUMULATE_RESCALE)
            acc[w] = vf_mul(acc[w], vf_set1(alpha));
    }
}

ATTN_INLINE void one_values(const attn_dtype dtype, const int nw, const int free, const struct attn_row_run *v,
                            const float *p, enum attn_accumulate mode, float alpha, float *o)
{
    vf acc[ATTN_ONE_VECTORS];
    int added = 0;
    load_sums(nw, mode, alpha, o, acc);
#if VF_PACK == 1
    if (dtype == ATTN_F8_E4M3 && nw % 4 == 0 && keeps_denormals()) {
        added = add_f8_keys(free, nw, v, p, acc);
        if (!added)
            load_sums(nw, mode, alpha, o, acc);
    }
#endif
    const int words = added ? 0 : (int)key_words(v->n);
    const ptrdiff_t bytes = VF_PACK * (ptrdiff_t)attn_row_bytes(dtype, nw * VF_LEN);
    const char *row = v->first;
#pragma GCC unroll 2
    for (int u = 0; u < words; u++, row += bytes)
        add_keys_of_word(dtype, free, nw, v, row, p, u, acc);
    ATTN_UNROLL
    for (int w = 0; w < nw; w++)
        vf_store(o + w * VF_LEN, acc[w]);
}

ATTN_INLINE void one_values_of(const attn_dtype dtype, const int free, const struct attn_row_run *v, const float *p,
                               int64_t dv, enum attn_accumulate mode, float alpha, float *o)
{
    ATTN_ONE_BY_WIDTH(dv, one_values, dtype, free, v, p, mode, alpha, o);
}

#ifdef VW_INT4
/** Two vectors are a group. */
ATTN_INLINE void one_int4_values(const attn_dtype dtype, const int nw, const struct attn_row_run *v, const float *p,
                                 enum attn_accumulate mode, float alpha, float *o)
{
    (void)dtype;
    int4_one_values(nw / 2, v, p, mode, alpha, o);
}
#endif

/** struct attn_value_kernels, values_of_one. */
static void values_of_one(const struct attn_row_run *v, const float *p, int free, int64_t dv, enum attn_accumulate mode,
                          float alpha, float *o)
{
#if VF_PACK == 1
    if (free && v->dtype == ATTN_I8)
        one_values_of(ATTN_I8, 1, v, p, dv, mode, alpha, o);
    else if (free && v->dtype == ATTN_F8_E4M3)
        one_values_of(ATTN_F8_E4M3, 1, v, p, dv, mode, alpha, o);
    else
        ATTN_BY_STORED(v->dtype, one_values_of, 0, v, p, dv, mode, alpha, o);
#else
    (void)free;
#ifdef VW_INT4
    if (v->dtype == ATTN_I4) {
        ATTN_ONE_BY_WIDTH(dv, one_int4_values, ATTN_I4, v, p, mode, alpha, o);
        return;
    }
#endif
    one_values_of(ATTN_BF16, 0, v, p, dv, mode, alpha, o);
#endif
}

#endif

#endif
