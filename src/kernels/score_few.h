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
 * bf16 and numbers of 8 and 4 bits are turned as they lie, 2, 4 or 8 channels in 32 bits,
 * and widened behind that (narrow.h): shuffles are what turning costs. Where a
 * number of E4M3 is NaN, or denormals are taken for 0, a group is widened before
 * it is turned; the bits are the same.
 *
 * There is one multiply-add for each word, query and VF_LEN keys, so time is
 * that of reading K: a column of rows after the other, which processors do not
 * fetch ahead. K has been asked for while the tile before was at work, and what
 * comes after it is asked for meanwhile (struct attn_listed_rows).
 */
#ifndef ATTN_SCORE_FEW_H
#define ATTN_SCORE_FEW_H

#include "kernels/narrow.h"
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

/** Where row i of a group is in its list: the last one stands for those behind it. */
ATTN_INLINE int few_row(const struct few_rows *rows, int i)
{
    return i < rows->n ? i : rows->n - 1;
}

/** Asks for what is wanted next beside step of the words of keys j..j+n-1, from word c on. */
ATTN_INLINE void ask_beside(const struct attn_score_operands *x, int j, int n, int64_t c, int64_t step)
{
    const int64_t whole = x->words - x->words % step;
    ask_for_rows(&x->listed, j + (int)(n * c / whole), j + (int)(n * (c + step) / whole));
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

#if VS_PACK == 1
/** Scales of the rows of a group, which have one each. */
ATTN_INLINE vf row_scales(const struct few_rows *rows)
{
    float scales[VF_LEN];
    ATTN_UNROLL
    for (int i = 0; i < VF_LEN; i++)
        scales[i] = *rows->scale[few_row(rows, i)];
    return vf_load(scales);
}

/** Scales of VF_LEN / 4 groups of channels of ATTN_I4, from group on. */
ATTN_INLINE void group_scales(const struct few_rows *rows, int64_t group, vf t[VF_LEN])
{
    ATTN_UNROLL
    for (int i = 0; i < VF_LEN; i++)
        t[i] = vf_load_tail(rows->scale[few_row(rows, i)] + group, VF_LEN / 4);
    vf_transpose_to4(t);
}

/** Adds the channels from c on that VF_LEN words have; scale: of the rows of each group, unless they have several.
 * Returns whether all numbers have been finite. */
ATTN_INLINE int add_narrow(const attn_dtype dtype, const int nr, const int ng, const float *q,
                           const struct few_rows *rows, int64_t c, const vf scale[2], vs acc[][FEW])
{
    vf columns[2][VF_LEN], scales[2][VF_LEN];
    vu seen = vu_set1(0);
    ATTN_UNROLL
    for (int g = 0; g < ng; g++) {
        vf t[VF_LEN];
        ATTN_UNROLL
        for (int i = 0; i < VF_LEN; i++) {
            const vu words = vu_load(stored_at(dtype, rows[g].at[few_row(&rows[g], i)], c));
            if (dtype == ATTN_F8_E4M3)
                seen = note_nan(seen, words);
            t[i] = vf_of_bits(words);
        }
        vf_transpose(t);
        ATTN_UNROLL
        for (int i = 0; i < VF_LEN; i++)
            columns[g][i] = t[i];
        ATTN_LOAD_NO_FURTHER(); /* there is room for one square */
        if (dtype == ATTN_I4)
            group_scales(&rows[g], c / ATTN_I4_GROUP, scales[g]);
    }
    vs sum[2][FEW];
    ATTN_UNROLL
    for (int g = 0; g < ng; g++) {
        ATTN_UNROLL
        for (int r = 0; r < nr; r++)
            sum[g][r] = acc[g][r];
    }
    /* A group of ATTN_I4 is four words, and the lower halves of its bytes come first. */
    const int numbers = narrow_numbers(dtype), at_once = numbers < 4 ? numbers : 4;
    const int run = ATTN_I4_GROUP / 8, halves = numbers / at_once;
#pragma GCC unroll 1
    for (int first = 0; first < VF_LEN; first += run) {
        ATTN_UNROLL
        for (int half = 0; half < halves; half++) {
            for (int w = first; w < first + run; w++, q += at_once * VF_LEN) {
                ATTN_UNROLL
                for (int m = 0; m < at_once; m++) {
                    vf k[2];
                    ATTN_UNROLL
                    for (int g = 0; g < ng; g++) {
                        k[g] = narrow_number(dtype, vu_bits_of(columns[g][w]), at_once * half + m);
                        if (attn_is_quantised(dtype))
                            k[g] = vf_mul(k[g], dtype == ATTN_I4 ? scales[g][first / run] : scale[g]);
                    }
                    ATTN_UNROLL
                    for (int r = 0; r < nr; r++) {
                        const vf a = vf_set1(q[m * VF_LEN + r]);
                        ATTN_UNROLL
                        for (int g = 0; g < ng; g++)
                            sum[g][r] = vf_fma(k[g], a, sum[g][r]);
                    }
                }
            }
        }
    }
    ATTN_UNROLL
    for (int g = 0; g < ng; g++) {
        ATTN_UNROLL
        for (int r = 0; r < nr; r++)
            acc[g][r] = sum[g][r];
    }
    return dtype != ATTN_F8_E4M3 || words_are_finite(seen);
}

/**
 * Adds the channels of ng groups of rows, from key j on, of which whole vectors of words are there, and asks for
 * what x wants beside them, unless it is NULL. Returns the channel behind the last one: the first, and sums of nothing,
 * where numbers have to be widened before they are turned.
 */
ATTN_INLINE int64_t add_whole_narrow(const attn_dtype dtype, const int nr, const int ng, const float *q, int64_t words,
                                     const struct few_rows *rows, const struct attn_score_operands *x, int j,
                                     vs acc[][FEW])
{
    const int64_t step = narrow_numbers(dtype) * VF_LEN;
    int64_t c = 0;
    vf scale[2];
    int finite = dtype != ATTN_F8_E4M3 || keeps_denormals();
    ATTN_UNROLL
    for (int g = 0; g < ng; g++)
        scale[g] = attn_is_quantised(dtype) && dtype != ATTN_I4 ? row_scales(&rows[g]) : vf_zero();
    for (; c + step <= words && finite; c += step) {
        finite = add_narrow(dtype, nr, ng, q + c * VF_LEN, rows, c, scale, acc);
        if (x)
            ask_beside(x, j, ng * VF_LEN, c, step);
    }
    if (finite)
        return c;
    ATTN_UNROLL
    for (int g = 0; g < ng; g++) {
        ATTN_UNROLL
        for (int r = 0; r < nr; r++)
            acc[g][r] = vs_zero();
    }
    return 0;
}
#endif

/** Scores of a group of rows, from key j on, that have been summed up to word c; those behind the last one are 0. */
ATTN_INLINE void finish_group(const attn_dtype dtype, const int nr, const struct attn_score_operands *x,
                              const struct few_rows *rows, int j, int64_t c, vs acc[FEW], vf *max)
{
    const int64_t words = x->words;
    vf t[VF_LEN];
    for (; c + VF_LEN <= words; c += VF_LEN) {
        load_columns(dtype, 1, rows, c, VF_LEN, t);
        ask_beside(x, j, VF_LEN, c, VF_LEN);
        add_columns(nr, VF_LEN, x->q + c * VF_LEN, t, acc);
    }
    if (c < words) {
        load_columns(dtype, 0, rows, c, (int)(words - c), t);
        for (; c < words; c++)
            add_columns(nr, 1, x->q + c * VF_LEN, &t[c % VF_LEN], acc);
    }
    vs all[VF_LEN];
    ATTN_UNROLL
    for (int i = 0; i < VF_LEN; i++)
        all[i] = i < nr ? acc[i] : vs_zero();
    if (nr <= 4)
        vf_transpose_from4(all);
    else
        vf_transpose(all);
    score_sums sums;
    ATTN_UNROLL
    for (int i = 0; i < VF_LEN; i++)
        sums[i][0] = all[i];
#define STORE_SCORES(kind)                                                                                             \
    if (rows->n == VF_LEN)                                                                                             \
        store_scores(kind, VF_LEN, 0, 1, x, j, sums, max);                                                             \
    else                                                                                                               \
        for (int i = 0; i < rows->n; i++)                                                                              \
        store_scores(kind, 1, 0, 1, x, j + i, sums + i, max)
    ATTN_BY_MASK(x->mask->kind, STORE_SCORES);
#undef STORE_SCORES
}

/** Scores of up to ng groups of rows, from key j on, n of them, for nr queries; the first stands for one that is not
 * there. */
ATTN_INLINE void score_groups(const attn_dtype dtype, const int nr, const int ng, const struct attn_score_operands *x,
                              int j, int n, vf *max)
{
    struct few_rows rows[2];
    vs acc[2][FEW];
    const int there = (n + VF_LEN - 1) / VF_LEN;
    ATTN_UNROLL
    for (int g = 0; g < ng; g++) {
        const int first = g < there ? g * VF_LEN : 0;
        rows[g] = few_rows_at(dtype, &x->listed, j + first, n - first < VF_LEN ? n - first : VF_LEN);
        ATTN_UNROLL
        for (int r = 0; r < nr; r++)
            acc[g][r] = vs_zero();
    }
    int64_t c = 0;
#if VS_PACK == 1
    if (is_narrow(dtype))
        c = add_whole_narrow(dtype, nr, ng, x->q, x->words, rows, x, j, acc);
#endif
    for (int g = 0; g < there; g++)
        finish_group(dtype, nr, x, &rows[g], j + g * VF_LEN, c, acc[g], max);
}

/** Groups at a time: few chains of sums would wait for their multiply-adds. */
#define FEW_GROUPS(dtype, nr) (VS_PACK == 1 && attn_is_quantised(dtype) && (nr) <= 4 ? 2 : 1)

ATTN_INLINE void score_few_body(const attn_dtype dtype, const int nr, const struct attn_score_operands *x, int n,
                                float *max_out)
{
    const int ng = FEW_GROUPS(dtype, nr);
    vf max = vf_set1(-INFINITY);
    for (int j = 0; j < n; j += ng * VF_LEN)
        score_groups(dtype, nr, ng, x, j, n - j < ng * VF_LEN ? n - j : ng * VF_LEN, &max);
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

#if VS_PACK == 1
ATTN_APART_STORED(score_few, score_few_rows, (const struct attn_score_operands *x, int n, float *max), x, n, max)
#endif

/** struct attn_score_kernels, scores_of_few. */
static void score_few(const struct attn_score_operands *x, int n, float *max)
{
#if VS_PACK == 1
    ATTN_BY_STORED_APART(x->listed.dtype, score_few, x, n, max);
#else
    score_few_rows(ATTN_F32, x, n, max); /* a word has the size of a float */
#endif
}

#endif

#endif
