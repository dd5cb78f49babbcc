/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first product of attention on a tile:
 *
 *     S[key][query] = sum_c K[key][c] * Q[c][query]
 *
 * The summation index runs over words: channels c of K and Q.
 *
 * Lanes are queries: a word of K is broadcast against vectors of queries. A
 * register tile of VF_KEYS rows by nv vectors accumulates in registers; per
 * step it loads nv vectors and as many broadcasts as rows, and does rows * nv
 * products with accumulation, so with 8 x 3 on AVX-512 11 loads feed 24 of
 * them. The order of summation in a lane is that of c, whatever the tile's
 * shape.
 *
 * The body is inlined with constant nk, v0 and nv; which mask there is is asked
 * once for each register tile, behind its products.
 *
 * Words whose sums are not their scores define SCORE_STEPS, score_start() and
 * score_finish() before they include this file, and words that leave the scale
 * to the exponential RAW_SCORES. ATTN_SCORE_PRODUCTS names the header of
 * another score_products(), for words that are multiplied in groups.
 */
#ifndef ATTN_SCORE_TILE_H
#define ATTN_SCORE_TILE_H

#include "kernels/mask.h"
#include "kernels/rows.h"
#include "simd/words.h"

#ifndef RAW_SCORES
#define RAW_SCORES 0
#endif

#ifndef SCORE_STEPS
/** Where the sum of key j starts. */
ATTN_INLINE vs score_start(const struct attn_score_operands *x, int j)
{
    (void)x, (void)j;
    return vs_zero();
}

/** The score that a sum stands for. */
ATTN_INLINE vf score_finish(const struct attn_score_operands *x, int j, vs sum)
{
    (void)x, (void)j;
    return sum;
}
#endif

typedef vs score_sums[2 * VF_KEYS][VF_STRIP];

/** Stores the scores of a register tile with their mask, and raises max to their maximum per lane, NaN left out. */
ATTN_INLINE void store_scores(const enum attn_mask_kind kind, const int nk, const int v0, const int nv,
                              const struct attn_score_operands *x, int j, score_sums acc, vf *max)
{
    ATTN_UNROLL
    for (int i = 0; i < nk; i++) {
        ATTN_UNROLL
        for (int v = v0; v < nv; v++) {
            const vf raw = score_finish(x, j + i, acc[i][v]);
            const vf score = masked_score(kind, RAW_SCORES, x->mask, nv * VF_LEN, j + i, v, x->factor, raw);
            max[v] = vf_max(score, max[v]);
            vf_store(x->s + ((j + i) * nv + v) * VF_LEN, score);
        }
    }
}

#ifdef ATTN_SCORE_PRODUCTS
#include ATTN_SCORE_PRODUCTS
#endif

/** store_scores() with maxima that wait in memory. */
ATTN_INLINE void store_tile(const enum attn_mask_kind kind, const int nk, const int v0, const int nv,
                            const struct attn_score_operands *x, int j, score_sums acc, float *max)
{
    vf raised[VF_STRIP];
    ATTN_UNROLL
    for (int v = v0; v < nv; v++)
        raised[v] = vf_load(max + v * VF_LEN);
    store_scores(kind, nk, v0, nv, x, j, acc, raised);
    ATTN_UNROLL
    for (int v = v0; v < nv; v++)
        vf_store(max + v * VF_LEN, raised[v]);
}

/** Lines of rows that will be wanted soon for which a register tile asks at once, and words from one time to the next
 * at least: many lines wait for one another, and what else is loaded then waits for them. */
#define LINES_AT_ONCE 16
#define ASK_STEP      16

/** What the register tiles of full height ask for meanwhile: some lines before each part of their words. */
struct score_asks {
    int num;
    struct soon_rows kinds[ATTN_MAX_SOON];
    int64_t parts, words; /**< of a tile, of each part but the last, which may have more */
};

/** What so many tiles ask for. Returns 0 if there is nothing. */
ATTN_INLINE int begin_score_asks(const struct attn_score_operands *x, int tiles, struct score_asks *asks)
{
    if (x->num_soon == 0 || tiles == 0)
        return 0;
    const int64_t wanted = soon_lines(x, tiles) / LINES_AT_ONCE, most = VS_PACK < 4 ? x->words / ASK_STEP : 1;
    const int64_t parts = wanted < most ? wanted : most;
    asks->num = x->num_soon;
    asks->parts = parts > 1 ? parts : 1;
    asks->words = x->words / asks->parts;
    begin_asking(x, tiles * (int)asks->parts, asks->kinds);
    return 1;
}

/**
 * Scores of keys j..j+nk-1 against vectors v0..nv-1 of queries; the vectors before see none of these keys. Maxima wait
 * in memory: of sets of 16 registers the products need all, and gcc may put a sum on the stack before a maximum. asks:
 * NULL, or what it asks for meanwhile.
 */
ATTN_INLINE void score_rows(const int nk, const int v0, const int nv, const struct attn_score_operands *x, int j,
                            struct score_asks *asks, float *max)
{
    score_sums acc;
    const char *row[2 * VF_KEYS];
    const float *q = x->q;
    ATTN_UNROLL
    for (int i = 0; i < nk; i++) {
        row[i] = x->k + (j + i) * x->k_stride;
        ATTN_UNROLL
        for (int v = 0; v < v0; v++)
            vf_store(x->s + ((j + i) * nv + v) * VF_LEN, vf_set1(-INFINITY));
        ATTN_UNROLL
        for (int v = v0; v < nv; v++)
            acc[i][v] = score_start(x, j + i);
    }
    const int64_t words = x->words;
#ifdef ATTN_SCORE_PRODUCTS
    for (int64_t part = 0; asks && part < asks->parts; part++)
        ask_for_soon(asks->num, asks->kinds);
    score_products(nk, v0, nv, q, row, words, acc);
#else
    const int64_t parts = asks && VS_PACK < 4 ? asks->parts : 1; /* words of four channels are few */
    int64_t c = 0;
    for (int64_t part = 0; part < parts; part++) {
        const int64_t end = part + 1 < parts ? c + asks->words : words;
        if (asks)
            ask_for_soon(asks->num, asks->kinds);
#pragma GCC unroll 4
        for (; c < end; c++) {
            vq a[VF_STRIP];
            ATTN_UNROLL
            for (int v = v0; v < nv; v++)
                a[v] = vq_load(q + (c * nv + v) * VF_LEN);
            ATTN_UNROLL
            for (int i = 0; i < nk; i++) {
                const vq b = vq_set1(row[i] + c * ATTN_WORD);
                ATTN_UNROLL
                for (int v = v0; v < nv; v++)
                    acc[i][v] = vs_dot(b, a[v], acc[i][v]);
            }
        }
    }
#endif
    if (v0 > 0) { /* only causality leaves vectors out */
        store_tile(MASK_DIAGONAL, nk, v0, nv, x, j, acc, max);
        return;
    }
#define STORE_SCORES(kind) store_tile(kind, nk, v0, nv, x, j, acc, max)
    ATTN_BY_MASK(x->mask->kind, STORE_SCORES);
#undef STORE_SCORES
}

/**
 * score_rows() without the vectors that lie before the diagonal. The few rows behind the last full register tile
 * compute them: they are masked all the same, and code for each case would be a tenth of all.
 */
ATTN_INLINE void score_visible(const int nk, const int nv, const struct attn_score_operands *x, int j,
                               struct score_asks *asks, float *max)
{
    const int full = nk >= VF_KEYS, diagonal = full && x->mask->kind == MASK_DIAGONAL;
    const int v0 = diagonal ? attn_hidden_lanes(x->mask->diagonal, j, nv * VF_LEN) / VF_LEN : 0;
    if (v0 == 0)
        score_rows(nk, 0, nv, x, j, asks, max);
    else if (full && v0 == 1 && nv > 1)
        score_rows(nk, 1, nv, x, j, asks, max);
    else if (full && v0 == 2 && nv > 2)
        score_rows(nk, 2, nv, x, j, asks, max);
    else if (full && nv > 3)
        score_rows(nk, 3, nv, x, j, asks, max);
}

ATTN_INLINE void score_body(const int nv, const struct attn_score_operands *x, int n, float *max)
{
    ATTN_UNROLL
    for (int v = 0; v < nv; v++)
        vf_store(max + v * VF_LEN, vf_set1(-INFINITY));
    int j = 0;
    struct score_asks soon, *const asks = begin_score_asks(x, n / TILE_ROWS(nv, VF_KEYS), &soon) ? &soon : NULL;
    for (; j + TILE_ROWS(nv, VF_KEYS) <= n; j += TILE_ROWS(nv, VF_KEYS))
        score_visible(TILE_ROWS(nv, VF_KEYS), nv, x, j, asks, max);
    if (nv == 1 && j + VF_KEYS <= n) {
        score_visible(VF_KEYS, nv, x, j, NULL, max);
        j += VF_KEYS;
    }
    if (VF_KEYS > 4 && j + 4 <= n) {
        score_visible(4, nv, x, j, NULL, max);
        j += 4;
    }
    if (VF_KEYS > 2 && j + 2 <= n) {
        score_visible(2, nv, x, j, NULL, max);
        j += 2;
    }
    if (j < n)
        score_visible(1, nv, x, j, NULL, max);
    ATTN_UNROLL
    for (int v = 0; v < nv; v++)
        if (RAW_SCORES && x->mask->kind != MASK_BIAS)
            vf_store(max + v * VF_LEN, vf_mul(vf_load(max + v * VF_LEN), vf_load(x->factor + v * VF_LEN)));
}

/** struct attn_score_kernels, scores. */
static void score_tile(int nv, const struct attn_score_operands *x, int n, float *max)
{
    ATTN_BY_WIDTH(nv, score_body, x, n, max);
}

#endif
