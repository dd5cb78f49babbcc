/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second product of one query, or of few, and values that follow each other in
 * memory (score_side.h):
 *
 *     O[query][channel] += sum_key P[query][key] * V[key][channel]
 *
 * O of some queries stays in registers, a row is read from its first line to its last,
 * and a word of weights is broadcast. More queries than that take ATTN_SIDE_ROWS rows,
 * which the first of them have left in the nearest cache. Where registers hold O of one
 * query only, several take narrow parts of half as many rows, each converted once for
 * four, and the first of them ask for the rows behind these. The order of a sum is that
 * of the keys, as everywhere.
 */
#ifndef ATTN_VALUE_SIDE_H
#define ATTN_VALUE_SIDE_H

#include "kernels/int4_pairs.h"
#include "kernels/value_few.h"
#include "simd/words.h"

#include <assert.h>

#if VF_LEN == 1
#define VALUES_SIDE_BY_SIDE NULL
#else
#define VALUES_SIDE_BY_SIDE values_side_by_side

/** Vectors of a row at most that queries add at once: what registers hold of their sums. */
#define SIDE_PART           8

/** What adds nw vectors, from channel c on, of the keys of word u, whose rows have so many bytes and these vectors at
 * row, with their weights, to nr queries' sums; p: [query][pitch] words. */
#if VF_PACK == 1
#define ADD_KEYS_OF_WORD add_key
ATTN_INLINE void add_key(const attn_dtype dtype, const int free, const int nw, const int nr,
                         const struct attn_row_run *v, int64_t c, const char *row, ptrdiff_t bytes, const float *p,
                         ptrdiff_t pitch, int u, vf acc[][SIDE_PART])
{
    (void)bytes;
    const int brings = scales_weights(dtype, free), group = ATTN_I4_GROUP / VF_LEN;
    const int whole = dtype == ATTN_I4 && nw % group == 0;
    const float *const scale = attn_is_quantised(dtype) ? v->scale + u * v->scale_stride : NULL;
    const float *const scales = scales_in(dtype, scale, c);
    vf of_group[ATTN_I4_GROUP / VF_LEN], weight[4];
    ATTN_UNROLL
    for (int r = 0; r < nr; r++)
        weight[r] = vf_set1(brings ? p[r * pitch + u] * *scale : p[r * pitch + u]);
    ATTN_UNROLL
    for (int w = 0; w < nw; w++) {
        if (whole && w % group == 0)
            stored_group(row, w * VF_LEN, scales, of_group);
        const vf elements = whole    ? of_group[w % group]
                            : brings ? stored_numbers(dtype, row, w * VF_LEN)
                                     : stored_load(dtype, row, w * VF_LEN, scales);
        ATTN_UNROLL
        for (int r = 0; r < nr; r++)
            acc[r][w] = vf_dot(elements, weight[r], acc[r][w]);
        ATTN_LOAD_IN_ORDER(row);
    }
}
#else
/** nw vectors of words of the row at row and, if there are two, the one that is so many bytes behind it. */
ATTN_INLINE void two_rows(const attn_dtype dtype, const int nw, const char *row, ptrdiff_t bytes, int two, vw *words)
{
    (void)dtype; /* bf16, where a set has no other */
#ifdef VW_F8
    if (dtype == ATTN_F8_E4M3) {
        const int at_once = nw < 4 ? nw : 4;
        ATTN_UNROLL
        for (int w = 0; w < nw; w += at_once) {
            vw some[4];
            vw_zip_f8(row + w * VF_LEN, two ? row + bytes + w * VF_LEN : NULL, at_once * VF_LEN, some);
            memcpy(words + w, some, (size_t)at_once * sizeof *words);
        }
        return;
    }
#endif
    ATTN_UNROLL
    for (int w = 0; w < nw; w++) {
        words[w] = vw_of_first((const uint16_t *)(const void *)row + w * VF_LEN);
        ATTN_LOAD_IN_ORDER(row);
    }
    if (two) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++) {
            words[w] = vw_add_second(words[w], (const uint16_t *)(const void *)(row + bytes) + w * VF_LEN);
            ATTN_LOAD_IN_ORDER(row);
        }
    }
}

#define ADD_KEYS_OF_WORD add_pair_of_keys
ATTN_INLINE void add_pair_of_keys(const attn_dtype dtype, const int free, const int nw, const int nr,
                                  const struct attn_row_run *v, int64_t c, const char *row, ptrdiff_t bytes,
                                  const float *p, ptrdiff_t pitch, int u, vf acc[][SIDE_PART])
{
    (void)free, (void)c;
    vw words[SIDE_PART], weight[4];
    ATTN_UNROLL
    for (int r = 0; r < nr; r++)
        weight[r] = vw_set1((const char *)(p + r * pitch + u));
    two_rows(dtype, nw, row, bytes, 2 * u + 1 < v->n, words);
    ATTN_UNROLL
    for (int w = 0; w < nw; w++) {
        ATTN_UNROLL
        for (int r = 0; r < nr; r++)
            acc[r][w] = vf_dot(words[w], weight[r], acc[r][w]);
    }
}
#endif

#if VF_PACK == 1
/** Adds keys first..end-1 of E4M3, nw vectors of them at row and so many bytes on, taken out of words where they lie:
 * value_few.h. Returns 0, and sums of nothing, if a number is not finite. */
ATTN_INLINE int add_f8_keys(const int free, const int nw, const struct attn_row_run *v, const char *row,
                            ptrdiff_t bytes, int first, int end, const float *p, vf *acc)
{
    const float *scale = v->scale + first * v->scale_stride;
    vu seen = vu_set1(0);
    ATTN_UNROLL
    for (int w = 0; w < nw; w += 4)
        to_bytes(acc + w);
    for (int u = first; u < end; u++, row += bytes, scale += v->scale_stride) {
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

/** Words first..end-1 of keys for nr queries, of rows of nw vectors the part of so many from channel c on; what lies so
 * many bytes ahead of it is asked for, if that is not 0. */
ATTN_INLINE void side_value_rows(const attn_dtype dtype, const int nw, const int part, const int free, const int nr,
                                 const struct attn_row_run *v, ptrdiff_t ahead, int64_t c, int first, int end,
                                 const float *p, ptrdiff_t pitch, enum attn_accumulate mode, const float *alpha,
                                 float *o)
{
    const ptrdiff_t bytes = (ptrdiff_t)attn_row_bytes(dtype, nw * VF_LEN);
    const char *row = stored_at(dtype, v->first + first * VF_PACK * bytes, c);
    vf acc[4][SIDE_PART];
    int added = 0;
    o += c;
    ATTN_UNROLL
    for (int r = 0; r < nr; r++)
        load_sums(part, mode, mode == ACCUMULATE_RESCALE ? alpha[r] : 1.0f, o + r * nw * VF_LEN, acc[r]);
#if VF_PACK == 1
    if (nr == 1 && dtype == ATTN_F8_E4M3 && part % 4 == 0 && keeps_denormals()) {
        added = add_f8_keys(free, part, v, row, bytes, first, end, p, acc[0]);
        if (!added)
            load_sums(part, mode, *alpha, o, acc[0]);
    }
#endif
#pragma GCC unroll 2
    for (int u = first; !added && u < end; u++, row += VF_PACK * bytes) {
        for (ptrdiff_t at = 0; ahead && at < part * bytes / nw; at += ATTN_ALIGN)
            __builtin_prefetch(row + ahead + at, 0, 3);
        ADD_KEYS_OF_WORD(dtype, free, part, nr, v, c, row, bytes, p, pitch, u, acc);
    }
    ATTN_UNROLL
    for (int r = 0; r < nr; r++) {
        ATTN_UNROLL
        for (int w = 0; w < part; w++)
            vf_store(o + (r * nw + w) * VF_LEN, acc[r][w]);
    }
}

/** Queries whose sums fit into registers beside a row's part. */
#define SIDE_QUERIES(part) (FEW_SUMS / (part) >= 4 ? 4 : FEW_SUMS / (part) >= 2 ? 2 : 1)

/** Whether these are several, for the widest part. */
#define SIDE_KEEPS_PARTS   (SIDE_QUERIES(SIDE_PART) > 1)

/** Rows that some queries take at a time. */
ATTN_INLINE int side_rows(int rows)
{
    return rows > 1 && !SIDE_KEEPS_PARTS ? ATTN_SIDE_ROWS / 2 : ATTN_SIDE_ROWS;
}

/** Words first..end-1 of keys and all parts of rows for queries r..r+nr-1. */
ATTN_INLINE void side_value_queries(const attn_dtype dtype, const int nw, const int free, const int nr,
                                    const struct attn_row_run *v, int first, int end, int r, int rows, const float *p,
                                    ptrdiff_t pitch, enum attn_accumulate mode, const float *alpha, float *o)
{
    const int widest = SIDE_KEEPS_PARTS ? SIDE_PART : FEW_SUMS / nr, part = nw < widest ? nw : widest;
    const ptrdiff_t bytes = (ptrdiff_t)attn_row_bytes(dtype, nw * VF_LEN);
    const int asks = !SIDE_KEEPS_PARTS && rows > 1 && r == 0;
    for (int64_t c = 0; c < nw * VF_LEN; c += part * VF_LEN) {
        const int begins_line = c * bytes / (nw * VF_LEN) % ATTN_ALIGN == 0;
        side_value_rows(dtype, nw, part, free, nr, v, asks && begins_line ? side_rows(rows) * bytes : 0, c, first, end,
                        p + r * pitch, pitch, mode, alpha + r, o + r * nw * VF_LEN);
    }
}

/** Words first..end-1 of keys for all queries. */
ATTN_INLINE void side_value_words(const attn_dtype dtype, const int nw, const int free, const struct attn_row_run *v,
                                  int first, int end, int rows, const float *p, ptrdiff_t pitch,
                                  enum attn_accumulate mode, const float *alpha, float *o)
{
    const int most = SIDE_KEEPS_PARTS ? SIDE_QUERIES(nw < SIDE_PART ? nw : SIDE_PART) : FEW >= 4 ? 4 : 2;
    int r = 0;
    for (; most > 2 && r + most <= rows; r += most)
        side_value_queries(dtype, nw, free, most, v, first, end, r, rows, p, pitch, mode, alpha, o);
    for (; r + 2 <= rows; r += 2)
        side_value_queries(dtype, nw, free, 2, v, first, end, r, rows, p, pitch, mode, alpha, o);
    if (r < rows)
        side_value_queries(dtype, nw, free, 1, v, first, end, r, rows, p, pitch, mode, alpha, o);
}

/** Several queries, or parts of rows, take some rows at a time, which stay in the nearest cache for all of them. */
ATTN_INLINE void side_values(const attn_dtype dtype, const int nw, const int free, const struct attn_row_run *v,
                             int rows, const float *p, ptrdiff_t pitch, enum attn_accumulate mode, const float *alpha,
                             float *o)
{
    const int words = (int)key_words(v->n), one = VF_PACK == 1 && (dtype == ATTN_F8_E4M3 || dtype == ATTN_I4);
    assert(rows == 1 || !one); /* these take one query */
    if (rows == 1 && nw <= SIDE_PART) {
        side_value_rows(dtype, nw, nw < SIDE_PART ? nw : SIDE_PART, free, 1, v, 0, 0, 0, words, p, pitch, mode, alpha,
                        o);
        return;
    }
    if (nw <= SIDE_PART && one)
        return;
    const int step = side_rows(rows) / VF_PACK;
    for (int first = 0; first < words; first += step)
        side_value_words(dtype, nw, free, v, first, words - first < step ? words : first + step, one ? 1 : rows, p,
                         pitch, first == 0 ? mode : ACCUMULATE_ADD, alpha, o);
}

ATTN_INLINE void side_values_of(const attn_dtype dtype, const int free, const struct attn_row_run *v, int rows,
                                const float *p, ptrdiff_t pitch, int64_t dv, enum attn_accumulate mode,
                                const float *alpha, float *o)
{
    ATTN_SIDE_BY_WIDTH(dv, side_values, dtype, free, v, rows, p, pitch, mode, alpha, o);
}

#ifdef VW_INT4
/** Two vectors are a group. */
ATTN_INLINE void side_int4_values(const attn_dtype dtype, const int nw, const struct attn_row_run *v, int rows,
                                  const float *p, ptrdiff_t pitch, enum attn_accumulate mode, const float *alpha,
                                  float *o)
{
    (void)dtype;
    int4_values_of_run(nw / 2, v, rows, p, pitch, mode, alpha, o);
}
#endif

#ifdef VW_F8
/** The same of E4M3 in pairs, whose scales multiply weights. */
ATTN_INLINE void side_f8_values(const struct attn_row_run *v, int rows, const float *p, ptrdiff_t pitch, int64_t dv,
                                enum attn_accumulate mode, const float *alpha, float *o)
{
    enum { WORDS = ATTN_KEY_BLOCK / VF_PACK };
    float scales[2][WORDS] = {{0}}, weights[VF_LEN / 2][WORDS];
    for (int j = 0; j < v->n; j++)
        scales[j % 2][j / 2] = v->scale[j * v->scale_stride];
    for (int u = 0; u < (int)key_words(v->n); u += VF_LEN)
        for (int r = 0; r < rows; r++) {
            const int left = (int)key_words(v->n) - u;
            const float *const at = p + r * pitch + u;
            const vw words = left >= VF_LEN ? vw_load((const char *)at) : vw_load_tail(at, left);
            vw_store(weights[r] + u, vw_weigh(words, vf_load(scales[0] + u), vf_load(scales[1] + u)));
        }
    side_values_of(ATTN_F8_E4M3, 0, v, rows, weights[0], WORDS, dv, mode, alpha, o);
}
#endif

#if VF_PACK == 1
#define SIDE_VALUES                                                                                                    \
    (const struct attn_row_run *v, int rows, const float *p, ptrdiff_t pitch, int64_t dv, enum attn_accumulate mode,   \
     const float *alpha, float *o)
ATTN_APART(side_free_i8, side_values_of, SIDE_VALUES, ATTN_I8, 1, v, rows, p, pitch, dv, mode, alpha, o)
ATTN_APART(side_free_f8, side_values_of, SIDE_VALUES, ATTN_F8_E4M3, 1, v, rows, p, pitch, dv, mode, alpha, o)
ATTN_APART_STORED(side_values, side_values_of, SIDE_VALUES, 0, v, rows, p, pitch, dv, mode, alpha, o)
#endif

/** struct attn_value_kernels, values_side_by_side. */
static void values_side_by_side(const struct attn_row_run *v, int rows, const float *p, ptrdiff_t pitch, int free,
                                int64_t dv, enum attn_accumulate mode, const float *alpha, float *o)
{
#if VF_PACK == 1
    if (free && v->dtype == ATTN_I8)
        side_free_i8(v, rows, p, pitch, dv, mode, alpha, o);
    else if (free && v->dtype == ATTN_F8_E4M3)
        side_free_f8(v, rows, p, pitch, dv, mode, alpha, o);
    else
        ATTN_BY_STORED_APART(v->dtype, side_values, v, rows, p, pitch, dv, mode, alpha, o);
#else
    (void)free;
#ifdef VW_INT4
    if (v->dtype == ATTN_I4) {
        ATTN_SIDE_BY_WIDTH(dv, side_int4_values, ATTN_I4, v, rows, p, pitch, mode, alpha, o);
        return;
    }
#endif
#ifdef VW_F8
    if (v->dtype == ATTN_F8_E4M3) {
        side_f8_values(v, rows, p, pitch, dv, mode, alpha, o);
        return;
    }
#endif
    side_values_of(ATTN_BF16, 0, v, rows, p, pitch, dv, mode, alpha, o);
#endif
}

#endif

#endif
