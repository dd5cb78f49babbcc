# SPDX-License-Identifier: Apache-2.0
"""
The tensors of a token of decoding, and their float64 reference.

    q       layers * batch x heads x 1 x d
    k, v    layers * batch x kv_heads x tk x d; the token's own key and value are the last ones

Layers are put behind each other, as a larger batch is, so that rows are chosen and computed as those of bare
attention are. Contenders take them apart: nobody may compute two layers in one call.
"""

import zlib

import numpy as np

from . import reference
from .cases import Case
from .tensors import store

# Where a type's tolerance is not that of bare attention; see reference.TOLERANCE for what it is a multiple of.
#
# int8: a step is 1/127 of the largest of 32 numbers, of a token's, or of all those of a channel: 0.02 to 0.04 of a
#       number's size, of which rounding leaves 0.006 to 0.011. The values' errors pass through the sum as they are,
#       those of the keys move each weight by as much, and a quantised query does so again: 0.01 to 0.016 together.
#       The largest of all errors of some rows was 0.02 to 0.04 with a scale for a token or for 32 numbers, and
#       0.04 to 0.053 with one for a channel.
# e4m3: a number is known to 2^-4 of its size at worst, 0.026 of it on average; both together 0.04, of which the largest
#       was 0.11 to 0.18.
# int4: 16 steps over the range of 32 numbers: 0.085 of a number's size, 0.125 to 0.135 together, and 0.31 to 0.51 for the
#       largest. Nothing finer can be told from such an output than how coarse it is; that the right keys are read is
#       shown by the same code in the other types.
# bf16, f16: a token has no tile whose weights are rounded with it; the largest was 0.013 and 0.0015.
TOLERANCE = {"bf16": 0.02, "f16": 3e-3, "int8": 0.06, "e4m3": 0.25, "int4": 0.65}


def as_attention(case):
    """The same work as a case of bare attention, a sequence for each one of each layer."""
    return Case(case.given, case.layers * case.batch, case.heads, case.kv_heads, 1, case.tk, case.d)


def make(case):
    flat = as_attention(case)
    # The seed follows from the shape only, without the layers, whose number is the type's: the types of a shape start
    # from the same numbers.
    shape = (case.batch, case.heads, case.kv_heads, case.tk, case.d)
    rng = np.random.default_rng(zlib.crc32(repr(shape).encode()))
    heads = {"q": (case.heads, 1), "k": (case.kv_heads, case.tk), "v": (case.kv_heads, case.tk)}
    kind = store(np.zeros(0, np.float32), case.given).dtype
    arrays = {n: np.empty((flat.batch, h, t, case.d), kind) for n, (h, t) in heads.items()}
    # One sequence after the other: drawn at once, the numbers and what rounding needs would take gigabytes.
    for b in range(flat.batch):
        for array in arrays.values():
            array[b] = store(rng.standard_normal(array.shape[1:], dtype=np.float32), case.given)
    return arrays


def pick_rows(case):
    """(layer * batch + sequence, head, 0)."""
    return reference.pick_rows(as_attention(case))


def reference_rows(case, arrays, rows):
    """float64 attention of the rows, n x d."""
    return reference.reference_rows(as_attention(case), arrays, rows)


def disagreement(case, output, expected, tolerance=None):
    """As that of bare attention, with the tolerances above."""
    return reference.disagreement(case, output, expected, tolerance or TOLERANCE.get(case.dtype))


def layers(case, array):
    """Views of one layer after the other."""
    return [array[n : n + case.batch] for n in range(0, case.layers * case.batch, case.batch)]
