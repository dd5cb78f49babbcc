# SPDX-License-Identifier: Apache-2.0
"""The kinds of attention besides the softmax from their definitions, in double."""

import itertools
import math

from form_reference import philox
from support import Array, rounded


def elu(row):
    return [x + 1 if x > 0 else math.exp(x) for x in row]


def row_of(array, *index):
    """The channels at (batch, head, token), each of which repeats if its axis has the length 1."""
    return [array.at(*index, c) for c in range(array.shape[3])]


def recurrence(q, k, v, decay=None, beta=None, scale=None, features=None, normalise=False, bidirectional=False,
               state=None, resets=None, sequences=None):
    """
    Output and state of linear attention on 4-D bhtd arrays. sequences are (batch, first token, end); features makes a
    row from one of q or k. With normalise v has a channel more, of ones, and what it gives divides the others.
    """
    (batch, q_heads, tokens, dk), k_heads, heads, dv = q.shape, k.shape[1], v.shape[1], v.shape[3]
    out_heads, columns = max(q_heads, heads), dv + normalise
    sequences = sequences or [(b, 0, tokens) for b in range(batch)]
    features = features or (lambda row: row)
    rows = len(features([0.0] * dk))
    scale = 1 / math.sqrt(dk) if scale is None else scale
    out, states = [0.0] * (batch * out_heads * tokens * dv), []
    for (n, (b, first, end)), h in itertools.product(enumerate(sequences), range(heads)):
        s = [[state.at(n, h, r, c) if state else 0.0 for c in range(columns)] for r in range(rows)]

        def write(t):
            nonlocal s
            if resets and resets.at(b, h, t, 0):
                s = [[0.0] * columns for _ in range(rows)]
            if decay:
                a = [math.exp(x) for x in row_of(decay, b, h, t)]
                s = [[a[r if len(a) > 1 else 0] * x for x in s[r]] for r in range(rows)]
            key = features(row_of(k, b, h * k_heads // heads, t))
            u = row_of(v, b, h, t) + [1.0] * normalise
            if beta:
                u = [beta.at(b, h, t, 0) * (u[c] - sum(s[r][c] * key[r] for r in range(rows))) for c in range(columns)]
            for r in range(rows):
                s[r] = [x + key[r] * y for x, y in zip(s[r], u)]

        def read(t):
            for o in range(out_heads):
                if o * heads // out_heads != h:
                    continue
                query = features(row_of(q, b, o * q_heads // out_heads, t))
                got = [sum(query[r] * s[r][c] for r in range(rows)) for c in range(columns)]
                got = [x / got[dv] for x in got[:dv]] if normalise else [scale * x for x in got]
                at = ((b * out_heads + o) * tokens + t) * dv
                out[at:at + dv] = got

        t = first
        while t < end:
            # The tokens up to the next reset, of which with bidirectional each reads what all write.
            until = t + 1
            while bidirectional and until < end and not (resets and resets.at(b, h, until, 0)):
                until += 1
            for i in range(t, until):
                write(i)
            for i in range(t, until):
                read(i)
            t = until
        states += [x for row in s for x in row]
    return (Array((batch, out_heads, tokens, dv), out), Array((len(sequences), heads, rows, columns), states))


def drawn_rows(count, dk, seed, offset):
    """The rows of attn_draw_features() for one head."""
    key = philox((offset & 0xFFFFFFFF, offset >> 32, 0, 0), (seed & 0xFFFFFFFF, seed >> 32))[:2]

    def normals(row, stream):
        numbers = []
        for c in range(dk):
            word = philox((c // 4, row, 0, stream), key)
            pair = c % 4 // 2 * 2
            radius = math.sqrt(-2 * math.log((word[pair] + 0.5) / 2**32))
            angle = 2 * math.pi * (word[pair + 1] + 0.5) / 2**32
            numbers.append(radius * (math.sin(angle) if c % 2 else math.cos(angle)))
        return numbers

    block, rows = [], []
    for row in range(count):
        if row % dk == 0:
            block = []
        direction = normals(row, 0)
        for _ in range(2):
            for other in block:
                along = sum(x * y for x, y in zip(direction, other))
                direction = [x - along * y for x, y in zip(direction, other)]
        length = math.sqrt(sum(x * x for x in direction))
        block.append([x / length for x in direction])
        size = math.sqrt(sum(x * x for x in normals(row, 1)))
        rows.append(rounded([size * x for x in block[-1]]))
    return rows


def positive_features(rows, scale):
    """e^(w·x - x·x / 2) of x = sqrt(scale) times a row of q or k, for each w."""
    def features(row):
        x = [math.sqrt(scale) * c for c in row]
        half = sum(c * c for c in x) / 2
        return [math.exp(sum(a * b for a, b in zip(w, x)) - half) for w in rows]
    return features


def projected(array, rows, lengths=None):
    """E K of each head: rows is (row, token) or (head, row, token)."""
    batch, heads, tokens, d = array.shape
    count = rows.shape[-2]
    values = []
    for b, h, r, c in itertools.product(range(batch), range(heads), range(count), range(d)):
        end = lengths[b] if lengths else tokens
        values.append(sum(rows.at(h, r, t) * array.at(b, h, t, c) for t in range(end)))
    return Array((batch, heads, count, d), values)


def additive(q, k, wq, wk, v, bias=None, temperature=1.0):
    """The score of a pair, for form_reference.attention()."""
    inner = wq.shape[0]

    def product(w, array):
        return {(b, t): [sum(w.at(a, c) * array.at(b, 0, t, c) for c in range(w.shape[1])) for a in range(inner)]
                for b in range(array.shape[0]) for t in range(array.shape[2])}

    queries, keys = product(wq, q), product(wk, k)
    shift = bias.values if bias else [0.0] * inner

    def score(s, b, h, i, j):
        return sum(v.at(a) * math.tanh(queries[b, i][a] + keys[b, j][a] + shift[a]) for a in range(inner)) / temperature
    return score
