# SPDX-License-Identifier: Apache-2.0
"""The forms of attention in attn run, against a computation in double from their definitions."""

import math
import random
import unittest

from form_reference import INF, FormsTest, attention, dropout, rotated, slopes_of, t5_bucket
from support import DATA, Array, normal, read_npy, read_safetensors


def lineages(parents):
    """Each draft with its ancestors."""
    result = []
    for t, parent in enumerate(parents):
        result.append({t} | (result[parent] if parent >= 0 else set()))
    return result


class Forms(FormsTest):
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

        for shape, delta in (((6, 8), ()), ((1, 6, 8), ("--rel-delta", "query-key")), ((4, 6, 8), ()),
                             ((4, 6, 8), ("--rel-delta", "key-query"))):
            rel_k, rel_q = normal(shape, 4), normal(shape, 5)
            self.write(in_safetensors={"k": rel_k, "q": rel_q})
            sign = -1 if "key-query" in delta else 1
            for names in ("q", "kq") if delta else ("k", "q", "kq"):
                def score(s, b, h, i, j):
                    if "k" in names:
                        s += scale * sum(self.q.at(b, h, i, c) * rel_k.at(h, row(i + 2 - j), c) for c in range(8))
                    if "q" in names:
                        s += scale * sum(self.k.at(b, h // 2, j, c) * rel_q.at(h, row(sign * (i + 2 - j)), c)
                                         for c in range(8))
                    return s
                options = [word for name in names for word in (f"--rel-{name}", f"in.safetensors:{name}")]
                self.check([*options, *delta, "--query-offset", 2], score=score)

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

    def test_longrope(self):
        short, long = [1.0, 1.5, 2.0, 3.25], [1.25, 2.0, 8.0, 64.5]
        options = ["--rope", "half", "--rope-scaling", "longrope", "--rope-factor", "4", "--rope-original-length", "8",
                   "--rope-short-factor", "1,1.5,2,3.25", "--rope-long-factor", "1.25,2,8,64.5"]
        grown = math.sqrt(1 + math.log(4) / math.log(8))
        for more, divisors, magnitude in (([], short, grown), (["--rope-length", "8"], short, grown),
                                          (["--rope-length", "9"], long, grown),
                                          (["--rope-length", "9", "--rope-attention-factor", "1.5"], long, 1.5)):
            turned = [rotated(x, lambda b, t: t, divisors=divisors, magnitude=magnitude) for x in (self.q, self.k)]
            self.check([*options, *more], turned=turned)

    def test_factors_of_rope_scalings(self):
        yarn = ["--rope", "half", "--rope-scaling", "yarn", "--rope-factor", "8", "--rope-original-length", "500"]
        for more, how in ((["--rope-beta-fast", "16", "--rope-beta-slow", "2"], {"fast": 16, "slow": 2}),
                          (["--rope-no-truncation"], {"truncate": False}),
                          (["--rope-attention-factor", "1.25"], {"magnitude": 1.25})):
            turned = [rotated(x, lambda b, t: t, scaling="yarn", factor=8, original=500, **how) for x in (self.q, self.k)]
            self.check([*yarn, *more], turned=turned)
        turned = [rotated(x, lambda b, t: t, scaling="llama3", factor=8, original=30, slow=2, fast=6)
                  for x in (self.q, self.k)]
        self.check(["--rope", "half", "--rope-scaling", "llama3", "--rope-factor", "8", "--rope-original-length", "30",
                    "--rope-low-freq-factor", "2", "--rope-high-freq-factor", "6"], turned=turned)

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

    def test_tree(self):
        """The last six keys and queries are drafts: they see of the drafts those of their own branch."""
        parents = (-1, 0, 0, 1, 1, 2), (-1, -1, 1, 0, 3, 4)
        lengths, starts = (10, 7), (3, 1)
        self.write(n_npy=Array((2,), lengths, "<i8"), a_npy=Array((2,), starts, "<i4"))

        def seen(trees, ends, queries):
            branches = [lineages(tree) for tree in trees]

            def sees(b, h, i, j):
                first, draft = ends[b] - 6, i - (queries - 6)
                return j < ends[b] and (j < first or (draft >= 0 and j - first in branches[b][draft]))
            return sees
        for code, shared in (("<i4", False), ("<i8", False), ("<i8", True)):
            trees = (parents[0], parents[0]) if shared else parents
            self.write(t_npy=Array((6,), trees[0], code) if shared else Array((2, 6), sum(trees, ()), code))
            sees = seen(trees, (11, 11), 9)
            self.check(["--tree", "t.npy"], sees=sees)
            self.check(["--tree", "t.npy", "--causal", "bottom-right"],
                       sees=lambda b, h, i, j: sees(b, h, i, j) and j <= i + 2)
            short = seen(trees, lengths, 9)
            self.check(["--tree", "t.npy", "--kv-len", "n.npy", "--kv-start", "a.npy"],
                       sees=lambda b, h, i, j: short(b, h, i, j) and j >= starts[b])
            # With fewer queries than drafts these are the last ones.
            self.use((2, 4, 4, 8), (2, 2, 11, 8))
            self.check(["--tree", "t.npy"], sees=seen(trees, (11, 11), 4))
            self.use((2, 4, 9, 8), (2, 2, 11, 8))

    def test_tree_of_many_words(self):
        source = random.Random(1)
        parents = [source.randrange(-1, t) for t in range(130)]
        branches = lineages(parents)
        self.use((1, 1, 140, 4), (1, 1, 150, 4))
        self.write(t_npy=Array((1, 130), parents, "<i4"))
        self.check(["--tree", "t.npy"],
                   sees=lambda b, h, i, j: j < 20 or (i >= 10 and j - 20 in branches[i - 10]))

    def test_tree_of_ragged_sequences(self):
        """A tree for each sequence; the one without queries may have fewer keys than drafts."""
        self.use((1, 4, 12, 8), (1, 2, 14, 8))
        cu_q, cu_k = (0, 5, 5, 10), (0, 6, 8, 13)
        parents = (-1, 0, 0), (-1, -1, -1), (-1, -1, 1)
        branches = [lineages(tree) for tree in parents]
        self.write(t_npy=Array((3, 3), sum(parents, ()), "<i4"))

        def sees(b, h, i, j):
            for s in range(3):
                if cu_q[s] <= i < cu_q[s + 1]:
                    first, draft = cu_k[s + 1] - 3, i - (cu_q[s + 1] - 3)
                    return cu_k[s] <= j < first or (first <= j < cu_k[s + 1] and draft >= 0
                                                    and j - first in branches[s][draft])
            return False
        cu = ["--cu-seqlens", "0,5,5,10", "--cu-seqlens-k", "0,6,8,13"]
        self.check([*cu, "--tree", "t.npy"], sees=sees)

        def turned(cu, array, offset=0):
            def position(b, t):
                for s in range(3):
                    if cu[s] <= t < cu[s + 1]:
                        draft = t - (cu[s + 1] - 3)
                        return t - cu[s] + (offset if s == 0 else 0) + (
                            len(branches[s][draft]) - 1 - draft if draft >= 0 else 0)
                return 0
            return rotated(array, position)
        # Sequence 0 has one key more than queries.
        last = {s: cu_k[s + 1] - cu_k[s] - (cu_q[s + 1] - cu_q[s]) for s in range(3)}
        self.check([*cu, "--tree", "t.npy", "--rope", "half", "--causal", "bottom-right"],
                   turned=(turned(cu_q, self.q, 1), turned(cu_k, self.k)),
                   sees=lambda b, h, i, j: sees(b, h, i, j) and all(
                       not cu_q[s] <= i < cu_q[s + 1] or j - cu_k[s] <= i - cu_q[s] + last[s] for s in (0, 2)))

    def test_rope_places_drafts_by_depth(self):
        parents, lengths = ((-1, 0, 0, 1, -1), (-1, 0, 1, 0, 3)), (11, 8)
        branches = [lineages(tree) for tree in parents]
        self.write(t_npy=Array((2, 5), sum(parents, ()), "<i4"), n_npy=Array((2,), lengths, "<i4"))

        def place(b, draft):
            return len(branches[b][draft]) - 1 if 0 <= draft < 5 else draft

        def sees(b, h, i, j):
            first = lengths[b] - 5
            return j <= i + lengths[b] - 9 and (j < first or (i >= 4 and j - first in branches[b][i - 4]))
        keys = rotated(self.k, lambda b, t: lengths[b] - 5 + place(b, t - (lengths[b] - 5)))
        queries = rotated(self.q, lambda b, t: lengths[b] - 5 + place(b, t - 4))
        self.check(["--tree", "t.npy", "--kv-len", "n.npy", "--rope", "half", "--causal", "bottom-right"],
                   turned=(queries, keys), sees=sees)

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

        # Heads that choose for themselves.
        self.attn("run", "-q", "q.npy", "-k", "k.npy", "-v", "v.npy", "-o", "o.npy", "--weights", "w.npy", *options,
                  "--block-heads", "2")
        weights = read_npy(self.folder / "w.npy")
        heads = [{(r, c) for r in range(blocks) for c in range(blocks) if weights.at(0, h, 16 * r, 16 * c) > 0}
                 for h in range(2)]
        self.assertNotEqual(*heads)
        self.check([*options, "--block-heads", "2"], sees=lambda b, h, i, j: (i // 16, j // 16) in heads[h])

    def test_blocks_of_a_file(self):
        self.use((1, 2, 40, 4), (1, 1, 50, 4))
        rows = [[[0, 1], [2], []], [[3], [0, 1, 2, 3], [1]]]
        for heads, kinds in ((1, ("<i4", "<i4")), (2, ("<i8", "<i8")), (2, ("<i4", "<i8"))):
            listed = [row for head in rows[:heads] for row in head]
            offsets = [sum(map(len, listed[:n])) for n in range(len(listed) + 1)]
            columns = [c for row in listed for c in row]
            self.write(f_npy=Array((len(offsets),), offsets, kinds[0]), c_npy=Array((len(columns),), columns, kinds[1]))
            options = ["--block-offsets", "f.npy", "--block-columns", "c.npy", "--block", "16"]
            _, _, weights = self.check(options, sees=lambda b, h, i, j: j // 16 in rows[h % heads][i // 16])
            self.attn("heatmap", "-q", "q.npy", "-k", "k.npy", *options, "-o", "h.png")

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


if __name__ == "__main__":
    unittest.main()
