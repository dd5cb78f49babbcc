/* SPDX-License-Identifier: Apache-2.0 */
/*
 * P V in pairs of bf16 (v is bf16) by instructions that multiply 2 x 2 blocks:
 *
 *     O[2 channels][2 queries] += V[2 channels][2 words] * P[2 words][2 queries]
 *
 * Rounding, sums and the exponential are those of values_bf16.h. Words come in
 * groups of two (words.h): four rows of V are interleaved, so that a vector is
 * the groups of two channels, and weights are written as the groups of two
 * queries. Where a run of keys ends within a group, its first word is multiplied
 * alone: what stands in the other one belongs to keys that are not seen.
 */
#ifndef ATTN_VALUES_H
#define ATTN_VALUES_H

#include "kernels/dropout.h"
#include "kernels/softmax.h"

#include "kernels/rows.h"
#include "simd/words.h"

#if VF_GROUP != 2 || VF_PACK != 2
#error "values_bf16mm.h needs pairs of bf16 in groups of two"
#endif

/** Bytes of a group. */
#define GROUP_SIZE (VF_GROUP * ATTN_WORD)

#define VALUE_PRODUCTS
/** Word c of row u of V, in each lane. */
ATTN_INLINE vw value_word(const struct attn_value_operands *x, ptrdiff_t u, int64_t c)
{
    return vw_set1(x->v + (u - u % 2) * x->v_stride + c * GROUP_SIZE + u % 2 * ATTN_WORD);
}

/** Words of row u of weights: those of vector w. */
ATTN_INLINE vw weight_words(const struct attn_value_operands *x, int width, ptrdiff_t u, int w)
{
    const float *at = x->p + (u - u % 2) * width + 2 * w * VF_LEN;
    vw words[2];
    vw_unzip(vw_load(at), vw_load(at + VF_LEN), &words[0], &words[1]);
    return words[u % 2];
}

/** Adds the products of the words of V, from nc channels at v on, with those of p before ends[w] for vector w. */
ATTN_INLINE void value_products(const int nc, const int nv, const char *v, ptrdiff_t v_stride, const float *p,
                                const int *ends, vf (*acc)[VF_STRIP])
{
    const ptrdiff_t stride = VF_GROUP * v_stride, width = VF_GROUP * nv * VF_LEN;
    vf block[VF_CHANNELS][2 * VF_STRIP];
    ATTN_UNROLL
    for (int i = 0; i < nc; i += 2) {
        ATTN_UNROLL
        for (int w = 0; w < nv; w++)
            vf_halves(acc[i][w], acc[i + 1 < nc ? i + 1 : i][w], &block[i / 2][2 * w], &block[i / 2][2 * w + 1]);
    }
    const int whole = ends[0] / VF_GROUP;
#pragma GCC unroll 2
    for (int g = 0; g < whole; g++) {
        vw b[VF_CHANNELS];
        ATTN_UNROLL
        for (int i = 0; i < nc; i += 2)
            b[i / 2] = i + 1 < nc ? vw_load(v + g * stride + i * GROUP_SIZE)
                                  : vw_load_tail(v + g * stride + i * GROUP_SIZE, VF_GROUP);
        ATTN_UNROLL
        for (int w = 0; w < 2 * nv; w++) {
            const vw a = vw_load(p + g * width + w * VF_LEN);
            ATTN_LOAD_NO_FURTHER();
            ATTN_UNROLL
            for (int i = 0; i < nc; i += 2)
                block[i / 2][w] = vf_mm(b[i / 2], a, block[i / 2][w]);
        }
    }
    /* Along the diagonal the later vectors see more keys; an odd end is that of a first word. */
#pragma GCC unroll 1
    for (int g = whole; VF_GROUP * g < ends[nv - 1]; g++) {
        ATTN_UNROLL
        for (int i = 0; i < nc; i += 2) {
            const vw b = i + 1 < nc ? vw_load(v + g * stride + i * GROUP_SIZE)
                                    : vw_load_tail(v + g * stride + i * GROUP_SIZE, VF_GROUP);
            ATTN_UNROLL
            for (int w = 0; w < 2 * nv; w++) {
                const vw a = vw_load(p + g * width + w * VF_LEN);
                if (VF_GROUP * g + 1 < ends[w / 2])
                    block[i / 2][w] = vf_mm(b, a, block[i / 2][w]);
                else if (VF_GROUP * g < ends[w / 2])
                    block[i / 2][w] = vf_dot(vw_evens(b), vw_evens_twice(a), block[i / 2][w]);
            }
        }
    }
    ATTN_UNROLL
    for (int i = 0; i < nc; i += 2) {
        ATTN_UNROLL
        for (int w = 0; w < nv; w++) {
            vf first, second;
            vf_halves(block[i / 2][2 * w], block[i / 2][2 * w + 1], &first, &second);
            acc[i][w] = first;
            if (i + 1 < nc)
                acc[i + 1][w] = second;
        }
    }
}

#include "kernels/value_tile.h"

/** VF_LEN words of two rows from channel c on; a row that is NULL is 0. */
ATTN_INLINE vw row_words(const uint16_t *first, const uint16_t *second, int64_t c)
{
    static const uint16_t zeros[2 * VF_LEN];
    return vw_interleave(first ? first + c : zeros, second ? second + c : zeros);
}

/** n elements of four rows as groups of words. */
ATTN_INLINE void pack_rows(float *dst, const uint16_t *const row[4], int64_t n)
{
    int64_t c = 0;
    for (; c + VF_LEN <= n; c += VF_LEN) {
        vw low, high;
        vw_zip(row_words(row[0], row[1], c), row_words(row[2], row[3], c), &low, &high);
        vw_store(dst + 2 * c, low);
        vw_store(dst + 2 * c + VF_LEN, high);
    }
    for (; c < n; c++) {
        const uint16_t group[4] = {row[0][c], row[1] ? row[1][c] : 0, row[2] ? row[2][c] : 0, row[3] ? row[3][c] : 0};
        memcpy(dst + 2 * c, group, sizeof group);
    }
}

/** Elements of a row that are rounded at a time. */
#define ROUNDED 256

/** n rows of V as groups of words of keys; what is missing of the last group is 0. */
static void pack_values(float *dst, const struct attn_rows *src, int n, int64_t dv)
{
    uint16_t rounded[4][ROUNDED];
    const int64_t step = src->dtype == ATTN_BF16 ? dv : ROUNDED;
    for (int j = 0; j < n; j += 4, dst += 2 * dv) {
        for (int64_t c = 0; c < dv; c += step) {
            const int64_t count = dv - c < step ? dv - c : step;
            const uint16_t *row[4] = {NULL, NULL, NULL, NULL};
            for (int i = 0; i < 4 && j + i < n; i++) {
                row[i] = src->dtype == ATTN_BF16 ? (const uint16_t *)(const void *)row_at(src, j + i) : rounded[i];
                if (src->dtype != ATTN_BF16)
                    bf16_of_row(src, j + i, c, count, (char *)rounded[i]);
            }
            pack_rows(dst + 2 * c, row, count);
        }
    }
}

/** One group of weights: keys 4g..4g+3, of which count are there, of vectors first..nv-1. */
ATTN_INLINE void make_group(const int nv, const int first, const int count, int g, const vf *factor, const vf *base,
                            float *s, vf *sum)
{
    vw words[VF_STRIP][2];
    ATTN_UNROLL
    for (int v = first; v < nv; v++) {
        vf p[4];
        ATTN_UNROLL
        for (int i = 0; i < 4; i++) {
            const float *at = s + ((ptrdiff_t)(4 * g + i) * nv + v) * VF_LEN;
            p[i] = i < count ? vf_exp2_bf16(vf_sub(vf_mul(vf_load(at), factor[v]), base[v])) : vf_zero();
        }
        ATTN_UNROLL
        for (int i = 0; i < 2; i++) {
            words[v][i] = vw_pair(p[2 * i], p[2 * i + 1]);
            sum[v] = vf_dot(vw_ones(), words[v][i], sum[v]);
        }
    }
    /* The first group lies where the scores of two rows have been. */
    ATTN_UNROLL
    for (int v = first; v < nv; v++) {
        float *to = s + ((ptrdiff_t)2 * g * nv + 2 * v) * VF_LEN;
        vw low, high;
        vw_zip(words[v][0], words[v][1], &low, &high);
        vw_store(to, low);
        vw_store(to + VF_LEN, high);
    }
}

ATTN_INLINE void weights_body(const int nv, const float *m, const int *ends, int n, const float *factor, float *s,
                              float *l)
{
    vf f[VF_STRIP], base[VF_STRIP], sum[VF_STRIP];
    start_tile(nv, m, factor, f, base, sum);
    int g = 0;
    ATTN_UNROLL
    for (int first = 0; first < nv; first++) { /* along the diagonal the later vectors see more keys */
        for (; 4 * g < ends[first] && 4 * g + 4 <= n; g++)
            make_group(nv, first, 4, g, f, base, s, sum);
        if (4 * g < ends[first]) {
            if (n - 4 * g == 1)
                make_group(nv, first, 1, g, f, base, s, sum);
            else if (n - 4 * g == 2)
                make_group(nv, first, 2, g, f, base, s, sum);
            else
                make_group(nv, first, 3, g, f, base, s, sum);
            g++;
        }
    }
    add_tile(nv, sum, l);
}

static void make_weights(int nv, const float *m, const int *ends, int n, const float *factor, float *s, float *l)
{
    ATTN_BY_WIDTH(nv, weights_body, m, ends, n, factor, s, l);
}

/** The words of groups become rows of words, or with together rows become groups, in the same place. */
static void regroup(const int together, int nv, int n, float *p)
{
    for (int g = 0; 4 * g < n; g++) {
        float *at = p + (ptrdiff_t)2 * g * nv * VF_LEN;
        vw low[VF_STRIP], high[VF_STRIP];
        for (int v = 0; v < nv; v++) {
            if (together)
                vw_zip(vw_load(at + v * VF_LEN), vw_load(at + (nv + v) * VF_LEN), &low[v], &high[v]);
            else
                vw_unzip(vw_load(at + 2 * v * VF_LEN), vw_load(at + (2 * v + 1) * VF_LEN), &low[v], &high[v]);
        }
        for (int v = 0; v < nv; v++) {
            vw_store(at + (together ? 2 * v : v) * VF_LEN, low[v]);
            vw_store(at + (together ? 2 * v + 1 : nv + v) * VF_LEN, high[v]);
        }
    }
}

static void drop_weights(const struct attn_drop *drop, int nv, int n, float *p)
{
    regroup(0, nv, n, p);
    drop_words(2, drop, nv, n, p);
    regroup(1, nv, n, p);
}

/** Of an odd number of words the group of the last one counts whole: it is 0, or of keys of the same block. */
static int groups_finite(const char *v, ptrdiff_t stride, int n, int64_t dv)
{
    return values_finite(v, 2 * stride, (n + 1) / 2, 2 * dv);
}

static const struct attn_value_kernels value_kernels = {.name = "bf16",
                                                        .keys_per_word = VF_PACK,
                                                        .pack_values = pack_values,
                                                        .weights = make_weights,
                                                        .drop = drop_weights,
                                                        .values = value_tile,
                                                        .finite = groups_finite,
                                                        .values_seen = values_seen};

#endif
