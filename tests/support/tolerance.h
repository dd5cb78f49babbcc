/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one table of tolerances.
 *
 * A forward result passes when
 *
 *     error <= TOLERANCE_FACTOR * (error of the naive f32 computation) + floor
 *
 * where both errors are the largest over all elements of one output of one
 * call, in the oracle's units (see oracle.c: an error of 1 is what one f32
 * rounding can do to that element), and the naive computation's is the worst
 * of five ways to order its steps (naive.c), and of more where there are so few
 * rows that five may all be good by chance. The factor 2 is flash-attention's: both
 * computations round about as often, so neither should be far ahead. The floor
 * is needed because the naive computation of a small case is sometimes exact
 * whatever the order; it counts the roundings that the library's formulas have
 * on the way of a score, and is not widened to get a test green.
 *
 * Narrow types have no numbers of their own here, since nothing but the
 * rounding of what is stored distinguishes them from f32:
 *
 *  - q, k, v and masks of bf16 and f16 are exact numbers, widened exactly, and
 *    the library promises f32 arithmetic on them. So the yardstick is the naive
 *    computation in f32, not one in bf16, which errs by 2^16 units and would
 *    let the library do so too. check_eager holds it against that one as well.
 *  - out of bf16 or f16 has been rounded, once, by up to half a unit in its
 *    last place: 2^-8 or 2^-11 of it. No result is free of that, and it is known
 *    which numbers round to the one that was written. The error is the distance
 *    of the exact result from those (dtype_distance()): that of the result as it
 *    was in f32, at the least. If it is within the floor for f32, so it is here.
 *  - Where pairs of bf16 are multiplied, each weight is rounded by up to W =
 *    2^-8, and all of them against their own sum. What that can do to an
 *    element follows from the weights and values (the "slack" of oracle.c) and
 *    is deducted, element by element, before the rest is counted in units. It is
 *    not a part of the floor: multiplied by 2^16 units and the same for all
 *    elements, it would hide errors wherever rounding does no harm, such as in
 *    rows of few keys, of equal values, or of weights that bf16 holds. lse is
 *    off by W (1 - p_top) at most, a weight on request and a key sum by as much
 *    of itself: they are f32, divided by a sum of rounded weights.
 */
#ifndef TEST_TOLERANCE_H
#define TEST_TOLERANCE_H

#include "oracle_backward.h"
#include "oracle_linear.h"
#include "oracle_linear_backward.h"

#define TOLERANCE_FACTOR 2.0

enum test_output { TEST_OUT, TEST_LSE, TEST_WEIGHTS, TEST_KEY_SUMS, TEST_SCORES, TEST_OUTPUTS };

struct tolerance {
    const char *output;
    double floor;
    double per_term; /**< for each term of a sum whose terms may all be equal */
    const char *reason;
};

static const struct tolerance tolerance_table[TEST_OUTPUTS] = {
    [TEST_OUT] = {"out", 6, 0,
                  "scale*log2(e) 1, its product with q 1, exp2 2 (1 ULP), "
                  "1/l 1, its product with O 1"},
    [TEST_LSE] = {"lse", 6, 0, "as out, with log 1 and m*ln(2) 1 in the place of the division"},
    [TEST_WEIGHTS] = {"weights", 6, 0, "as out, without the product with V"},
    [TEST_KEY_SUMS] = {"key_sums", 6, 0.5,
                       "as weights; n equal weights, added one after the other, round the same way each time: the "
                       "rounding of partial sums 1/n, 2/n ... 1 is n/2 altogether"},
    [TEST_SCORES] = {"scores", 6, 0, "scale*log2(e) 1, its product with q 1, biases times log2(e) 2, ln(2) 2"},
};

/** Units of error allowed beside the naive computation's, for a sum of terms numbers. */
static inline double tolerance_floor(enum test_output output, int64_t terms)
{
    return tolerance_table[output].floor + tolerance_table[output].per_term * (double)terms;
}

/**
 * Gradients: the same rule with another factor, since weights are computed twice, by each side in its own way, and
 * errors of the log-sum-exp that both are given count in neither. Units are those of oracle_backward.c, in which sizes
 * of terms add up.
 */
#define TOLERANCE_GRADIENT_FACTOR 3.0

static const struct tolerance tolerance_gradient_table[GRADIENTS] = {
    [GRADIENT_Q] = {"dq", 8, 0, "as v, with dP - D 1, its product with P 1, the scale 1; less what v has of its own"},
    [GRADIENT_K] = {"dk", 8, 0, "as q"},
    [GRADIENT_V] = {"dv", 6, 0, "scale*log2(e) 1, its product with q 1, lse*log2(e) 1, exp2 2 (1 ULP), 1/(1-p) 1"},
    [GRADIENT_MASK] = {"dmask", 7, 0, "as q, without the scale"},
    [GRADIENT_ALIBI_SLOPES] = {"dslopes", 8, 0, "as q, with the distance in the place of the scale"},
    [GRADIENT_RELATIVE_BIAS] = {"dtable", 7, 0, "as the mask"},
    [GRADIENT_SINKS] = {"dsinks", 7, 0, "as the mask"},
    [GRADIENT_HEAD_SCALE] = {"dhead_scale", 8, 0, "as q, with q·k in the place of k"},
    [GRADIENT_REL_K] = {"drel_k", 8, 0, "as q"},
    [GRADIENT_REL_Q] = {"drel_q", 8, 0, "as q"},
};

/** Units of error allowed beside the naive computation's. */
static inline double tolerance_gradient_floor(enum gradient_of of)
{
    return tolerance_gradient_table[of].floor;
}

/**
 * Linear attention: the first rule again. Its units (oracle_linear.c) are what roundings do that are as large as they
 * can be and do not depend on each other, as a standard deviation.
 */
static const struct tolerance tolerance_linear_table[LINEAR_OUTPUTS] = {
    [LINEAR_OUT] = {"out", 4, 0, "the largest of many thousands of elements 4"},
    [LINEAR_STATE] = {"state_out", 4, 0, "as out"},
};

/** Gradients of linear attention: units as there (oracle_linear_backward.c), without a naive computation. */
static const struct tolerance tolerance_linear_gradients_table[LINEAR_GRADIENTS] = {
    [LINEAR_DQ] = {"dq", 8, 0, "the largest of 300 million elements 7.2"},
    [LINEAR_DK] = {"dk", 8, 0, "as dq"},
    [LINEAR_DV] = {"dv", 8, 0, "as dq"},
    [LINEAR_DDECAY] = {"ddecay", 8, 0, "as dq"},
    [LINEAR_DSTATE] = {"dstate_in", 8, 0, "as dq"},
};

/**
 * exp2 over [-150, 0]: error in ULP of the exact result, where a result below
 * 2^-126 counts in its own (denormal) ULP of 2^-149.
 */
#define EXP2_SLEEF_MAX_ULP 1.0

/**
 * SLEEF's functions with u10 in their names: 1.0 ULP. One thing comes on top of that in SLEEF 3.5.1, measured over all
 * floats: tanh near 2^-24 gives the float beside its argument, a whole ULP and what tanh(x) differs from x.
 */
#define SLEEF_U10_MAX_ULP (1.0 + 0x1p-20)

/** vf_tanh_fast(): simd/tanh_polynomial.h says how large its error is. */
#define TANH_FAST_MAX_ULP 4.0

/** vf_exp_twice() up to |x| = 9: 15.3 ULP with and without fused multiply-adds, over every seventh float from 2^-10 on.
 */
#define EXP_TWICE_MAX_ULP 16.0

/** The third-degree exp2 of weights that are rounded to bf16: simd/exp2_polynomial.h says how large its error is. */
#define EXP2_BF16_MAX_RELATIVE 7.5e-5

/** The weights of exp2_table_avx512.h, which says how large their error is: 1.6 times that of rounding to bf16. */
#define EXP2_TABLE_MAX_RELATIVE 6.1e-3

/**
 * Two results of the library for inputs that are equal in exact arithmetic
 * only (permuted keys, shifted logits): each may be off by its own error.
 */
#define TOLERANCE_PAIR 2.0

#endif
