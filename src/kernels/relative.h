/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Terms of a score that depend on a query or a key and the distance between
 * them (He et al. 2021, "DeBERTa", equation 4; Shaw et al. 2018, equation 4).
 *
 * A tile of n keys and a strip of width queries has width + n - 1 distances,
 * numbered t = r + n - 1 - j for lane r and key j. Content to position: the
 * strip against the table's rows of these distances, as if they were keys, and
 * of the result the elements (t, r) that belong to (j, r). Position to content:
 * the rows of the other table as queries, a strip of them at a time, against
 * the keys that have such distances. Both are products of tile.h, and nothing
 * is kept beyond the tile.
 */
#ifndef ATTN_RELATIVE_H
#define ATTN_RELATIVE_H

#include <string.h>

static int has_relative(const struct attn_work *work)
{
    return VS_PACK == 1 && (work->relative.k.data || work->relative.q.data); /* they are products of floats */
}

/** Copies n rows of a table, for the offsets first, first + step, ...: row clip(offset + span, 0, 2 * span - 1). */
static void gather_rows(const struct attn_rows *table, int64_t span, int64_t first, int64_t step, int n, int64_t width,
                        float *dst)
{
    for (int t = 0; t < n; t++, dst += width) {
        const int64_t row = first + step * t + span;
        memcpy(dst, row_at(table, row < 0 ? 0 : row < 2 * span ? row : 2 * span - 1), (size_t)width * sizeof *dst);
    }
}

/** s[i] += add[i] for n floats. */
ATTN_INLINE void add_floats(float *s, const float *add, int n)
{
    for (int r = 0; r < n; r += VF_LEN) {
        const int rest = n - r < VF_LEN ? n - r : VF_LEN;
        vf_store_tail(s + r, vf_add(vf_load_tail(s + r, rest), vf_load_tail(add + r, rest)), rest);
    }
}

/** Multiplies nv vectors of queries with n rows of words. */
static void plain_scores(const float *q, int nv, const char *k, ptrdiff_t k_stride, int n, int64_t dk, float *s)
{
    const struct mask none = {MASK_NONE, 0, NULL, NULL, 0, 0};
    float max[STRIP] __attribute__((aligned(ATTN_ALIGN)));
    struct score_operands operands;
    memset(&operands, 0, sizeof operands);
    operands.q = q;
    operands.k = k;
    operands.k_stride = k_stride;
    operands.words = channel_words(dk);
    operands.mask = &none;
    operands.s = s;
    score_tile(nv, &operands, n, max);
}

static void add_content_to_position(const struct attn_work *work, const struct attn_scratch *scratch,
                                    const struct strip *strip, int64_t distance, int n, float *s)
{
    const int width = strip->nv * VF_LEN, distances = width + n - 1;
    for (int t = 0; t < distances; t += STRIP) {
        const int count = distances - t < STRIP ? distances - t : STRIP;
        gather_rows(&work->relative.k, work->relative.span, distance + t, 1, count, work->dk, scratch->relative_rows);
        plain_scores(strip->q, strip->nv, (const char *)scratch->relative_rows, work->dk * WORD, count, work->dk,
                     scratch->relative_s + (ptrdiff_t)t * width);
    }
    for (int j = 0; j < n; j++)
        for (int r = 0; r < width; r++)
            s[j * width + r] += scratch->relative_s[(ptrdiff_t)(r + n - 1 - j) * width + r];
}

static void add_position_to_content(const struct attn_work *work, const struct attn_scratch *scratch,
                                    const struct strip *strip, int64_t distance, const char *k, ptrdiff_t k_stride,
                                    int n, float *s)
{
    const int width = strip->nv * VF_LEN, distances = width + n - 1;
    for (int t = 0; t < distances; t += STRIP) {
        const int count = distances - t < STRIP ? distances - t : STRIP, nv = (count + VF_LEN - 1) / VF_LEN;
        const struct attn_rows rows = {scratch->relative_rows, (ptrdiff_t)sizeof(float) * work->dk, ATTN_F32};
        gather_rows(&work->relative.q, work->relative.span, -(distance + t), -1, count, work->dk,
                    scratch->relative_rows);
        transpose_in(scratch->relative_q, nv * VF_LEN, nv * VF_LEN, &rows, count, work->dk, work->scale);
        /* Distance t belongs to lane r of key j = r + n - 1 - t. */
        const int first = n - t - count > 0 ? n - t - count : 0;
        const int end = width + n - 1 - t < n ? width + n - 1 - t : n;
        plain_scores(scratch->relative_q, nv, k + first * k_stride, k_stride, end - first, work->dk,
                     scratch->relative_s);
        for (int j = first; j < end; j++) {
            const int shift = t - (n - 1 - j); /* lane of the row's element 0 */
            const int from = shift > 0 ? shift : 0, to = shift + count < width ? shift + count : width;
            if (from < to)
                add_floats(s + (ptrdiff_t)j * width + from,
                           scratch->relative_s + (ptrdiff_t)(j - first) * nv * VF_LEN + (from - shift), to - from);
        }
    }
}

/** Adds the terms of a tile to its scores. first is the tile's first key, k its row. */
static void add_relative(const struct attn_work *work, const struct attn_scratch *scratch, const struct strip *strip,
                         int64_t first, const char *k, ptrdiff_t k_stride, int n, float *s)
{
    const int64_t distance = work->view.position + strip->first - first - n + 1; /* that of t = 0 */
    if (work->relative.k.data)
        add_content_to_position(work, scratch, strip, distance, n, s);
    if (work->relative.q.data)
        add_position_to_content(work, scratch, strip, distance, k, k_stride, n, s);
}

#endif
