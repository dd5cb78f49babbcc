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
 * the keys that have such distances. Both are tiles of scores, and nothing
 * is kept beyond the tile.
 */
#include "pass/pass.h"

/** Copies n rows of a table, for the offsets first, first + step, ...: row clip(offset + span, 0, 2 * span - 1). */
static void gather_rows(const struct attn_rows *table, int64_t span, int64_t first, int64_t step, int n, int64_t width,
                        float *dst)
{
    for (int t = 0; t < n; t++, dst += width) {
        const int64_t row = first + step * t + span;
        memcpy(dst, row_of(table, row < 0 ? 0 : row < 2 * span ? row : 2 * span - 1), (size_t)width * sizeof *dst);
    }
}

/** s[i] += add[i] for n floats. */
static void add_floats(float *s, const float *add, int n)
{
    for (int r = 0; r < n; r++)
        s[r] += add[r];
}

/** Multiplies nv vectors of queries with n rows of floats. */
static void plain_scores(const struct pass *pass, const float *q, int nv, const char *k, ptrdiff_t k_stride, int n,
                         float *s)
{
    const struct attn_tile_mask none = {.kind = MASK_NONE};
    float max[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
    const struct attn_score_operands operands = {
        .q = q, .k = k, .k_stride = k_stride, .words = pass->work->dk, .mask = &none, .s = s};
    pass->scores->scores(nv, &operands, n, max);
}

static void add_content_to_position(const struct pass *pass, const struct strip *strip, int64_t distance, int n,
                                    float *s)
{
    const struct attn_work *work = pass->work;
    const struct attn_scratch *scratch = &pass->scratch;
    const int width = strip->width, distances = width + n - 1, full = pass->work->kernels->strip;
    for (int t = 0; t < distances; t += full) {
        const int count = distances - t < full ? distances - t : full;
        gather_rows(&work->relative.k, work->relative.span, distance + t, 1, count, work->dk, scratch->relative_rows);
        plain_scores(pass, strip->q, strip->nv, (const char *)scratch->relative_rows, work->dk * ATTN_WORD, count,
                     scratch->relative_s + (ptrdiff_t)t * width);
    }
    for (int j = 0; j < n; j++)
        for (int r = 0; r < width; r++)
            s[j * width + r] += scratch->relative_s[(ptrdiff_t)(r + n - 1 - j) * width + r];
}

static void add_position_to_content(const struct pass *pass, const struct strip *strip, int64_t distance, const char *k,
                                    ptrdiff_t k_stride, int n, float *s)
{
    const struct attn_work *work = pass->work;
    const struct attn_scratch *scratch = &pass->scratch;
    const int width = strip->width, distances = width + n - 1, full = pass->work->kernels->strip;
    const int sign = work->relative.delta == ATTN_DELTA_KEY_QUERY ? -1 : 1;
    for (int t = 0; t < distances; t += full) {
        const int count = distances - t < full ? distances - t : full, lanes = pass->vectors->lanes;
        const struct attn_rows rows = {scratch->relative_rows, (ptrdiff_t)sizeof(float) * work->dk, ATTN_F32, NULL, 0};
        gather_rows(&work->relative.q, work->relative.span, sign * (distance + t), sign, count, work->dk,
                    scratch->relative_rows);
        const int nv = (count + lanes - 1) / lanes;
        char *pointers[ATTN_MAX_STRIP];
        row_pointers(&rows, 0, count, pointers);
        pass->vectors->read_rows(scratch->relative_q, nv * lanes, nv * lanes, (const char *const *)pointers, ATTN_F32,
                                 count, work->dk, work->scale);
        /* Distance t belongs to lane r of key j = r + n - 1 - t. */
        const int first = n - t - count > 0 ? n - t - count : 0;
        const int end = width + n - 1 - t < n ? width + n - 1 - t : n;
        plain_scores(pass, scratch->relative_q, nv, k + first * k_stride, k_stride, end - first, scratch->relative_s);
        for (int j = first; j < end; j++) {
            const int shift = t - (n - 1 - j); /* lane of the row's element 0 */
            const int from = shift > 0 ? shift : 0, to = shift + count < width ? shift + count : width;
            if (from < to)
                add_floats(s + (ptrdiff_t)j * width + from,
                           scratch->relative_s + (ptrdiff_t)(j - first) * nv * lanes + (from - shift), to - from);
        }
    }
}

void attn_add_relative(const struct pass *pass, const struct strip *strip, int64_t first, const char *k,
                       ptrdiff_t k_stride, int n, float *s)
{
    const struct attn_work *work = pass->work;
    const int64_t distance = work->view.position + strip->first - first - n + 1; /* that of t = 0 */
    if (work->relative.k.data)
        add_content_to_position(pass, strip, distance, n, s);
    if (work->relative.q.data)
        add_position_to_content(pass, strip, distance, k, k_stride, n, s);
}
