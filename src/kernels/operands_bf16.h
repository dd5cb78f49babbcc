/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tiles multiply, as pairs of bf16 (q, k and v are all bf16).
 *
 * Q and K are pairs of channels, as they lie in memory; only Q is transposed.
 * The scale stays out of Q, where it would cost a rounding: scores leave the
 * tile as plain products and the scale goes into the multiply-add that
 * subtracts the maximum. Only its sign goes into Q, so that the largest
 * product is the largest score.
 *
 * V and P are pairs of keys. Two rows of V are interleaved once per block of
 * keys, and P is written as pairs, each weight rounded to bf16. The
 * denominator is summed from the rounded weights, by the same instruction that
 * multiplies them with V, so rounding does not bias the quotient. The
 * polynomial for 2^x is as short as that rounding allows.
 */
#ifndef ATTN_OPERANDS_H
#define ATTN_OPERANDS_H

/** What scores still have to be multiplied by when they leave a tile of this kind; a bias was added to whole scores. */
ATTN_INLINE float score_factor(const struct attn_work *work, enum mask_kind kind)
{
    return kind == MASK_BIAS || work->scale == 0.0f ? 1.0f : fabsf(work->scale);
}

/** Q^T of the rows of a strip; a scale of 0 makes Q 0, so that a product of Inf does not become NaN. */
static void pack_queries(const struct attn_work *work, const struct attn_rows *rows, float *q, int width, int num_rows)
{
    const int64_t dk = work->dk, words = words_of(dk);
    if (work->scale == 0.0f) {
        memset(q, 0, (size_t)(words * width) * sizeof *q);
        return;
    }
    for (int r = 0; r < width; r += VF_LEN) {
        for (int64_t c = 0; c < words; c += VF_LEN) {
            vf a[VF_LEN];
            for (int i = 0; i < VF_LEN; i++) {
                a[i] = vf_zero();
                if (r + i >= num_rows)
                    continue;
                const char *src = row_at(rows, r + i) + c * WORD;
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

/** n rows of K as words: a copy with a 0 behind the last element of an odd row. */
static void pack_keys(float *dst, const struct attn_rows *src, int n, int64_t dk)
{
    const size_t pitch = (size_t)words_of(dk) * WORD;
    for (int j = 0; j < n; j++) {
        char *row = (char *)dst + (size_t)j * pitch;
        memset(row + pitch - WORD, 0, WORD);
        memcpy(row, row_at(src, j), (size_t)dk * 2);
    }
}

/** n rows of V as words of keys; the word of an odd last row has a 0 in its second element. */
static void pack_values(float *dst, const struct attn_rows *src, int n, int64_t dv)
{
    for (int j = 0; j < n; j += 2, dst += dv) {
        const int pair = j + 1 < n;
        const uint16_t *first = (const void *)row_at(src, j), *second = (const void *)row_at(src, pair ? j + 1 : j);
        int64_t c = 0;
        for (; c + VF_LEN <= dv; c += VF_LEN) {
            const vw words = vw_interleave(first + c, second + c);
            vw_store(dst + c, pair ? words : vw_first(words));
        }
        for (; c < dv; c++) {
            const uint16_t word[2] = {first[c], pair ? second[c] : 0};
            memcpy(dst + c, word, sizeof word);
        }
    }
}

/** One word of weights: keys 2u and, if there are two, 2u + 1, of vectors first..nv-1. */
ATTN_INLINE void make_word(const int nv, const int first, const int two, int u, vf factor, const vf *minus_base,
                           float *s, vf *sum)
{
    ATTN_UNROLL
    for (int v = first; v < nv; v++) {
        const float *at = s + ((ptrdiff_t)2 * u * nv + v) * VF_LEN;
        const vf p0 = vf_exp2_bf16(vf_fma(vf_load(at), factor, minus_base[v]));
        const vf p1 = two ? vf_exp2_bf16(vf_fma(vf_load(at + nv * VF_LEN), factor, minus_base[v])) : vf_zero();
        const vw p = vw_pair(p0, p1);
        vw_store(s + ((ptrdiff_t)u * nv + v) * VF_LEN, p);
        sum[v] = vf_dot(vw_ones(), p, sum[v]);
    }
}

ATTN_INLINE void make_weights_body(const int nv, const float *m, const int *ends, int n, float factor, float *s,
                                   float *sum_out)
{
    const vf f = vf_set1(factor);
    vf minus_base[VF_STRIP], sum[VF_STRIP];
    ATTN_UNROLL
    for (int v = 0; v < nv; v++) {
        minus_base[v] = vf_sub(vf_zero(), softmax_base(vf_load(m + v * VF_LEN)));
        sum[v] = vf_zero();
    }
    int u = 0;
    ATTN_UNROLL
    for (int first = 0; first < nv; first++) { /* along the diagonal the later vectors see more keys */
        for (; u < (int)words_of(ends[first]) && 2 * u + 1 < n; u++)
            make_word(nv, first, 1, u, f, minus_base, s, sum);
        if (u < (int)words_of(ends[first])) {
            make_word(nv, first, 0, u, f, minus_base, s, sum);
            u++;
        }
    }
    ATTN_UNROLL
    for (int v = 0; v < nv; v++)
        vf_store(sum_out + v * VF_LEN, sum[v]);
}

/** S becomes P, and sum[lane] its sum: the first ends[v] keys of vector v, of n. */
ATTN_INLINE void make_weights(int nv, const attn_exp exp, const float *m, const int *ends, int n, float factor,
                              float *s, float *sum)
{
    (void)exp; /* the weights are rounded to bf16, further than any choice of exp reaches */
    ATTN_BY_WIDTH(nv, make_weights_body, m, ends, n, factor, s, sum);
}

/** c plus the products of one word of V with a vector of P, for each lane those of the keys that it sees. */
ATTN_INLINE vf dot_visible(vw v, vw p, const vm *sees, vf c)
{
    const vf both = vf_dot(v, p, c), first = vf_dot(vw_first(v), p, c), second = vf_dot(vw_second(v), p, c);
    return vf_select(sees[0], vf_select(sees[1], both, first), vf_select(sees[1], second, c));
}

#endif
