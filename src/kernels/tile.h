/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two matrix products of attention on one strip of queries.
 *
 *   scores:  S[key][query]   = sum_c K[key][c] * Q[c][query]
 *   values:  O[chan][query] += sum_j V[j][chan] * P[j][query]
 *
 * The summation index runs over words (words.h): channels c of K and Q, keys j
 * of V and P.
 *
 * Lanes are queries: a word of K or V is broadcast against vectors of queries. A register tile of VF_KEYS (or
 * VF_CHANNELS) rows by nv vectors accumulates in registers; per step it loads
 * nv vectors and as many broadcasts as rows, and does rows * nv products with
 * accumulation, so with 8 x 3 on AVX-512 11 loads feed 24 of them. The order
 * of summation in a lane is that of c, or of j, whatever the tile's shape.
 *
 * The bodies are inlined with constant nk, nc and nv; ATTN_BY_WIDTH at the end
 * of a file makes the functions that take nv at run time.
 */
#ifndef ATTN_TILE_H
#define ATTN_TILE_H

/**
 * Scores of keys j..j+nk-1 against vectors v0..nv-1 of queries; the vectors before see none of these keys. Raises max
 * to their maximum per lane, NaN left out.
 */
ATTN_INLINE void score_rows(const int nk, const int v0, const int nv, const enum mask_kind kind,
                            const struct score_operands *x, int j, vf *max)
{
    vs acc[VF_KEYS][VF_STRIP];
    const char *row[VF_KEYS];
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
#pragma GCC unroll 4
    for (int64_t c = 0; c < words; c++) {
        vq a[VF_STRIP];
        ATTN_UNROLL
        for (int v = v0; v < nv; v++)
            a[v] = vq_load(q + (c * nv + v) * VF_LEN);
        ATTN_UNROLL
        for (int i = 0; i < nk; i++) {
            const vq b = vq_set1(row[i] + c * WORD);
            ATTN_UNROLL
            for (int v = v0; v < nv; v++)
                acc[i][v] = vs_dot(b, a[v], acc[i][v]);
        }
    }
    ATTN_UNROLL
    for (int i = 0; i < nk; i++) {
        ATTN_UNROLL
        for (int v = v0; v < nv; v++) {
            const vf raw = score_finish(x, j + i, acc[i][v]);
            const vf score = masked_score(kind, x->mask, nv * VF_LEN, j + i, v, x->factor, raw);
            max[v] = vf_max(score, max[v]);
            vf_store(x->s + ((j + i) * nv + v) * VF_LEN, score);
        }
    }
}

/** score_rows() without the vectors that lie before the diagonal. */
ATTN_INLINE void score_visible(const int nk, const int nv, const enum mask_kind kind, const struct score_operands *x,
                               int j, vf *max)
{
    const int v0 = kind == MASK_DIAGONAL ? hidden_lanes(x->mask->diagonal, j, nv * VF_LEN) / VF_LEN : 0;
    if (v0 == 0)
        score_rows(nk, 0, nv, kind, x, j, max);
    else if (v0 == 1 && nv > 1)
        score_rows(nk, 1, nv, kind, x, j, max);
    else if (v0 == 2 && nv > 2)
        score_rows(nk, 2, nv, kind, x, j, max);
    else if (nv > 3)
        score_rows(nk, 3, nv, kind, x, j, max);
}

ATTN_INLINE void score_body(const int nv, const enum mask_kind kind, const struct score_operands *x, int n,
                            float *max_out)
{
    vf max[VF_STRIP];
    ATTN_UNROLL
    for (int v = 0; v < nv; v++)
        max[v] = vf_set1(-INFINITY);
    int j = 0;
    for (; j + VF_KEYS <= n; j += VF_KEYS) {
        for (int i = 0; i < 2 && x->next[i].data; i++)
            prefetch_rows(&x->next[i], j, j + VF_KEYS, x->next_width[i], 0);
        score_visible(VF_KEYS, nv, kind, x, j, max);
    }
    if (VF_KEYS > 4 && j + 4 <= n) {
        score_visible(4, nv, kind, x, j, max);
        j += 4;
    }
    if (VF_KEYS > 2 && j + 2 <= n) {
        score_visible(2, nv, kind, x, j, max);
        j += 2;
    }
    if (j < n)
        score_visible(1, nv, kind, x, j, max);
    ATTN_UNROLL
    for (int v = 0; v < nv; v++)
        vf_store(max_out + v * VF_LEN, max[v]);
}

/** Masked scores of n keys; max[lane] becomes the maximum of what it sees. */
static void score_tile(int nv, const struct score_operands *x, int n, float *max)
{
    switch (x->mask->kind) {
    case MASK_DIAGONAL:
        ATTN_BY_WIDTH(nv, score_body, MASK_DIAGONAL, x, n, max);
        break;
    case MASK_LIVE:
        ATTN_BY_WIDTH(nv, score_body, MASK_LIVE, x, n, max);
        break;
    case MASK_BIAS:
        ATTN_BY_WIDTH(nv, score_body, MASK_BIAS, x, n, max);
        break;
    default:
        ATTN_BY_WIDTH(nv, score_body, MASK_NONE, x, n, max);
        break;
    }
}

/** How value_tile() finds its accumulators. */
enum accumulate { ACCUMULATE_FIRST, ACCUMULATE_ADD, ACCUMULATE_RESCALE };

/** Adds the part of the words of keys before ends[w], for vector w, to nc channels; mode FIRST starts from 0, RESCALE
 * multiplies by alpha before. */
ATTN_INLINE void value_columns(const int nc, const int nv, const int diagonal, const float *p, const char *v,
                               ptrdiff_t v_stride, const int *ends, float *o, enum accumulate mode, const float *alpha)
{
    vf acc[VF_CHANNELS][VF_STRIP];
    ATTN_UNROLL
    for (int i = 0; i < nc; i++) {
        ATTN_UNROLL
        for (int w = 0; w < nv; w++) {
            acc[i][w] = vf_zero();
            if (mode != ACCUMULATE_FIRST)
                acc[i][w] = vf_load(o + (i * nv + w) * VF_LEN);
            if (mode == ACCUMULATE_RESCALE)
                acc[i][w] = vf_mul(acc[i][w], vf_load(alpha + w * VF_LEN));
        }
    }
    const int n = ends[0];
#pragma GCC unroll 4
    for (int j = 0; j < n; j++) {
        vw a[VF_STRIP];
        ATTN_UNROLL
        for (int w = 0; w < nv; w++)
            a[w] = vw_load(p + ((ptrdiff_t)j * nv + w) * VF_LEN);
        ATTN_UNROLL
        for (int i = 0; i < nc; i++) {
            const vw b = vw_set1(v + j * v_stride + i * WORD);
            ATTN_UNROLL
            for (int w = 0; w < nv; w++)
                acc[i][w] = vf_dot(b, a[w], acc[i][w]);
        }
    }
    /* Along the diagonal the later vectors see more keys. */
    ATTN_UNROLL
    for (int w0 = 1; diagonal && w0 < nv; w0++) {
#pragma GCC unroll 1
        for (int j = ends[w0 - 1]; j < ends[w0]; j++) {
            ATTN_UNROLL
            for (int i = 0; i < nc; i++) {
                const vw b = vw_set1(v + j * v_stride + i * WORD);
                ATTN_UNROLL
                for (int w = w0; w < nv; w++)
                    acc[i][w] = vf_dot(b, vw_load(p + ((ptrdiff_t)j * nv + w) * VF_LEN), acc[i][w]);
            }
        }
    }
    ATTN_UNROLL
    for (int i = 0; i < nc; i++) {
        ATTN_UNROLL
        for (int w = 0; w < nv; w++)
            vf_store(o + (i * nv + w) * VF_LEN, acc[i][w]);
    }
}

/** Adds the keys' part to all dv channels. */
ATTN_INLINE void value_body(const int nv, const int diagonal, const float *p, const char *v, ptrdiff_t v_stride,
                            int64_t dv, const int *ends, float *o, enum accumulate mode, const float *alpha)
{
    int64_t c = 0;
    for (; c + VF_CHANNELS <= dv; c += VF_CHANNELS)
        value_columns(VF_CHANNELS, nv, diagonal, p, v + c * WORD, v_stride, ends, o + c * nv * VF_LEN, mode, alpha);
    if (VF_CHANNELS > 4 && c + 4 <= dv) {
        value_columns(4, nv, diagonal, p, v + c * WORD, v_stride, ends, o + c * nv * VF_LEN, mode, alpha);
        c += 4;
    }
    if (VF_CHANNELS > 2 && c + 2 <= dv) {
        value_columns(2, nv, diagonal, p, v + c * WORD, v_stride, ends, o + c * nv * VF_LEN, mode, alpha);
        c += 2;
    }
    if (c < dv)
        value_columns(1, nv, diagonal, p, v + c * WORD, v_stride, ends, o + c * nv * VF_LEN, mode, alpha);
}

static void value_tile(int nv, const float *p, const char *v, ptrdiff_t v_stride, int64_t dv, const int *ends, float *o,
                       enum accumulate mode, const float *alpha)
{
    if (ends[0] < ends[nv - 1])
        ATTN_BY_WIDTH(nv, value_body, 1, p, v, v_stride, dv, ends, o, mode, alpha);
    else
        ATTN_BY_WIDTH(nv, value_body, 0, p, v, v_stride, dv, ends, o, mode, alpha);
}

#endif
