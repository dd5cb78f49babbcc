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
 * that of reading K. K is read a column of rows after the other, which
 * processors do not fetch ahead. So every line of a group of rows is touched
 * first, in the order of memory, and while it is multiplied one further on is
 * asked for: 18 GB/s where there were 11 (docs/performance.md).
 */
#ifndef ATTN_SCORE_FEW_H
#define ATTN_SCORE_FEW_H

#include "kernels/score_tile.h"

#if VF_LEN == 1 || defined(ATTN_SCORE_PRODUCTS)
#define SCORES_OF_FEW NULL
#else
#define SCORES_OF_FEW score_few

/** A group of rows, of which n are there. */
struct few_rows {
    const char *at;
    uintptr_t ahead; /**< rows to ask for meanwhile */
    ptrdiff_t stride;
    const float *scale; /**< of quantised rows */
    ptrdiff_t scale_stride;
    int n;
};

ATTN_INLINE float few_scale(const attn_dtype dtype, const struct few_rows *rows, int i)
{
    return attn_is_quantised(dtype) ? rows->scale[i * rows->scale_stride] : 1.0f;
}

/** Reads something of each line of a group, in the order of memory. */
ATTN_INLINE void touch_rows(const struct few_rows *rows, ptrdiff_t bytes)
{
    for (int i = 0; i < rows->n; i++)
        for (ptrdiff_t c = 0; c < bytes; c += ATTN_ALIGN)
            (void)*(const volatile char *)(rows->at + i * rows->stride + c);
}

/** Rows from a group to that which is asked for meanwhile. */
#define ROWS_AHEAD    16

/** Asks for a part of that group: words c..c+VF_LEN-1, of words, are multiplied now. */
ATTN_INLINE void ask_for_part(const struct few_rows *rows, int64_t c, int64_t words, ptrdiff_t bytes)
{
    const int64_t parts = words / VF_LEN, part = c / VF_LEN;
    for (int64_t i = VF_LEN * part / parts; i < VF_LEN * (part + 1) / parts; i++)
        for (ptrdiff_t b = 0; b < bytes; b += ATTN_ALIGN)
            /* an address behind K does no harm */
            __builtin_prefetch((const void *)(rows->ahead + (uintptr_t)(i * rows->stride + b)), 0, 2);
}

/** Words c.. of a group as columns: lane i has row i, or 0 where there is none. count: words that are there. */
ATTN_INLINE void load_columns(const attn_dtype dtype, const int whole, const struct few_rows *rows, int64_t c,
                              int count, vf *t)
{
    const char *const at = rows->at + c * attn_element_size(dtype);
    const ptrdiff_t stride = rows->stride;
    if (whole && rows->n == VF_LEN) {
        ATTN_UNROLL
        for (int i = 0; i < VF_LEN; i++)
            t[i] = element_load(dtype, at + i * stride, few_scale(dtype, rows, i));
    } else {
        for (int i = 0; i < VF_LEN; i++)
            t[i] =
                i < rows->n ? element_load_tail(dtype, at + i * stride, count, few_scale(dtype, rows, i)) : vf_zero();
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
    const ptrdiff_t bytes = words * attn_element_size(dtype);
    vf t[VF_LEN];
    vs acc[VF_LEN];
    ATTN_UNROLL
    for (int i = 0; i < VF_LEN; i++)
        acc[i] = vs_zero();
    touch_rows(rows, bytes);
    int64_t c = 0;
    for (; c + VF_LEN <= words; c += VF_LEN) {
        load_columns(dtype, 1, rows, c, VF_LEN, t);
        ask_for_part(rows, c, words, bytes);
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
    struct few_rows rows = {.at = x->k, .stride = x->k_stride, .scale = x->row_scale, .n = VF_LEN};
    rows.scale_stride = x->row_scale_stride;
    for (int j = 0; j < n; j += VF_LEN, rows.at += VF_LEN * rows.stride) {
        rows.n = n - j < VF_LEN ? n - j : VF_LEN;
        const int ahead = j + ROWS_AHEAD;
        /* no pointer perhaps, but an address that may be asked for */
        rows.ahead = (uintptr_t)(ahead < n ? rows.at : x->k_behind) +
                     (uintptr_t)((ahead < n ? ROWS_AHEAD : ahead - n) * rows.stride);
        if (attn_is_quantised(dtype))
            rows.scale = x->row_scale + j * rows.scale_stride;
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
    ATTN_BY_STORED(x->k_dtype, score_few_rows, x, n, max);
#else
    score_few_rows(ATTN_F32, x, n, max); /* a word has the size of a float */
#endif
}

#endif

#endif
