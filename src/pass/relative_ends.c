/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ends of the sums of terms by distance: how they begin, and how they become
 * part of dQ, dK and the gradients of tables once all of their terms are there.
 *
 * An end that no pair has come to leaves its row alone, which may be anything.
 */
#include "pass/gradients.h"
#include "pass/pass.h"

#include <math.h>

void attn_clear_ends(float *const ends[2], int64_t first, int64_t n)
{
    for (int side = 0; side < 2; side++)
        for (int64_t i = 0; i < n; i++)
            ends[side][first + i] = ATTN_NO_PAIR;
}

/** Adds an end times a row to a row whose channels are step apart. */
static void add_end(float end, const struct attn_rows *rows, int64_t i, int64_t channels, float *sum, ptrdiff_t step)
{
    if (end == 0.0f && signbit(end)) /* the row may be anything */
        return;
    const float *const row = (const float *)(const void *)row_of(rows, i);
    for (int64_t c = 0; c < channels; c++)
        sum[c * step] += end * row[c];
}

void attn_join_relative_queries(const struct attn_work *work, int64_t first, int rows, int width,
                                const struct attn_relative_sums *sums, const float *relative, float *dq)
{
    for (ptrdiff_t i = 0; i < (ptrdiff_t)work->dk * width; i++)
        dq[i] += relative[i];
    for (int side = 0; side < 2; side++)
        for (int r = 0; r < rows; r++)
            add_end(sums->query_ends[side][first + r], &work->relative.k, side ? 2 * work->relative.span - 1 : 0,
                    work->dk, dq + r, width);
}

void attn_join_relative_keys(const struct attn_work *work, const struct attn_gradient_keys *keys,
                             const struct attn_relative_sums *sums, float factor, float *dk, float *dots)
{
    const int64_t n = keys->end - keys->first, channels = work->dk;
    for (int side = 0; side < 2; side++)
        for (int64_t j = 0; j < n; j++)
            add_end(sums->key_ends[side][j], &work->relative.q, side ? 2 * work->relative.span - 1 : 0, channels,
                    sums->keys + j * channels, 1);
    if (dots) {
        const struct attn_rows k = {(void *)(uintptr_t)keys->k, keys->k_stride, ATTN_F32, NULL, 0};
        const struct attn_rows rows = {sums->keys, channels * (ptrdiff_t)sizeof(float), ATTN_F32, NULL, 0};
        work->kernels->vectors->dot_rows(dots, &k, &rows, n, channels);
        for (int64_t j = 0; j < n; j++)
            if (attn_is_zero(sums->keys + j * channels, channels))
                dots[j] = 0.0f;
    }
    for (int64_t i = 0; dk && i < n * channels; i++)
        dk[i] += factor * sums->keys[i];
}

void attn_add_ends_to_rows(const struct attn_work *work, const struct attn_rows *rows, int64_t n, float *const ends[2],
                           float *row, float *sums)
{
    for (int64_t i = 0; i < n; i++) {
        struct attn_rows one = attn_rows_from(rows, i);
        if (one.dtype != ATTN_F32) {
            work->kernels->vectors->widen(row, &one, 1, work->dk);
            one = (struct attn_rows){row, 0, ATTN_F32, NULL, 0};
        }
        add_end(ends[0][i], &one, 0, work->dk, sums, 1);
        add_end(ends[1][i], &one, 0, work->dk, sums + (2 * work->relative.span - 1) * work->dk, 1);
    }
}
