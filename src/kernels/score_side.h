/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scores of one query, or of few, against keys that follow each other in memory:
 * what a decoder does half of its time.
 *
 *     free     s[query][key] = sum over lanes of sum_c Q[query][c] * K[key][c]
 *     ordered  s[key] = sum_c q[c] * K[key][c], from the first channel to the last
 *
 * Time is that of reading K. A processor that fetches ahead does that best for lines
 * which one loop asks for in their order, so a row is read from its first line to its
 * last before the next one, and a score is one float. Where sums are free, lanes are
 * channels; the words of one query stay in registers, and of several four at a time meet
 * a row's. Ordered ones, of one query, have keys as lanes: VF_LEN
 * rows are copied to the nearest cache as words, in their order, and turned there, or
 * asked for in it; numbers of 8 and 4 bits as they lie, like in score_few.h. (score_free.h and
 * score_few.h take rows anywhere, have a lane for each query, and
 * name the rows that are wanted next.) The order of a sum is that of theirs, so the
 * bits are the same.
 */
#ifndef ATTN_SCORE_SIDE_H
#define ATTN_SCORE_SIDE_H

#include "kernels/int4_pairs.h"
#include "kernels/score_few.h"
#include "simd/words.h"

#include <math.h>
#include <string.h>

#if VF_LEN == 1 || defined(ATTN_SCORE_PRODUCTS)
#define SCORES_SIDE_BY_SIDE  NULL
#define ORDERED_SIDE_BY_SIDE NULL
#else
#define SCORES_SIDE_BY_SIDE  scores_side_by_side
#define ORDERED_SIDE_BY_SIDE ordered_side_by_side

/** Bytes of a row of nw vectors of words. */
ATTN_INLINE ptrdiff_t side_bytes(const attn_dtype dtype, const int nw)
{
    return nw * VF_LEN * (VS_PACK == 1 || attn_is_quantised(dtype) ? VS_PACK * attn_element_size(dtype) : ATTN_WORD);
}

/** Vector w of a row's words. */
ATTN_INLINE vq side_words(const attn_dtype dtype, const char *row, const int w)
{
#if VS_PACK == 1
    return row_load(dtype, row + w * VF_LEN * attn_element_size(dtype));
#else
    (void)dtype;
    return vw_load(row + w * VF_LEN * ATTN_WORD);
#endif
}

/** Two of them, w and w + 1. */
ATTN_INLINE void side_two(const attn_dtype dtype, const char *row, const int w, vq words[2])
{
#ifdef VW_F8
    if (dtype == ATTN_F8_E4M3) {
        vw_load_f8(row + w * VF_LEN * VS_PACK, 2 * VF_LEN * VS_PACK, words);
        return;
    }
#endif
    words[0] = side_words(dtype, row, w);
    words[1] = side_words(dtype, row, w + 1);
}

/** Vectors of a query's words that stay in registers. */
#define SIDE_IN_REGISTERS 8

/** Adds a row of K to nr queries' sums, from 0 on; the words of one are in registers, if these hold them. */
ATTN_INLINE void side_products(const attn_dtype dtype, const int nw, const int nr, const char *row, const float *words,
                               const vq *in_registers, vs *acc)
{
    ATTN_UNROLL
    for (int r = 0; r < nr; r++)
        acc[r] = vs_zero();
    ATTN_UNROLL
    for (int w = 0; w < nw; w += 2) { /* their number is even */
        vq k_words[2];
        side_two(dtype, row, w, k_words);
        ATTN_UNROLL
        for (int i = 0; i < 2; i++) {
            ATTN_UNROLL
            for (int r = 0; r < nr; r++) {
                const vq q = nr == 1 && nw <= SIDE_IN_REGISTERS ? in_registers[w + i]
                                                                : vq_load(words + (r * nw + w + i) * VF_LEN);
                acc[r] = vs_dot(k_words[i], q, acc[r]);
            }
        }
    }
}

#if VF_LEN < 16
/** The sums, lane by lane, of four queries and two rows of K, each of which is converted once for all four. Asks for
 * lines from next on, so many bytes further with each vector. */
ATTN_INLINE void side_two_keys(const attn_dtype dtype, const int nw, const char *row, const float *words,
                               const char *next, ptrdiff_t step, float parts[4][VF_LEN][VF_LEN], int i)
{
    vs acc[4][2];
    ATTN_UNROLL
    for (int r = 0; r < 4; r++)
        acc[r][0] = acc[r][1] = vs_zero();
#pragma GCC unroll 4
    for (int w = 0; w < nw; w++, next += step) {
        __builtin_prefetch(next, 0, 3);
        const vq first = side_words(dtype, row, w), second = side_words(dtype, row + side_bytes(dtype, nw), w);
        ATTN_UNROLL
        for (int r = 0; r < 4; r++) {
            const vq q = vq_load(words + (r * nw + w) * VF_LEN);
            acc[r][0] = vs_dot(first, q, acc[r][0]);
            acc[r][1] = vs_dot(second, q, acc[r][1]);
        }
    }
    ATTN_UNROLL
    for (int r = 0; r < 4; r++) {
        vf_store(parts[r][i], acc[r][0]);
        vf_store(parts[r][i + 1], acc[r][1]);
    }
}

/** The same of VF_LEN rows. Each four of all queries, of which the first is r here, ask for their share of the next
 * ones, in the order of memory. */
ATTN_INLINE void side_pairs_of_keys(const attn_dtype dtype, const int nw, const char *row, const float *words, int r,
                                    int rows, float parts[4][VF_LEN][VF_LEN])
{
    const ptrdiff_t bytes = side_bytes(dtype, nw), step = 2 * (bytes / nw) / (rows / 4);
    const char *next = row + VF_LEN * bytes + r / 4 * (VF_LEN / 2 * nw) * step;
    for (int i = 0; i < VF_LEN; i += 2, row += 2 * bytes, next += nw * step)
        side_two_keys(dtype, nw, row, words, next, step, parts, i);
}
#endif

/** The sums of keys j..j+there-1, VF_LEN or, at the end, less, and nr queries from the first on, of rows; behind the
 * last key are 0. */
ATTN_INLINE void side_sums(const attn_dtype dtype, const int nw, const int nr, const struct attn_row_run *k,
                           const float *words, const vq *in_registers, int first, int rows, int j, int there, vf *sums)
{
    const ptrdiff_t bytes = side_bytes(dtype, nw);
    const char *row = k->first + j * bytes;
    float scales[VF_LEN];
    for (int i = 0; i < VF_LEN; i++)
        scales[i] = attn_is_quantised(dtype) && i < there ? k->scale[(j + i) * k->scale_stride] : 0.0f;
#if VF_LEN == 16 /* four keys at a time: of their sums for a query one vector is kept */
    (void)first, (void)rows;
    vf quarters[4][4];
    ATTN_UNROLL
    for (int g = 0; g < 4; g++) {
        vs acc[4][4];
        ATTN_UNROLL
        for (int i = 0; i < 4; i++, row += bytes) {
            if (4 * g + i < there)
                side_products(dtype, nw, nr, row, words, in_registers, acc[i]);
            else
                acc[i][0] = acc[i][1] = acc[i][2] = acc[i][3] = vs_zero();
        }
        ATTN_UNROLL
        for (int r = 0; r < nr; r++) {
            const vf of_query[4] = {acc[0][r], acc[1][r], acc[2][r], acc[3][r]};
            quarters[r][g] = vf_sum_quarters(of_query);
        }
    }
    ATTN_UNROLL
    for (int r = 0; r < nr; r++)
        sums[r] = vf_add_quarters(quarters[r]);
#else
    float parts[4][VF_LEN][VF_LEN] __attribute__((aligned(ATTN_ALIGN)));
    const int pairs = nr == 4 && there == VF_LEN;
    if (pairs)
        side_pairs_of_keys(dtype, nw, row, words, first, rows, parts);
#pragma GCC unroll 2
    for (int i = 0; !pairs && i < VF_LEN; i++, row += bytes) {
        vs acc[4] = {vs_zero(), vs_zero(), vs_zero(), vs_zero()};
        if (i < there)
            side_products(dtype, nw, nr, row, words, in_registers, acc);
        ATTN_UNROLL
        for (int r = 0; r < nr; r++)
            vf_store(parts[r][i], acc[r]);
    }
    ATTN_UNROLL
    for (int r = 0; r < nr; r++) {
        vf lanes[VF_LEN];
        ATTN_UNROLL
        for (int i = 0; i < VF_LEN; i++)
            lanes[i] = vf_load(parts[r][i]);
        sums[r] = vf_sum_across(lanes);
    }
#endif
    ATTN_UNROLL
    for (int r = 0; r < nr; r++)
        if (attn_is_quantised(dtype))
            sums[r] = vf_mul(sums[r], vf_load(scales));
}

/** Whether a group's rows are copied, as words, before they are turned: where it has half as many, they are read where
 * they lie, and the next ones are asked for meanwhile. */
#define COPIES_GROUPS (VF_LEN >= 16)

/** Adds VF_LEN words of K, columns t, or of words of two numbers in bf16 both. */
ATTN_INLINE void side_add_columns(const int numbers, const float *q, const vf *t, vs *acc)
{
#if VS_PACK == 1
    if (numbers == 2) {
        ATTN_UNROLL
        for (int c = 0; c < 2 * VF_LEN; c++)
            *acc = vf_fma(narrow_bf16(vu_bits_of(t[c / 2]), c % 2), vf_set1(q[c * VF_LEN]), *acc);
        return;
    }
#endif
    (void)numbers;
    add_columns(1, VF_LEN, q, t, acc);
}

/** Vector w of a row's words of 32 bits, as which numbers of 16 bits lie in pairs; f16 widened. */
ATTN_INLINE vf side_as_words(const attn_dtype dtype, const char *row, const int w)
{
#if VS_PACK == 1
    if (dtype == ATTN_F16)
        return row_load(dtype, row + w * VF_LEN * attn_element_size(dtype));
#endif
    (void)dtype;
    return vf_load((const float *)(const void *)row + w * VF_LEN);
}

/** The same sums of one query and VF_LEN keys, whose rows begin at first, in the order of the channels. */
ATTN_INLINE vf side_turned_sums(const attn_dtype dtype, const int nw, const char *first, const float *q)
{
    const int numbers = VS_PACK == 1 && dtype == ATTN_BF16 ? 2 : 1; /* in what is turned as a word */
    const ptrdiff_t bytes = side_bytes(dtype, nw), part = numbers * VF_LEN * bytes / nw;
    const char *next = first + VF_LEN * bytes;
    vs acc = vs_zero();
    for (int w = 0; w < nw; w += numbers, q += numbers * VF_LEN * VF_LEN, next += part) {
        vf columns[VF_LEN];
        ATTN_UNROLL
        for (ptrdiff_t c = 0; c < part; c += ATTN_ALIGN)
            __builtin_prefetch(next + c, 0, 3);
        ATTN_UNROLL
        for (int i = 0; i < VF_LEN; i++)
            columns[i] = side_as_words(dtype, first + i * bytes, w / numbers);
        vf_transpose(columns);
        side_add_columns(numbers, q, columns, &acc);
    }
    return acc;
}

/** The same of keys j..j+there-1, by way of a copy in the nearest cache; what stands for keys behind the last one may
 * be anything. */
ATTN_INLINE vf side_copied_sums(const attn_dtype dtype, const int nw, const struct attn_row_run *k, const float *q,
                                int j, int there)
{
    const ptrdiff_t bytes = side_bytes(dtype, nw);
    const char *row = k->first + j * bytes;
    float words[VF_LEN][ATTN_SIDE_WORDS] __attribute__((aligned(ATTN_ALIGN)));
    for (int i = 0; i < there; i++, row += bytes) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++) {
            const vq some = side_words(dtype, row, w);
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
        add_columns(1, VF_LEN, q + w * VF_LEN * VF_LEN, columns, &acc);
    }
    return acc;
}

#if VS_PACK == 1
/** The same of numbers of 8 and 4 bits, of two groups of keys, whose rows are copied and turned as they lie. */
ATTN_INLINE void side_narrow_sums(const attn_dtype dtype, const int nw, const struct attn_row_run *k, const float *q,
                                  int j, int there, vf sums[2])
{
    const int64_t channels = nw * VF_LEN;
    const ptrdiff_t bytes = (ptrdiff_t)attn_row_bytes(dtype, channels);
    const char *row = k->first + j * bytes, *at[2 * VF_LEN];
    const float *scale = k->scale + j * k->scale_stride, *scales[2 * VF_LEN];
    char numbers[2 * VF_LEN][ATTN_SIDE_WORDS] __attribute__((aligned(ATTN_ALIGN)));
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

/** Keeps the scores of a group, of keys j..j+there-1, and their maximum; there: VF_LEN or, at the end, less. */
ATTN_INLINE void side_keep(vf sums, int j, int there, float *s, vf *most)
{
    if (there >= VF_LEN) {
        vf_store(s + j, sums);
        *most = vf_max(sums, *most); /* NaN left out */
        return;
    }
    float last[VF_LEN];
    vf_store(last, sums);
    for (int i = there > 0 ? there : 0; i < VF_LEN; i++)
        last[i] = -INFINITY;
    *most = vf_max(vf_load(last), *most);
    for (int i = 0; i < there; i++)
        s[j + i] = last[i];
}

/** The scores of nr queries from r on, of rows, and a group of keys. */
ATTN_INLINE void side_group(const attn_dtype dtype, const int nw, const int nr, const struct attn_row_run *k,
                            const float *words, const vq *in_registers, int r, int rows, int j, float *s,
                            ptrdiff_t pitch, vf *most)
{
    const int there = k->n - j < VF_LEN ? k->n - j : VF_LEN;
    vf sums[4];
    words += r * nw * VF_LEN;
    if (there == VF_LEN)
        side_sums(dtype, nw, nr, k, words, in_registers, r, rows, j, VF_LEN, sums);
    else
        side_sums(dtype, nw, nr, k, words, in_registers, r, rows, j, there, sums);
    ATTN_UNROLL
    for (int i = 0; i < nr; i++)
        side_keep(sums[i], j, there, s + (r + i) * pitch, &most[r + i]);
}

/** All keys. Several queries take a group four at a time, and it stays in the nearest cache for the others. */
ATTN_INLINE void side_scores(const attn_dtype dtype, const int nw, const struct attn_row_run *k, const float *words,
                             int rows, float *s, ptrdiff_t pitch, float *max)
{
    const float *const odd = words + (ptrdiff_t)(rows - 1) * nw * VF_LEN; /* the last query, if their number is odd */
    vq last[SIDE_IN_REGISTERS];
    vf most[FEW];
    for (int r = 0; r < rows; r++)
        most[r] = vf_set1(-INFINITY);
    ATTN_UNROLL
    for (int w = 0; w < nw && nw <= SIDE_IN_REGISTERS; w++)
        last[w] = vq_load(odd + w * VF_LEN);
    for (int j = 0; j < k->n; j += VF_LEN) {
        int r = 0;
        for (; FEW >= 4 && r + 4 <= rows; r += 4)
            side_group(dtype, nw, FEW >= 4 ? 4 : 1, k, words, last, r, rows, j, s, pitch, most);
        if (r + 2 <= rows) {
            side_group(dtype, nw, 2, k, words, last, r, rows, j, s, pitch, most);
            r += 2;
        }
        if (r < rows)
            side_group(dtype, nw, 1, k, words, last, r, rows, j, s, pitch, most);
    }
    for (int r = 0; r < rows; r++)
        max[r] = vf_max_across(most[r]);
}

/** Ordered scores of one query and keys j..j+there-1: one group or, of numbers of 8 and 4 bits, two; whole, or at the
 * end less. */
ATTN_INLINE void side_ordered_groups(const attn_dtype dtype, const int nw, const int whole,
                                     const struct attn_row_run *k, const float *words, int j, int there, float *s,
                                     vf *most)
{
#if VS_PACK == 1
    if (attn_is_quantised(dtype)) {
        vf sums[2];
        side_narrow_sums(dtype, nw, k, words, j, there, sums);
        side_keep(sums[0], j, there, s, most);
        side_keep(sums[1], j + VF_LEN, there - VF_LEN, s, most);
        return;
    }
#endif
    const vf sums = whole && !COPIES_GROUPS ? side_turned_sums(dtype, nw, k->first + j * side_bytes(dtype, nw), words)
                                            : side_copied_sums(dtype, nw, k, words, j, there);
    side_keep(sums, j, there, s, most);
}

/** The same of all keys. */
ATTN_INLINE void side_ordered(const attn_dtype dtype, const int nw, const struct attn_row_run *k, const float *words,
                              float *s, float *max)
{
    const int step = VS_PACK == 1 && attn_is_quantised(dtype) ? 2 * VF_LEN : VF_LEN;
    vf most = vf_set1(-INFINITY);
    int j = 0;
    for (; j + step <= k->n; j += step)
        side_ordered_groups(dtype, nw, 1, k, words, j, step, s, &most);
    if (j < k->n)
        side_ordered_groups(dtype, nw, 0, k, words, j, k->n - j, s, &most);
    *max = vf_max_across(most);
}

ATTN_INLINE void side_scores_of(const attn_dtype dtype, const struct attn_row_run *k, const float *q, int64_t words,
                                int rows, float *s, ptrdiff_t pitch, float *max)
{
    ATTN_SIDE_BY_WIDTH(words, side_scores, dtype, k, q, rows, s, pitch, max);
}

ATTN_INLINE void side_ordered_of(const attn_dtype dtype, const struct attn_row_run *k, const float *q, int64_t words,
                                 float *s, float *max)
{
    ATTN_SIDE_BY_WIDTH(words, side_ordered, dtype, k, q, s, max);
}

#ifdef VW_INT4
/** A vector of words is a group. */
ATTN_INLINE void side_int4_scores(const attn_dtype dtype, const int nw, const struct attn_row_run *k, const float *q,
                                  int rows, float *s, ptrdiff_t pitch, float *max)
{
    (void)dtype;
    int4_scores_of_run(nw, k, q, rows, s, pitch, max);
}

ATTN_INLINE void side_int4_scores_of(const struct attn_row_run *k, const float *q, int64_t words, int rows, float *s,
                                     ptrdiff_t pitch, float *max)
{
    ATTN_SIDE_BY_WIDTH(words, side_int4_scores, ATTN_I4, k, q, rows, s, pitch, max);
}
#endif

#define SIDE_SCORES                                                                                                    \
    (const struct attn_row_run *k, const float *q, int64_t words, int rows, float *s, ptrdiff_t pitch, float *max)
#if VS_PACK == 1
ATTN_APART(side_scores_i8, side_scores_of, SIDE_SCORES, ATTN_I8, k, q, words, rows, s, pitch, max)
ATTN_APART_DTYPE(side_scores, side_scores_of, SIDE_SCORES, k, q, words, rows, s, pitch, max)
#else
#ifdef VW_INT4
ATTN_APART(side_scores_i4, side_int4_scores_of, SIDE_SCORES, k, q, words, rows, s, pitch, max)
#endif
#ifdef VW_F8
ATTN_APART(side_scores_f8, side_scores_of, SIDE_SCORES, ATTN_F8_E4M3, k, q, words, rows, s, pitch, max)
#endif
#endif

/** struct attn_score_kernels, scores_side_by_side. */
static void scores_side_by_side(const struct attn_row_run *k, const float *q, int64_t words, int rows, float *s,
                                ptrdiff_t pitch, float *max)
{
#if VS_PACK == 1
    if (k->dtype == ATTN_I8)
        side_scores_i8(k, q, words, rows, s, pitch, max);
    else
        ATTN_BY_DTYPE_APART(k->dtype, side_scores, k, q, words, rows, s, pitch, max);
#else
#ifdef VW_INT4
    if (k->dtype == ATTN_I4) {
        side_scores_i4(k, q, words, rows, s, pitch, max);
        return;
    }
#endif
#ifdef VW_F8
    if (k->dtype == ATTN_F8_E4M3) {
        side_scores_f8(k, q, words, rows, s, pitch, max);
        return;
    }
#endif
    side_scores_of(ATTN_F32, k, q, words, rows, s, pitch, max); /* a word has the size of a float */
#endif
}

#if VS_PACK == 1
ATTN_APART_STORED(side_ordered, side_ordered_of,
                  (const struct attn_row_run *k, const float *q, int64_t words, float *s, float *max), k, q, words, s,
                  max)
#endif

/** struct attn_score_kernels, ordered_side_by_side. */
static void ordered_side_by_side(const struct attn_row_run *k, const float *q, int64_t words, float *s, float *max)
{
#if VS_PACK == 1
    ATTN_BY_STORED_APART(k->dtype, side_ordered, k, q, words, s, max);
#else
    side_ordered_of(ATTN_F32, k, q, words, s, max);
#endif
}

#endif

#endif
