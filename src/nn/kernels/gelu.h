/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GELU, x Phi(x) (Hendrycks & Gimpel 2016), without an error function in between. With a = |x|
 *
 *     x Phi(x) = max(x, 0) - a Phi(-a),    Phi(-a) = exp(-a^2 / 2) q(a),    q(a) = erfcx(a / sqrt 2) / 2
 *
 * 1 + erf(x / sqrt 2) loses the digits of a negative x; Phi(-a) is small by its exponential and keeps them. q falls
 * smoothly from 1/2 as 1 / a does, so a polynomial in s = a / (a + 3) comes within 7.4e-9 of it, relative to it, up to
 * 13.4, where the exponential ends: a fit by iteratively reweighted least squares, its constant held at 1/2.
 *
 * Largest errors, one float in 16 tried: 2.0 ULP for x > 0; below 0, where that of the exponential's argument grows as
 * the argument does, 6.7 ULP down to -2 and 27 down to -5. SLEEF's erf takes six times as long, and leaves no correct
 * digit at -5.
 */
#ifndef ATTN_NN_GELU_H
#define ATTN_NN_GELU_H

#include "simd/simd.h"

/* q as a polynomial in -s. */
#define GELU_C1 0x1.326336p+0f
#define GELU_C2 0x1.0d9b26p+0f
#define GELU_C3 0x1.25c9a8p-2f
#define GELU_C4 -0x1.45e00ep-3f
#define GELU_C5 -0x1.033efcp-4f
#define GELU_C6 0x1.d7730ep-8f
#define GELU_C7 -0x1.60661cp-4f
#define GELU_C8 -0x1.82895ep-4f
#define GELU_C9 -0x1.c36b44p-6f

/** What x Phi(x) and its derivative are made from. */
struct gelu_parts {
    vf b; /**< -a, at least -16, where nothing is left of e */
    vf q; /**< q(a) */
    vf e; /**< exp(-a^2 / 2) */
};

static inline struct gelu_parts vf_gelu_parts(vf x)
{
    /* Maxima whose second operand is NaN are NaN. */
    const vf b = vf_max(vf_set1(-16.0f), vf_sub(vf_zero(), vf_abs(x)));
    const vf s = vf_div(b, vf_sub(vf_set1(3.0f), b));
    vf q = vf_fma(vf_set1(GELU_C9), s, vf_set1(GELU_C8));
    q = vf_fma(q, s, vf_set1(GELU_C7));
    q = vf_fma(q, s, vf_set1(GELU_C6));
    q = vf_fma(q, s, vf_set1(GELU_C5));
    q = vf_fma(q, s, vf_set1(GELU_C4));
    q = vf_fma(q, s, vf_set1(GELU_C3));
    q = vf_fma(q, s, vf_set1(GELU_C2));
    q = vf_fma(q, s, vf_set1(GELU_C1));
    q = vf_fma(q, s, vf_set1(0.5f));
    const vf e = vf_exp2(vf_mul(vf_mul(b, b), vf_set1(-0.72134752f))); /* log2(e) / 2 */
    return (struct gelu_parts){b, q, e};
}

/** x Phi(x) of any x; 0 for -inf. */
static inline vf vf_gelu(vf x)
{
    const struct gelu_parts p = vf_gelu_parts(x);
    return vf_fma(vf_mul(p.b, p.q), p.e, vf_max(vf_zero(), x));
}

/** Its derivative Phi(x) + x phi(x): below 0 it is e (q - a / sqrt(2 pi)), above 0 what that lacks of 1. */
static inline vf vf_gelu_slope(vf x)
{
    const struct gelu_parts p = vf_gelu_parts(x);
    const vf below = vf_mul(p.e, vf_fma(p.b, vf_set1(0.39894228f), p.q));
    return vf_select(vf_gt(x, vf_zero()), vf_sub(vf_set1(1.0f), below), below);
}

#endif
