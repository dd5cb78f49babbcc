# SPDX-License-Identifier: Apache-2.0
"""
The tensors of linear attention with a state, and its float64 reference, token by token as the rules are written.

    q, k, v     batch x heads x t x d; where the rule has a beta, keys have the length 1, as its models have them
    decay       batch x heads x t, logarithms, with gated rules
    beta        batch x heads x t, between 0 and 1, with delta rules
    state       batch x heads x d x d, rows those of k, columns those of v: before the token, where the case goes on from one

A row is one of the outputs, or of the state that is left: (0, sequence, head, token) or (1, sequence, head, row). Both have
d numbers. Their tolerance is that of bare attention in f32, 1e-4: the largest difference that was measured of anybody was
1.5e-5.
"""

import zlib

import numpy as np

# Heads whose rows are compared: the first, the last, and one that is drawn. The reference goes through all tokens of each.
NUM_HEADS = 3

# Rows of the outputs and of the state of such a head.
NUM_ROWS = 9

# Decays of a token are drawn between these, evenly in their logarithm: from heads that remember a thousand tokens to those
# that forget all but the last one.
DECAYS = (1e-3, 1.0)


def make(case):
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    heads = (case.batch, case.heads, case.t)

    def normal(*shape):
        return rng.standard_normal(shape, dtype=np.float32)

    arrays = {name: normal(*heads, case.d) for name in ("q", "k", "v")}
    if case.has_beta:
        arrays["k"] /= np.linalg.norm(arrays["k"], axis=-1, keepdims=True)
        arrays["beta"] = 1 / (1 + np.exp(-normal(*heads)))
    if case.has_decay:
        arrays["decay"] = -np.exp(rng.uniform(*np.log(DECAYS), heads)).astype(np.float32)
    if case.continues:
        arrays["state"] = normal(case.batch, case.heads, case.d, case.d)
    return arrays


def pick_rows(case):
    """
    The same in every run: of each of some heads the first, middle and last outputs and rows of the state, and some that
    are drawn.
    """
    rng = np.random.default_rng(7)
    drawn = (int(rng.integers(case.batch)), int(rng.integers(case.heads)))
    heads = dict.fromkeys([(0, 0), (case.batch - 1, case.heads - 1), drawn])
    rows = []
    for head in list(heads)[:NUM_HEADS]:
        for which, count in enumerate((case.t, case.d)):
            places = dict.fromkeys([0, count // 2, count - 1, *rng.integers(count, size=NUM_ROWS).tolist()])
            rows += [(which, *head, place) for place in list(places)[:NUM_ROWS]]
    return np.array(rows)


def reference_rows(case, arrays, rows):
    """float64 rows, n x d."""
    heads = list(dict.fromkeys((int(b), int(h)) for _, b, h, _ in rows))
    picked = tuple(np.array(heads).T)
    wide = {name: array[picked].astype(np.float64) for name, array in arrays.items()}
    state = wide.get("state", np.zeros((len(heads), case.d, case.d)))
    outputs = np.empty((len(heads), case.t, case.d))
    for t in range(case.t):
        q, k, u = (wide[name][:, t, None, :] for name in ("q", "k", "v"))
        if case.has_decay:
            state = state * np.exp(wide["decay"][:, t])[:, None, None]
        if case.has_beta:
            u = wide["beta"][:, t, None, None] * (u - k @ state)
        state = state + k.swapaxes(1, 2) * u
        outputs[:, t] = (q @ state)[:, 0] * case.d**-0.5
    return np.stack([(outputs, state)[which][heads.index((b, h)), i] for which, b, h, i in rows.tolist()])


def take_rows(outputs, state, rows):
    """The rows out of arrays that lie, or are viewed, as batch, head, token or row, channel."""
    return np.stack([(outputs, state)[which][b, h, i] for which, b, h, i in rows.tolist()])
