# SPDX-License-Identifier: Apache-2.0
"""The forms of attention in attn run and attn heatmap, against a computation in double from their definitions."""

import itertools
import math
import platform
import unittest

from support import DATA, Array, CommandTest, normal, read_npy, read_safetensors

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


def frequencies(pairs, base=10000.0, scaling=None, factor=1.0, original=0):
    """Frequencies of RoPE, and what multiplies sines and cosines."""
    if scaling == "ntk":
        base *= factor ** (pairs / (pairs - 1))
    plain = [base ** (-c / pairs) for c in range(pairs)]
    if scaling == "linear":
        return [f / factor for f in plain], 1.0
    if scaling == "llama3":
        result = []
        for f in plain:
            turns = original * f / (2 * math.pi)
            smooth = min(max((turns - 1) / (4 - 1), 0.0), 1.0)
            result.append((1 - smooth) * f / factor + smooth * f)
        return result, 1.0
    if scaling == "yarn":
        def channel(turns):
            return pairs * math.log(original / (turns * 2 * math.pi)) / math.log(base)
        low, high = max(math.floor(channel(32)), 0), min(math.ceil(channel(1)), 2 * pairs - 1)
        ramp = [min(max((c - low) / max(high - low, 0.001), 0.0), 1.0) for c in range(pairs)]
        return [f / factor * r + f * (1 - r) for f, r in zip(plain, ramp)], 0.1 * math.log(factor) + 1
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


class Forms(CommandTest):
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

    # --------------------------------------------------------------- scores

    def test_softcap(self):
        self.check(["--softcap", "1.5"], score=lambda s, b, h, i, j: 1.5 * math.tanh(s / 1.5))

    def test_one_number_per_head(self):
        self.check(["--head-scale", "1,0.5,-2,0"], scales=(1, 0.5, -2, 0))
        self.check(["--sinks", "0.5,-inf,3,-2e0"], sinks=(0.5, -INF, 3, -2))
        slopes = (0.5, 0.25, 0, -1)
        self.check(["--alibi-slopes", "0.5,0.25,0,-1"], score=lambda s, b, h, i, j: s - slopes[h] * abs(i - j))

    def test_alibi(self):
        for heads in (1, 2, 3, 4, 6, 8):
            self.use((1, heads, 5, 4), (1, 1, 6, 4))
            slopes = slopes_of(heads)
            self.check(["--alibi", "--causal", "bottom-right"], sees=lambda b, h, i, j: j <= i + 1,
                       score=lambda s, b, h, i, j: s - slopes[h] * abs(i + 1 - j))

    def test_clipped_bias(self):
        table = normal((4, 7), 4)
        self.write(b_npy=table)

        def score(s, b, h, i, j):
            return s + table.at(h, min(max(j - i, -3), 3) + 3)
        for options in ((), ("--buckets", "clipped"), ("--max-distance", "3")):
            self.check(["--relative-bias", "b.npy", *options], score=score)

    def test_t5_bias(self):
        for name, buckets, furthest, offset in (("t5", 6, 9, 0), ("t5", 8, 128, 5), ("t5-bidirectional", 8, 10, 0),
                                                ("t5-bidirectional", 8, 128, -3)):
            table = normal((4, buckets), 4)
            self.write(in_safetensors={"b": table})
            options = ["--relative-bias", "in.safetensors:b", "--buckets", name, "--query-offset", offset]
            if furthest != 128:
                options += ["--max-distance", furthest]
            self.check(options, score=lambda s, b, h, i, j: s + table.at(
                h, t5_bucket(j - i - offset, buckets, furthest, name == "t5-bidirectional")))

    def test_disentangled(self):
        span, scale = 3, 1 / math.sqrt(8)

        def row(distance):
            return min(max(distance + span, 0), 2 * span - 1)

        for shape in ((6, 8), (1, 6, 8), (4, 6, 8)):
            rel_k, rel_q = normal(shape, 4), normal(shape, 5)
            self.write(in_safetensors={"k": rel_k, "q": rel_q})
            for names in ("k", "q", "kq"):
                def score(s, b, h, i, j):
                    if "k" in names:
                        s += scale * sum(self.q.at(b, h, i, c) * rel_k.at(h, row(i + 2 - j), c) for c in range(8))
                    if "q" in names:
                        s += scale * sum(self.k.at(b, h // 2, j, c) * rel_q.at(h, row(i + 2 - j), c) for c in range(8))
                    return s
                options = [word for name in names for word in (f"--rel-{name}", f"in.safetensors:{name}")]
                self.check([*options, "--query-offset", 2], score=score)

    def test_rope(self):
        for options, how in (((), {}), (("--rope-pairs", "3"), {"pairs": 3}),
                             (("--rope-base", "500.5"), {"base": 500.5}),
                             (("--rope-scaling", "linear", "--rope-factor", "2.5"),
                              {"scaling": "linear", "factor": 2.5}),
                             (("--rope-scaling", "ntk", "--rope-factor", "4"), {"scaling": "ntk", "factor": 4}),
                             (("--rope-scaling", "yarn", "--rope-factor", "8", "--rope-original-length", "500"),
                              {"scaling": "yarn", "factor": 8, "original": 500}),
                             (("--rope-scaling", "llama3", "--rope-factor", "8", "--rope-original-length", "30"),
                              {"scaling": "llama3", "factor": 8, "original": 30})):
            for layout in ("half", "interleaved"):
                turned = [rotated(x, lambda b, t: t, layout, **how) for x in (self.q, self.k)]
                self.check(["--rope", layout, *options], turned=turned)

    def test_rope_stands_where_causality_does(self):
        keys = rotated(self.k, lambda b, t: t)
        lengths = (10, 7)
        self.write(n_npy=Array((2,), lengths, "<i8"))
        for options, position, sees in (
                (["--causal", "bottom-right"], lambda b, t: t + 2, lambda b, h, i, j: j <= i + 2),
                (["--causal", "bottom-right", "--kv-len", "n.npy"], lambda b, t: t + lengths[b] - 9,
                 lambda b, h, i, j: j <= i + lengths[b] - 9),
                (["--query-offset", "5"], lambda b, t: t + 5, None),
                (["--query-offset", "5,-2"], lambda b, t: t + (5, -2)[b], None),
                (["--query-offset", "1,4", "--causal", "offset"], lambda b, t: t + (1, 4)[b],
                 lambda b, h, i, j: j <= i + (1, 4)[b])):
            self.check(["--rope", "half", *options], turned=(rotated(self.q, position), keys), sees=sees)

    # ----------------------------------------------------------------- keys

    def test_window(self):
        self.check(["--window", "2,1"], sees=lambda b, h, i, j: i - 2 <= j <= i + 1)
        self.check(["--window", "0,inf"], sees=lambda b, h, i, j: j >= i)
        self.check(["--window", "inf,inf"])
        self.check(["--window", "3,0", "--causal", "bottom-right"], sees=lambda b, h, i, j: i - 1 <= j <= i + 2)
        self.check(["--window", "1,1", "--query-offset", "4,-3"],
                   sees=lambda b, h, i, j: abs(i + (4, -3)[b] - j) <= 1)

    def test_what_lifts_the_window(self):
        self.check(["--window", "1,0", "--first-tokens", "2", "--causal", "top-left"],
                   sees=lambda b, h, i, j: j <= i and (j >= i - 1 or j < 2))
        self.check(["--window", "1,1", "--global", "3,8"],
                   sees=lambda b, h, i, j: abs(i - j) <= 1 or i in (3, 8) or j in (3, 8))

    def test_prefix(self):
        self.check(["--prefix", "4", "--causal", "top-left"], sees=lambda b, h, i, j: j <= i or j < 4)
        self.check(["--prefix", "8,0", "--causal", "bottom-right"], sees=lambda b, h, i, j: j <= i + 2 or j < (8, 0)[b])

    def test_segments(self):
        labels, keys = [n // 4 * (n % 2) for n in range(18)], [(n * 5) % 3 for n in range(22)]
        for code in ("<i4", "<i8"):
            self.write(s_safetensors={"q": Array((2, 9), labels, code), "k": Array((2, 11), keys, code)})
            self.check(["--segments", "s.safetensors:q", "--segments-k", "s.safetensors:k"],
                       sees=lambda b, h, i, j: labels[b * 9 + i] == keys[b * 11 + j])
        self.use((1, 4, 9, 8), (1, 1, 9, 8))
        labels = [7, 7, 7, -2, -2, -2, -2, 0, 7]
        for shape in ((9,), (1, 9)):
            self.write(s_npy=Array(shape, labels, "<i4"))
            self.check(["--segments", "s.npy", "--causal", "top-left"],
                       sees=lambda b, h, i, j: j <= i and labels[i] == labels[j])

    def test_ragged(self):
        """Each sequence by itself; what is behind the last one gets 0."""
        self.use((1, 4, 12, 8), (1, 2, 14, 8))
        cu_q, cu_k, lengths = (0, 3, 3, 10), (0, 4, 6, 13), (3, 2, 6)
        q_at = {t: (s, t - cu_q[s]) for s in range(3) for t in range(cu_q[s], cu_q[s + 1])}
        k_at = {t: (s, t - cu_k[s]) for s in range(3) for t in range(cu_k[s], cu_k[s + 1])}
        self.write(n_npy=Array((3,), lengths, "<i4"))
        cu = ["--cu-seqlens", "0,3,3,10", "--cu-seqlens-k", "0,4,6,13"]

        def within(sees):
            def both(b, h, i, j):
                if i not in q_at or j not in k_at or q_at[i][0] != k_at[j][0]:
                    return False
                return sees(q_at[i][0], q_at[i][1], k_at[j][1])
            return both
        for options, sees in (((), lambda s, i, j: True), (("--kv-len", "n.npy"), lambda s, i, j: j < lengths[s]),
                              (("--causal", "top-left", "--prefix", "0,0,2"),
                               lambda s, i, j: j <= i or j < (0, 0, 2)[s]),
                              (("--window", "1,1", "--first-tokens", "1", "--query-offset", "1,2,3"),
                               lambda s, i, j: abs(i + s + 1 - j) <= 1 or j == 0)):
            self.check([*cu, *options], sees=within(sees))
        self.use((1, 4, 12, 8), (1, 2, 12, 8))
        k_at = q_at
        turned = [rotated(x, lambda b, t: q_at.get(t, (0, 0))[1]) for x in (self.q, self.k)]
        self.check([*cu[:2], "--rope", "half", "--causal", "bottom-right"], turned=turned,
                   sees=within(lambda s, i, j: j <= i))

    # ------------------------------------------------------- block patterns

    def test_block_patterns(self):
        self.use((1, 2, 90, 4), (1, 1, 90, 4))
        size = 16
        for options, listed in (
                (("longformer",), lambda r, c: abs(r - c) <= 1 or r < 1 or c < 1),
                (("longformer", "--block-window", "0", "--block-global", "2"), lambda r, c: r == c or r < 2 or c < 2),
                (("strided", "--block-stride", "3"), lambda r, c: abs(r - c) < 3 or (r - c) % 3 == 0),
                (("strided",), lambda r, c: abs(r - c) < 2 or (r - c) % 2 == 0)):
            for causal in ("none", "top-left", "bottom-right"):
                self.check(["--block-pattern", *options, "--block", size, "--causal", causal],
                           sees=lambda b, h, i, j: listed(i // size, j // size) and (causal == "none" or j <= i))
        # Where the diagonal is not that of the blocks, no block is left out because of it.
        self.use((1, 1, 40, 4), (1, 1, 75, 4))
        self.check(["--block-pattern", "longformer", "--block", 16, "--block-global", 0, "--causal", "bottom-right"],
                   sees=lambda b, h, i, j: abs(i // 16 - j // 16) <= 1 and j <= i + 35)
        self.use((1, 1, 75, 4), (1, 1, 75, 4))
        self.check(["--block-pattern", "longformer", "--block", 16, "--causal", "top-left", "--prefix", "40"],
                   sees=lambda b, h, i, j: (abs(i // 16 - j // 16) <= 1 or i < 16 or j < 16) and (j <= i or j < 40))

    def test_block_size_default(self):
        self.use((1, 1, 200, 4), (1, 1, 200, 4))
        self.check(["--block-pattern", "longformer", "--block-window", 0, "--block-global", 0],
                   sees=lambda b, h, i, j: i // 64 == j // 64)

    def test_bigbird(self):
        self.use((1, 2, 250, 4), (1, 1, 250, 4))
        blocks = math.ceil(250 / 16)
        seen = {}
        for seed in (0, 1):
            options = ["--block-pattern", "bigbird", "--block", 16, "--block-random", 2, "--block-seed", seed]
            self.write(q_npy=self.q, k_npy=self.k, v_npy=self.v)
            self.attn("run", "-q", "q.npy", "-k", "k.npy", "-v", "v.npy", "-o", "o.npy", "--weights", "w.npy", *options)
            weights = read_npy(self.folder / "w.npy")
            listed = {(r, c) for r in range(blocks) for c in range(blocks) if weights.at(0, 0, 16 * r, 16 * c) > 0}
            fixed = {(r, c) for r in range(blocks) for c in range(blocks) if abs(r - c) <= 1 or r < 1 or c < 1}
            self.assertLessEqual(fixed, listed)
            for r in range(1, blocks):
                self.assertEqual(len([c for c in range(blocks) if (r, c) in listed - fixed]), 2, f"block row {r}")
            self.check(options, sees=lambda b, h, i, j: (i // 16, j // 16) in listed)
            seen[seed] = listed
        self.assertNotEqual(seen[0], seen[1])

    # ----------------------------------------------- dropout, combinations

    def test_dropout(self):
        for p, seed, offset in ((0.5, 0, 0), (0.25, 2**40 + 3, 2**33 + 5), (0.0, 1, 0)):
            self.check(["--dropout", p, "--seed", seed, "--offset", offset], keeps=dropout(p, seed, offset), p=p)
        self.check(["--dropout", "0.5"], keeps=dropout(0.5, 0, 0), p=0.5)

    def test_combinations(self):
        slopes = slopes_of(4)
        table = normal((4, 9), 5)
        labels = [n % 2 for n in range(22)]
        mask = Array((9, 11), [(i * 3) % 7 != 0 for i in range(99)], "|b1")
        self.write(b_npy=table, s_npy=Array((2, 9), [0] * 18, "<i4"), t_npy=Array((2, 11), labels, "<i4"), m_npy=mask)
        self.check(["--window", "6,0", "--alibi", "--softcap", "30", "--causal", "bottom-right", "--sinks", "1,2,-1,0"],
                   sees=lambda b, h, i, j: i - 4 <= j <= i + 2, sinks=(1, 2, -1, 0),
                   score=lambda s, b, h, i, j: 30 * math.tanh(s / 30) - slopes[h] * abs(i + 2 - j))
        turned = rotated(self.q, lambda b, t: t + 1, pairs=3), rotated(self.k, lambda b, t: t, pairs=3)
        self.check(["--rope", "half", "--rope-pairs", 3, "--relative-bias", "b.npy", "--query-offset", 1, "--segments",
                    "s.npy", "--segments-k", "t.npy", "--head-scale", "1,2,3,0.5", "--mask", "m.npy"],
                   turned=turned, scales=(1, 2, 3, 0.5),
                   sees=lambda b, h, i, j: labels[b * 11 + j] == 0 and mask.at(i, j),
                   score=lambda s, b, h, i, j: s + table.at(h, min(max(j - i - 1, -4), 4) + 4))
        self.check(["--dropout", 0.3, "--seed", 9, "--window", "2,2", "--alibi", "--isa", "scalar"],
                   keeps=dropout(0.3, 9, 0), p=0.3, sees=lambda b, h, i, j: abs(i - j) <= 2,
                   score=lambda s, b, h, i, j: s - slopes[h] * abs(i - j))

    def test_layout_and_rank(self):
        q, k, v = normal((9, 2, 6), 1), normal((11, 2, 6), 2), normal((11, 2, 6), 3)
        self.write(in_safetensors={"q": q, "k": k, "v": v})
        self.attn("run", "-q", "in.safetensors:q", "-k", "in.safetensors:k", "-v", "in.safetensors:v", "--layout",
                  "bthd", "-o", "out.safetensors:o", "--weights", "out.safetensors:w", "--window", "1,1", "--rope",
                  "interleaved", "--alibi")
        turn = [Array((1, 2, x.shape[0], 6), [x.at(t, h, c) for h in range(2) for t in range(x.shape[0])
                                              for c in range(6)]) for x in (q, k, v)]
        for n in range(2):
            turn[n] = rotated(turn[n], lambda b, t: t, "interleaved")
        slopes = slopes_of(2)
        _, _, weights = attention(*turn, sees=lambda b, h, i, j: abs(i - j) <= 1,
                                  score=lambda s, b, h, i, j: s - slopes[h] * abs(i - j))
        got = read_safetensors(self.folder / "out.safetensors")
        self.assertClose(got["w"], Array((2, 9, 11), weights.values))

    def test_real_sample(self):
        sample = DATA / "minilm.safetensors"
        arrays = read_safetensors(sample)
        lengths, slopes = arrays["kv_len"].values, slopes_of(12)
        self.attn("run", "-q", f"{sample}:layer0.q", "-k", f"{sample}:layer0.k", "-v", f"{sample}:layer0.v",
                  "--kv-len", f"{sample}:kv_len", "-o", "o.npy", "--window", "4,0", "--alibi", "--softcap", "30")
        want = attention(*(arrays[f"layer0.{name}"] for name in "qkv"),
                         sees=lambda b, h, i, j: i - 4 <= j <= i and j < lengths[b],
                         score=lambda s, b, h, i, j: 30 * math.tanh(s / 30) - slopes[h] * abs(i - j))[0]
        self.assertClose(read_npy(self.folder / "o.npy"), want)


class Heatmaps(CommandTest):
    """A picture straight from q and k, computed by rows of one head, is that of the weights that run writes."""

    def same(self, options, selections=((), ("--batch", "1", "--head", "2"), ("--head", "3", "--row", "31"))):
        common = ("-q", "q.npy", "-k", "k.npy", *map(str, options))
        self.attn("run", *common, "-v", "k.npy", "-o", "o.npy", "--weights", "w.npy")
        for select in selections:
            for name, what in (("1.png", ("w.npy",)), ("2.png", common)):
                self.attn("heatmap", *what, *select, "-o", name)
            one, two = ((self.folder / name).read_bytes() for name in ("1.png", "2.png"))
            self.assertTrue(one == two, f"{options} with {select}")

    def test_rows(self):
        labels = [n % 3 for n in range(2 * 40)]
        self.write(q_npy=normal((2, 4, 40, 8), 1, 2.0), k_npy=normal((2, 2, 40, 8), 2, 2.0), b_npy=normal((4, 9), 3),
                   r_npy=normal((4, 12, 8), 4),
                   s_npy=Array((2, 40), labels, "<i4"), n_npy=Array((2,), (40, 33), "<i8"))
        for options in (("--softcap", 3, "--head-scale", "1,2,-1,0.5", "--sinks", "1,-inf,0,2"),
                        ("--alibi", "--causal", "bottom-right", "--kv-len", "n.npy"),
                        ("--relative-bias", "b.npy", "--query-offset", "3,-4"),
                        ("--rel-k", "r.npy", "--causal", "bottom-right"), ("--rel-q", "r.npy", "--query-offset", -1),
                        ("--rope", "half", "--causal", "bottom-right", "--kv-len", "n.npy"),
                        ("--rope", "interleaved", "--rope-base", 100, "--query-offset", 7),
                        ("--window", "5,2", "--first-tokens", 2, "--global", "7,30", "--query-offset", "1,-2"),
                        ("--prefix", "8,20", "--causal", "top-left"), ("--segments", "s.npy", "--causal", "top-left"),
                        ("--block-pattern", "bigbird", "--block", 16, "--block-window", 0, "--block-random", 1),
                        ("--block-pattern", "strided", "--block", 16, "--causal", "top-left", "--alibi")):
            self.same(options)

    def test_ragged_rows(self):
        self.write(q_npy=normal((1, 4, 100, 8), 1, 2.0), k_npy=normal((1, 2, 110, 8), 2, 2.0),
                   n_npy=Array((4,), (30, 0, 10, 40), "<i8"))
        one = ((), ("--head", "3", "--row", "31"), ("--head", "1", "--row", "99"))
        for options in ((), ("--causal", "bottom-right", "--kv-len", "n.npy"), ("--rope", "half", "--alibi"),
                        ("--window", "4,4", "--global", "3,20,70", "--query-offset", "0,3,-2,1"),
                        ("--block-pattern", "longformer", "--block", 16, "--causal", "top-left"),
                        ("--prefix", "5", "--causal", "top-left")):
            self.same(("--cu-seqlens", "0,30,30,41,95", "--cu-seqlens-k", "0,33,40,52,107", *options), one)

    def test_blocks_of_rows_join(self):
        # With a limit of one MiB the rows come in several blocks, which do not end where blocks of a pattern do.
        self.write(q_npy=normal((1100, 4), 1, 3.0), k_npy=normal((1100, 4), 2, 3.0))
        for options in (("--block-pattern", "bigbird", "--causal", "top-left"), ("--window", "50,20", "--alibi"),
                        ("--cu-seqlens", "0,500,1090", "--block-pattern", "longformer", "--block", "32")):
            common = ("heatmap", "-q", "q.npy", "-k", "k.npy", "--size", "200", *options, "-o")
            self.attn(*common, "1.png")
            self.attn(*common, "2.png", "--limit-mib", "1")
            one, two = ((self.folder / name).read_bytes() for name in ("1.png", "2.png"))
            self.assertTrue(one == two, options)


class Usage(CommandTest):
    RUN = ["run", "-q", "q.npy", "-k", "k.npy", "-v", "k.npy", "-o", "o.npy"]
    MAP = ["heatmap", "-q", "q.npy", "-k", "k.npy", "-o", "o.png"]

    def setUp(self):
        super().setUp()
        self.write(q_npy=normal((2, 4, 9, 8), 1), k_npy=normal((2, 2, 11, 8), 2), o_npy=b"old", o_png=b"old",
                   b_npy=normal((4, 8), 3), c_npy=normal((3, 7), 3), d_npy=normal((6, 8), 3),
                   s_npy=Array((2, 9), [0] * 18, "<i4"), l_npy=Array((2, 11), [2**31] * 22, "<i8"))

    def both(self, code, says, *options):
        self.fails(code, says, *self.RUN, *options)
        self.fails(code, says, *self.MAP, *options)

    def test_an_option_without_its_companion(self):
        for beside, options in (
                ("--window", ("--first-tokens 1", "--global 1")),
                ("--relative-bias", ("--buckets t5", "--max-distance 4")),
                ("--rope", ("--rope-pairs 2", "--rope-base 100", "--rope-scaling ntk")),
                ("--rope-scaling", ("--rope half --rope-factor 2",)),
                ("--rope-scaling yarn or llama3",
                 ("--rope half --rope-original-length 9",
                  "--rope half --rope-scaling linear --rope-factor 2 --rope-original-length 9")),
                ("--segments", ("--segments-k s.npy",)), ("--cu-seqlens", ("--cu-seqlens-k 0,1",)),
                ("--block-pattern", ("--block 16",)),
                ("--block-pattern longformer or bigbird",
                 ("--block-window 1", "--block-pattern strided --block-global 1")),
                ("--block-pattern bigbird", ("--block-random 1", "--block-pattern longformer --block-seed 1")),
                ("--block-pattern strided", ("--block-stride 1", "--block-pattern bigbird --block-stride 1")),
                ("--causal offset, --window, --alibi, --alibi-slopes, --relative-bias, --rel-k, --rel-q or --rope",
                 ("--query-offset 1",))):
            for option in options:
                words = option.split()
                self.both(2, f"option {words[-2]} has no effect without {beside}\n", *words)
        self.both(2, "option --prefix has no effect without causality", "--prefix", "3")
        for option in ("--seed", "--offset"):
            self.fails(2, f"option {option} has no effect without --dropout", *self.RUN, option, "1")
        self.fails(2, "option --score-stage has no effect without --scores", *self.RUN, "--score-stage", "capped")

    def test_contradictions_and_what_is_missing(self):
        self.both(2, "--alibi and --alibi-slopes", "--alibi", "--alibi-slopes", "1,1,1,1")
        self.both(2, "--query-offset contradicts --causal top-left; expected --causal offset", "--query-offset", "1",
                  "--causal", "top-left")
        self.both(2, "option --query-offset N,N,... is missing; --causal offset needs it", "--causal", "offset")
        self.both(2, "option --rope-factor X is missing; --rope-scaling needs it", "--rope", "half", "--rope-scaling",
                  "linear")
        for name in ("yarn", "llama3"):
            self.both(2, f"option --rope-original-length N is missing; --rope-scaling {name} needs it", "--rope",
                      "half", "--rope-scaling", name, "--rope-factor", "2")
        self.fails(2, "unknown option '--dropout'", *self.MAP, "--dropout", "0.5")

    def test_bad_values(self):
        for value in ("", "1", "1,", ",1", "1,2,3", "-1,0", "1,x", "1, 2", "1,infinity", "inf,nan", "1.5,2", "1,-inf",
                      "1,99999999999999999999"):
            self.both(2, f"--window is '{value}'; expected LEFT,RIGHT, ", "--window", value)
        for value in ("", "1,1", "3,2", "-1", "1,,2", "inf", "1,2x"):
            self.both(2, f"--global is '{value}'; expected N,N,..., whole numbers of at least 0, each above the one "
                      "before it", "--window", "1,1", "--global", value)
        for value in ("", "0", "1,2", "0,3,2", "0,-1", "0,x"):
            self.both(2, f"--cu-seqlens is '{value}'; expected 0", "--cu-seqlens", value)
        self.both(2, "--cu-seqlens-k is '0,1,2'; expected as many numbers as --cu-seqlens has, '0,9'", "--cu-seqlens",
                  "0,9", "--cu-seqlens-k", "0,1,2")
        for value in ("", "x", "1,2,3,", "1,2,3,nan", "1,2,3,inf", "1,2,3,1e39", "1, 2,3,4"):
            for option in ("--head-scale", "--alibi-slopes", "--sinks"):
                self.both(2, f"{option} is '{value}'; expected X,X,..., finite numbers", option, value)
        self.both(2, "--head-scale is '1,1,1,-inf'", "--head-scale", "1,1,1,-inf")
        for value in ("0", "-1", "x", "inf"):
            self.both(2, f"--softcap is '{value}'; expected a finite number above 0", "--softcap", value)
        for value in ("0.5", "", "nan", "inf", "1x", "x"):
            self.both(2, f"--rope-base is '{value}'; expected a finite number of at least 1", "--rope", "half",
                      "--rope-base", value)
        for value in ("1", "-0.1", "x", ""):
            self.fails(2, f"--dropout is '{value}'; expected a number from 0 to below 1", *self.RUN, "--dropout", value)
        self.both(2, "--rope is 'full'; expected half or interleaved", "--rope", "full")
        self.both(2, "--rope-scaling is 'plain'; expected linear, ntk, yarn or llama3", "--rope", "half",
                  "--rope-scaling", "plain", "--rope-factor", "2")
        self.both(2, "--buckets is 'log'; expected clipped, t5 or t5-bidirectional", "--relative-bias", "b.npy",
                  "--buckets", "log")
        self.both(2, "--block-pattern is 'x'; expected longformer, bigbird or strided", "--block-pattern", "x",
                  "--block-window", "1")
        self.both(2, "--block is '24'; expected a multiple of 16", "--block-pattern", "strided", "--block", "24")
        self.both(2, "--block is '0'", "--block-pattern", "strided", "--block", "0")
        self.both(2, "--prefix is '-1'; expected N,N,..., whole numbers of at least 0", "--prefix", "-1", "--causal",
                  "top-left")
        self.both(2, "--query-offset is '9007199254740993'; expected N,N,..., whole numbers from -9007199254740992 to "
                  "9007199254740992", "--query-offset", "9007199254740993", "--alibi")
        self.both(2, "--causal is 'both'; expected none, top-left, bottom-right or offset", "--causal", "both")

    def test_lists_that_do_not_fit_the_inputs(self):
        for option in ("--head-scale", "--alibi-slopes", "--sinks"):
            self.both(2, f"{option} has 3 values; expected 4, one for each query head", option, "1,2,3")
        self.both(2, "--prefix has 3 values; expected 1, or 2, one per batch element", "--prefix", "1,2,3", "--causal",
                  "top-left")
        self.both(2, "--rope-pairs is 5; expected 1 to 4, half of the head size of q", "--rope", "half", "--rope-pairs",
                  "5")
        self.both(1, "q has 2 batch elements; expected 1, as --cu-seqlens cuts its tokens", "--cu-seqlens", "0,9")
        self.write(q_npy=normal((1, 4, 9, 8), 1), k_npy=normal((1, 2, 8, 8), 2), n_npy=Array((1,), (3,), "<i4"))
        self.both(2, "--cu-seqlens ends with 10; expected at most 9, the tokens of q", "--cu-seqlens", "0,10")
        self.both(2, "--cu-seqlens ends with 9; expected at most 8, the tokens of k", "--cu-seqlens", "0,9")
        self.both(2, "--cu-seqlens-k ends with 9; expected at most 8, the tokens of k", "--cu-seqlens", "0,9",
                  "--cu-seqlens-k", "0,9")
        self.both(1, "--kv-len n.npy has shape (1,); expected (2,), one value per sequence", "--cu-seqlens", "0,3,8",
                  "--kv-len", "n.npy")

    def test_files_that_do_not_fit(self):
        self.both(1, "--relative-bias c.npy has dtype float32 and shape (3, 7); expected float32 and (4, N)",
                  "--relative-bias", "c.npy")
        self.both(1, "--relative-bias s.npy has dtype int32", "--relative-bias", "s.npy")
        for option in ("--rel-k", "--rel-q"):
            for name, shape in (("c.npy", "(3, 7)"), ("s.npy", "(2, 9)"), ("q.npy", "(2, 4, 9, 8)")):
                self.both(1, f"{option} {name} has dtype ", option, name)
                self.both(1, f" and shape {shape}; expected float32 and (2 span, 8) or (4, 2 span, 8)", option, name)
        self.both(1, "--rel-q b.npy has 4 rows; expected 6, as --rel-k has", "--rel-k", "d.npy", "--rel-q", "b.npy")
        self.both(1, "none.npy", "--relative-bias", "none.npy")
        self.both(1, "--segments b.npy has dtype float32; expected int32 or int64", "--segments", "b.npy")
        self.both(1, "--segments s.npy has shape (2, 9); expected (2, 11): batch, key", "--segments", "s.npy")
        self.both(1, "--segments-k l.npy holds 2147483648; expected numbers of 32 bits", "--segments", "s.npy",
                  "--segments-k", "l.npy")

    def test_errors_of_the_library(self):
        """Everything that only the library finds, in the words of the command. test_files has q, k, v and lengths."""
        self.write(one_npy=Array((4, 1), [0.0] * 4), seven_npy=normal((4, 7), 5), wide_npy=normal((1, 4, 2, 1040), 6),
                   wider_npy=normal((1, 4, 2, 2050), 6), rows_npy=normal((4, 1040), 7))
        buckets = "the number of buckets of --relative-bias is"
        self.both(2, f"{buckets} 8; expected 9, twice --max-distance and 1", "--relative-bias", "b.npy")
        self.both(2, f"{buckets} 7; expected 5, twice --max-distance and 1", "--relative-bias", "seven.npy",
                  "--max-distance", "2")
        self.both(2, f"{buckets} 7; expected an even number, 4 or more", "--relative-bias", "seven.npy", "--buckets",
                  "t5-bidirectional")
        self.both(2, f"{buckets} 1; expected 2 or more", "--relative-bias", "one.npy", "--buckets", "t5")
        self.both(2, "attn: --max-distance is 4; expected more than 4", "--relative-bias", "b.npy",
                  "--buckets", "t5", "--max-distance", "4")
        self.both(1, "attn: --max-distance is 4611686018427387904; expected", "--relative-bias", "b.npy",
                  "--max-distance", 1 << 62)
        for option in ("--rel-k", "--rel-q"):
            self.both(1, "attn: --rel-k or --rel-q and --rope are set; expected one of the two", option, "d.npy",
                      "--rope", "half")
            self.both(1, "attn: --rel-k or --rel-q is set and --qk is int8; expected one of the two", option, "d.npy",
                      "--qk", "int8")
            self.fails(1, "the head size of -q is 1040; head sizes with --rel-k or --rel-q go up to 1024", "run", "-q",
                       "wide.npy", "-k", "wide.npy", "-v", "wide.npy", "-o", "o.npy", option, "rows.npy")
        self.fails(1, "the head size of -q is 2050; head sizes with --rope go up to 2048", "run", "-q", "wider.npy",
                   "-k", "wider.npy", "-v", "wider.npy", "-o", "o.npy", "--rope", "half")
        rope = ("--rope", "half", "--rope-scaling")
        self.both(2, "attn: --rope-factor is 1e+300; expected", *rope, "ntk", "--rope-factor", "1e300")
        self.both(2, "attn: --rope-pairs is 1; expected 2 or more for --rope-scaling ntk", *rope, "ntk",
                  "--rope-factor", "2", "--rope-pairs", "1")
        self.both(2, "attn: --rope-base is 1; expected more than 1 for --rope-scaling yarn", *rope, "yarn",
                  "--rope-factor", "2", "--rope-base", "1", "--rope-original-length", "8")
        self.both(2, f"attn: --query-offset puts 9 queries at {2**53 - 8} and after it; expected positions below 2^53",
                  "--rope", "half", "--causal", "offset", "--query-offset", 2**53 - 8)
        self.both(2, "attn: --global[0] is 11; expected 0 to 10", "--window", "1,1", "--global", "11")
        self.both(2, "attn: the number of positions of --global is 12; expected 0 to 11", "--window", "1,1", "--global",
                  ",".join(map(str, range(12))))
        self.both(2, "attn: --head-scale[0] is 1e+38; expected", "--head-scale", "1e38,1,1,1", "--scale", "1e30")
        self.both(2, "attn: --temperature is 0.001; expected", "--scale", "1e38", "--temperature", "1e-3")
        self.fails(2, "attn: --dropout is 1; expected 0 or more and less than 1", *self.RUN, "--dropout", "0.99999999999")
        self.both(1, "attn: --qk is int8, and ", "--qk", "int8", "--isa", "scalar")
        foreign = "avx2" if platform.machine() == "aarch64" else "neon"
        self.both(2, f"attn: --isa is '{foreign}'; expected auto, scalar", "--isa", foreign)

    def test_outputs_do_not_replace_these_inputs(self):
        for option, name in (("--relative-bias", "b.npy"), ("--segments", "s.npy"), ("--rel-k", "d.npy"),
                             ("--rel-q", "d.npy")):
            self.fails(2, f"--lse would replace {name}, which {option} reads", *self.RUN, option, name, "--lse", name)
        self.fails(2, "--lse would replace l.npy, which --segments-k reads", *self.RUN, "--segments", "s.npy",
                   "--segments-k", "l.npy", "--lse", "l.npy")

    def test_help(self):
        for command, more in (("run", ["--dropout", "--seed", "--offset"]), ("heatmap", [])):
            text = self.attn(command, "--help").stdout
            for option in ["--softcap", "--head-scale", "--sinks", "--alibi", "--alibi-slopes", "--relative-bias",
                           "--buckets", "--max-distance", "--rel-k", "--rel-q", "--rope", "--rope-pairs",
                           "--rope-base", "--rope-scaling", "--rope-factor", "--rope-original-length",
                           "--query-offset", "--window", "--first-tokens",
                           "--global", "--prefix", "--segments", "--segments-k", "--cu-seqlens", "--cu-seqlens-k",
                           "--block-pattern", "--block", "--block-window", "--block-global", "--block-random",
                           "--block-seed", "--block-stride", *more]:
                self.assertRegex(text, rf"(?m)^ +{option} ")


if __name__ == "__main__":
    unittest.main()
