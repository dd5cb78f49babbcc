/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scores of one query against keys that follow each other in memory: what a
 * decoder without grouped heads does half of its time.
 *
 *     free     s[key] = sum over lanes of sum_c q[c] * K[key][c]
 *     ordered  s[key] = sum_c q[c] * K[key][c], from the first channel to the last
 *
 * Time is that of reading K. A processor that fetches ahead does that best for lines
 * which one loop asks for in their order, so a row is read from its first line to its
 * last before the next one, and a score is one float. Where sums are free, lanes are
 * channels, and the query stays in registers. Ordered ones have keys as lanes: VF_LEN
 * rows are copied to the nearest cache as words, in their order, and turned there;
 * numbers of 8 and 4 bits as they lie, like in score_few.h. (score_free.h and
 * score_few.h take several queries and rows anywhere, have a lane for each query, and
 * name the rows that are wanted next.) The order of a sum is that of theirs, so the
 * bits are the same.
 */
#ifndef ATTN_SCORE_ONE_H
#define ATTN_SCORE_ONE_H

#include "kernels/int4_pairs.h"
#include "kernels/score_few.h"
#include "simd/words.h"

#include <math.h>
#include <string.h>

#if VF_LEN == 1 || defined(ATTN_SCORE_PRODUCTS)
#define SCORES_OF_ONE  NULL
#define ORDERED_OF_ONE NULL
#else
#define SCORES_OF_ONE  scores_of_one
#define ORDERED_OF_ONE ordered_of_one

/** Vector w of a row's words, nw vectors long. */
ATTN_INLINE vq one_words(const attn_dtype dtype, const char *row, const int w)
{
#if VS_PACK == 1
    return row_load(dtype, row + w * VF_LEN * attn_element_size(dtype));
#else
    (void)dtype;
    return vw_load(row + w * VF_LEN * ATTN_WORD);
#endif
}

/** The sums of keys j..j+there-1: VF_LEN or, at the end, less; behind them are 0. */
ATTN_INLINE vf one_sums(const attn_dtype dtype, const int nw, const struct attn_row_run *k, const vq *q, int j,
                        int there)
{
    const ptrdiff_t bytes = nw * VF_LEN * (VS_PACK == 1 ? attn_element_size(dtype) : ATTN_WORD);
    const char *row = k->first + j * bytes;
    float parts[VF_LEN][VF_LEN] __attribute__((aligned(ATTN_ALIGN))), scales[VF_LEN];
    vf lanes[VF_LEN];
#pragma GCC unroll 2
    for (int i = 0; i < there; i++, row += bytes) {
        vs acc = vs_zero();
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            acc = vs_dot(one_words(dtype, row, w), q[w], acc);
        vf_store(parts[i], acc);
        if (dtype == ATTN_I8)
            scales[i] = k->scale[(j + i) * k->scale_stride];
    }
    for (int i = there; i < VF_LEN; i++) {
        vf_store(parts[i], vf_zero());
        scales[i] = 0.0f;
    }
    ATTN_UNROLL
    for (int i = 0; i < VF_LEN; i++)
        lanes[i] = vf_load(parts[i]);
    const vf sums = vf_sum_across(lanes);
    return dtype == ATTN_I8 ? vf_mul(sums, vf_load(scales)) : sums;
}

/** The same sums in the order of the channels; what stands for keys behind the last one may be anything. */
ATTN_INLINE vf one_ordered_sums(const attn_dtype dtype, const int nw, const struct attn_row_run *k, const float *q,
                                int j, int there)
{
    const ptrdiff_t bytes = nw * VF_LEN * (VS_PACK == 1 ? attn_element_size(dtype) : ATTN_WORD);
    const char *row = k->first + j * bytes;
    float words[VF_LEN][ATTN_ONE_VECTORS * VF_LEN] __attribute__((aligned(ATTN_ALIGN)));
    for (int i = 0; i < there; i++, row += bytes) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++) {
            const vq some = one_words(dtype, row, w);
            memcpy(&words[i][w * VF_LEN], &some, sizeof some);
            ATTN_LOAD_IN_ORDER(row);
        }
    }
    for (int i = there; i < VF_LEN; i++)
        memset(words[i], 0, sizeof words[i]);
    vs acc = vs_zero();
    for (int w = 0; w < nw; w++) {
        vf columns[VF_LEN];
        ATTN_UNROLL
        for (int i = 0; i < VF_LEN; i++)
            columns[i] = vf_load(&words[i][w * VF_LEN]);
        vf_transpose(columns);
        ATTN_UNROLL
        for (int c = 0; c < VF_LEN; c++) {
            vq column;
            memcpy(&column, &columns[c], sizeof column);
            acc = vs_dot(column, vq_set1((const char *)(q + (w * VF_LEN + c) * VF_LEN)), acc);
        }
    }
    return acc;
}

#if VS_PACK == 1
/** The same of numbers of 8 and 4 bits, of two groups of keys, whose rows are copied and turned as they lie. */
ATTN_INLINE void one_narrow_sums(const attn_dtype dtype, const int nw, const struct attn_row_run *k, const float *q,
                                 int j, int there, vf sums[2])
{
    const int64_t channels = nw * VF_LEN;
    const ptrdiff_t bytes = (ptrdiff_t)attn_row_bytes(dtype, channels);
    const char *row = k->first + j * bytes, *at[2 * VF_LEN];
    const float *scale = k->scale + j * k->scale_stride, *scales[2 * VF_LEN];
    char numbers[2 * VF_LEN][ATTN_ONE_VECTORS * VF_LEN] __attribute__((aligned(ATTN_ALIGN)));
    for (int i = 0; i < 2 * VF_LEN; i++) {
        memcpy(numbers[i], row, (size_t)bytes);
        at[i] = numbers[i];
        scales[i] = scale;
        if (i + 1 < there) { /* else it stands for those behind it */
            row += bytes;
            scale += k->scale_stride;
        }
        ATTN_LOAD_IN_ORDER(row);
    }
    struct few_rows rows[2];
    vs acc[2][FEW];
    ATTN_UNROLL
    for (int g = 0; g < 2; g++) {
        rows[g] = (struct few_rows){at + g * VF_LEN, scales + g * VF_LEN, VF_LEN};
        acc[g][0] = vs_zero();
    }
    int64_t c = add_whole_narrow(dtype, 1, 2, q, channels, rows, NULL, 0, acc);
    for (; c < channels; c += VF_LEN) {
        ATTN_UNROLL
        for (int g = 0; g < 2; g++) {
            vf columns[VF_LEN];
            load_columns(dtype, 1, &rows[g], c, VF_LEN, columns);
            add_columns(1, VF_LEN, q + c * VF_LEN, columns, acc[g]);
        }
    }
    sums[0] = acc[0][0];
    sums[1] = acc[1][0];
}
#endif

/** The sums of keys j..j+there-1, which are one group at most; of ordered ones in 8 and 4 bits two. */
ATTN_INLINE void one_groups(const attn_dtype dtype, const int nw, const int ordered, const struct attn_row_run *k,
                            const float *words, const vq *q, int j, int there, vf sums[2])
{
#if VS_PACK == 1
    if (ordered && is_narrow(dtype)) {
        one_narrow_sums(dtype, nw, k, words, j, there, sums);
        return;
    }
#endif
    sums[0] = ordered ? one_ordered_sums(dtype, nw, k, words, j, there) : one_sums(dtype, nw, k, q, j, there);
}

ATTN_INLINE void one_scores(const attn_dtype dtype, const int nw, const int ordered, const struct attn_row_run *k,
                            const float *words, float *s, float *max)
{
    const int ng = VS_PACK == 1 && ordered && is_narrow(dtype) ? 2 : 1, step = ng * VF_LEN;
    vq q[ATTN_ONE_VECTORS];
    vf sums[2], most = vf_set1(-INFINITY);
    if (!ordered) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            q[w] = vq_load(words + w * VF_LEN);
    }
    int j = 0;
    for (; j + step <= k->n; j += step) {
        one_groups(dtype, nw, ordered, k, words, q, j, step, sums);
        ATTN_UNROLL
        for (int g = 0; g < ng; g++) {
            vf_store(s + j + g * VF_LEN, sums[g]);
            most = vf_max(sums[g], most); /* NaN left out */
        }
    }
    float largest = vf_max_across(most);
    if (j < k->n) {
        float last[2][VF_LEN];
        one_groups(dtype, nw, ordered, k, words, q, j, k->n - j, sums);
        ATTN_UNROLL
        for (int g = 0; g < ng; g++)
            vf_store(last[g], sums[g]);
        for (int i = 0; j + i < k->n; i++) {
            const float sum = last[i / VF_LEN][i % VF_LEN];
            s[j + i] = sum;
            largest = sum > largest ? sum : largest;
        }
    }
    *max = largest;
}

ATTN_INLINE void one_scores_of(const attn_dtype dtype, const int ordered, const struct attn_row_run *k, const float *q,
                               int64_t words, float *s, float *max)
{
    ATTN_ONE_BY_WIDTH(words, one_scores, dtype, ordered, k, q, s, max);
}

#ifdef VW_INT4
/** A vector of words is a group. */
ATTN_INLINE void one_int4_scores(const attn_dtype dtype, const int nw, const struct attn_row_run *k, const float *q,
                                 float *s, float *max)
{
    (void)dtype;
    int4_one_scores(nw, k, q, s, max);
}
#endif

/** struct attn_score_kernels, scores_of_one. */
static void scores_of_one(const struct attn_row_run *k, const float *q, int64_t words, float *s, float *max)
{
#if VS_PACK == 1
    if (k->dtype == ATTN_I8)
        one_scores_of(ATTN_I8, 0, k, q, words, s, max);
    else
        ATTN_BY_DTYPE(k->dtype, one_scores_of, 0, k, q, words, s, max);
#else
#ifdef VW_INT4
    if (k->dtype == ATTN_I4) {
        ATTN_ONE_BY_WIDTH(words, one_int4_scores, ATTN_I4, k, q, s, max);
        return;
    }
#endif
    one_scores_of(ATTN_F32, 0, k, q, words, s, max); /* a word has the size of a float */
#endif
}

/** struct attn_score_kernels, ordered_of_one. */
static void ordered_of_one(const struct attn_row_run *k, const float *q, int64_t words, float *s, float *max)
{
#if VS_PACK == 1
    ATTN_BY_STORED(k->dtype, one_scores_of, 1, k, q, words, s, max);
#else
    one_scores_of(ATTN_F32, 1, k, q, words, s, max);
#endif
}

#endif

#endif
