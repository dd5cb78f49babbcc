/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores from pairs of bf16 (q and k are bf16): pairs of channels, as they lie
 * in memory; only Q is transposed.
 *
 * The scale stays out of Q, where it would cost a rounding: scores leave the
 * tile as plain products and are multiplied before the maximum is subtracted.
 * Only its sign goes into Q, so that the largest product is the largest score.
 */
#ifndef ATTN_QK_H
#define ATTN_QK_H

#include "kernels/qk_plain.h"

#include <math.h>

/* As with single floats. */
#define QUERY_BLOCK 288

#define RAW_SCORES  1

/**
 * Q^T times a scale of 0: a row becomes 0, or NaN if it has a NaN or Inf. The factor could not do this, as its product
 * with a score of -inf has to be -inf.
 */
static void pack_zeros(const struct attn_rows *rows, int n, int64_t dk, int width, float *q)
{
    memset(q, 0, (size_t)(channel_words(dk) * width) * sizeof *q);
    for (int r = 0; r < n; r++) {
        int finite = 1;
        for (int64_t c = 0; c < dk; c++)
            finite &= isfinite(element_at(ATTN_BF16, row_at(rows, r), c)) != 0;
        const uint32_t nan = 0x7fc07fc0u;
        if (!finite)
            memcpy(q + r, &nan, sizeof nan);
    }
}

/** Q^T of the rows of a strip. */
static void pack_queries(const struct attn_work *work, const struct attn_scratch *scratch, const struct strip *strip)
{
    const struct attn_rows rows = query_rows(work, scratch, strip, 0, strip->rows);
    const int64_t dk = work->dk, words = channel_words(dk);
    const int width = strip->nv * VF_LEN;
    float *q = strip->q;
    for (int r = 0; r < width; r += VF_LEN)
        vf_store(strip->factor + r, vf_set1(work->scale == 0.0f ? 1.0f : fabsf(work->scale)));
    if (work->scale == 0.0f) {
        pack_zeros(&rows, strip->rows, dk, width, q);
        return;
    }
    for (int r = 0; r < width; r += VF_LEN) {
        for (int64_t c = 0; c < words; c += VF_LEN) {
            vf a[VF_LEN];
            for (int i = 0; i < VF_LEN; i++) {
                a[i] = vf_zero();
                if (r + i >= strip->rows)
                    continue;
                const char *src = row_at(&rows, r + i) + c * WORD;
                if (2 * (c + VF_LEN) <= dk) {
                    a[i] = vf_load((const void *)src);
                } else {
                    float t[VF_LEN] = {0};
                    memcpy(t, src, (size_t)(dk - 2 * c) * 2);
                    a[i] = vf_load(t);
                }
            }
            vf_transpose(a);
            for (int i = 0; i < VF_LEN && c + i < words; i++) {
                float *dst = q + (c + i) * width + r;
                vf_store(dst, a[i]);
                if (work->scale < 0.0f)
                    vw_store(dst, vw_negate(vw_load(dst)));
            }
        }
    }
}

/** n rows of K as words, from row at of the copy on: with a 0 behind the last element of an odd row. */
static void pack_keys(const struct attn_scratch *scratch, const struct attn_rows *src, int at, int n, int64_t dk)
{
    const size_t pitch = (size_t)channel_words(dk) * WORD;
    for (int j = 0; j < n; j++) {
        char *row = (char *)scratch->k + (size_t)(at + j) * pitch;
        memset(row + pitch - WORD, 0, WORD);
        memcpy(row, row_at(src, j), (size_t)dk * 2);
    }
}

#endif
