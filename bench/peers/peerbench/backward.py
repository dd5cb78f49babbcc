# SPDX-License-Identifier: Apache-2.0
"""
The tensors of a backward pass, and its float64 reference.

    q, dout     batch x heads x t x d; dout is the gradient of the loss with respect to the output
    k, v        batch x kv_heads x t x d

A row is one of the gradient of q, k or v: (0, 1 or 2, sequence, head, token). With S the scaled scores, P their softmax
and O the output,

    dV = Pt dO,  dS = P * (dO Vt - rowsum(dO * O)),  dQ = scale dS K,  dK = scale dSt Q

where Pt is P transposed, and rows of dK and dV are summed over the query heads of their key head.
"""

import numpy as np

from . import tensors
from .cases import self_attention

# Rows of each gradient that are compared.
NUM_ROWS = 16

# The largest error of a row that is accepted, as a multiple of what its terms come to: see disagreement().
#
# f32:  as for the output, which refuses products in bf16; the largest that was measured of anybody was 8e-6.
# bf16: P and dS may be rounded to bf16 before the products with them, and the gradient is, each 2^-9 relative: half an
#       ulp of a number that is four times the row's mean is 0.008. The largest that was measured was 0.014, but for
#       one library (registry.py). A key too many among 2048 moves a row's largest number by some 0.06.
TOLERANCE = {"f32": 1e-4, "bf16": 0.03}

NAMES = ("q", "k", "v")


def make(case):
    # The seed follows from the shape, so that all types start from the same numbers.
    bare = self_attention(case.dtype, case.batch, case.heads, case.t, case.d, case.kv_heads, causal=case.causal)
    rng = np.random.default_rng(8)
    dout = rng.standard_normal((case.batch, case.heads, case.t, case.d), dtype=np.float32)
    return {**tensors.make(bare), "dout": tensors.store(dout, case.dtype)}


def pick_rows(case, count=NUM_ROWS):
    """The same in every run: of each gradient the first and last rows of the first and last head, and some drawn."""
    rng = np.random.default_rng(7)
    rows = []
    for which in range(3):
        heads = case.heads if which == 0 else case.kv_heads
        corners = {(which, b, h, t) for b in (0, case.batch - 1) for h in (0, heads - 1) for t in (0, case.t - 1)}
        drawn = {(which, *(int(rng.integers(n)) for n in (case.batch, heads, case.t))) for _ in range(count)}
        rows += (sorted(corners) + sorted(drawn - corners))[:count]
    return np.array(rows)


def of_head(case, arrays, b, h):
    """
    Of one query head in float64: {"q": (rows, squares), ...}. The squares are sums of those of a row's terms, as if
    nothing in these cancelled: dO.v - D counts as |dO| (|v| + |O|) / sqrt(d), whatever it is.
    """

    def one(name, head):
        return tensors.widen(arrays[name][b, head], case.dtype).astype(np.float64)

    q, dout = one("q", h), one("dout", h)
    k, v = one("k", h // case.group), one("v", h // case.group)
    scale = 1 / np.sqrt(case.d)
    scores = scale * (q @ k.T)
    if case.causal:
        scores[~np.tri(case.t, dtype=bool)] = -np.inf
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    dp = dout @ v.T
    out = p @ v
    delta = (dout * out).sum(axis=1, keepdims=True)
    ds = scale * p * (dp - delta)

    def squares(x):
        return (x**2).sum(axis=1)

    dp_size = np.sqrt(squares(dout) / case.d)[:, None] * (np.sqrt(squares(v)) + np.sqrt(squares(out))[:, None])
    size = (scale * p * dp_size) ** 2

    return {
        "q": (ds @ k, size @ squares(k)),
        "k": (ds.T @ q, size.T @ squares(q)),
        "v": (p.T @ dout, (p**2).T @ squares(dout)),
    }


def reference_rows(case, arrays, rows):
    """(float64 rows, n x d, and their sizes)."""
    expected, squares = np.zeros((len(rows), case.d)), np.zeros(len(rows))
    # Which rows each query head has a share in.
    shares = {}
    for n, (which, b, h, t) in enumerate(rows):
        for head in [h] if which == 0 else range(h * case.group, (h + 1) * case.group):
            shares.setdefault((int(b), int(head)), []).append((n, NAMES[which], int(t)))
    for (b, h), wanted in shares.items():
        gradients = of_head(case, arrays, b, h)
        for n, name, t in wanted:
            expected[n] += gradients[name][0][t]
            squares[n] += gradients[name][1][t]
    return expected, np.sqrt(squares)


def disagreement(case, output, expected, tolerance=None):
    """
    (largest difference, None) or (largest difference, a sentence on what is wrong). A row may be much smaller than its
    terms: the query that sees one key has none at all but for rounding. So the largest error of a row is divided by the
    root mean square that its d numbers would have if none of the terms cancelled.
    """
    rows, sizes = expected
    if output.shape != rows.shape:
        return float("inf"), f"the gradients have shape {output.shape}; expected {rows.shape}"
    if not np.isfinite(output).all():
        return float("inf"), "a gradient has NaN or Inf"
    worst = float((np.abs(output.astype(np.float64) - rows).max(axis=1) / (sizes / np.sqrt(case.d))).max())
    tolerance = TOLERANCE[case.dtype] if tolerance is None else tolerance
    if worst > tolerance:
        return worst, (
            f"a row of a gradient differs by {worst:.2g} of its size from the float64 reference;"
            f" {tolerance:g} is accepted for {case.dtype}"
        )
    return worst, None


def take_rows(gradients, rows):
    """The rows out of three float32 arrays that lie as batch, head, token, channel."""
    return np.stack([gradients[which][b, h, t] for which, b, h, t in rows.tolist()])
