/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of Q and K in bf16 as pairs of channels, as they lie in memory; only Q is
 * transposed. Rows of other types are rounded.
 *
 * The scale stays out of Q, where it would cost a rounding: scores leave the
 * tile as plain products and are multiplied before the maximum is subtracted.
 * Only its sign goes into Q, so that the largest product is the largest score.
 */
#ifndef ATTN_PACK_BF16_H
#define ATTN_PACK_BF16_H

#include "kernels/query_words.h"
#include "kernels/rows.h"
#include "simd/words.h"

#include <math.h>
#include <string.h>

/**
 * Q^T times a scale of 0: a row becomes 0, or NaN if it has a NaN or Inf. The factor could not do this, as its product
 * with a score of -inf has to be -inf.
 */
static void pack_zeros(const struct attn_pack_queries *x)
{
    const int64_t words = channel_words(x->dk);
    for (int64_t c = 0, group; c < words; c += group) {
        group = query_group(c, words);
        memset(x->q + query_word(c, words, x->width, x->first), 0, (size_t)(x->fill * group) * sizeof *x->q);
    }
    for (int r = 0; r < x->n; r++) {
        int finite = 1;
        for (int64_t c = 0; c < x->dk; c++)
            finite &= isfinite(element_at(x->dtype, x->rows[r], c)) != 0;
        const uint32_t nan = 0x7fc07fc0u;
        if (!finite)
            memcpy(x->q + query_word(0, words, x->width, x->first + r), &nan, sizeof nan);
    }
}

/** VF_LEN words of row r from word c on, zeros behind its end and where there is no such row. */
ATTN_INLINE vf query_words(const struct attn_pack_queries *x, int r, int64_t c)
{
    if (r >= x->n || 2 * c >= x->dk)
        return vf_zero();
    const int64_t left = x->dk - 2 * c;
    if (left >= 2 * VF_LEN && x->dtype == ATTN_BF16)
        return vf_load((const void *)(x->rows[r] + c * ATTN_WORD));
    float t[VF_LEN] = {0};
    bf16_elements(x->dtype, x->rows[r], NULL, 2 * c, left < 2 * VF_LEN ? left : 2 * VF_LEN, (char *)t);
    return vf_load(t);
}

/** VF_LEN words of VF_LEN queries, from row r and word c on, a word in each vector. whole: they are all there, in bf16.
 */
ATTN_INLINE void take_queries(const int whole, const struct attn_pack_queries *x, int r, int64_t c, vf words[VF_LEN])
{
    ATTN_UNROLL
    for (int i = 0; i < VF_LEN; i++)
        words[i] = whole ? vf_load((const void *)(x->rows[r + i] + c * ATTN_WORD)) : query_words(x, r + i, c);
    vf_transpose(words);
    if (x->scale < 0.0f) {
        ATTN_UNROLL
        for (int i = 0; i < VF_LEN; i++)
            words[i] = vf_of_bits((vu)vw_negate((vw)vu_bits_of(words[i])));
    }
}

static void pack_queries(const struct attn_pack_queries *x)
{
    const int64_t words = channel_words(x->dk);
    for (int r = 0; r < x->fill; r += VF_LEN)
        vf_store(x->factor + x->first + r, vf_set1(x->scale == 0.0f ? 1.0f : fabsf(x->scale)));
    if (x->scale == 0.0f) {
        pack_zeros(x);
        return;
    }
    for (int r = 0; r < x->fill; r += VF_LEN) {
        const int full = x->dtype == ATTN_BF16 && r + VF_LEN <= x->n;
        for (int64_t c = 0; c < words; c += VF_LEN) {
            vf a[VF_LEN];
            if (full && 2 * (c + VF_LEN) <= x->dk)
                take_queries(1, x, r, c, a);
            else
                take_queries(0, x, r, c, a);
            put_query_words(x, r, c, words, a);
        }
    }
}

/** Rows with zeros behind their last element. */
static void pack_keys(const struct attn_rows *src, int n, int64_t dk, const struct attn_int8_memory *memory,
                      const struct attn_packed_keys *dst)
{
    const ptrdiff_t pitch = channel_words(dk) * ATTN_WORD;
    (void)memory;
    for (int j = 0; j < n; j++) {
        char *row = dst->words + j * pitch;
        bf16_of_row(src, j, 0, dk, row);
        memset(row + dk * 2, 0, (size_t)(pitch - dk * 2));
    }
}

#endif
