/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights in pairs of bf16 from scores, by the table of exp2_table_avx512.h.
 *
 * Where a query's maximum and factor are of usual size (a tame lane), a score
 * becomes fixed point by t = s (256 factor) + (origin - 256 m), whose sum is
 * exact up to its one rounding, as m is a multiple of ATTN_RAISED_GRID. The
 * product is rounded by itself, so that whole scores, which have been multiplied
 * before, give the same bits. Other lanes subtract m first. Which of both it is
 * follows from the lane alone.
 *
 * t is bounded from below by that of a weight of 0, and from above by that of a
 * NaN: a score of NaN gives a weight of NaN. l is summed from the weights that
 * are multiplied, by an instruction that takes denormals for 0 as they do, in
 * two sums that take turns, so that none has to wait for the one before.
 */
#ifndef ATTN_WEIGHTS_TABLE_H
#define ATTN_WEIGHTS_TABLE_H

#include "kernels/softmax.h"
#include "simd/exp2_table_avx512.h"
#include "simd/words.h"

/**
 * m lies this far above the first maximum, so that later maxima hardly ever pass it and O is hardly ever rescaled: a
 * weight of 2^-24 has as many bits as one of 1.
 */
#define WEIGHTS_HEADROOM 24.0f

/** Of the maximum and the factor of a tame lane. */
#define TAME_MAXIMUM 4096.0f
#define TAME_FACTOR  0x1p100f

/** A vector of lanes at work. */
struct weight_lanes {
    vf factor, base; /**< weights are 2^(s factor - base) */
    vf slope, start; /**< of tame lanes: t = s slope + start, in two roundings */
    vm tame;
    vf sum[2];
};

/** A vector of scores as numbers t. tame: all lanes are. */
ATTN_INLINE vf weight_fixed(const int tame, const struct weight_lanes *lanes, vf s)
{
    vf t = vf_add(vf_mul(s, lanes->slope), lanes->start);
    if (!tame) {
        const vf y = vf_sub(vf_mul(s, lanes->factor), lanes->base);
        t = vf_select(lanes->tame, t, vf_fma(y, vf_set1(EXP2_TABLE_STEP), vf_set1(EXP2_TABLE_ORIGIN)));
    }
    t = _mm512_min_ps(t, vf_set1(EXP2_TABLE_NAN)); /* that, too, of NaN */
    return vf_max(vf_set1(EXP2_TABLE_ZERO), t);
}

/** Word u of vectors first..nv-1: keys 2u and, if there are two, 2u + 1. */
ATTN_INLINE void make_word(const int tame, const int nv, const int first, const int two, __m512i table, int u, float *s,
                           struct weight_lanes *lanes)
{
    ATTN_UNROLL
    for (int v = first; v < nv; v++) {
        const float *at = s + ((ptrdiff_t)2 * u * nv + v) * VF_LEN;
        const vf t0 = weight_fixed(tame, &lanes[v], vf_load(at));
        const vf t1 = two ? weight_fixed(tame, &lanes[v], vf_load(at + nv * VF_LEN)) : vf_set1(EXP2_TABLE_ZERO);
        const vw p = exp2_table_pair(table, t0, t1);
        vw_store(s + ((ptrdiff_t)u * nv + v) * VF_LEN, two ? p : vw_first(p));
        const vf sum = vf_dot(vw_ones(), two ? p : vw_first(p), lanes[v].sum[0]);
        lanes[v].sum[0] = lanes[v].sum[1];
        lanes[v].sum[1] = sum;
    }
}

ATTN_INLINE void make_words(const int tame, const int nv, const int *ends, int n, float *s, struct weight_lanes *lanes)
{
    const __m512i table = exp2_table();
    int u = 0;
    ATTN_UNROLL
    for (int first = 0; first < nv; first++) { /* along the diagonal the later vectors see more keys */
        for (; u < (int)key_words(ends[first]) && 2 * u + 1 < n; u++)
            make_word(tame, nv, first, 1, table, u, s, lanes);
        if (u < (int)key_words(ends[first])) {
            make_word(tame, nv, first, 0, table, u, s, lanes);
            u++;
        }
    }
}

/** The lanes of a vector of maxima and one of factors. */
ATTN_INLINE struct weight_lanes weight_lanes_of(vf m, vf f)
{
    const vf base = softmax_base(m), step = vf_set1(EXP2_TABLE_STEP);
    const vf away = vf_select(vf_ge(vf_set1(TAME_FACTOR), f), vf_max(base, vf_sub(vf_zero(), base)),
                              vf_set1(INFINITY)); /* |m|, NaN left in */
    return (struct weight_lanes){
        .factor = f,
        .base = base,
        .slope = vf_mul(f, step),
        .start = vf_sub(vf_set1(EXP2_TABLE_ORIGIN), vf_mul(base, step)),
        .tame = vf_ge(vf_set1(TAME_MAXIMUM), away),
        .sum = {vf_zero(), vf_zero()},
    };
}

ATTN_INLINE void weights_body(const int nv, const float *m, const int *ends, int n, const float *factor, float *s,
                              float *l)
{
    struct weight_lanes lanes[VF_STRIP];
    int wild = 0;
    ATTN_UNROLL
    for (int v = 0; v < nv; v++) {
        lanes[v] = weight_lanes_of(vf_load(m + v * VF_LEN), factor ? vf_load(factor + v * VF_LEN) : vf_set1(1.0f));
        wild |= (vm)~lanes[v].tame;
    }
    if (wild)
        make_words(0, nv, ends, n, s, lanes);
    else
        make_words(1, nv, ends, n, s, lanes);
    ATTN_UNROLL
    for (int v = 0; v < nv; v++)
        vf_store(l + v * VF_LEN, vf_add(vf_load(l + v * VF_LEN), vf_add(lanes[v].sum[0], lanes[v].sum[1])));
}

/* ---------------------------------------------------------- of one query -- */

#define ATTN_ONE_WEIGHTS

/** The numbers t of one query's keys that the lanes are, of which the first there are some. */
ATTN_INLINE vf one_fixed(const struct weight_lanes *lanes, vf scores, int there)
{
    const vf t = weight_fixed(0, lanes, scores);
    return there >= VF_LEN ? t : _mm512_mask_blend_ps(vm_first(there), vf_set1(EXP2_TABLE_ZERO), t);
}

/** weights_of_one(): words of keys are the lanes, but l is summed as in a lane, in two sums of
 * every other word. */
ATTN_INLINE void one_weights(float m, int n, float factor, float *s, float *l)
{
    const struct weight_lanes lanes = weight_lanes_of(vf_set1(m), vf_set1(factor));
    const __m512i table = exp2_table();
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    vf sums = vf_zero(); /* in the first two lanes */
    for (int j = 0; j < n; j += 2 * VF_LEN) {
        const int there = n - j < 2 * VF_LEN ? n - j : 2 * VF_LEN;
        const vf a = there >= VF_LEN ? vf_load(s + j) : vf_load_tail(s + j, there);
        const vf b = there == 2 * VF_LEN ? vf_load(s + j + VF_LEN)
                     : there > VF_LEN    ? vf_load_tail(s + j + VF_LEN, there - VF_LEN)
                                         : vf_zero();
        const vf t0 = one_fixed(&lanes, _mm512_permutex2var_ps(a, even, b), (there + 1) / 2);
        const vf t1 = one_fixed(&lanes, _mm512_permutex2var_ps(a, odd, b), there / 2);
        float words[VF_LEN];
        vw_store(words, exp2_table_pair(table, t0, t1));
        if (there % 2) { /* what stands for no key is 0 */
            const vw last = vw_first(vw_load_tail(words + there / 2, 1));
            memcpy(words + there / 2, &last, sizeof *words);
        }
        const int made = (there + 1) / 2;
        memcpy(s + j / 2, words, (size_t)made * sizeof *words);
        for (int u = 0; u < made; u += 2)
            sums = vf_dot(vw_ones(), vw_load_tail(words + u, made - u < 2 ? 1 : 2), sums);
    }
    float each[VF_LEN];
    vf_store(each, sums);
    *l += each[0] + each[1];
}

/* ------------------------------------------------ beside other products -- */

/** Products of words as they left their register, of key j in each lane: scores but for the factor. */
ATTN_INLINE vf product_of_words(const float *at, const float *k_scale, int j)
{
#if VS_PACK == 4
    return vf_mul(vf_of_ints(vu_load(at)), vf_set1(k_scale[j]));
#else
    (void)k_scale;
    (void)j;
    return vf_load(at);
#endif
}

/** Weights of some keys that are made a few at a time. All lanes are tame, and every t lies between its bounds. */
struct weight_stream {
    const float *s;       /**< products of the keys that come next */
    const float *k_scale; /**< of int8: of these keys */
    float *p;             /**< where their words go */
    vf slope[VF_STRIP], start[VF_STRIP];
    vf sum[VF_STRIP][2]; /**< of a whole step of the softmax */
    int left;            /**< words to be made */
    int products, due;   /**< that the words are made beside; words due, times products */
    int words;           /**< of a full stream */
};

/** The next word of each vector. */
ATTN_INLINE void stream_word(const int nv, struct weight_stream *x)
{
    const __m512i table = exp2_table();
    ATTN_UNROLL
    for (int v = 0; v < nv; v++) {
        const vf s0 = product_of_words(x->s + v * VF_LEN, x->k_scale, 0);
        const vf s1 = product_of_words(x->s + (nv + v) * VF_LEN, x->k_scale, 1);
        const vf t0 = vf_add(vf_mul(s0, x->slope[v]), x->start[v]);
        const vf t1 = vf_add(vf_mul(s1, x->slope[v]), x->start[v]);
        const vw p = exp2_table_pair(table, t0, t1);
        vw_store(x->p + v * VF_LEN, p);
        const vf sum = vf_dot(vw_ones(), p, x->sum[v][0]);
        x->sum[v][0] = x->sum[v][1];
        x->sum[v][1] = sum;
    }
    x->s += 2 * nv * VF_LEN;
    if (VS_PACK == 4)
        x->k_scale += 2;
    x->p += nv * VF_LEN;
    x->left--;
}

/** Beside a product: the words that are due by then. */
ATTN_INLINE void advance_weights(const int nv, struct weight_stream *x)
{
    x->due += x->words;
    while (x->left > 0 && x->due >= x->products) {
        x->due -= x->products;
        stream_word(nv, x);
    }
}

/** All that are left. */
ATTN_INLINE void end_weights(const int nv, struct weight_stream *x)
{
    while (x->left > 0)
        stream_word(nv, x);
}

#endif
