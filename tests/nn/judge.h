/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares results with the oracle, and the one table of tolerances of the
 * layers.
 *
 * A unit is u = 2^-24 of an element's size: what one rounding to f32 can do to
 * it; 2^-8 and 2^-11 where what lies between operations is bf16 or f16
 * (oracle_type). Where a layer's formula says how large the numbers are that an element
 * is made from (sum |x w| of a product), the test hands these sizes over;
 * elsewhere the size is the largest element of its row, and not less than half
 * of the root mean square of the whole tensor, so that rows of one or two channels
 * that happen to be near 0 are no yardstick.
 *
 * A tensor passes when both its largest error and the root mean square of its
 * errors, in units, are at most
 *
 *     TOLERANCE_FACTOR * (that of the naive computation in this type) + floor
 *
 * the naive one being the worse of two orders of summation (oracle.h). For the
 * root mean square half of the floor counts; a single error is the largest, and
 * nothing else. The floor is needed because the
 * naive computation of a small case may be exact by luck. It counts roundings
 * of the formulas, and is not widened to get a test green.
 */
#ifndef TEST_NN_JUDGE_H
#define TEST_NN_JUDGE_H

#include "oracle.h"
#include "tolerance.h"

enum nn_kind {
    NN_LINEAR,
    NN_LINEAR_INTEGERS,
    NN_LINEAR_BACKWARD,
    NN_ACTIVATION,
    NN_NORM,
    NN_GATE,
    NN_EMBED,
    NN_SINUSOIDAL,
    NN_MHA,
    NN_WEIGHTS,
    NN_ALIGNMENT,
    NN_LINFORMER,
    NN_RECURRENT,
    NN_RECURRENT_BACKWARD,
    NN_POOL_BACKWARD,
    NN_BLOCK,
    NN_MODEL,
    NN_KINDS
};

struct nn_tolerance {
    const char *name;
    double floor;
    const char *reason;
};

static const struct nn_tolerance nn_tolerances[NN_KINDS] = {
    [NN_LINEAR] = {"linear", 6, "product 1, bias 1, activation 3 (1 ULP, two operations), residual 1"},
    [NN_LINEAR_INTEGERS] =
        {"integers", 9,
         "sum 1, scale of the weights 1, scale of the row 1, bias 1, activation 3, residual 1, 1 for "
         "the float of a sum of integers"},
    [NN_LINEAR_BACKWARD] = {"linear_backward", 4,
                            "product 1, sum of spans 1, what was there 1, 1 for both orders of a span"},
    [NN_ACTIVATION] = {"activation", 6,
                       "SLEEF 1 ULP (2 u), its argument 1, two more operations 2, 1 for the slope of gelu (1.13)"},
    [NN_NORM] = {"norm", 6, "mean 1, difference 1, square root 1, division 1, gamma 1, beta 1"},
    [NN_GATE] = {"gate", 7, "as activation, and a product"},
    [NN_EMBED] = {"embed", 2, "product with scale 1, sum with what was there 1"},
    [NN_SINUSOIDAL] = {"sinusoidal", 1.001, "one rounding; 0.001 for the double arithmetic before it"},
    [NN_MHA] = {"mha", 16,
                "two products of 2 each on q, k and v, the core's floor of 6 on out, output product 2, 2 "
                "for the row's sum of weights that are not equal"},
    [NN_WEIGHTS] = {"weights", 12, "products of 2 each on q and k, the core's floor of 6, score 2"},
    [NN_ALIGNMENT] = {"alignment", 16, "products 2 each on q and k, tanh 2, sum 2, temperature 1, the core's floor 6"},
    [NN_LINFORMER] = {"linformer", 14,
                      "projections 2 each, with a rounding, on k and v, the core's floor of 6, scores 2"},
    [NN_RECURRENT] = {"recurrent", 12, "gates 2 each, sigmoid 3, tanh 2, cell 3, output 2"},
    [NN_RECURRENT_BACKWARD] = {"recurrent_backward", 20, "the forward pass 12, cell 5, product 2, sum of spans 1"},
    [NN_POOL_BACKWARD] = {"pool_backward", 16,
                          "product 2, tanh 2, score 1, exponential 2, sums of softmax 2, slope 3, product 2, sums 2"},
    [NN_BLOCK] = {"block", 24, "mha 16, product with its activation 5, residual 1, norm 2"},
    [NN_MODEL] = {"model", 48, "two layers at least"},
};

/**
 * Fails the test unless got, of any strides, is what of[0] says; of[1] and
 * of[2] are the naive results, contiguous like it. size: of each element, or NULL.
 * What is not finite in of[0] must be so in got: NaN as NaN, infinities with their sign.
 */
void judge(enum nn_kind kind, const char *what, const attn_tensor *got, double *const of[ORACLES], const double *size);

#endif
