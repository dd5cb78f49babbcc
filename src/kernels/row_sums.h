/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over queries for rows of keys, which the backward pass adds to the tiles
 * of the forward pass:
 *
 *     dV[key][c] += sum_r P[key][r] * dO[r][c]
 *     dK[key][c] += sum_r dS[key][r] * Q[r][c]
 *
 * Channels are the lanes. A word of weights is broadcast from its row of the
 * tile, in which queries lie side by side, against vectors of channels of dO or Q:
 * neither the tile nor these rows are turned. Words hold queries, and rows of dO
 * and Q are words as V is for the forward pass: as they lie in memory where a
 * word is a float. Register tiles are SUM_KEYS keys by SUM_VECTORS vectors of
 * channels; the order of a sum is that of the queries, whatever their blocks.
 */
#ifndef ATTN_ROW_SUMS_H
#define ATTN_ROW_SUMS_H

#include "kernels/gradient_sums.h"
#include "kernels/mask.h"
#include "kernels/round_tile.h"
#include "kernels/rows.h"
#include "simd/words.h"

/* Words of queries are made as those of keys are. */
#ifndef ATTN_VALUES
#define ATTN_VALUES "kernels/values_f32.h"
#endif
#include ATTN_VALUES

/** Vectors of channels of a register tile, and its keys: sums, operands and a broadcast fill the register file. */
#define SUM_VECTORS (VF_STRIP * VF_CHANNELS > 16 ? 4 : 2)
#define SUM_KEYS    (VF_LEN == 1 ? 2 : 6)

/** A vector of sums, whole or of n channels. */
ATTN_INLINE vf sums_load(const int whole, const float *p, int n)
{
    return whole ? vf_load(p) : vf_load_tail(p, n);
}

ATTN_INLINE void sums_store(const int whole, float *p, vf a, int n)
{
    if (whole)
        vf_store(p, a);
    else
        vf_store_tail(p, a, n);
}

/** Keys j..j+nk-1, channels c.. of nw vectors, which are whole, or the only one, of n. Of a diagonal's tile the first
 * key sees most queries. */
ATTN_INLINE void sum_tile(const int nk, const int nw, const int whole, const struct attn_row_sums *x, int j, int64_t c,
                          int n)
{
    vf acc[2 * SUM_KEYS][SUM_VECTORS];
    const int64_t channels = x->channels;
    float *const sum = x->sum + j * channels + c;
    ATTN_UNROLL
    for (int i = 0; i < nk; i++) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            acc[i][w] = sums_load(whole, sum + i * channels + w * VF_LEN, n);
    }
    const int words = (int)key_words(x->rows), first = attn_hidden_lanes(x->diagonal, j, x->rows) / VF_PACK;
    const ptrdiff_t pitch = x->pitch;
    const char *p = x->p + j * pitch + first * ATTN_WORD;
    const char *row = x->x + first * x->x_stride + c * ATTN_WORD;
    for (int u = first; u < words; u++, p += ATTN_WORD, row += x->x_stride) {
        vw b[SUM_VECTORS];
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            b[w] = whole ? vw_load((const void *)(row + w * VF_LEN * ATTN_WORD)) : vw_load_tail((const void *)row, n);
        ATTN_UNROLL
        for (int i = 0; i < nk; i++) {
            const vw a = vw_set1((const void *)(p + i * pitch));
            ATTN_UNROLL
            for (int w = 0; w < nw; w++)
                acc[i][w] = vf_dot(b[w], a, acc[i][w]);
        }
    }
    ATTN_UNROLL
    for (int i = 0; i < nk; i++) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            sums_store(whole, sum + i * channels + w * VF_LEN, acc[i][w], n);
    }
}

/** All keys, channels c.. of nw vectors. */
ATTN_INLINE void sum_keys(const int nk, const int nw, const int whole, const struct attn_row_sums *x, int64_t c, int n)
{
    int j = 0;
    for (; j + nk <= x->keys; j += nk) {
        if (j + 2 * nk <= x->keys) /* the sums of the next tile come from L2 */
            for (int i = 0; i < nk; i++)
                for (int w = 0; w < nw; w++)
                    __builtin_prefetch(x->sum + (j + nk + i) * x->channels + c + w * VF_LEN, 1, 3);
        sum_tile(nk, nw, whole, x, j, c, n);
    }
    if (nk > 4 && j + 4 <= x->keys) {
        sum_tile(4, nw, whole, x, j, c, n);
        j += 4;
    }
    if (nk > 2 && j + 2 <= x->keys) {
        sum_tile(2, nw, whole, x, j, c, n);
        j += 2;
    }
    for (; j < x->keys; j++)
        sum_tile(1, nw, whole, x, j, c, n);
}

/** struct attn_gradient_kernels, add_rows. */
static void add_rows(const struct attn_row_sums *x)
{
    int64_t c = 0;
    for (; c + SUM_VECTORS * VF_LEN <= x->channels; c += SUM_VECTORS * VF_LEN)
        sum_keys(SUM_KEYS, SUM_VECTORS, 1, x, c, VF_LEN);
    if (SUM_VECTORS > 2 && c + 2 * VF_LEN <= x->channels) {
        sum_keys(2 * SUM_KEYS, 2, 1, x, c, VF_LEN);
        c += 2 * VF_LEN;
    }
    for (; c + VF_LEN <= x->channels; c += VF_LEN)
        sum_keys(2 * SUM_KEYS, 1, 1, x, c, VF_LEN);
    if (c < x->channels)
        sum_keys(SUM_KEYS, 1, 0, x, c, (int)(x->channels - c));
}

/** Adds word u of key j's weights times its rows to that key's sums; sees: which queries of the word the key has. */
ATTN_INLINE void add_word(const struct attn_row_sums *x, int j, int u, const float *sees)
{
    float *const sum = x->sum + j * x->channels;
    const char *const row = x->x + u * x->x_stride;
    const vw a = vw_set1((const void *)(x->p + j * x->pitch + u * ATTN_WORD));
    for (int64_t c = 0; c < x->channels; c += VF_LEN) {
        const int n = x->channels - c < VF_LEN ? (int)(x->channels - c) : VF_LEN;
        vw b = vw_load_tail((const void *)(row + c * ATTN_WORD), n);
#if VF_PACK == 2
        b = sees[1] == 0.0f ? vw_first(b) : sees[0] == 0.0f ? vw_second(b) : b;
#else
        (void)sees;
#endif
        vf_store_tail(sum + c, vf_dot(b, a, vf_load_tail(sum + c, n)), n);
    }
}

/** struct attn_gradient_kernels, add_rows_seen. */
static void add_rows_seen(const struct attn_tile_mask *mask, int nv, const struct attn_row_sums *x)
{
    float sees[ATTN_MAX_STRIP + 1];
    for (int j = 0; j < x->keys; j++) {
        lanes_seeing(mask, nv, x->rows, j, sees);
        for (int r = 0; r < x->rows; r += VF_PACK)
            if (sees[r] != 0.0f || (VF_PACK == 2 && sees[r + 1] != 0.0f))
                add_word(x, j, r / VF_PACK, sees + r);
    }
}

#if VF_PACK == 2
/** struct attn_gradient_kernels, round_tile. */
static void round_tile(int nv, int rows, int n, const float *tile, uint16_t *by_query, float *by_key)
{
    round_keys(nv, nv * VF_LEN, rows, n, tile, by_query, by_key);
}
#define ROUND_TILE round_tile
#else
#define ROUND_TILE NULL
#endif

static const struct attn_gradient_kernels gradient_kernels = {.queries_per_word = VF_PACK,
                                                              .pack_rows = pack_values,
                                                              .round_tile = ROUND_TILE,
                                                              .add_rows = add_rows,
                                                              .add_rows_seen = add_rows_seen};

#endif
