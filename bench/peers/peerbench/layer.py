# SPDX-License-Identifier: Apache-2.0
"""
The tensors of a multi-head attention layer and its float64 reference.

    x                     batch x T x C, standard normal
    w_q, w_k, w_v, w_o    outputs x inputs, as in PyTorch's nn.Linear; of variance 1 / inputs, so that
                          queries, keys and values are standard normal, as in the cases of bare attention
    b_q, b_k, b_v, b_o    with bias: small, as behind a large one an error of attention could not be seen; f32

In bf16 x and the weights are kept as their 16 bits, as tensors.py has it.
"""

import zlib

import numpy as np

from .reference import NUM_ROWS
from .tensors import store, widen

PARTS = ("q", "k", "v", "o")
BIAS = 0.02


def make(case):
    # The seed follows from the shape only: all precisions start from the same numbers.
    rng = np.random.default_rng(zlib.crc32(("f32/" + case.name.split("/", 1)[1]).encode()))
    arrays = {"x": store(rng.standard_normal((case.batch, case.t, case.d_model), dtype=np.float32), case.dtype)}
    for part, width in case.widths.items():
        weight = rng.standard_normal((width, case.d_model), dtype=np.float32)
        arrays[f"w_{part}"] = store(weight * np.float32(case.d_model**-0.5), case.dtype)
        if case.bias:
            arrays[f"b_{part}"] = np.float32(BIAS) * rng.standard_normal(width, dtype=np.float32)
    return arrays


def bias(arrays, part):
    """The bias of a projection, or None."""
    return arrays.get(f"b_{part}")


def pick_rows(case, count=NUM_ROWS):
    """The (sequence, token) pairs that are compared, the same in every run."""
    corners = {(b, i) for b in (0, case.batch - 1) for i in (0, case.t // 2, case.t - 1)}
    rng = np.random.default_rng(7)
    drawn = {(int(rng.integers(case.batch)), int(rng.integers(case.t))) for _ in range(count)}
    return np.array(sorted(corners) + sorted(drawn - corners))[:count]


def reference_rows(case, arrays, rows):
    """float64 rows of the layer's output, n x C."""

    def project(x, part):
        y = x.astype(np.float64) @ widen(arrays[f"w_{part}"], case.dtype).T.astype(np.float64)
        return y if bias(arrays, part) is None else y + bias(arrays, part)

    out = np.empty((len(rows), case.d_model))
    for b in sorted({int(b) for b, _ in rows}):
        x = widen(arrays["x"][b], case.dtype)
        keys, values = (project(x, part).reshape(case.t, case.kv_heads, case.head_dim) for part in "kv")
        for n in [n for n, row in enumerate(rows) if row[0] == b]:
            i = int(rows[n][1])
            end = i + 1 if case.causal else case.t
            query = project(x[i], "q").reshape(case.kv_heads, case.group, case.head_dim)
            scores = np.einsum("hgd,thd->hgt", query, keys[:end]) / np.sqrt(case.head_dim)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            out[n] = project(np.einsum("hgt,thd->hgd", weights, values[:end]).reshape(case.d_model), "o")
    return out
