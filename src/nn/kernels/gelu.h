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

/** x Phi(x) of any x; 0 for -inf. */
static inline vf vf_gelu(vf x)
{
    /* b = -a. Maxima whose second operand is NaN are NaN. */
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
    return vf_fma(vf_mul(b, q), e, vf_max(vf_zero(), x));
}

#endif
