/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scores of few queries: keys are the lanes.
 *
 *     S[query][key] = sum_c Q[query][c] * K^T[c][key]
 *
 * VF_LEN words of VF_LEN rows of K are turned in registers, and each of the
 * columns meets the word of every query as a broadcast. A lane adds its channels
 * from the first to the last, as score_tile.h does, so the bits are the same.
 * Then the scores are turned to a query per lane, and what follows is the tile's
 * own.
 *
 * There is one multiply-add for each word, query and VF_LEN keys, so time is
 * that of reading K: a column of rows after the other, which processors do not
 * fetch ahead. K has been asked for while the tile before was at work, and what
 * comes after it is asked for meanwhile (struct attn_listed_rows).
 */
#ifndef ATTN_SCORE_FEW_H
#define ATTN_SCORE_FEW_H

#include "kernels/score_tile.h"

#if VF_LEN == 1 || defined(ATTN_SCORE_PRODUCTS)
#define SCORES_OF_FEW NULL
#else
#define SCORES_OF_FEW score_few

/** VF_LEN of the rows, of which n are there. */
struct few_rows {
    const char *const *at;
    const float *const *scale; /**< of quantised rows */
    int n;
};

ATTN_INLINE struct few_rows few_rows_at(const attn_dtype dtype, const struct attn_listed_rows *listed, int j, int n)
{
    return (struct few_rows){listed->at + j, attn_is_quantised(dtype) ? listed->scale + j : NULL, n};
}

ATTN_INLINE const float *few_scales(const attn_dtype dtype, const struct few_rows *rows, int i)
{
    return attn_is_quantised(dtype) ? rows->scale[i] : NULL;
}

/** VF_LEN words of row i from word c on; bit: of ATTN_I4 that of c, as a constant. */
ATTN_INLINE vf few_words(const attn_dtype dtype, const int bit, const struct few_rows *rows, int i, int64_t c)
{
    if (dtype != ATTN_I4)
        return stored_load(dtype, rows->at[i], c, few_scales(dtype, rows, i));
    const vf numbers = vf_load_int4((const uint8_t *)stored_at(dtype, rows->at[i], c), bit);
    return vf_mul(numbers, vf_set1(stored_scale(dtype, rows->scale[i], c)));
}

/** Words c.. of a group as columns: lane i has row i, or 0 where there is none. count: words that are there. */
ATTN_INLINE void load_columns(const attn_dtype dtype, const int whole, const struct few_rows *rows, int64_t c,
                              int count, vf *t)
{
    if (whole && rows->n == VF_LEN && dtype == ATTN_I4 && stored_bit(c)) {
        ATTN_UNROLL
        for (int i = 0; i < VF_LEN; i++)
            t[i] = few_words(dtype, 4, rows, i, c);
    } else if (whole && rows->n == VF_LEN) {
        ATTN_UNROLL
        for (int i = 0; i < VF_LEN; i++)
            t[i] = few_words(dtype, 0, rows, i, c);
    } else {
        for (int i = 0; i < VF_LEN; i++)
            t[i] = i < rows->n ? stored_load_tail(dtype, rows->at[i], c, count, few_scales(dtype, rows, i)) : vf_zero();
    }
    vf_transpose(t);
}

/** Adds count words, columns t of K, with nr queries at q. */
ATTN_INLINE void add_columns(const int nr, const int count, const float *q, const vf *t, vs *acc)
{
    ATTN_UNROLL
    for (int c = 0; c < count; c++) {
        vq k;
        memcpy(&k, &t[c], sizeof k);
        ATTN_UNROLL
        for (int r = 0; r < nr; r++)
            acc[r] = vs_dot(k, vq_set1((const char *)(q + c * VF_LEN + r)), acc[r]);
    }
}

/** Scores of a group of rows, from key j on, for nr queries; those behind the last one are 0. */
ATTN_INLINE void score_group(const attn_dtype dtype, const int nr, const struct attn_score_operands *x,
                             const struct few_rows *rows, int j, vf *max)
{
    const int64_t words = x->words;
    const int parts = (int)(words / VF_LEN);
    vf t[VF_LEN];
    vs acc[VF_LEN];
    ATTN_UNROLL
    for (int i = 0; i < VF_LEN; i++)
        acc[i] = vs_zero();
    int64_t c = 0;
    for (; c + VF_LEN <= words; c += VF_LEN) {
        load_columns(dtype, 1, rows, c, VF_LEN, t);
        const int part = (int)(c / VF_LEN);
        ask_for_rows(&x->listed, j + VF_LEN * part / parts, j + VF_LEN * (part + 1) / parts);
        add_columns(nr, VF_LEN, x->q + c * VF_LEN, t, acc);
    }
    if (c < words) {
        load_columns(dtype, 0, rows, c, (int)(words - c), t);
        for (; c < words; c++)
            add_columns(nr, 1, x->q + c * VF_LEN, &t[c % VF_LEN], acc);
    }
    if (nr <= 4)
        vf_transpose_from4(acc);
    else
        vf_transpose(acc);
    score_sums sums;
    ATTN_UNROLL
    for (int i = 0; i < VF_LEN; i++)
        sums[i][0] = acc[i];
#define STORE_SCORES(kind)                                                                                             \
    if (rows->n == VF_LEN)                                                                                             \
        store_scores(kind, VF_LEN, 0, 1, x, j, sums, max);                                                             \
    else                                                                                                               \
        for (int i = 0; i < rows->n; i++)                                                                              \
        store_scores(kind, 1, 0, 1, x, j + i, sums + i, max)
    ATTN_BY_MASK(x->mask->kind, STORE_SCORES);
#undef STORE_SCORES
}

ATTN_INLINE void score_few_body(const attn_dtype dtype, const int nr, const struct attn_score_operands *x, int n,
                                float *max_out)
{
    vf max = vf_set1(-INFINITY);
    for (int j = 0; j < n; j += VF_LEN) {
        const struct few_rows rows = few_rows_at(dtype, &x->listed, j, n - j < VF_LEN ? n - j : VF_LEN);
        score_group(dtype, nr, x, &rows, j, &max);
    }
    if (RAW_SCORES && x->mask->kind != MASK_BIAS)
        max = vf_mul(max, vf_load(x->factor));
    vf_store(max_out, max);
}

ATTN_INLINE void score_few_rows(const attn_dtype dtype, const struct attn_score_operands *x, int n, float *max)
{
    if (x->rows == 1)
        score_few_body(dtype, 1, x, n, max);
    else if (x->rows == 2)
        score_few_body(dtype, 2, x, n, max);
    else if (FEW <= 4 || x->rows <= 4)
        score_few_body(dtype, FEW < 4 ? FEW : 4, x, n, max);
    else
        score_few_body(dtype, FEW, x, n, max);
}

/** struct attn_score_kernels, scores_of_few. */
static void score_few(const struct attn_score_operands *x, int n, float *max)
{
#if VS_PACK == 1
    ATTN_BY_STORED(x->listed.dtype, score_few_rows, x, n, max);
#else
    score_few_rows(ATTN_F32, x, n, max); /* a word has the size of a float */
#endif
}

#endif

#endif
