/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The polynomials behind vf_exp2() and vf_exp2_bf16().
 *
 * vf_exp2() is SLEEF's exp2f (xexp2f in its sleefsimdsp.c) without the call,
 * which took more time than the arithmetic: with n = x rounded to an integer
 * and r = x - n,
 *
 *     2^x = 2^n (1 + r (C1 + r (C2 + r (C3 + r (C4 + r (C5 + r C6))))))
 *
 * SLEEF remains what defines the result: tests/kernels compares every float.
 *
 * Sets without an instruction for the power of two add a magic number, whose
 * unit is 1, so that the sum rounds to n and has n + 192 in its low bits: the
 * exponent of 2^(n + 65). The sum is even in the place of 1, as ties go to even
 * integers. The product with 2^-65 rounds once, into the denormals if need be.
 * Below EXP2_LEAST the result is 0 anyway.
 */
#ifndef ATTN_EXP2_POLYNOMIAL_H
#define ATTN_EXP2_POLYNOMIAL_H

#define EXP2_C1     0.6931471825e+0f
#define EXP2_C2     0.2402264476e+0f
#define EXP2_C3     0.5550347269e-1f
#define EXP2_C4     0.9618384764e-2f
#define EXP2_C5     0.1339262701e-2f
#define EXP2_C6     0.1535920892e-3f

#define EXP2_MAGIC  (0x1.8p23f + 192.0f)
#define EXP2_UNBIAS 0x1p-65f
#define EXP2_LEAST  (-160.0f)

/*
 * And of third degree, for weights that are rounded to bf16 (2^-8) anyway: the
 * relative error is 7.5e-5 at most, free at both ends. A second degree would
 * err by 1.7e-3, as much as the rounding. The coefficients are a fit of the
 * relative error by iteratively reweighted least squares, for |r| <= 1/2.
 */
#define EXP2_BF16_C0 0x1.fff692p-1f
#define EXP2_BF16_C1 0x1.62f31ap-1f
#define EXP2_BF16_C2 0x1.f0de1ap-3f
#define EXP2_BF16_C3 0x1.c3f76p-5f

#endif
