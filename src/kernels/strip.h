/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strip: the queries that a register tile covers, and what is kept of them
 * between two blocks of keys.
 */
#ifndef ATTN_STRIP_H
#define ATTN_STRIP_H

/** One strip of queries. */
struct strip {
    float *q, *o, *m, *l, *factor, *validity, *shift; /**< its parts of what struct attn_scratch describes */
    int64_t first;                                    /**< its first query within the block of queries */
    int rows, nv;
    int started; /**< m, l and o hold something */
};

/** Strip i of the block. */
static struct strip strip_at(const struct attn_work *work, const struct attn_scratch *scratch, int64_t i)
{
    const int64_t first = i * STRIP, left = work->num_queries - first;
    const int rows = left < STRIP ? (int)left : STRIP;
    return (struct strip){.q = scratch->q + i * STRIP * channel_words(work->dk),
                          .o = scratch->o + i * STRIP * work->dv,
                          .m = scratch->m + i * STRIP,
                          .l = scratch->l + i * STRIP,
                          .factor = scratch->factor + i * STRIP,
                          .validity = scratch->validity + i * STRIP,
                          .shift = scratch->shift + i * STRIP,
                          .first = first,
                          .rows = rows,
                          .nv = (rows + VF_LEN - 1) / VF_LEN};
}

/** The keys, counted from the first, that some query of the strip can see by the diagonal. */
static int64_t visible_keys(const struct attn_work *work, const struct strip *strip)
{
    const int64_t visible = strip->first + strip->rows + work->diagonal;
    return visible < 0 ? 0 : visible < work->num_keys ? visible : work->num_keys;
}

/** The rows of Q of a strip. */
static struct attn_rows strip_rows(const struct attn_work *work, const struct strip *strip)
{
    return (struct attn_rows){row_at(&work->q, strip->first), work->q.stride, work->q.dtype};
}

#endif
