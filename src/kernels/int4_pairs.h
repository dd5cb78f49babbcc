/* SPDX-License-Identifier: Apache-2.0 */
/*
 * K and V of ATTN_I4 in pairs of bf16, as they lie, for few queries whose sums are
 * free (attn_params.sums): channels are the lanes.
 *
 *     S[query][key]     = sum_g scale[key][g] * sum_{c of group g} n[key][c] * Q[query][c]
 *     O[query][channel] += sum_key (P[query][key] * scale[key][g]) * n[key][channel]
 *
 * bf16 has the numbers n exactly, so a table makes words of the elements in which
 * they lie (simd/int4_*.h), 128 channels of a key, or of V of two keys, at a time: a
 * slice, of which a row may lack groups at its end. The order of its channels is that
 * of the numbers in their elements; Q's rows have been brought into it
 * (attn_int4_channel()). A scale multiplies the finished sum of its group, or the
 * weights, which are rounded to bf16 once more then.
 *
 * Four rows are taken together: each gives a quarter of a vector of scales. The order
 * of a sum follows from the channels, and from the pairs of keys in their order, so
 * bits do not depend on where rows lie.
 */
#ifndef ATTN_INT4_PAIRS_H
#define ATTN_INT4_PAIRS_H

#include "kernels/kernels.h"
#include "kernels/rows.h"
#include "simd/words.h"

#ifdef VW_INT4

/** Four rows. */
struct int4_rows {
    const char *at[4];
    const float *scale[4];
};

/** Rows j..j+3 of a run of whole groups; where not all are there, the last one stands for those behind it. */
ATTN_INLINE struct int4_rows int4_rows_of_run(const int all, const struct attn_row_run *run, const int groups, int j)
{
    struct int4_rows rows;
    ATTN_UNROLL
    for (int i = 0; i < 4; i++) {
        const int row = all || j + i < run->n ? j + i : run->n - 1;
        rows.at[i] = run->first + row * (ptrdiff_t)groups * (ATTN_I4_GROUP / 2);
        rows.scale[i] = run->scale + row * run->scale_stride;
    }
    return rows;
}

/** Groups of a slice, of as many in a row. */
ATTN_INLINE int int4_groups_in(int64_t groups, int64_t slice)
{
    return groups - 4 * slice < 4 ? (int)(groups - 4 * slice) : 4;
}

/** A slice of a row, of so many groups. */
ATTN_INLINE vw int4_elements(const char *row, int64_t slice, const int groups)
{
    const char *const at = row + slice * (4 * ATTN_I4_GROUP / 2);
    return groups == 4 ? vw_load(at) : vw_load_tail(at, 4 * groups);
}

/** The scales of a slice of four rows. */
ATTN_INLINE vf int4_scales(const struct int4_rows *rows, int64_t slice, const int groups)
{
    const float *const at[4] = {rows->scale[0] + 4 * slice, rows->scale[1] + 4 * slice, rows->scale[2] + 4 * slice,
                                rows->scale[3] + 4 * slice};
    return vf_load_quarters(at, groups);
}

/** Notes in seen, from 0 on, what is not finite. A sum is not, if a scale in it is not: a scale multiplies a sum or a
 * weight of 0, too. */
ATTN_INLINE vf int4_note(vf seen, vf sums)
{
    return vf_fma(sums, vf_zero(), seen);
}

/** Tells a run that a scale may be wrong. */
ATTN_INLINE void int4_tell(const struct attn_row_run *run, vf seen)
{
    float lanes[VF_LEN];
    int wrong = 0;
    if (!run->wrong)
        return;
    vf_store(lanes, seen);
    for (int i = 0; i < VF_LEN; i++)
        wrong |= lanes[i] != 0.0f;
    if (wrong)
        *run->wrong = 1;
}

/** Adds a slice of four keys and nr queries at q to sums: in quarter g those of group g. */
ATTN_INLINE void int4_add_products(const int nr, const int groups, const struct int4_rows *keys, int64_t slice,
                                   const float *q, int64_t pitch, vf *sums)
{
    vf acc[4][4];
    ATTN_UNROLL
    for (int i = 0; i < 4; i++) {
        const vw elements = int4_elements(keys->at[i], slice, groups);
        ATTN_UNROLL
        for (int t = 0; t < 4; t++) {
            const vw numbers = vw_int4(elements, t);
            ATTN_UNROLL
            for (int r = 0; r < nr; r++)
                acc[r][i] =
                    vf_dot(numbers, vw_load(q + r * pitch + (4 * slice + t) * VF_LEN), t == 0 ? vf_zero() : acc[r][i]);
        }
    }
    const vf scales = vf_turn_quarters(int4_scales(keys, slice, groups));
    ATTN_UNROLL
    for (int r = 0; r < nr; r++)
        sums[r] = vf_fma(vf_sum_quarters(acc[r]), scales, sums[r]);
}

/** Products of four keys and nr queries, in quarters that vf_add_quarters() adds up. */
ATTN_INLINE void int4_products(const int nr, int64_t groups, const struct int4_rows *keys, const float *q,
                               int64_t pitch, vf *sums)
{
    ATTN_UNROLL
    for (int r = 0; r < nr; r++)
        sums[r] = vf_zero();
    int64_t slice = 0;
    for (; 4 * slice + 4 <= groups; slice++)
        int4_add_products(nr, 4, keys, slice, q, pitch, sums);
    if (4 * slice < groups)
        int4_add_products(nr, int4_groups_in(groups, slice), keys, slice, q, pitch, sums);
}

/** Adds a slice of four keys to the sums of nr queries; p: their weights, four elements each. */
ATTN_INLINE void int4_add_values(const int nr, const int groups, const struct int4_rows *keys, int64_t slice,
                                 const uint64_t *p, vf acc[][4][2])
{
    const vf scales = int4_scales(keys, slice, groups);
    vw weights[2][2];
    ATTN_UNROLL
    for (int r = 0; r < nr; r++)
        vw_weigh_quarters(scales, p[r], weights[r]);
    ATTN_UNROLL
    for (int pair = 0; pair < 2; pair++) {
        vw zipped[2];
        vw_zip_quarters(int4_elements(keys->at[2 * pair], slice, groups),
                        int4_elements(keys->at[2 * pair + 1], slice, groups), zipped);
        ATTN_UNROLL
        for (int half = 0; half < 2; half++) {
            ATTN_UNROLL
            for (int t = 0; t < 4; t++) {
                const vw numbers = vw_int4(zipped[half], t);
                ATTN_UNROLL
                for (int r = 0; r < nr; r++)
                    acc[r][t][half] = vf_dot(numbers, weights[r][pair], acc[r][t][half]);
            }
        }
    }
}

/** A slice of n channels of a query's sums, in the order of the numbers, times what they are to be multiplied by. */
ATTN_INLINE void int4_load_sums(const int whole, int n, enum attn_accumulate mode, float alpha, const float *o,
                                vf acc[4][2])
{
    vf channels[8];
    ATTN_UNROLL
    for (int w = 0; w < 8; w++) {
        const int left = n - w * VF_LEN;
        channels[w] = mode == ACCUMULATE_FIRST  ? vf_zero()
                      : whole || left >= VF_LEN ? vf_load(o + w * VF_LEN)
                      : left > 0                ? vf_load_tail(o + w * VF_LEN, left)
                                                : vf_zero();
        if (mode == ACCUMULATE_RESCALE)
            channels[w] = vf_mul(channels[w], vf_set1(alpha));
    }
    vf_to_int4(channels, acc);
}

/** The way back; what stands for channels that are not there is left out. */
ATTN_INLINE void int4_store_sums(const int whole, int n, vf acc[4][2], float *o)
{
    vf channels[8];
    vf_from_int4(acc, channels);
    ATTN_UNROLL
    for (int w = 0; w < 8; w++) {
        const int left = n - w * VF_LEN;
        if (whole || left >= VF_LEN)
            vf_store(o + w * VF_LEN, channels[w]);
        else if (left > 0)
            vf_store_tail(o + w * VF_LEN, channels[w], left);
    }
}

/* ------------------------------------------------------------------- runs -- */

/** Scores of nr queries and keys j..j+VF_LEN-1 of a run, all of them there or not; q: of the first of these. */
ATTN_INLINE void int4_run_group(const int nr, const int all, const int groups, const struct attn_row_run *k,
                                const float *q, int j, vf *scores)
{
    const int64_t pitch = attn_int4_words((int64_t)groups * ATTN_I4_GROUP);
    vf sums[4][4];
    ATTN_UNROLL
    for (int i = 0; i < 4; i++) {
        const struct int4_rows rows = int4_rows_of_run(all, k, groups, j + 4 * i);
        int4_products(nr, groups, &rows, q, pitch, sums[i]);
    }
    ATTN_UNROLL
    for (int r = 0; r < nr; r++) {
        const vf quarters[4] = {sums[0][r], sums[1][r], sums[2][r], sums[3][r]};
        scores[r] = vf_add_quarters(quarters);
    }
}

/** The same, stored. */
ATTN_INLINE void int4_run_scores(const int nr, const int groups, const struct attn_row_run *k, const float *q, int j,
                                 float *s, ptrdiff_t pitch, vf *most, vf *seen)
{
    const int there = k->n - j;
    vf scores[4];
    if (there >= VF_LEN)
        int4_run_group(nr, 1, groups, k, q, j, scores);
    else
        int4_run_group(nr, 0, groups, k, q, j, scores);
    ATTN_UNROLL
    for (int r = 0; r < nr; r++) {
        most[r] = vf_max(scores[r], most[r]); /* NaN left out; what stands for no key is the last one again */
        *seen = int4_note(*seen, scores[r]);
        if (there >= VF_LEN)
            vf_store(s + r * pitch + j, scores[r]);
        else
            vf_store_tail(s + r * pitch + j, scores[r], there);
    }
}

/** scores_side_by_side() of rows of so many groups. */
ATTN_INLINE void int4_scores_of_run(const int groups, const struct attn_row_run *k, const float *q, int rows, float *s,
                                    ptrdiff_t pitch, float *max)
{
    const int64_t words = attn_int4_words((int64_t)groups * ATTN_I4_GROUP);
    vf most[VF_LEN / 2], seen = vf_zero();
    for (int r = 0; r < rows; r++)
        most[r] = vf_set1(-INFINITY);
    for (int j = 0; j < k->n; j += VF_LEN) {
        int r = 0;
        for (; r + 4 <= rows; r += 4)
            int4_run_scores(4, groups, k, q + r * words, j, s + r * pitch, pitch, most + r, &seen);
        if (r + 2 <= rows) {
            int4_run_scores(2, groups, k, q + r * words, j, s + r * pitch, pitch, most + r, &seen);
            r += 2;
        }
        if (r < rows)
            int4_run_scores(1, groups, k, q + r * words, j, s + r * pitch, pitch, most + r, &seen);
    }
    for (int r = 0; r < rows; r++)
        max[r] = vf_max_across(most[r]);
    int4_tell(k, seen);
}

/** Adds rows first..end-1 of a run to nr queries' sums; first is a multiple of 4. */
ATTN_INLINE void int4_run_values(const int nr, const int groups, const struct attn_row_run *v, int first, int end,
                                 const float *p, ptrdiff_t pitch, enum attn_accumulate mode, const float *alpha,
                                 float *o)
{
    const int channels = groups * ATTN_I4_GROUP;
    vf acc[2][4][2], seen = vf_zero();
    ATTN_UNROLL
    for (int r = 0; r < nr; r++)
        int4_load_sums(0, channels, mode, mode == ACCUMULATE_RESCALE ? alpha[r] : 1.0f, o + r * channels, acc[r]);
    for (int j = first; j < end; j += 4) {
        uint64_t weights[2] = {0, 0};
        const int words = end - j < 4 ? (int)key_words(end - j) : 2;
        ATTN_UNROLL
        for (int r = 0; r < nr; r++) {
            if (words == 2)
                memcpy(&weights[r], p + r * pitch + j / 2, sizeof *weights);
            else
                memcpy(&weights[r], p + r * pitch + j / 2, sizeof *p);
        }
        struct int4_rows rows;
        if (end - j >= 4)
            rows = int4_rows_of_run(1, v, groups, j);
        else
            rows = int4_rows_of_run(0, v, groups, j);
        int4_add_values(nr, groups, &rows, 0, weights, acc);
    }
    ATTN_UNROLL
    for (int r = 0; r < nr; r++) {
        ATTN_UNROLL
        for (int w = 0; w < 8; w++)
            seen = int4_note(seen, acc[r][w / 2][w % 2]);
        int4_store_sums(0, channels, acc[r], o + r * channels);
    }
    int4_tell(v, seen);
}

/** values_side_by_side() of rows of so many groups. */
ATTN_INLINE void int4_values_of_run(const int groups, const struct attn_row_run *v, int rows, const float *p,
                                    ptrdiff_t pitch, enum attn_accumulate mode, const float *alpha, float *o)
{
    const int channels = groups * ATTN_I4_GROUP, step = rows <= 2 ? v->n : ATTN_SIDE_ROWS;
    for (int first = 0; first < v->n; first += step) {
        const int end = v->n - first < step ? v->n : first + step;
        const enum attn_accumulate now = first == 0 ? mode : ACCUMULATE_ADD;
        int r = 0;
        for (; r + 2 <= rows; r += 2)
            int4_run_values(2, groups, v, first, end, p + r * pitch, pitch, now, alpha + r, o + r * channels);
        if (r < rows)
            int4_run_values(1, groups, v, first, end, p + r * pitch, pitch, now, alpha + r, o + r * channels);
    }
}

/* ------------------------------------------------------ few queries, and lists -- */

/** Rows j..j+3 of a list of n; the last one stands for those behind it. */
ATTN_INLINE struct int4_rows int4_rows_listed(const struct attn_listed_rows *listed, int j, int n)
{
    struct int4_rows rows;
    ATTN_UNROLL
    for (int i = 0; i < 4; i++) {
        const int row = j + i < n ? j + i : n - 1;
        rows.at[i] = listed->at[row];
        rows.scale[i] = listed->scale[row];
    }
    return rows;
}

/** The weights of query r for keys j..j+3, of which some may not be there. */
ATTN_INLINE uint64_t int4_weights(const struct attn_few_values *x, int j, int r)
{
    uint32_t words[2] = {0, 0};
    memcpy(&words[0], x->p + j / 2 * VF_LEN + r, sizeof *words);
    if (j + 2 < x->keys)
        memcpy(&words[1], x->p + (j / 2 + 1) * VF_LEN + r, sizeof *words);
    return (uint64_t)words[1] << 32 | words[0];
}

/** A slice of queries r..r+nr-1. The first of all asks for what is wanted next. */
ATTN_INLINE void int4_value_slice(const int nr, const int whole, const struct attn_few_values *x, int r, int64_t slice)
{
    const int groups = whole ? 4 : int4_groups_in(attn_groups_of(x->dv), slice);
    const int64_t c = slice * 4 * ATTN_I4_GROUP;
    const int n = whole ? 4 * ATTN_I4_GROUP : (int)(x->dv - c);
    float *const o = x->o + r * x->dv + c;
    vf acc[2][4][2];
    ATTN_UNROLL
    for (int i = 0; i < nr; i++)
        int4_load_sums(whole, n, x->mode, x->mode == ACCUMULATE_RESCALE ? x->alpha[r + i] : 1.0f, o + i * x->dv,
                       acc[i]);
    for (int j = 0; j < x->keys; j += 4) {
        const struct int4_rows rows = int4_rows_listed(&x->v, j, x->keys);
        if (r == 0 && c == 0)
            ask_for_rows(&x->v, j, j + 4);
        uint64_t weights[2];
        ATTN_UNROLL
        for (int i = 0; i < nr; i++)
            weights[i] = int4_weights(x, j, r + i);
        int4_add_values(nr, groups, &rows, slice, weights, acc);
    }
    ATTN_UNROLL
    for (int i = 0; i < nr; i++)
        int4_store_sums(whole, n, acc[i], o + i * x->dv);
}

ATTN_INLINE void int4_value_rows(const int nr, const struct attn_few_values *x, int r)
{
    int64_t slice = 0;
    for (; (slice + 1) * 4 * ATTN_I4_GROUP <= x->dv; slice++)
        int4_value_slice(nr, 1, x, r, slice);
    if (slice * 4 * ATTN_I4_GROUP < x->dv)
        int4_value_slice(nr, 0, x, r, slice);
}

/** values_of_few() of ATTN_I4 where sums are free. */
ATTN_INLINE void int4_values_of_few(const struct attn_few_values *x)
{
    int r = 0;
    for (; r + 2 <= x->rows; r += 2)
        int4_value_rows(2, x, r);
    if (r < x->rows)
        int4_value_rows(1, x, r);
}

#endif

#endif
