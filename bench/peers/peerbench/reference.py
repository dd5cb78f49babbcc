# SPDX-License-Identifier: Apache-2.0
"""
Who computes attention at all: a float64 reference on some rows, and the
tolerance within which a contender's output must agree with it.

Only some rows are checked, because the reference of a long case would take
longer than all contenders together. They include the first and last rows of
the first and last head and sequence, where masks and tiles end, and a few
drawn at random. Outputs that disagree are reported as wrong and take no part
in any ratio.
"""

import numpy as np

from .tensors import widen

# Rows that are compared; each costs Tk * d multiplications in float64.
NUM_ROWS = 48

# The largest |output - reference| of a row that is accepted, as a multiple of
# the root mean square of that row of the reference. Relative to the row,
# because with standard normal inputs a dense row over T keys shrinks as
# 1/sqrt(T): a fixed bound that suits a short row would pass anything on a long
# one.
#
# f32:  some 1e-5 is what sums of d products and of Tk weights come to in any
#       order; 1e-4 leaves room for a low-order exp polynomial, and refuses
#       products in bf16 or TF32 (1e-3 and more).
# bf16: everyone rounds the weights to bf16 before the second product (each
#       2^-9 relative, which adds up to about as much of the row), and the
#       output once more: half an ulp of its largest elements, which are 4 times
#       the mean square, is 0.008. Together 0.01 to 0.02; a lost or an additional key
#       among 128 moves a row by 0.1 and more.
# f16:  the same with 2^-12 for 2^-9: 0.002. 0.005 refuses computing in bf16,
#       which is not what was asked for.
# int8: only layers. Weights and activations have 127 steps to their largest number, some four times their mean
#       square, or 255 to twice that: each rounding is 0.01 of a number and 0.03 at most, of which two enter each of
#       three products. With one scale for a whole tensor, as some have it, steps are twice as large. The largest
#       of a row's 768 errors is four times their mean: 0.1 to 0.2.
TOLERANCE = {"f32": 1e-4, "bf16": 4e-2, "f16": 5e-3, "int8": 0.3}


def pick_rows(case, count=NUM_ROWS):
    """The rows that are compared, as an array of (b, h, i), the same in every run."""
    corners = {
        (b, h, i) for b in (0, case.batch - 1) for h in (0, case.heads - 1) for i in (0, case.tq // 2, case.tq - 1)
    }
    rng = np.random.default_rng(7)
    drawn = {
        (int(rng.integers(case.batch)), int(rng.integers(case.heads)), int(rng.integers(case.tq))) for _ in range(count)
    }
    return np.array(sorted(corners) + sorted(drawn - corners))[:count]


def reference_rows(case, arrays, rows):
    """float64 attention of the rows, n x d."""
    out = np.empty((len(rows), case.d))
    lengths = case.lengths
    for n, (b, h, i) in enumerate(rows):
        end = min(lengths[b], i + 1) if case.causal else lengths[b]
        k = widen(arrays["k"][b, h // case.group, :end], case.dtype).astype(np.float64)
        v = widen(arrays["v"][b, h // case.group, :end], case.dtype).astype(np.float64)
        q = widen(arrays["q"][b, h, i], case.dtype).astype(np.float64)
        scores = k @ q / np.sqrt(case.d)
        if case.mask:
            scores[~arrays["mask"][0, 0, i, :end]] = -np.inf
        weights = np.exp(scores - scores.max())
        out[n] = weights @ v / weights.sum()
    return out


def disagreement(case, output, expected, tolerance=None):
    """
    (largest difference, None) or (largest difference, a sentence on what is wrong). tolerance: another than that of
    the case's type.
    """
    if output.shape != expected.shape:
        return float("inf"), f"the output has shape {output.shape}; expected {expected.shape}"
    if not np.isfinite(output).all():
        return float("inf"), "the output has NaN or Inf"
    scale = np.sqrt(np.mean(expected**2, axis=1))
    worst = float((np.abs(output.astype(np.float64) - expected).max(axis=1) / scale).max())
    tolerance = TOLERANCE[case.dtype] if tolerance is None else tolerance
    if worst > tolerance:
        return worst, (
            f"a row differs by {worst:.2g} of its size from the float64 reference;"
            f" {tolerance:g} is accepted for {case.dtype}"
        )
    return worst, None
