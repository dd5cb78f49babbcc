/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The polynomial behind vf_tanh_fast(). A call of SLEEF's tanh takes 2.5 times
 * as long (4.7 ns against 1.8 for 16 floats on Zen 5, 4.7 against 1.9 for 8), as
 * it saves and fetches all registers and takes a branch for large arguments.
 *
 *     y = 2 log2(e) x,  n = y rounded to an integer,  r = y - n
 *     e = 2^y - 1 = 2^n r (C1 + r (C2 + r (C3 + r (C4 + r (C5 + r C6))))) + (2^n - 1)
 *     tanh(x) = e / (e + 2)
 *
 * e is small where x is, so small results keep their digits; where e is large its
 * error is lost in the quotient. Beyond TANH_MOST the result is 1 in f32. C1 to C6
 * are a fit of the relative error of (2^kr - 1) / r for |r| <= 1/2, where k makes
 * up for the rounding of 2 log2(e), and then a search among their neighbours for
 * the least error of the whole: at most 3.9 ULP with fused multiply-adds and 4.0
 * without, over all floats from 0.001 to 9.5 of both signs.
 *
 * Sets without an instruction for the power of two add a magic number, as in
 * exp2_polynomial.h; here 2^n is in the normal range, so its exponent needs no
 * further step.
 */
#ifndef ATTN_TANH_POLYNOMIAL_H
#define ATTN_TANH_POLYNOMIAL_H

#define TANH_2LOG2E 0x1.715476p+1f
#define TANH_C1     0x1.62e43p-1f
#define TANH_C2     0x1.ebfbe6p-3f
#define TANH_C3     0x1.c6af88p-5f
#define TANH_C4     0x1.3b2bap-7f
#define TANH_C5     0x1.5f07b6p-10f
#define TANH_C6     0x1.4308fcp-13f

#define TANH_MOST   27.0f /* of y */
#define TANH_TAME   9.0f  /* of x: y is less than TANH_MOST */
#define TANH_MAGIC  (0x1.8p23f + 127.0f)

#endif
