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

#define EXP2_C1 0x1.62e428p-1f
#define EXP2_C2 0x1.ebf9c2p-3f
#define EXP2_C3 0x1.c6b80ep-5f
#define EXP2_C4 0x1.3ce96cp-7f
#define EXP2_C5 0x1.5b958cp-10f

#endif
