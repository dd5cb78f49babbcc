/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sums over queries of row_sums.h in pairs of bf16 on matrix registers
 * (simd/matrix_*.h):
 *
 *     sum[16 keys][16 channels] += P[16 keys][group] * X[group][16 channels]        P or dS, and dO or Q
 *
 * A group is 32 queries: a strip, or what there is of one. A row of the tile,
 * rounded, is a row of the first factor; rows of dO and Q, interleaved in pairs, are
 * the second one. Nothing is turned. A sum changes once for each group, and a
 * strip of fewer queries is a group with zeros behind them: so bits follow from
 * where strips begin, which is at every 32nd query, or in a pattern at every 32nd
 * of a block row.
 *
 * Registers 2 to 5 hold X for four vectors of channels, 0 and 1 the weights of
 * 16 keys in turn, 6 and 7 their sums, which are stored when the next product is under way.
 * Nothing here is a stream: weights have just been written, X stays for all keys of
 * the strip, and sums are stored where they have been loaded from, which takes four
 * times as long if that has left L1.
 */
#ifndef ATTN_ROW_SUMS_H
#define ATTN_ROW_SUMS_H

#include "kernels/gradient_sums.h"
#include "kernels/groups_matrix.h"
#include "kernels/round_tile.h"
#include "kernels/rows.h"

/** Vectors of channels that go together. */
#define SUM_VECTORS 4

/** Floats in a row of sums, and words in one of X. */
ATTN_INLINE int64_t sum_channels(const struct attn_row_sums *x)
{
    return (x->channels + VF_LEN - 1) / VF_LEN * VF_LEN;
}

/** struct attn_gradient_kernels, pack_rows: a group, and whole vectors of channels. */
static void pack_rows(float *dst, const struct attn_rows *src, int n, int64_t channels)
{
    uint16_t pair[2][VF_LEN];
    for (int r = 0; r < GROUP_KEYS; r += VF_PACK)
        for (int64_t c = 0; c < channels; c += VF_LEN, dst += VF_LEN) {
            const int64_t some = channels - c < VF_LEN ? channels - c : VF_LEN;
            if (src->dtype == ATTN_BF16 && some == VF_LEN && r + 1 < n) {
                vw_store(dst, vw_interleave((const uint16_t *)(const void *)row_at(src, r) + c,
                                            (const uint16_t *)(const void *)row_at(src, r + 1) + c));
                continue;
            }
            memset(pair, 0, sizeof pair);
            for (int i = 0; i < VF_PACK && r + i < n; i++)
                bf16_of_row(src, r + i, c, some, (char *)pair[i]);
            vw_store(dst, vw_interleave(pair[0], pair[1]));
        }
}

/** struct attn_gradient_kernels, round_tile. */
static void round_tile(int nv, int rows, int n, const float *tile, uint16_t *by_query, float *by_key)
{
    round_keys(nv, GROUP_KEYS, rows, n, tile, by_query, by_key);
    for (int j = 0; nv < MATRIX_VECTORS && j < n; j++)
        memset(by_query + j * GROUP_KEYS + VF_LEN, 0, VF_LEN * sizeof *by_query);
    for (int64_t u = key_words(n); by_key && u % GROUP_WORDS; u++)
        memset(by_key + u * nv * VF_LEN, 0, (size_t)(nv * VF_LEN) * sizeof *by_key);
}

/** The product of weights in register a and X in register b, added to the sums that lie at at, through register r;
 * those before are stored from the other one. */
#define ADD_PRODUCT(r, other, a, b, at)                                                                                \
    do {                                                                                                               \
        matrix_load(r, at, row);                                                                                       \
        matrix_dot_bf16(r, a, b);                                                                                      \
        if (before)                                                                                                    \
            matrix_store(other, before, row);                                                                          \
        before = at;                                                                                                   \
    } while (0)

/** The same for 16 keys and count vectors of channels, beginning with register r. */
#define ADD_KEYS(a, r, other, sums)                                                                                    \
    do {                                                                                                               \
        float *const first = sums;                                                                                     \
        ADD_PRODUCT(r, other, a, 2, first);                                                                            \
        if (count > 1)                                                                                                 \
            ADD_PRODUCT(other, r, a, 3, first + VF_LEN);                                                               \
        if (count > 2)                                                                                                 \
            ADD_PRODUCT(r, other, a, 4, first + 2 * VF_LEN);                                                           \
        if (count > 3)                                                                                                 \
            ADD_PRODUCT(other, r, a, 5, first + 3 * VF_LEN);                                                           \
    } while (0)

/** The last keys of a tile, fewer than 16, from key j on: behind them there may be others' sums, or none. */
ATTN_INLINE void add_last_keys(const int count, const struct attn_row_sums *x, int j, int keys, float *sums)
{
    float copy[MATRIX_ROWS][SUM_VECTORS * VF_LEN] __attribute__((aligned(ATTN_ALIGN)));
    const int64_t channels = sum_channels(x);
    const size_t bytes = (size_t)(count * VF_LEN) * sizeof(float);
    const ptrdiff_t row = sizeof copy[0];
    float *before = NULL;
    memset(copy, 0, sizeof copy);
    for (int i = 0; j + i < keys; i++)
        memcpy(copy[i], sums + i * channels, bytes);
    matrix_load(0, x->p + j * x->pitch, x->pitch);
    ADD_KEYS(0, 6, 7, copy[0]);
    if (count % 2)
        matrix_store(6, before, row);
    else
        matrix_store(7, before, row);
    for (int i = 0; j + i < keys; i++)
        memcpy(sums + i * channels, copy[i], bytes);
}

/** Adds to the sums of the first so many keys, count vectors of channels of which lie at sums, what X at words gives.
 */
ATTN_INLINE void add_vectors(const int count, const struct attn_row_sums *x, int keys, const char *words,
                             ptrdiff_t stride, float *sums)
{
    const int64_t channels = sum_channels(x);
    const ptrdiff_t row = channels * (ptrdiff_t)sizeof(float);
    float *before = NULL;
    int j = 0;
    matrix_load(2, words, stride);
    if (count > 1)
        matrix_load(3, words + CHUNK_BYTES, stride);
    if (count > 2)
        matrix_load(4, words + 2 * CHUNK_BYTES, stride);
    if (count > 3)
        matrix_load(5, words + 3 * CHUNK_BYTES, stride);
    for (; j + 2 * MATRIX_ROWS <= keys; j += 2 * MATRIX_ROWS) {
        float *const next = sums + (j + MATRIX_ROWS) * channels;
        matrix_load(0, x->p + j * x->pitch, x->pitch);
        ADD_KEYS(0, 6, 7, sums + j * channels);
        matrix_load(1, x->p + (j + MATRIX_ROWS) * x->pitch, x->pitch);
        if (count % 2)
            ADD_KEYS(1, 7, 6, next);
        else
            ADD_KEYS(1, 6, 7, next);
    }
    if (before) /* an even number of products */
        matrix_store(7, before, row);
    before = NULL;
    if (j + MATRIX_ROWS <= keys) {
        matrix_load(0, x->p + j * x->pitch, x->pitch);
        ADD_KEYS(0, 6, 7, sums + j * channels);
        if (count % 2)
            matrix_store(6, before, row);
        else
            matrix_store(7, before, row);
        j += MATRIX_ROWS;
    }
    if (j < keys)
        add_last_keys(count, x, j, keys, sums + j * channels);
}

/** Keys that some query of a tile sees. */
ATTN_INLINE int seen_keys(const struct attn_row_sums *x)
{
    return attn_visible_before(x->diagonal, x->rows, x->keys);
}

/** struct attn_gradient_kernels, add_rows. */
static void add_rows(const struct attn_row_sums *x)
{
    const int64_t channels = sum_channels(x);
    const int keys = seen_keys(x);
    int64_t c = 0;
    for (; c + SUM_VECTORS * VF_LEN <= channels; c += SUM_VECTORS * VF_LEN)
        add_vectors(SUM_VECTORS, x, keys, x->x + c * ATTN_WORD, x->x_stride, x->sum + c);
    const int64_t left = (channels - c) / VF_LEN;
    if (left == 3)
        add_vectors(3, x, keys, x->x + c * ATTN_WORD, x->x_stride, x->sum + c);
    else if (left == 2)
        add_vectors(2, x, keys, x->x + c * ATTN_WORD, x->x_stride, x->sum + c);
    else if (left == 1)
        add_vectors(1, x, keys, x->x + c * ATTN_WORD, x->x_stride, x->sum + c);
}

/** Adds to 16 sums of key j what is not finite in word u, of its queries that see the key. */
ATTN_INLINE void add_unfinite(const struct attn_row_sums *x, int j, int u, int64_t c, const float *sees)
{
    const char *const at = x->x + u * x->x_stride + c * ATTN_WORD;
    const __mmask32 seen = (sees[0] != 0.0f ? 0x55555555u : 0) | (sees[1] != 0.0f ? 0xaaaaaaaau : 0);
    const __mmask32 wanted = not_finite(at) & seen;
    const vw words = _mm512_maskz_loadu_epi16(wanted, at);
    const vw weights = _mm512_maskz_mov_epi16(wanted, vw_set1((const void *)(x->p + j * x->pitch + u * ATTN_WORD)));
    float *const sum = x->sum + j * sum_channels(x) + c;
    const vf before = vf_load(sum);
    const vm some = _mm512_test_epi32_mask(words, words);
    vf_store(sum, vf_select(some, vf_dot(words, weights, before), before));
}

/**
 * struct attn_gradient_kernels, add_rows_seen: what is finite as in add_rows(), so that keys which none of the rest
 * sees have the same bits; then the rest, element by element.
 */
static void add_rows_seen(const struct attn_tile_mask *mask, int nv, const struct attn_row_sums *x)
{
    char clean[PIECE_BYTES] __attribute__((aligned(ATTN_ALIGN)));
    float sees[ATTN_MAX_STRIP + 1];
    const int keys = seen_keys(x);
    for (int64_t c = 0; c < x->channels; c += VF_LEN) {
        const int found = clean_piece(clean, x->x + c * ATTN_WORD, x->x_stride);
        add_vectors(1, x, keys, clean, CHUNK_BYTES, x->sum + c);
        for (int j = 0; found && j < keys; j++) {
            lanes_seeing(mask, nv, x->rows, j, sees);
            for (int r = 0; r < x->rows; r += VF_PACK)
                add_unfinite(x, j, r / VF_PACK, c, sees + r);
        }
    }
}

static const struct attn_gradient_kernels gradient_kernels = {.queries_per_word = VF_PACK,
                                                              .word_step = GROUP_WORDS,
                                                              .channel_step = VF_LEN,
                                                              .row_step = MATRIX_ROWS,
                                                              .most_channels = 2048,
                                                              .pack_rows = pack_rows,
                                                              .round_tile = round_tile,
                                                              .add_rows = add_rows,
                                                              .add_rows_seen = add_rows_seen};

#endif
