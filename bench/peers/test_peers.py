# SPDX-License-Identifier: Apache-2.0
"""
Tests of the benchmark's own logic: cases, reference, ratios, bars, tables,
protocol. They need no peer and no network, and time nothing. NumPy is needed for
the reference; without it those tests are skipped.

    python3 -m unittest discover -s bench/peers
"""

import json
import math
import re
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

from peerbench import (  # noqa: E402
    bars,
    build_native,
    cases,
    command_line,
    figures,
    install,
    protocol,
    registry,
    report_markdown,
    sentences,
)

try:
    import numpy as np

    from peerbench import coordinator, embedding, layer, reference, suites, tensors, worker
    from peerbench.contenders.base import Unsupported, Way
except ImportError:
    np = None


class Cases(unittest.TestCase):
    def test_names_are_unique_and_parse_back(self):
        every = cases.all_cases("all")
        self.assertEqual(len(every), len({c.name for c in every}))
        self.assertEqual(every, [c for suite in cases.SUITES for c in cases.all_cases(suite)])
        for case in every:
            self.assertEqual(case, cases.from_json(json.loads(json.dumps(case.to_json()))))

    def test_attention_alone_is_the_default(self):
        self.assertEqual({c.suite for c in cases.all_cases()}, {"attention"})
        arguments = command_line.parser().parse_args([])
        self.assertEqual(command_line.select(arguments), cases.all_cases())
        arguments = command_line.parser().parse_args(["--suite", "all", "--filter", "/mha/.*/T4096/|batch64"])
        chosen = command_line.select(arguments)
        self.assertEqual(command_line.suites_of(chosen), ("mha", "embed"))
        self.assertEqual([c.causal for c in chosen if c.suite == "mha"], [False, True])

    def test_what_has_to_be_covered_is(self):
        every = cases.all_cases()
        for dtype in cases.DTYPES:
            self.assertEqual({c.kind for c in every if c.dtype == dtype}, {"dense", "causal", "padded", "mask"})
        f32 = [c for c in every if c.dtype == "f32"]
        self.assertLessEqual({32, 64, 80, 96, 128, 256}, {c.d for c in f32})
        self.assertEqual((min(c.tk for c in f32), max(c.tk for c in f32)), (128, 16384))
        self.assertTrue(any(c.group > 1 and c.causal for c in f32))
        self.assertTrue(any(c.heads == 1 and c.tk >= 8192 for c in f32))
        self.assertTrue(any((c.batch, c.heads, c.tq, c.d) == (8, 12, 128, 64) for c in f32))

    def test_work_of_a_layer(self):
        layer = cases.MhaCase(2, 5, 12, 4, 2)
        self.assertEqual(layer.widths, {"q": 12, "k": 6, "v": 6, "o": 12})
        self.assertEqual(layer.projection_flops(), 2 * 2 * 5 * 12 * 36)
        bare = cases.self_attention("f32", 2, 4, 5, 3, kv_heads=2)
        self.assertEqual(layer.attention_flops(), bare.flops())
        causal = cases.MhaCase(2, 5, 12, 4, 2, causal=True)
        self.assertEqual(causal.attention_flops(), cases.self_attention("f32", 2, 4, 5, 3, causal=True).flops())
        self.assertEqual(layer.flops(), layer.projection_flops() + layer.attention_flops())

    def test_work_counts_live_pairs(self):
        dense = cases.self_attention("f32", 2, 3, 5, 7)
        self.assertEqual(dense.flops(), 4 * 7 * 2 * 3 * 25)
        self.assertEqual(cases.self_attention("f32", 2, 3, 5, 7, causal=True).live_pairs(), 2 * 3 * 15)
        padded = cases.self_attention("f32", 2, 3, 8, 7, padded=True)
        self.assertEqual(padded.lengths, [2, 6])
        self.assertEqual(padded.live_pairs(), 3 * 8 * 8)
        masked = cases.self_attention("f32", 2, 3, 5, 7, mask=True)
        self.assertEqual(masked.live_pairs(11), 33)
        self.assertRaises(ValueError, masked.live_pairs)


@unittest.skipIf(np is None, "NumPy is not installed")
class Reference(unittest.TestCase):
    def check_all(self, case):
        """A float32 computation by other means agrees; the same with a defect does not."""
        arrays = tensors.make(case)
        rows = reference.pick_rows(case)
        expected = reference.reference_rows(case, arrays, rows)
        whole = self.attention(case, arrays)
        good = whole[rows[:, 0], rows[:, 1], rows[:, 2]]
        self.assertIsNone(reference.disagreement(case, good, expected)[1])
        return good, expected

    @staticmethod
    def attention(case, arrays):
        """All of the output at once, in float32."""
        q, k, v = (tensors.widen(arrays[n], case.dtype) for n in tensors.NAMES)
        k, v = (np.repeat(x, case.group, axis=1) for x in (k, v))
        scores = np.einsum("bhid,bhjd->bhij", q, k) / np.float32(np.sqrt(case.d))
        live = np.arange(case.tk)[None, None, None, :] < np.array(case.lengths)[:, None, None, None]
        live = np.broadcast_to(live, scores.shape).copy()
        if case.causal:
            live &= np.tri(case.tq, case.tk, dtype=bool)
        if case.mask:
            live &= arrays["mask"]
        scores = np.where(live, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.einsum("bhij,bhjd->bhid", weights / weights.sum(axis=-1, keepdims=True), v)

    def test_right_outputs_agree(self):
        for dtype in cases.DTYPES:
            for options in ({}, {"causal": True}, {"padded": True}, {"mask": True}, {"kv_heads": 2}):
                with self.subTest(dtype=dtype, **options):
                    self.check_all(cases.self_attention(dtype, 2, 4, 33, 16, **options))

    def test_wrong_outputs_are_caught(self):
        for dtype in cases.DTYPES:
            case = cases.self_attention(dtype, 2, 4, 96, 32, causal=True)
            good, expected = self.check_all(case)
            uncausal = cases.self_attention(dtype, 2, 4, 96, 32)
            # The same numbers without the causal mask: the name, and so the seed, would differ.
            rows = reference.pick_rows(case)
            dense = self.attention(uncausal, tensors.make(case))[rows[:, 0], rows[:, 1], rows[:, 2]]
            scaled, nan = good * np.float32(1.1), good.copy()
            nan[-1, 0] = np.nan
            swapped = good[::-1]
            for name, bad in (
                ("dense", dense),
                ("scaled", scaled),
                ("nan", nan),
                ("swapped", swapped),
                ("short", good[:-1]),
            ):
                with self.subTest(dtype=dtype, defect=name):
                    self.assertIsNotNone(reference.disagreement(case, bad, expected)[1])

    def test_bf16_arithmetic_is_not_f16_or_f32(self):
        case = cases.self_attention("f32", 1, 2, 64, 32)
        good, expected = self.check_all(case)
        rounded = tensors.from_bf16(tensors.to_bf16(good.astype(np.float32)))
        self.assertIsNotNone(reference.disagreement(case, rounded, expected)[1])

    def test_bf16_rounds_to_nearest_even(self):
        bits = np.array([0x3F800000, 0x3F808000, 0x3F818000, 0x3F808001, 0xBF807FFF], np.uint32)
        self.assertEqual(tensors.to_bf16(bits.view(np.float32)).tolist(), [0x3F80, 0x3F80, 0x3F82, 0x3F81, 0xBF80])

    def test_files_hold_what_was_made(self):
        case = cases.self_attention("bf16", 1, 2, 8, 4, mask=True)
        arrays = tensors.make(case)
        with tempfile.TemporaryDirectory() as folder:
            tensors.write(arrays, folder)
            read = tensors.read(folder)
        self.assertEqual(set(read), {"q", "k", "v", "mask"})
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, read[name])


@unittest.skipIf(np is None, "NumPy is not installed")
class Layer(unittest.TestCase):
    @staticmethod
    def forward(case, arrays):
        """All of the output at once, in float32."""

        def project(x, part):
            return x @ arrays[f"w_{part}"].T + (arrays[f"b_{part}"] if case.bias else np.float32(0))

        q, k, v = (project(arrays["x"], p).reshape(case.batch, case.t, -1, case.head_dim) for p in "qkv")
        k, v = (np.repeat(x, case.group, axis=2) for x in (k, v))
        scores = np.einsum("bihd,bjhd->bhij", q, k) / np.float32(np.sqrt(case.head_dim))
        if case.causal:
            scores = np.where(np.tri(case.t, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return project(np.einsum("bhij,bjhd->bihd", weights, v).reshape(arrays["x"].shape), "o")

    def test_right_outputs_agree_and_wrong_ones_do_not(self):
        suite = suites.SUITES["mha"]
        for kv_heads, bias, causal in ((4, True, False), (2, False, False), (1, True, True)):
            case = cases.MhaCase(3, 40, 32, 4, kv_heads, bias=bias, causal=causal)
            arrays = suite.make(case)
            self.assertEqual({"w_q", "w_k", "w_v", "w_o", "x"}, {n for n in arrays if n[0] in "wx"})
            self.assertEqual(bias, layer.bias(arrays, "v") is not None)
            rows = suite.pick_rows(case)
            expected = suite.expect(case, arrays, rows)

            def verdict(case=case, arrays=arrays, rows=rows, expected=expected, **changed):
                output = self.forward(case, {**arrays, **changed})[rows[:, 0], rows[:, 1]]
                return suite.disagree(case, output, expected)[1]

            with self.subTest(kv_heads=kv_heads, bias=bias, causal=causal):
                self.assertIsNone(verdict())
                self.assertIsNotNone(verdict(w_k=arrays["w_k"][::-1]))
                self.assertIsNotNone(verdict(x=tensors.from_bf16(tensors.to_bf16(arrays["x"]))))
                other = cases.MhaCase(3, 40, 32, 4, kv_heads, bias=bias, causal=not causal)
                self.assertIsNotNone(verdict(case=other))
                if bias:
                    self.assertIsNotNone(verdict(b_o=np.zeros_like(arrays["b_o"])))
                    self.assertIsNotNone(verdict(b_v=np.zeros_like(arrays["b_v"])))


@unittest.skipIf(np is None, "NumPy is not installed")
class Embedding(unittest.TestCase):
    arrays_of = [[7, 1, 2, 8], [7, 8], [7, 3, 8]]

    def test_batches_are_sorted_and_hold_everything_once(self):
        arrays = embedding.pack(self.arrays_of)
        self.assertEqual(arrays["ids"].tolist(), [7, 8, 7, 3, 8, 7, 1, 2, 8])
        self.assertEqual(arrays["offsets"].tolist(), [0, 2, 5, 9])
        self.assertEqual(embedding.batches(cases.EmbedCase(2), arrays), [(0, 2), (2, 3)])
        ids, mask = embedding.padded(arrays, 0, 2)
        self.assertEqual(ids.tolist(), [[7, 8, 0], [7, 3, 8]])
        self.assertEqual(mask.tolist(), [[1, 1, 0], [1, 1, 1]])

    def test_disagreement_sees_direction_and_length(self):
        rng = np.random.default_rng(1)
        right = rng.standard_normal((5, 384))
        right /= np.linalg.norm(right, axis=1, keepdims=True)
        turned, swapped = right.copy(), right[::-1]
        turned[2] = right[2] * np.sqrt(1 - 0.01**2) + 0.01 * np.roll(right[2], 1)
        for output, good in ((right, True), (right.astype(np.float32), True), (turned, False), (swapped, False),
                             (2 * right, False), (right[:4], False), (np.nan * right, False)):  # fmt: skip
            self.assertEqual(embedding.disagreement(cases.EmbedCase(1), output, right)[1] is None, good)
        # What bf16 and int8 may be off by would not do in f32.
        turned /= np.linalg.norm(turned, axis=1, keepdims=True)
        self.assertIsNotNone(embedding.disagreement(cases.EmbedCase(1), turned, right)[1])
        self.assertIsNone(embedding.disagreement(cases.EmbedCase(1, dtype="int8"), turned, right)[1])

    def test_erf(self):
        for x in (*np.linspace(-7, 7, 1001), 0.0, 1e-9, -3.00048828125, 1e300):
            self.assertAlmostEqual(float(embedding.erf(np.array(x))), math.erf(x), delta=3e-14)

    def test_sentences_come_from_prose(self):
        text = (
            "Title\n=====\n\nThe first `sentence` is here. A second one follows now!\n\n"
            ">>> no.prose at all is this\n\n- An entry of a list.\n- The first sentence is here.\n\nToo short.\n"
        )
        expected = ["The first sentence is here.", "A second one follows now!", "An entry of a list."]
        self.assertEqual(sentences.sentences([text], 3), expected)
        self.assertRaises(RuntimeError, sentences.sentences, [text], 4)


def make_result(name="f32/B1/H8/Tq512/Tk512/d64/causal:none", kind="dense", dtype="f32", **contenders):
    """A result whose contenders are lists of samples, or sentences that say why there are none."""
    entries = {
        n.replace("_", "-"): (
            {"status": "missing", "reason": x} if isinstance(x, str) else {"status": "ok", "samples": list(x)}
        )
        for n, x in contenders.items()
    }
    result = {
        "case": name,
        "kind": kind,
        "dtype": dtype,
        "tokens": 512,
        "series": "",
        "flops": 8e9,
        "peak_gflops": 100.0,
    }
    return {**result, "contenders": entries}


class Figures(unittest.TestCase):
    def test_fastest_sample_and_ratio_to_the_best_peer(self):
        result = figures.summarise(make_result(attn=[0.2, 0.1, 0.4], torch=[0.3, 0.5], jax=[0.12, 0.9]))
        entry = result["contenders"]["attn"]
        self.assertEqual((entry["seconds"], entry["seconds_median"]), (0.1, 0.2))
        self.assertAlmostEqual(entry["gflops"], 80.0)
        self.assertAlmostEqual(entry["fraction"], 0.8)
        self.assertEqual(result["best_peer"], "jax")
        self.assertAlmostEqual(result["ratios"]["attn"], 1.2)
        self.assertAlmostEqual(result["ratios_median"]["attn"], 2.0)

    def test_wrong_and_missing_peers_take_no_part(self):
        result = make_result(attn=[0.1], torch=[0.05], jax="not installed", ggml=[0.2])
        result["contenders"]["torch"].update(status="wrong", reason="it differs")
        figures.summarise(result)
        self.assertEqual(result["best_peer"], "ggml")
        self.assertAlmostEqual(result["ratios"]["attn"], 2.0)

    def test_without_a_peer_there_is_no_ratio(self):
        result = figures.summarise(make_result(attn=[0.1], torch="none"))
        self.assertEqual((result["best_peer"], result["ratios"]), (None, {}))

    def test_slow_contenders_settle_early_and_close_ones_do_not(self):
        self.assertTrue(figures.is_settled("torch", [9.0] * 3, 1.0))
        self.assertFalse(figures.is_settled("torch", [9.0] * 2, 1.0))
        self.assertFalse(figures.is_settled("torch", [1.2, 1.1, 9.0], 1.0))
        self.assertFalse(figures.is_settled("attn", [9.0] * 3, 1.0))

    def test_lost_cases_are_found(self):
        lost = figures.summarise(make_result(attn=[0.2], torch=[0.1]))
        won = figures.summarise(make_result(attn=[0.1], torch=[0.2]))
        self.assertEqual([(r is lost, n) for r, n, _ in figures.lost_cases([won, lost])], [(True, "attn")])


class Bars(unittest.TestCase):
    bar = (bars.Bar("dense", "attn", "dense", ("f32",), 1.1),)

    def verdict(self, **contenders):
        return bars.check([figures.summarise(make_result(**contenders))], self.bar)

    def test_met_and_not_met(self):
        self.assertTrue(self.verdict(attn=[0.1], torch=[0.12])[0]["met"])
        self.assertFalse(self.verdict(attn=[0.1], torch=[0.105])[0]["met"])

    def test_libattn_without_a_result_does_not_meet_its_bar(self):
        (verdict,) = self.verdict(attn="refused", torch=[0.1])
        self.assertFalse(verdict["met"])
        self.assertEqual(verdict["reason"], "refused")

    def test_other_kinds_and_types_are_not_asked(self):
        for fields in ({"kind": "causal"}, {"dtype": "bf16"}):
            self.assertEqual(bars.check([figures.summarise(make_result(**fields, attn=[1], torch=[1]))], self.bar), [])

    def test_lines_show_every_figure(self):
        verdicts = self.verdict(attn=[0.1], torch=[0.12]) + self.verdict(attn=[0.1], torch=[0.1])
        text, met = bars.lines(verdicts)
        self.assertFalse(met)
        self.assertEqual(text[-1], "1 of 2 bars met")
        self.assertTrue(text[0].startswith("met ") and "1.200 of 1.10" in text[0], text[0])
        self.assertTrue(text[1].startswith("NOT MET") and "1.000 of 1.10" in text[1], text[1])

    def test_nothing_checked_is_not_met(self):
        self.assertEqual(bars.lines([]), (["no bar was checked"], False))

    def test_every_bar_has_cases(self):
        for bar in bars.BARS:
            self.assertIn(bar.contender, registry.NAMES)
            for dtype in bar.dtypes:
                every = [c for c in cases.all_cases("all", cases.PRECISIONS) if (c.kind, c.dtype) == (bar.kind, dtype)]
                self.assertTrue([c for c in every if re.search(bar.pattern, c.name)], bar.text)

    def test_a_pattern_chooses_among_the_cases_of_a_kind(self):
        results = [
            figures.summarise(make_result(f"f32/embed/batch{n}", "embed", attn=[0.1], torch=[0.2]))
            for n in (1, 16, 64)
        ]
        asked = [(v["bar"], v["case"]) for v in bars.check(results)]
        self.assertEqual([case for _, case in asked], ["f32/embed/batch1", "f32/embed/batch64"])


class Report(unittest.TestCase):
    def test_markdown_of_a_fixture(self):
        results = [
            figures.summarise(make_result(attn=[0.1], torch=[0.16], ggml="no | such thing")),
            figures.summarise(make_result("f32/other", "causal", attn=[0.2], torch=[0.1], ggml=[0.5])),
        ]
        results[1]["contenders"]["ggml"].update(status="wrong", reason="it differs")
        run = {
            "context": {
                "date": "today", "cpu": "some", "threads": 2, "cores": 2, "system": "Linux", "rounds": 1,
                "peaks": {"f32/avx2": 100.0}, "versions": {"attn": "1", "torch": "2"}, "notes": {},
            },
            "missing": {"jax": "cannot be had"},
            "results": results,
            "memory": [
                {"case": "f32/other", "tokens": 512, "series": "s", "contenders": {"attn": 2**20, "torch": None}},
            ],
        }  # fmt: skip
        text = report_markdown.render(run, ["ratio.svg"])
        self.assertIn("| `f32/B1/H8/Tq512/Tk512/d64/causal:none` | **80** | 50 | – | 1.60 | 0.80 |", text)
        self.assertIn("| `f32/other` | 40 | **80** | wrong | 0.50 | 0.40 |", text)
        self.assertIn("| `f32/other` | attn | 0.500 | torch |", text)
        self.assertIn("| `jax` | JAX | missing: cannot be had | – |", text)
        self.assertIn("no \\| such thing", text)
        self.assertIn("| f32 causal | 1.30 | 0.500 | 0 of 1 |", text)
        self.assertIn("![ratio.svg](ratio.svg)", text)
        for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
            self.assertEqual(len(widths), 1, block)


    def test_every_precision_has_its_table_and_says_how_it_was_computed(self):
        results = []
        for precision in cases.PRECISIONS:
            result = make_result(f"{precision}/embed/x", "embed", precision, attn=[0.5], torch=[1.0])
            result.update(suite="embed", items=200)
            result["contenders"]["torch"].update(
                way=f"torch in {precision}", difference=0.0123, refused=["another | way: it is off"]
            )
            results.append(figures.summarise(result))
        context = {"date": "", "cpu": "", "threads": 2, "cores": 2, "system": "", "rounds": 1}
        context.update(peaks={}, versions={}, notes={})
        text = report_markdown.render({"context": context, "missing": {}, "results": results, "memory": []})
        for precision in cases.PRECISIONS:
            self.assertIn(f"## {precision}: Sentences through", text)
            self.assertIn(f"| `{precision}/embed/x` | torch | torch in {precision} | 1.2e-02 |", text)
        self.assertIn("- **torch**, one of its ways failed in `f32/embed/x` and 2 more: another \\| way: it is off", text)

    def test_layers_are_shown_in_their_own_units(self):
        mha = make_result("f32/mha/x", "mha", attn=[0.1, 0.2], torch=[0.125])
        mha.update(suite="mha")
        mha["contenders"]["attn"]["parts"] = {"projections": [0.08, 0.06], "attention": [0.035, 0.9]}
        embed = make_result("f32/embed/x", "embed", attn=[0.5], torch=[1.0])
        embed.update(suite="embed", items=200)
        results = [figures.summarise(mha), figures.summarise(embed)]
        text = "\n".join(report_markdown.case_table([results[0]], ["attn", "torch", "jax"]))
        self.assertIn("| case | attn | torch | x attn | of peak | projections % | attention % |", text)
        self.assertIn("| `f32/mha/x` | **100** | 125 | 1.25 | 0.80 | 60 | 35 |", text)
        text = "\n".join(report_markdown.case_table([results[1]], ["attn", "torch"]))
        self.assertIn("| `f32/embed/x` | **400** | 200 | 2.00 |", text)
        self.assertEqual(figures.unit(make_result()), "GFLOP/s")
        for seconds, text in ((5.7812, "5781"), (0.09996, "100"), (0.0123, "12.3"), (0.000137, "0.137")):
            self.assertEqual(figures.shown(mha, {"seconds": seconds}), text)


class ScriptedWorker:
    """Ways of a contender, fastest first, as {label: output}; answers what the coordinator asks when it settles a way."""

    def __init__(self, outputs):
        self.worker = worker.Worker.__new__(worker.Worker)
        self.worker.refused, self.worker.tried = [], []
        for n, (label, output) in enumerate(outputs.items()):
            self.worker.tried.append((0.1 + n, Way(label, lambda: None, lambda _, rows, output=output: output)))

    def call(self, do, **fields):
        return getattr(self.worker, do)(fields)


@unittest.skipIf(np is None, "NumPy is not installed")
class Ways(unittest.TestCase):
    def setUp(self):
        self.right, self.wrong = np.ones((1, 4), np.float32), np.zeros((1, 4), np.float32)

    def settle(self, outputs):
        case = cases.self_attention("f32", 1, 1, 1, 4)
        with tempfile.TemporaryDirectory() as folder:
            boss = coordinator.Coordinator(("torch",), {}, None, None, folder, 2, 1)
            self.addCleanup(boss.close)
            scripted = ScriptedWorker(outputs)
            boss.workers = {"torch": scripted}
            entries = {"torch": {"status": "ok", "samples": [], **scripted.worker.choose()}}
            rows = np.zeros((1, 3), np.int64)
            boss._settle_way("torch", entries, case, rows, self.right.astype(float), reference.disagreement)
            boss.workers = {}
        return entries["torch"]

    def test_the_fastest_right_way_is_taken(self):
        entry = self.settle({"fast": self.wrong, "middle": self.right, "slow": self.right})
        self.assertEqual((entry["status"], entry["way"], list(entry["ways"])), ("ok", "middle", ["middle", "slow"]))
        self.assertEqual(len(entry["refused"]), 1)
        self.assertRegex(entry["refused"][0], "^fast: a row differs")
        self.assertEqual(self.settle({"fast": self.right, "slow": self.wrong})["way"], "fast")

    def test_without_a_right_way_it_is_wrong(self):
        entry = self.settle({"fast": self.wrong, "slow": self.wrong})
        self.assertEqual((entry["status"], entry["way"]), ("wrong", "slow"))

    def test_no_way_is_no_figure(self):
        scripted = ScriptedWorker({"only": self.wrong})
        scripted.worker.choose()
        with self.assertRaisesRegex(Unsupported, "only: it is off"):
            scripted.worker.reject({"reason": "it is off"})


class Requirements(unittest.TestCase):
    def test_a_compiler_may_have_arguments(self):
        for text, words in (("ccache gcc -O1", ["ccache", "gcc", "-O1"]), ("", ["cc"]), ("clang", ["clang"])):
            with unittest.mock.patch.dict("os.environ", {"CC": text}):
                self.assertEqual(build_native.compiler(), words)

    def test_every_group_that_is_named_exists_and_is_pinned(self):
        groups = install.parse_groups(install.REQUIREMENTS.read_text())
        for row in registry.ROWS:
            for group in row.groups:
                self.assertTrue(groups[group], group)
                self.assertTrue(all("==" in line for line in groups[group]), group)
        for table in registry.SUITE_GROUPS.values():
            for group in (g for needs in table.values() for g in needs):
                self.assertTrue(groups[group] and all("==" in line for line in groups[group]), group)
        for source in ("ggml", "minilm", "sentences", "smollm", "vllm"):
            self.assertRegex(install.source_of(source), r"^[a-z0-9-]+==")

    def test_missing_peers_carry_their_reason(self):
        names = ("attn", "torch", "ggml", "naive")
        missing = command_line.find_missing(names, {"torch": "no wheel"}, {"ggml": "no cmake"})
        self.assertEqual(missing, {"torch": "no wheel", "ggml": "no cmake"})


    def test_what_a_suite_lacks_is_no_loss_for_the_others(self):
        names = ("attn", "torch", "onnxruntime", "jax")
        self.assertFalse(registry.takes_part("jax", "mha"))
        self.assertTrue(all(registry.takes_part(n, "attention") for n in names))
        self.assertEqual(command_line.participants(names, ("embed",)), names[:3])
        self.assertEqual(command_line.participants(names, ("attention", "mha")), names)
        groups, native = {"transformers": "no wheel"}, {"libattn_nn": "not built"}
        self.assertEqual(command_line.find_missing(names, groups, native), {})
        gaps = command_line.find_gaps(names, ("attention", "mha", "embed"), groups, native)
        self.assertEqual((gaps["attention"], gaps["mha"]), ({}, {"attn": "not built"}))
        self.assertEqual(gaps["embed"], {"attn": "not built", "torch": "no wheel", "onnxruntime": "no wheel"})
        self.assertIsNone(command_line.without_inputs(("attention", "embed"), {**groups, **native}))
        self.assertIn("no model", command_line.without_inputs(("mha", "embed"), {"minilm": "no model"}))


ECHO = """
import json, sys
print(json.dumps({"ok": True, "version": "1"}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request["do"] == "die":
        print("it broke", file=sys.stderr)
        sys.exit(3)
    answers = {"ok": {"ok": True, "n": request.get("n")}, "no": {"ok": False, "unsupported": "never"}}
    print(json.dumps(answers.get(request["do"], {"ok": False, "error": "unknown"})), flush=True)
"""


class Protocol(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        log = Path(self.folder.name) / "log"
        self.worker = protocol.WorkerProcess("echo", [sys.executable, "-c", ECHO], None, log, 60.0)
        self.addCleanup(self.worker.close)

    def state(self):
        stat = Path(f"/proc/{self.worker.process.pid}/stat")
        return stat.read_text().rsplit(")", 1)[1].split()[0] if stat.exists() else None

    def test_answers_refusals_and_errors(self):
        self.assertEqual(self.worker.about, {"version": "1"})
        self.assertEqual(self.worker.call("ok", n=5), {"n": 5})
        with self.assertRaisesRegex(protocol.Unsupported, "never"):
            self.worker.call("no")
        with self.assertRaisesRegex(protocol.WorkerFailed, "unknown"):
            self.worker.call("something")
        self.assertEqual(self.worker.call("ok", n=6), {"n": 6})

    @unittest.skipUnless(Path("/proc/self/stat").exists(), "there is no /proc")
    def test_a_worker_is_stopped_between_its_turns(self):
        self.worker.call("ok")
        # A signal is delivered asynchronously; the state is reached without anything else happening.
        while self.state() == "R":
            pass
        self.assertEqual(self.state(), "T")

    def test_a_death_is_reported_with_its_last_words(self):
        with self.assertRaisesRegex(protocol.WorkerFailed, "exit code 3; it broke"):
            self.worker.call("die")
        with self.assertRaises(protocol.WorkerFailed):
            self.worker.call("ok")


if __name__ == "__main__":
    unittest.main()
