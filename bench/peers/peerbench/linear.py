# SPDX-License-Identifier: Apache-2.0
"""
The tensors of one linear layer, y = x Wt + b, and its float64 reference.

    x       rows x inputs, standard normal
    w       outputs x inputs, as in PyTorch's nn.Linear; of variance 1 / inputs, so that outputs are standard normal
    b       outputs, small, so that a missing one is seen and hides nothing; f32

In bf16 x and w are kept as their 16 bits, as tensors.py has it.

Where a case has several matrices, each contender makes them from this one (matrix(), bias()), for the files of all would
have gigabytes. They differ in every number, so that no library can find two that are equal and keep one.
"""

import zlib

import numpy as np

from . import reference
from .layer import BIAS
from .reference import NUM_ROWS
from .tensors import store, widen

# Where a precision's tolerance is not that of bare attention; see reference.TOLERANCE for what it is a multiple of.
#
# bf16: sums are in f32, so that an output is rounded once: half an ulp of one of four to eight times the mean is 0.016.
# int8: one product of two rounded factors, of which each is off by 0.01 of a number's size, and x by 0.024 where it has 7
#       bits for all rows: 0.014 to 0.026 together. The largest error of some rows was 0.034 to 0.084, and 0.12 with 7 bits.
TOLERANCE = {"bf16": 0.02, "int8": 0.15}


def make(case):
    # The seed follows from the shape only, without the number of matrices, which is the precision's.
    rng = np.random.default_rng(zlib.crc32(repr((case.rows, case.outputs, case.inputs)).encode()))
    weight = rng.standard_normal((case.outputs, case.inputs), dtype=np.float32)
    return {
        "x": store(rng.standard_normal((case.rows, case.inputs), dtype=np.float32), case.dtype),
        "w": store(weight * np.float32(case.inputs**-0.5), case.dtype),
        "b": np.float32(BIAS) * rng.standard_normal(case.outputs, dtype=np.float32),
    }


def matrix(arrays, n):
    """The n-th matrix of weights: the numbers of w, all of them moved on by n places."""
    return np.roll(arrays["w"], n)


def bias(arrays, n):
    """The n-th bias, moved in the same way."""
    return np.roll(arrays["b"], n)


def pick_rows(case, count=NUM_ROWS):
    """The (matrix, row) pairs that are compared, the same in every run."""
    corners = {(m, i) for m in (0, case.matrices - 1) for i in (0, case.rows // 2, case.rows - 1)}
    rng = np.random.default_rng(7)
    drawn = {(int(rng.integers(case.matrices)), int(rng.integers(case.rows))) for _ in range(count)}
    return np.array(sorted(corners) + sorted(drawn - corners))[:count]


def reference_rows(case, arrays, rows):
    """float64 rows of the outputs, n x outputs."""
    out = np.empty((len(rows), case.outputs))
    for m in sorted({int(m) for m, _ in rows}):
        mine = rows[:, 0] == m
        x = widen(arrays["x"][rows[mine, 1]], case.dtype).astype(np.float64)
        out[mine] = x @ widen(matrix(arrays, m), case.dtype).T.astype(np.float64) + bias(arrays, m)
    return out


def disagreement(case, output, expected, tolerance=None):
    """As that of bare attention, with the tolerances above."""
    return reference.disagreement(case, output, expected, tolerance or TOLERANCE.get(case.dtype))


def take_rows(rows, output_of):
    """The rows out of the outputs, float32 arrays of rows x outputs; output_of(n) is that of the n-th matrix."""
    taken = np.empty(len(rows), object)
    for m in dict.fromkeys(rows[:, 0].tolist()):
        output = output_of(m)
        for n in np.flatnonzero(rows[:, 0] == m):
            taken[n] = output[rows[n, 1]].copy()
    return np.stack(list(taken))
