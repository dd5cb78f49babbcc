# SPDX-License-Identifier: Apache-2.0
"""The kinds of attention in attn run, against a computation in double from their definitions."""

import math
import os
import random
import unittest

from form_reference import attention, dropout
from kind_reference import additive, drawn_rows, elu, positive_features, projected, recurrence
from support import Array, CommandTest, normal, permuted, read_npy, read_safetensors, rounded

NN = bool(os.environ.get("ATTN_NN"))
NAMES = {"f32": "<f4", "f16": "<f2", "bf16": "bf16"}


def decays(shape, seed):
    """Logarithms of decays, some of them of nothing or of everything."""
    source = random.Random(seed)
    values = [source.choice((0.0, -math.inf, *[-source.random()] * 6)) for _ in range(math.prod(shape))]
    return Array(shape, rounded(values))


def flags(shape, seed, chance):
    source = random.Random(seed)
    return Array(shape, [source.random() < chance for _ in range(math.prod(shape))], "|b1")


class KindsTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.written = {}

    def write(self, **files):
        super().write(**files)
        for name, content in files.items():
            self.written[".".join(name.rsplit("_", 1))] = content

    def inputs(self, *options):
        self.write(q_npy=self.q, k_npy=self.k, v_npy=self.v)
        return ["run", "-q", "q.npy", "-k", "k.npy", "-v", "v.npy", "-o", "o.npy", *options]

    def run_kind(self, kind, *options):
        result = self.attn(*self.inputs("--kind", kind, *options))
        self.assertEqual(result.stdout + result.stderr, "")
        return read_npy(self.folder / "o.npy")


class StatesTest(KindsTest):
    def setUp(self):
        super().setUp()
        self.use(4, 2, 2, 70)

    def use(self, q_heads, k_heads, heads, tokens, batch=2):
        """New inputs with short keys, so that the delta rule does not grow."""
        self.heads, self.tokens, self.batch = heads, tokens, batch
        self.q, self.k = normal((batch, q_heads, tokens, 5), 1), normal((batch, k_heads, tokens, 5), 2, 0.3)
        self.v = normal((batch, heads, tokens, 3), 3)
        self.gates = (batch, heads, tokens)
        self.write(a_npy=decays((*self.gates, 1), 4), c_npy=decays((*self.gates, 5), 5),
                   b_npy=normal((*self.gates, 1), 6), r_npy=flags((*self.gates, 1), 7, 0.05))

    def read(self, name):
        return read_npy(self.folder / name)

    def check(self, kind, *options, tolerance=2e-5, **meaning):
        """Output and state. The names of files are what they mean."""
        got = self.run_kind(kind, *options, "--state-out", "s.npy")
        want, state = recurrence(self.q, self.k, self.v, **meaning)
        self.assertClose(got, want, f"output of {kind} with {options}", tolerance)
        self.assertClose(self.read("s.npy"), state, f"state of {kind} with {options}", tolerance)
        return got


class States(StatesTest):
    def test_rules(self):
        for heads in ((4, 2, 2), (2, 1, 4), (2, 2, 2), (6, 1, 3)):
            self.use(*heads, 70)
            a, c, b = (self.written[f"{name}.npy"] for name in "acb")
            self.check("linear")
            self.check("gated", "--decay", "a.npy", decay=a)
            self.check("gated", "--decay", "c.npy", decay=c)
            self.check("delta", "--beta", "b.npy", beta=b)
            self.check("gated-delta", "--decay", "a.npy", "--beta", "b.npy", decay=a, beta=b)
            self.check("gated-delta", "--decay", "c.npy", "--beta", "b.npy", decay=c, beta=b)

    def test_axes_of_one_repeat(self):
        for shape in ((1, 1, 1, 1), (2, 1, 1, 1), (1, 2, 1, 5), (1, 1, 70, 1), (2, 70, 1), (70, 5)):
            decay, beta = decays(shape, 8), normal((*shape[:-1], 1), 9)
            self.write(d_npy=decay, e_npy=beta)
            four = (1,) * (4 - len(shape)) + shape
            self.check("gated-delta", "--decay", "d.npy", "--beta", "e.npy", decay=Array(four, decay.values),
                       beta=Array((*four[:-1], 1), beta.values))

    def test_states_in_and_out(self):
        state = normal((2, 2, 5, 3), 10)
        self.write(i_npy=state)
        self.check("delta", "--beta", "b.npy", "--state-in", "i.npy", beta=self.written["b.npy"], state=state)
        self.check("linear", "--state-in", "i.npy", state=state)
        state = normal((2, 2, 5, 4), 11)
        self.write(i_npy=Array(state.shape, [abs(x) + 1 for x in state.values]))
        self.check("linear", "--state-in", "i.npy", "--feature-map", "elu", "--normalise", features=elu, normalise=True,
                   state=self.written["i.npy"])

    def test_a_prompt_in_two_calls_has_the_bits_of_one(self):
        whole = self.run_kind("gated", "--decay", "a.npy", "--state-out", "s.npy")
        last = self.read("s.npy")

        def some(array, first, end):
            return Array((*array.shape[:2], end - first, array.shape[3]),
                         [array.at(b, h, t, c) for b in range(array.shape[0]) for h in range(array.shape[1])
                          for t in range(first, end) for c in range(array.shape[3])])

        q, k, v, a = self.q, self.k, self.v, self.written["a.npy"]
        options = ["--decay", "d.npy", "--state-out", "t.npy"]
        for first, end, more in ((0, 64, ()), (64, 70, ("--state-in", "i.npy"))):
            self.q, self.k, self.v = some(q, first, end), some(k, first, end), some(v, first, end)
            self.write(d_npy=some(a, first, end))
            got = self.run_kind("gated", *options, *more)
            self.assertEqual(got.values, some(whole, first, end).values, f"tokens {first} to {end}")
            self.write(i_npy=self.read("t.npy"))
        self.assertEqual(self.read("t.npy").values, last.values)

    def test_resets(self):
        resets = self.written["r.npy"]
        self.assertTrue(0 < sum(resets.values) < 40)
        self.check("linear", "--resets", "r.npy", resets=resets)
        self.check("gated-delta", "--decay", "c.npy", "--beta", "b.npy", "--resets", "r.npy", resets=resets,
                   decay=self.written["c.npy"], beta=self.written["b.npy"])
        self.check("linear", "--resets", "r.npy", "--bidirectional", resets=resets, bidirectional=True)

    def test_lengths(self):
        self.write(n_npy=Array((2,), (66, 0), "<i8"))
        for b in (0, 1):
            for t in range((66, 0)[b], 70):
                self.k.values[((b * 2) * 70 + t) * 5] = math.nan
                self.v.values[((b * 2) * 70 + t) * 3] = math.inf
        sequences = [(0, 0, 66), (1, 0, 0)]
        self.check("linear", "--kv-len", "n.npy", sequences=sequences)
        self.check("delta", "--kv-len", "n.npy", "--beta", "b.npy", sequences=sequences, beta=self.written["b.npy"])

    def test_ragged_batches(self):
        self.use(4, 2, 2, 70, batch=1)
        sequences = [(0, 0, 3), (0, 3, 3), (0, 3, 69)]
        state = normal((3, 2, 5, 3), 12)
        self.write(i_npy=state)
        self.check("gated", "--decay", "a.npy", "--cu-seqlens", "0,3,3,69", "--state-in", "i.npy", sequences=sequences,
                   decay=self.written["a.npy"], state=state)
        # Arrays of fewer dimensions still have a state for each sequence.
        self.q, self.k, self.v = (Array(x.shape[1:], x.values) for x in (self.q, self.k, self.v))
        got = self.run_kind("linear", "--cu-seqlens", "0,3,3,69", "--state-out", "s.npy")
        q, k, v = (Array((1, *x.shape), x.values) for x in (self.q, self.k, self.v))
        out, state = recurrence(q, k, v, sequences=sequences)
        self.assertClose(got, Array(out.shape[1:], out.values))
        self.assertClose(self.read("s.npy"), state)

    def test_features_averages_and_directions(self):
        a = self.written["a.npy"]
        self.check("linear", "--feature-map", "none")
        self.check("linear", "--bidirectional", bidirectional=True)
        self.check("linear", "--feature-map", "elu", features=elu)
        self.check("delta", "--feature-map", "elu", "--beta", "h.npy", features=elu, beta=self.halves())
        for more, meaning in ((("--bidirectional",), {"bidirectional": True}), ((), {})):
            self.check("linear", "--feature-map", "elu", "--normalise", *more, features=elu, normalise=True, **meaning)
        self.check("gated", "--feature-map", "elu", "--decay", "a.npy", features=elu, decay=a)
        self.check("gated", "--feature-map", "elu", "--normalise", "--decay", "a.npy", features=elu, decay=a,
                   normalise=True)

    def halves(self):
        """Little enough for keys that are features, whose length is above 1."""
        beta = Array((*self.gates, 1), rounded([0.1 * random.Random(13).random()] * math.prod(self.gates)))
        self.write(h_npy=beta)
        return beta

    def test_scale_and_how_it_is_computed(self):
        self.check("linear", "--scale", "0.3", scale=0.3)
        self.check("linear", "--scale", "-2", scale=-2)
        outputs = set()
        for options in (("--threads", "1"), ("--threads", "3"), ()):
            self.check("gated", "--decay", "c.npy", *options, decay=self.written["c.npy"])
            outputs.add((self.folder / "o.npy").read_bytes())
        self.assertEqual(len(outputs), 1)
        self.check("gated", "--decay", "c.npy", "--isa", "scalar", decay=self.written["c.npy"])
        asked = (self.folder / "o.npy").read_bytes()
        self.attn(*self.inputs("--kind", "gated", "--decay", "c.npy"), env={**os.environ, "ATTN_MAX_CPU_ISA": "scalar"})
        self.assertEqual((self.folder / "o.npy").read_bytes(), asked)

    def test_ranks_and_layouts(self):
        for layout in ("bhtd", "bthd"):
            turn = permuted if layout == "bthd" else lambda array: array
            for rank in (4, 3, 2):
                heads = 2 if rank > 2 else 1
                self.use(heads, heads, heads, 9, batch=2 if rank == 4 else 1)
                gates = {name: self.written[f"{name}.npy"] for name in "cbr"}
                before = normal((self.batch, heads, 5, 3), 15)
                want, state = recurrence(self.q, self.k, self.v, decay=gates["c"], beta=gates["b"], resets=gates["r"],
                                         state=before)
                # A state is in no layout.
                self.write(i_npy=Array(before.shape[4 - rank:], before.values))

                def shown(array):
                    cut = Array(array.shape[4 - rank:], array.values, array.code)
                    return turn(cut) if rank > 2 else cut

                self.q, self.k, self.v = shown(self.q), shown(self.k), shown(self.v)
                self.write(**{f"{name}_npy": shown(array) for name, array in gates.items()})
                got = self.run_kind("gated-delta", "--layout", layout, "--decay", "c.npy", "--beta", "b.npy",
                                    "--resets", "r.npy", "--state-in", "i.npy", "--state-out", "s.npy")
                what = f"{layout}, rank {rank}"
                self.assertClose(got, shown(want), what)
                self.assertClose(self.read("s.npy"), Array(state.shape[4 - rank:], state.values), what)

    def test_types(self):
        """Narrow types in, and each out."""
        a, b = self.written["a.npy"], self.written["b.npy"]
        for code in ("bf16", "<f2"):
            q, k, v, decay, beta = (x.astype(code) for x in (self.q, self.k, self.v, a, b))
            self.write(in_safetensors={"q": q, "k": k, "v": v, "a": decay, "b": beta})
            want, state = recurrence(q, k, v, decay=decay, beta=beta)
            for name, out in ((None, code), *NAMES.items()):
                chosen = ("--out-dtype", name) if name else ()
                self.attn("run", "--kind", "gated-delta", *[x for o in ("q", "k", "v") for x in
                          (f"-{o}", f"in.safetensors:{o}")], "--decay", "in.safetensors:a", "--beta",
                          "in.safetensors:b", "-o", "out.safetensors:o", "--state-out", "out.safetensors:s", *chosen)
                got = read_safetensors(self.folder / "out.safetensors")
                step = {"<f4": 1e-5, "<f2": 2**-10, "bf16": 2**-7}[out]
                self.assertClose(got["o"], want, f"{code} to {out}", step, out)
                self.assertClose(got["s"], state, f"{code}, state", 1e-5)

    def test_no_tokens(self):
        self.use(4, 2, 2, 0)
        self.check("linear")
        self.check("gated", "--decay", "a.npy", decay=self.written["a.npy"])


class Performers(StatesTest):
    def check_features(self, count, *options, seed=0, offset=0, scale=None, **meaning):
        features = positive_features(drawn_rows(count, 5, seed, offset), 1 / math.sqrt(5) if scale is None else scale)
        return self.check("performer", "--features", count, *options, features=features, normalise=True, **meaning)

    def test_directions_and_draws(self):
        drawn = set()
        for more, bidirectional in (((), True), (("--causal", "none"), True), (("--causal", "top-left"), False),
                                    (("--causal", "bottom-right"), False)):
            for options, numbers in (((), {}), (("--seed", "7"), {"seed": 7}), (("--offset", "3"), {"offset": 3}),
                                     (("--seed", str(2**40), "--offset", str(2**33 + 1)),
                                      {"seed": 2**40, "offset": 2**33 + 1})):
                got = self.check_features(8, *more, *options, bidirectional=bidirectional, **numbers)
                drawn.add(tuple(got.values))
        self.assertEqual(len(drawn), 8)

    def test_features_scale_and_state(self):
        for count in (1, 4, 13):
            self.check_features(count, bidirectional=True)
        self.check_features(6, "--scale", "0.2", scale=0.2, bidirectional=True)
        state = Array((2, 2, 6, 4), [abs(x) + 1 for x in normal((2, 2, 6, 4), 14).values])
        self.write(i_npy=state)
        state = self.written["i.npy"]
        self.check_features(6, "--causal", "top-left", "--state-in", "i.npy", state=state)
        self.check_features(6, "--causal", "top-left", "--resets", "r.npy", "--decay", "a.npy",
                            decay=Array((2, 2, 70, 1), self.faint()), resets=self.written["r.npy"])

    def test_rows_of_a_file(self):
        rows = normal((6, 5), 21)
        self.write(r_npy=rows)
        features = positive_features([rows.values[5 * n:5 * n + 5] for n in range(6)], 1 / math.sqrt(5))
        self.check("performer", "--projection", "r.npy", features=features, normalise=True, bidirectional=True)

    def faint(self):
        """Decays that leave something to divide by."""
        values = rounded([-random.Random(n).random() for n in range(280)])
        self.write(a_npy=Array((2, 2, 70, 1), values))
        return values

    def test_sequences(self):
        self.write(n_npy=Array((2,), (66, 5), "<i4"))
        self.check_features(6, "--kv-len", "n.npy", "--causal", "top-left", sequences=[(0, 0, 66), (1, 0, 5)])
        self.use(4, 2, 2, 70, batch=1)
        for causal in ("top-left", "bottom-right"):
            self.check_features(6, "--cu-seqlens", "0,3,69", "--causal", causal, sequences=[(0, 0, 3), (0, 3, 69)])

    def test_many_features_come_near_the_softmax(self):
        self.q, self.k = normal((1, 1, 20, 5), 1, 0.5), normal((1, 1, 20, 5), 2, 0.5)
        self.v = normal((1, 1, 20, 3), 3)
        exact = attention(self.q, self.k, self.v)[0]

        def distance(count):
            got = self.run_kind("performer", "--features", count)
            return math.sqrt(sum((x - y)**2 for x, y in zip(got.values, exact.values)))
        self.assertLess(distance(4096), 0.2 * distance(8))


@unittest.skipUnless(NN, "built without libattn_nn")
class Linformers(KindsTest):
    def setUp(self):
        super().setUp()
        self.q, self.k, self.v = normal((2, 4, 5, 6), 1), normal((2, 2, 11, 6), 2), normal((2, 2, 11, 3), 3)
        self.write(e_npy=normal((3, 11), 4, 0.3), f_npy=normal((3, 11), 5, 0.3), g_npy=normal((2, 3, 14), 6, 0.3),
                   n_npy=Array((2,), (9, 4), "<i8"))

    def check(self, *options, e="e.npy", f=None, lengths=None, **meaning):
        named = ("--project-k", e, *(("--project-v", f) if f else ()))
        got = self.run_kind("linformer", *named, "--lse", "l.npy", "--weights", "w.npy", *options)
        e, f = self.written[e], self.written[f or e]
        wanted = attention(self.q, projected(self.k, e, lengths), projected(self.v, f, lengths), **meaning)
        for name, want in zip("olw", wanted):
            self.assertClose(read_npy(self.folder / f"{name}.npy"), want, f"{name} with {named + options}", 2e-5)
        return got

    def test_projections(self):
        self.check()
        self.check(f="f.npy")
        self.check(e="g.npy")
        self.check(e="e.npy", f="g.npy")
        self.check(e="g.npy", f="f.npy")

    def test_lengths_hide_nan(self):
        for b in (0, 1):
            for h in (0, 1):
                for t in range((9, 4)[b], 11):
                    self.k.values[((b * 2 + h) * 11 + t) * 6] = math.nan
                    self.v.values[((b * 2 + h) * 11 + t) * 3] = math.inf
        self.check("--kv-len", "n.npy", e="g.npy", lengths=(9, 4))

    def test_scores(self):
        self.check("--scale", "0.7", scales=[0.7 * math.sqrt(6)] * 4)
        self.check("--temperature", "2", scales=[0.5] * 4)
        self.check("--head-scale", "1,2,-1,0.5", scales=[1, 2, -1, 0.5])
        self.check("--sinks", "0.5,-1,0,-inf", sinks=[0.5, -1, 0, -math.inf])
        self.check("--softcap", "0.6", score=lambda s, *place: 0.6 * math.tanh(s / 0.6))
        keeps = dropout(0.4, 5, 6)
        self.check("--dropout", "0.4", "--seed", "5", "--offset", "6", keeps=keeps, p=0.4)
        self.check("--inputs", "as-given", "--qk", "exact", "--isa", "scalar", "--threads", "2")

    def test_scores_on_request(self):
        e = self.written["e.npy"]
        keys = projected(self.k, e)
        for options, factor in (((), 1), (("--score-stage", "scaled"), 1 / math.sqrt(6))):
            self.check("--scores", "s.npy", *options)
            want = [factor * sum(self.q.at(b, h, i, c) * keys.at(b, h // 2, r, c) for c in range(6))
                    for b in range(2) for h in range(4) for i in range(5) for r in range(3)]
            self.assertClose(read_npy(self.folder / "s.npy"), Array((2, 4, 5, 3), want), "scores", 2e-5)

    def test_layouts_and_types(self):
        want = self.check(e="g.npy", f="f.npy")
        self.q, self.k, self.v = permuted(self.q), permuted(self.k), permuted(self.v)
        got = self.run_kind("linformer", "--project-k", "g.npy", "--project-v", "f.npy", "--layout", "bthd")
        self.assertEqual(got.values, permuted(want).values)
        self.q, self.k, self.v = (permuted(x).astype("<f2") for x in (self.q, self.k, self.v))
        e = normal((3, 11), 4, 0.3).astype("bf16")
        self.write(e_safetensors={"e": e})
        want = attention(self.q, projected(self.k, e), projected(self.v, e))[0]
        got = self.run_kind("linformer", "--project-k", "e.safetensors:e")
        self.assertClose(got, want, "f16", 4e-3, "<f2")
        got = self.run_kind("linformer", "--project-k", "e.safetensors:e", "--out-dtype", "f32")
        self.assertClose(got, want, "f16 to f32", 4e-3)


@unittest.skipUnless(NN, "built without libattn_nn")
class Additives(KindsTest):
    def setUp(self):
        super().setUp()
        self.use(2, 9, 11)

    def use(self, batch, tq, tk):
        self.q, self.k, self.v = normal((batch, 1, tq, 4), 1), normal((batch, 1, tk, 6), 2), normal((batch, 1, tk, 3), 3)
        self.wq, self.wk, self.score_v = normal((5, 4), 4), normal((5, 6), 5), normal((5,), 6)
        self.bias = normal((5,), 7)
        self.write(wq_npy=self.wq, wk_npy=self.wk, sv_npy=self.score_v, sb_npy=self.bias)

    WEIGHTS = ("--wq", "wq.npy", "--wk", "wk.npy", "--score-v", "sv.npy")

    def check(self, *options, bias=None, temperature=1.0, sees=None):
        self.run_kind("additive", *self.WEIGHTS, "--lse", "l.npy", "--weights", "w.npy", *options)
        score = additive(self.q, self.k, self.wq, self.wk, self.score_v, bias, temperature)
        wanted = attention(self.q, self.k, self.v, score=score, sees=sees)
        for name, want in zip("olw", wanted):
            self.assertClose(read_npy(self.folder / f"{name}.npy"), want, f"{name} with {options}", 2e-5)

    def seen(self, *options):
        """Which keys a query sees, as the softmax has it, whose options have tests of their own."""
        wide = Array((*self.q.shape[:3], 6), [0.0] * (math.prod(self.q.shape[:3]) * 6))
        self.write(z_npy=wide, k_npy=self.k, v_npy=self.v)
        self.attn("run", "-q", "z.npy", "-k", "k.npy", "-v", "v.npy", "-o", "o.npy", "--weights", "w.npy", *options)
        weights = read_npy(self.folder / "w.npy")
        self.assertIn(0.0, weights.values, options)
        return lambda b, h, i, j: weights.at(b, h, i, j) > 0

    def test_scores(self):
        self.check()
        self.check("--score-bias", "sb.npy", bias=self.bias)
        self.check("--temperature", "0.4", temperature=0.4)
        self.check("--temperature", "3", "--score-bias", "sb.npy", "--threads", "2", temperature=3.0, bias=self.bias)

    def test_what_a_query_sees(self):
        self.write(m_npy=flags((2, 1, 9, 11), 8, 0.6), n_npy=Array((2,), (10, 7), "<i4"), s_npy=Array((2,), (1, 3), "<i8"),
                   p_npy=Array((2, 9), [0, 0, 0, 1, 1, 1, 1, 2, 2] * 2, "<i4"),
                   r_npy=Array((2, 11), [0, 0, 1, 1, 1, 2, 2, 2, 2, 0, 1] * 2, "<i4"),
                   t_npy=Array((4,), [-1, 0, 0, 2], "<i4"))
        for options in (("--causal", "top-left"), ("--causal", "bottom-right"), ("--mask", "m.npy"),
                        ("--causal", "offset", "--query-offset", "1,-2"), ("--kv-len", "n.npy"), ("--kv-start", "s.npy"),
                        ("--window", "2,1"), ("--window", "1,0", "--first-tokens", "1", "--global", "5"),
                        ("--causal", "top-left", "--prefix", "4"), ("--segments", "p.npy", "--segments-k", "r.npy"),
                        ("--tree", "t.npy", "--causal", "bottom-right"),
                        ("--kv-len", "n.npy", "--mask", "m.npy", "--causal", "bottom-right")):
            self.check(*options, sees=self.seen(*options))

    def test_patterns(self):
        self.use(1, 70, 70)
        for options in (("longformer", "--block-window", "0", "--block-global", "1"),
                        ("strided", "--block-stride", "3"),
                        ("bigbird", "--block-random", "1", "--block-seed", "3", "--block-window", "0")):
            options = ("--block-pattern", *options, "--block", "16")
            self.check(*options, sees=self.seen(*options))

    def test_ragged_batches(self):
        self.use(1, 9, 11)
        for options in (("--cu-seqlens", "0,2,9"), ("--cu-seqlens", "0,2,9", "--cu-seqlens-k", "0,5,10", "--causal",
                                                    "bottom-right")):
            self.check(*options, sees=self.seen(*options))

    def test_additive_masks(self):
        mask = normal((9, 11), 9)
        self.write(m_npy=mask)
        self.run_kind("additive", *self.WEIGHTS, "--mask", "m.npy")
        plain = additive(self.q, self.k, self.wq, self.wk, self.score_v)
        want = attention(self.q, self.k, self.v, score=lambda s, b, h, i, j: plain(s, b, h, i, j) + mask.at(i, j))[0]
        self.assertClose(read_npy(self.folder / "o.npy"), want, "additive mask", 2e-5)

    def test_ranks_layouts_and_types(self):
        want = self.run_kind("additive", *self.WEIGHTS)
        self.q, self.k, self.v = (permuted(x) for x in (self.q, self.k, self.v))
        self.assertEqual(self.run_kind("additive", *self.WEIGHTS, "--layout", "bthd").values, permuted(want).values)
        self.use(1, 9, 11)
        want = self.run_kind("additive", *self.WEIGHTS)
        self.q, self.k, self.v = (Array(x.shape[2:], x.values) for x in (self.q, self.k, self.v))
        got = self.run_kind("additive", *self.WEIGHTS, "--lse", "l.npy")
        self.assertEqual((got.shape, got.values), ((9, 3), want.values))
        self.assertEqual(read_npy(self.folder / "l.npy").shape, (9,))
        self.use(2, 9, 11)
        self.q, self.k, self.v = (x.astype("<f2") for x in (self.q, self.k, self.v))
        self.wq, self.wk = self.wq.astype("bf16"), self.wk.astype("<f2")
        self.write(w_safetensors={"q": self.wq, "k": self.wk})
        got = self.run_kind("additive", "--wq", "w.safetensors:q", "--wk", "w.safetensors:k", "--score-v", "sv.npy")
        score = additive(self.q, self.k, self.wq, self.wk, self.score_v)
        want = attention(self.q, self.k, self.v, score=score)[0]
        self.assertClose(got, want, "f16", 2**-10, "<f2")


class Softmax(KindsTest):
    def test_it_is_the_default(self):
        self.q, self.k, self.v = normal((2, 4, 5, 6), 1), normal((2, 2, 7, 6), 2), normal((2, 2, 7, 3), 3)
        got = self.run_kind("softmax", "--causal", "top-left", "--alibi")
        self.attn(*self.inputs("--causal", "top-left", "--alibi"))
        self.assertEqual(read_npy(self.folder / "o.npy").values, got.values)


if __name__ == "__main__":
    unittest.main()
