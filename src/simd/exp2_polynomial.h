/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The polynomial behind vf_exp2_fast():
 *
 *     2^r = 1 + r (C1 + r (C2 + r (C3 + r (C4 + r C5))))   for |r| <= 1/2
 *
 * with 2^0 = 1 exactly, which the rescaling of rows that need none relies on.
 * The start was a fit of the relative error by iteratively reweighted least
 * squares; the coefficients were then moved by single ULPs for as long as the
 * largest error of the rounded evaluation (fused multiply-adds, Horner) fell.
 * tests/check/check_exp measures what is left; docs/numerics.md has the figure.
 */
#ifndef ATTN_EXP2_POLYNOMIAL_H
#define ATTN_EXP2_POLYNOMIAL_H

/*
 * And of third degree, for weights that are rounded to bf16 (2^-8) anyway: the
 * relative error is 7.5e-5 at most, free at both ends. A second degree would
 * err by 1.7e-3, as much as the rounding. For |r| <= 1/2, and for 0 <= r < 1
 * where the exponent is a floor.
 */
#define EXP2_BF16_C0       0x1.fff692p-1f
#define EXP2_BF16_C1       0x1.62f31ap-1f
#define EXP2_BF16_C2       0x1.f0de1ap-3f
#define EXP2_BF16_C3       0x1.c3f76p-5f
#define EXP2_BF16_FLOOR_C0 0x1.fff632p-1f
#define EXP2_BF16_FLOOR_C1 0x1.64444cp-1f
#define EXP2_BF16_FLOOR_C2 0x1.cefc4cp-3f
#define EXP2_BF16_FLOOR_C3 0x1.3f96a4p-4f

#define EXP2_C1            0x1.62e428p-1f
#define EXP2_C2            0x1.ebf9c2p-3f
#define EXP2_C3            0x1.c6b80ep-5f
#define EXP2_C4            0x1.3ce96cp-7f
#define EXP2_C5            0x1.5b958cp-10f

#endif
