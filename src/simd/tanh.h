/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast tanh, on the operations of the instruction set at hand, of one vector
 * or of several step by step (tanh_polynomial.h has the formula). A vector alone
 * is a chain of 60 cycles, and a processor that takes operations in their order
 * sees few chains at once: eight side by side take 1.6 ns each with their loads on
 * Zen 5, one after the other 2.0, whatever the set.
 */
#ifndef ATTN_TANH_H
#define ATTN_TANH_H

#include "simd/simd.h"
#include "simd/tanh_polynomial.h"

/** Vectors that vf_tanh_many() takes at most. */
#define TANH_CHAINS 8

#define TANH_EACH                                                                                                      \
    _Pragma("GCC unroll 8") /* constant, so that all are in registers */                                               \
        for (int i = 0; i < n; i++)

/** p = (2^r - 1) / r of n vectors. */
static inline __attribute__((always_inline)) void tanh_polynomials(vf *p, const vf *r, const int n)
{
    TANH_EACH p[i] = vf_fma(vf_set1(TANH_C6), r[i], vf_set1(TANH_C5));
    TANH_EACH p[i] = vf_fma(p[i], r[i], vf_set1(TANH_C4));
    TANH_EACH p[i] = vf_fma(p[i], r[i], vf_set1(TANH_C3));
    TANH_EACH p[i] = vf_fma(p[i], r[i], vf_set1(TANH_C2));
    TANH_EACH p[i] = vf_fma(p[i], r[i], vf_set1(TANH_C1));
}

/** The tanh of n vectors in place, n being a constant: at most 4 ULP, NaN for NaN. */
static inline __attribute__((always_inline)) void vf_tanh_many(vf *x, const int n)
{
    vf r[TANH_CHAINS], power[TANH_CHAINS], p[TANH_CHAINS];
    TANH_EACH power[i] = tanh_split(tanh_clamp(vf_mul(x[i], vf_set1(TANH_2LOG2E))), &r[i]);
    tanh_polynomials(p, r, n);
    TANH_EACH r[i] = vf_mul(r[i], power[i]);
    TANH_EACH power[i] = vf_sub(power[i], vf_set1(1.0f));
    TANH_EACH p[i] = vf_fma(r[i], p[i], power[i]);
    TANH_EACH x[i] = vf_div(p[i], vf_add(p[i], vf_set1(2.0f)));
}

/** e^2x of n vectors in place, n being a constant, for |x| up to TANH_TAME, and NaN: at most 16 ULP (15.3 of every
 * seventh float from 2^-10), most of it half a unit of 2 log2(e) x. Of others it is anything. */
static inline __attribute__((always_inline)) void vf_exp_twice_many(vf *x, const int n)
{
    vf r[TANH_CHAINS], power[TANH_CHAINS], p[TANH_CHAINS];
    TANH_EACH power[i] = tanh_split(vf_mul(x[i], vf_set1(TANH_2LOG2E)), &r[i]);
    tanh_polynomials(p, r, n);
    TANH_EACH x[i] = vf_fma(vf_mul(r[i], power[i]), p[i], power[i]);
}

/** The same of one. */
static inline vf vf_exp_twice(vf x)
{
    vf_exp_twice_many(&x, 1);
    return x;
}

/** vf_tanh_many() of one: an eighth of the time of vf_tanh(). */
static inline vf vf_tanh_fast(vf x)
{
    vf_tanh_many(&x, 1);
    return x;
}

#endif
