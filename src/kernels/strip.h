/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strip: the queries that a register tile covers, and what is kept of them
 * between two blocks of keys.
 *
 * Strips follow each other; under a block-sparse pattern each block row is cut
 * into strips of its own, so that all queries of a strip see the same keys.
 */
#ifndef ATTN_STRIP_H
#define ATTN_STRIP_H

/** n rows turned by rows first.. of a table, in dst, [n][width] floats. */
static struct attn_rows rotated_rows(const struct attn_rotations *by, const struct attn_rows *table, int64_t first,
                                     const struct attn_rows *rows, int n, int64_t width, float *dst)
{
    const struct attn_rows rotated = {dst, (ptrdiff_t)sizeof(float) * width, ATTN_F32};
    rotate_rows(&rotated, rows, (const float *)(const void *)row_at(table, first),
                table->stride / (ptrdiff_t)sizeof(float), n, by->pairs, width, by->layout);
    return rotated;
}

/** One strip of queries. */
struct strip {
    float *q, *o, *m, *l, *factor, *validity, *shift; /**< its parts of what struct attn_scratch describes */
    int64_t first;                                    /**< its first query within the block of queries */
    int rows, nv;
    int started;                     /**< m, l and o hold something */
    int32_t first_label, last_label; /**< smallest and largest of its rows' segments */
};

/** Smallest and largest of n labels. */
static void label_range(const int32_t *labels, int64_t n, int32_t *first, int32_t *last)
{
    *first = *last = labels[0];
    for (int64_t i = 1; i < n; i++) {
        *first = labels[i] < *first ? labels[i] : *first;
        *last = labels[i] > *last ? labels[i] : *last;
    }
}

/** Strip i of the block. */
static struct strip strip_at(const struct attn_work *work, const struct attn_scratch *scratch, int64_t i)
{
    const int64_t height = attn_strip_rows(STRIP, VF_LEN, work->segment);
    const int64_t per_segment = attn_segment_strips(STRIP, VF_LEN, work->segment);
    const int64_t piece = work->segment ? i % per_segment * height : 0;
    const int64_t first = work->segment ? i / per_segment * work->segment + piece : i * STRIP;
    int64_t left = work->num_queries - first;
    if (work->segment && work->segment - piece < left)
        left = work->segment - piece;
    const int rows = left < height ? (int)left : (int)height;
    struct strip strip = {.q = scratch->q + i * STRIP * channel_words(work->dk),
                          .o = scratch->o + i * STRIP * work->dv,
                          .m = scratch->m + i * STRIP,
                          .l = scratch->l + i * STRIP,
                          .factor = scratch->factor + i * STRIP,
                          .validity = scratch->validity + i * STRIP,
                          .shift = scratch->shift + i * STRIP,
                          .first = first,
                          .rows = rows,
                          .nv = (rows + VF_LEN - 1) / VF_LEN};
    if (work->view.q_segments)
        label_range(work->view.q_segments + first, rows, &strip.first_label, &strip.last_label);
    return strip;
}

/** Rows first..first+n-1 of Q of a strip; if they are to be rotated, at most VF_LEN, in memory that the next call uses.
 */
static struct attn_rows query_rows(const struct attn_work *work, const struct attn_scratch *scratch,
                                   const struct strip *strip, int first, int n)
{
    const struct attn_rotations *by = &work->rotations;
    const struct attn_rows rows = {row_at(&work->q, strip->first + first), work->q.stride, work->q.dtype};
    return by->q.data ? rotated_rows(by, &by->q, strip->first + first, &rows, n, work->dk, scratch->rotated) : rows;
}

#endif
