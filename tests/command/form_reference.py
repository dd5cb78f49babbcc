# SPDX-License-Identifier: Apache-2.0
"""The forms of attention from their definitions, in double, and a test that compares attn run with them."""

import itertools
import math

from support import Array, CommandTest, normal, read_npy

INF = math.inf


def attention(q, k, v, score=None, sees=None, scales=None, sinks=None, keeps=None, p=0.0):
    """
    Output, LSE and weights of 4-D bhtd arrays. score(s, b, h, i, j) changes a scaled score, sees(b, h, i, j) says
    whether query i sees key j, keeps(b, h, i, j) whether dropout keeps the weight.
    """
    (batch, heads, tq, d), (kv_heads, tk), dv = q.shape, k.shape[1:3], v.shape[3]
    out, lse, weights = [], [], []
    for b, h, i in itertools.product(range(batch), range(heads), range(tq)):
        g = h // (heads // kv_heads)
        scale = (scales[h] if scales else 1.0) / math.sqrt(d)
        scores = []
        for j in range(tk):
            s = -INF
            if sees is None or sees(b, h, i, j):
                s = scale * sum(q.at(b, h, i, c) * k.at(b, g, j, c) for c in range(d))
                s = score(s, b, h, i, j) if score else s
            scores.append(s)
        sink = sinks[h] if sinks else -INF
        top = max(scores + [sink])
        parts = [math.exp(s - top) if s > -INF else 0.0 for s in scores]
        total = sum(parts) + (math.exp(sink - top) if sink > -INF else 0.0)
        row = [part / total if total > 0 else 0.0 for part in parts]
        if keeps:
            row = [w / (1 - p) if keeps(b, h, i, j) else 0.0 for j, w in enumerate(row)]
        weights += row
        lse.append(top + math.log(total) if total > 0 else -INF)
        out += [sum(row[j] * v.at(b, g, j, c) for j in range(tk)) for c in range(dv)]
    return (Array((batch, heads, tq, dv), out), Array((batch, heads, tq), lse), Array((batch, heads, tq, tk), weights))


def slopes_of(heads):
    power = 1 << heads.bit_length() - 1
    slopes = [2.0 ** (-8 / power * (n + 1)) for n in range(power)]
    twice = [2.0 ** (-8 / (2 * power) * (n + 1)) for n in range(2 * power)]
    return slopes + twice[::2][:heads - power]


def t5_bucket(distance, buckets, furthest, bidirectional):
    """As in Raffel et al. 2020; distance is key minus query."""
    first = 0
    if bidirectional:
        buckets //= 2
        first = buckets if distance > 0 else 0
        n = abs(distance)
    else:
        n = max(-distance, 0)
    exact = buckets // 2
    if n < exact:
        return first + n
    return first + min(exact + int(math.log(n / exact) / math.log(furthest / exact) * (buckets - exact)), buckets - 1)


def frequencies(pairs, base=10000.0, scaling=None, factor=1.0, original=0, fast=None, slow=1.0, truncate=True,
                magnitude=None, divisors=None):
    """Frequencies of RoPE, and what multiplies sines and cosines."""
    if scaling == "ntk":
        base *= factor ** (pairs / (pairs - 1))
    plain = [base ** (-c / pairs) for c in range(pairs)]
    if divisors:
        return [f / divisor for f, divisor in zip(plain, divisors)], magnitude
    if scaling == "linear":
        return [f / factor for f in plain], 1.0
    if scaling == "llama3":
        result = []
        for f in plain:
            turns = original * f / (2 * math.pi)
            smooth = min(max((turns - slow) / ((fast or 4) - slow), 0.0), 1.0)
            result.append((1 - smooth) * f / factor + smooth * f)
        return result, 1.0
    if scaling == "yarn":
        def channel(turns):
            return pairs * math.log(original / (turns * 2 * math.pi)) / math.log(base)
        low, high = channel(fast or 32), channel(slow)
        if truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, 2 * pairs - 1)
        ramp = [min(max((c - low) / max(high - low, 0.001), 0.0), 1.0) for c in range(pairs)]
        return [f / factor * r + f * (1 - r) for f, r in zip(plain, ramp)], magnitude or 0.1 * math.log(factor) + 1
    return plain, 1.0


def rotated(array, position, layout="half", pairs=None, **how):
    """RoPE of a bhtd array; position(b, t) is that of a token."""
    batch, heads, tokens, d = array.shape
    pairs = d // 2 if pairs is None else pairs
    f, factor = frequencies(pairs, **how)
    values = list(array.values)
    for b, h, t, c in itertools.product(range(batch), range(heads), range(tokens), range(pairs)):
        start = ((b * heads + h) * tokens + t) * d
        x, y = (start + c, start + c + pairs) if layout == "half" else (start + 2 * c, start + 2 * c + 1)
        cos, sin = factor * math.cos(position(b, t) * f[c]), factor * math.sin(position(b, t) * f[c])
        values[x], values[y] = (array.values[x] * cos - array.values[y] * sin,
                                array.values[y] * cos + array.values[x] * sin)
    return Array(array.shape, values)


def philox(counter, key):
    """Philox4x32-10 (Salmon et al. 2011)."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def dropout(p, seed, offset):
    key = philox((offset & 0xFFFFFFFF, offset >> 32, 0, 0), (seed & 0xFFFFFFFF, seed >> 32))[:2]
    return lambda b, h, i, j: philox((j // 4, i, h, b), key)[j % 4] >= p * 2**32


class FormsTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.use((2, 4, 9, 8), (2, 2, 11, 8))

    def use(self, q, k, dv=3):
        """New inputs of these shapes."""
        self.q, self.k, self.v = normal(q, 1), normal(k, 2), normal((*k[:3], dv), 3)

    def check(self, options, tolerance=5e-6, turned=None, **meaning):
        """Runs with all three outputs and compares each; turned is q and k as they count."""
        self.write(q_npy=self.q, k_npy=self.k, v_npy=self.v)
        arguments = ["run", "-q", "q.npy", "-k", "k.npy", "-v", "v.npy", "-o", "o.npy", "--lse", "l.npy", "--weights",
                     "w.npy", *options]
        result = self.attn(*arguments)
        self.assertEqual(result.stdout + result.stderr, "")
        q, k = turned or (self.q, self.k)
        wanted = attention(q, k, self.v, **meaning)
        for name, want in zip("olw", wanted):
            self.assertClose(read_npy(self.folder / f"{name}.npy"), want, f"{name} with {options}", tolerance)
        return wanted
