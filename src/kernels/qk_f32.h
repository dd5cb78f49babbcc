/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores from single floats: Q transposed with the scale folded in, K where it
 * lies or, when it is bf16 or f16, widened once per block.
 *
 * The names of every qk_*.h: RAW_SCORES says whether scores leave the tile
 * without their scale, which a factor per query then brings, in the
 * exponential at the latest.
 */
#ifndef ATTN_QK_H
#define ATTN_QK_H

/* The strips of a block share each block of K and V that comes from a far cache; more queries gain nothing. */
#define QUERY_BLOCK 288

#define RAW_SCORES  0

ATTN_INLINE vs score_start(const struct score_operands *x, int j)
{
    (void)x, (void)j;
    return vs_zero();
}

ATTN_INLINE vf score_finish(const struct score_operands *x, int j, vs sum)
{
    (void)x, (void)j;
    return sum;
}

/** What scores have lost against the true ones, in base 2: nothing. */
ATTN_INLINE vf score_shift(const float *shift, int i)
{
    (void)shift, (void)i;
    return vf_zero();
}

/** 1 for each query of vector i of a strip: what is not finite is in its scores. */
ATTN_INLINE vf query_validity(const float *validity, int i)
{
    (void)validity, (void)i;
    return vf_set1(1.0f);
}

/** What the packing of K needs to know of all keys: nothing. */
static void survey_keys(const struct attn_work *work, const struct attn_scratch *scratch)
{
    (void)work, (void)scratch;
}

/** Q^T of the rows of a strip. */
static void pack_queries(const struct attn_work *work, const struct attn_rows *rows, const struct attn_scratch *scratch,
                         float *q, float *factor, float *validity, float *shift, int width, int num_rows)
{
    (void)scratch, (void)validity, (void)shift;
    (void)factor;
    transpose_in(q, width, rows, num_rows, work->dk, work->scale);
}

/** n rows of K as words. */
static void pack_keys(const struct attn_scratch *scratch, const struct attn_rows *src, int n, int64_t dk)
{
    ATTN_BY_DTYPE(src->dtype, widen_rows, scratch->k, src, n, dk);
}

#endif
