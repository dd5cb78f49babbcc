# SPDX-License-Identifier: Apache-2.0
"""
Tests of the suite of linear attention: its cases, reference, bars and report. They need no peer and no network, and time
nothing; those that need NumPy are skipped without it.

    python3 -m unittest discover -s bench/peers
"""

import re
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

from peerbench import bars, case_kinds, cases, command_line, figures, registry, report_markdown  # noqa: E402
from peerbench.contenders import base  # noqa: E402

try:
    import numpy as np

    from peerbench import linear_attention, suites, tensors
except ImportError:
    np = None


class Cases(unittest.TestCase):
    every = cases.all_cases("linear-attention")

    def test_every_rule_is_there_for_prompts_and_tokens(self):
        shapes = {(c.rule, c.batch, c.heads, c.t, c.d) for c in self.every}
        expected = {
            (rule, batch, 8, t, d)
            for rule in ("linear", "gated", "delta", "gated_delta")
            for batch, t in ((1, 2048), (1, 8192), (1, 1), (64, 1))
            for d in (64, 128)
        }
        self.assertEqual((len(self.every), shapes), (len(expected), expected))
        for case in self.every:
            self.assertEqual(case.kind, "linear-attention-token" if case.t == 1 else "linear-attention")
            self.assertEqual(case.continues, case.t == 1)
        self.assertEqual({(c.rule, c.kind) for c in self.every if c.quick}, {(c.rule, c.kind) for c in self.every})
        self.assertLess(sum(c.quick for c in self.every), len(self.every) / 2)

    def test_rules_are_told_by_decay_and_beta(self):
        found = {c.rule: (c.has_decay, c.has_beta) for c in self.every}
        self.assertEqual(
            found,
            {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)},
        )

    def test_work_is_that_of_the_recurrence(self):
        for case in self.every:
            numbers = case.batch * case.heads * case.t * case.d**2
            self.assertEqual(case.flops(), (6 if "delta" in case.rule else 4) * numbers)

    def test_names_parse_back_and_have_no_precision(self):
        for case in self.every:
            self.assertEqual(case, cases.from_json(case.to_json()))
        self.assertEqual({c.dtype for c in self.every}, {"f32"})
        self.assertEqual(self.every, cases.all_cases("linear-attention", cases.PRECISIONS))

    def test_who_takes_part(self):
        mine = [n for n in registry.NAMES if registry.takes_part(n, "linear-attention")]
        self.assertEqual(mine, ["attn", "torch", "torch-mkl", "onnxruntime", "ggml", "fla"])
        folder = Path(registry.__file__).parent / "contenders"
        for name in mine:
            self.assertTrue((folder / f"{registry.module(name, 'linear-attention')}.py").is_file(), name)
        self.assertEqual([s for s in cases.SUITES if registry.takes_part("fla", s)], ["linear-attention"])
        self.assertEqual(registry.home("fla"), "linear-attention")
        self.assertEqual(command_line.participants(("fla", "ggml", "naive"), ("linear-attention",)), ("fla", "ggml"))
        missing = command_line.find_missing(mine, {"fla": "not to be had"}, {})
        self.assertEqual(missing, {"fla": "not to be had"})

    def test_three_times_the_best_peer_is_asked_for(self):
        results = [
            figures.summarise(
                {
                    "case": c.name, "kind": c.kind, "dtype": c.dtype, "flops": 1.0,
                    "contenders": {
                        "attn": {"status": "ok", "samples": [0.1]},
                        "fla": {"status": "ok", "samples": [0.9]},
                        "onnxruntime": {"status": "ok", "samples": [0.31 if c.t > 1 else 0.29]},
                    },
                }
            )
            for c in self.every
        ]  # fmt: skip
        verdicts = bars.check(results)
        self.assertEqual(len(verdicts), len(self.every))
        self.assertEqual({(v["least"], v["best_peer"]) for v in verdicts}, {(3.0, "onnxruntime")})
        self.assertEqual([v["met"] for v in verdicts], [c.t > 1 for c in self.every])


@unittest.skipIf(np is None, "NumPy is not installed")
class Reference(unittest.TestCase):
    suite = suites.SUITES["linear-attention"] if np is not None else None

    @staticmethod
    def small(rule, continues):
        """A token that goes on is one; a prompt is long enough for its end to have forgotten its beginning."""
        return cases.LinearAttentionCase(rule, 3 if continues else 1, 4, 1 if continues else 96, 16)

    @staticmethod
    def at_once(case, arrays, strict=False, late=False):
        """
        (outputs, state) in float32 from all pairs of tokens. strict: a token does not read what it writes. late: it
        fades what it has written itself.
        """
        q, k, v = (arrays[n] for n in ("q", "k", "v"))
        state = arrays.get("state", np.zeros((*q.shape[:2], case.d, case.d), np.float32))
        sums = np.cumsum(arrays.get("decay", np.zeros(q.shape[:3], np.float32)), axis=2)
        before = sums - arrays["decay"] if late else sums
        kept = np.exp(np.minimum(sums[..., :, None] - before[..., None, :], 0)) * np.tri(case.t, dtype=np.float32)
        faded = np.exp(sums)[..., None]
        u = v
        if "beta" in arrays:
            beta = arrays["beta"][..., None]
            system = np.eye(case.t, dtype=np.float32) + np.tril(beta * (k @ k.swapaxes(2, 3)) * kept, -1)
            u = np.linalg.solve(system, beta * (v - faded * (k @ state)))
        scores = np.tril((q @ k.swapaxes(2, 3)) * kept, -1 if strict else 0)
        outputs = np.float32(case.d**-0.5) * (faded * (q @ state) + scores @ u)
        left = faded[:, :, -1:] * state + (k * kept[:, :, -1, :, None]).swapaxes(2, 3) @ u
        return outputs, left

    def judged(self, case, outputs, state):
        rows = self.suite.pick_rows(case)
        expected = self.suite.expect(case, self.suite.make(case), rows)
        return self.suite.disagree(case, linear_attention.take_rows(outputs, state, rows), expected)

    def test_right_results_agree(self):
        for rule in case_kinds.RULES:
            for continues in (False, True):
                case = self.small(rule, continues)
                with self.subTest(case=case.name):
                    worst, wrong = self.judged(case, *self.at_once(case, self.suite.make(case)))
                    self.assertIsNone(wrong)
                    self.assertLess(worst, 5e-5)

    def test_wrong_results_are_caught(self):
        for rule in case_kinds.RULES:
            for continues in (False, True):
                case = self.small(rule, continues)
                arrays = self.suite.make(case)
                outputs, state = self.at_once(case, arrays)
                nan = state.copy()
                nan[-1, -1, -1, 0] = np.nan
                rounded = {**arrays, "k": tensors.from_bf16(tensors.to_bf16(arrays["k"]))}
                defects = {
                    "without its scale": (outputs * np.float32(case.d**0.5), state),
                    "heads in another order": (outputs[:, ::-1], state[:, ::-1]),
                    "a transposed state": (outputs, state.swapaxes(2, 3)),
                    "a state of which a number is not written": (outputs, nan),
                    "what it writes is not read": self.at_once(case, arrays, strict=True),
                    "keys in bf16": self.at_once(case, rounded),
                }
                for name in ("decay", "beta", "state"):
                    if name in arrays:
                        left_out = {n: a for n, a in arrays.items() if n != name}
                        defects[f"without {name}"] = self.at_once(case, left_out)
                if case.has_decay:
                    defects["fading what has just been written"] = self.at_once(case, arrays, late=True)
                if continues:
                    defects["a state that is not changed"] = (outputs, arrays["state"])
                for defect, wrong in defects.items():
                    with self.subTest(case=case.name, defect=defect):
                        self.assertIsNotNone(self.judged(case, *wrong)[1])

    def test_inputs_are_what_the_rules_are_made_for(self):
        for case in (self.small(rule, continues) for rule in case_kinds.RULES for continues in (False, True)):
            arrays = self.suite.make(case)
            given = {"decay": case.has_decay, "beta": case.has_beta, "state": case.continues}
            self.assertEqual({n for n in arrays if n not in tensors.NAMES}, {n for n, has in given.items() if has})
            self.assertEqual({a.dtype for a in arrays.values()}, {np.dtype(np.float32)})
            if case.has_beta:
                np.testing.assert_allclose(np.linalg.norm(arrays["k"], axis=-1), 1, rtol=1e-6)
                self.assertTrue(((arrays["beta"] > 0) & (arrays["beta"] < 1)).all())
            if case.has_decay:
                self.assertTrue(((arrays["decay"] >= -1) & (arrays["decay"] < 0)).all())

    def test_rows_are_of_outputs_and_states_and_different(self):
        for case in cases.all_cases("linear-attention"):
            rows = self.suite.pick_rows(case).tolist()
            self.assertEqual(len({tuple(row) for row in rows}), len(rows))
            self.assertLessEqual(len({(b, h) for _, b, h, _ in rows}), linear_attention.NUM_HEADS)
            for which, count in enumerate((case.t, case.d)):
                for row in ([which, 0, 0, 0], [which, case.batch - 1, case.heads - 1, count - 1]):
                    self.assertIn(row, rows)
                self.assertLess(max(i for w, _, _, i in rows if w == which), count)


class Restarted(unittest.TestCase):
    def test_samples_and_compared_rows_begin_with_the_same_state(self):
        state = {"n": 99}

        def run():
            state["n"] += 1
            return state["n"]

        way = base.restarted(base.Way("in place", run, lambda result, rows: [result, *rows]), lambda: state.update(n=5))
        self.assertEqual([way.run(), way.run()], [6, 7])
        self.assertEqual(way.rows(None, [1]), [6, 1])
        way.before()
        self.assertEqual((state["n"], way.label), (5, "in place"))


class Report(unittest.TestCase):
    def test_time_of_a_call_and_operations(self):
        def result(case, **samples):
            return figures.summarise(
                {
                    "case": case.name, "suite": case.suite, "kind": case.kind, "dtype": case.dtype, "flops": 1e7,
                    "items": 1, "bytes": None, "tokens": case.t, "series": "", "peak_gflops": 10.0,
                    "contenders": {n: {"status": "ok", "samples": s} for n, s in samples.items()},
                }
            )  # fmt: skip

        prompt = result(cases.LinearAttentionCase("delta", 1, 8, 64, 16), attn=[0.002, 0.003], ggml=[0.008])
        token = result(cases.LinearAttentionCase("gated", 1, 8, 1, 16), attn=[0.004], ggml=[0.002])
        text = "\n".join(report_markdown.case_table([prompt], ["attn", "ggml"]))
        self.assertIn("| case | attn | ggml | x attn | of peak | GFLOP/s | GFLOP/s, best peer |", text)
        self.assertIn(f"| `{prompt['case']}` | **2000** | 8000 | 4.00 | 0.50 | 5.00 | 1.25 |", text)
        context = {"date": "", "cpu": "", "threads": 1, "cores": 2, "system": "", "rounds": 1}
        context.update(peaks={}, versions={}, notes={})
        text = report_markdown.render({"context": context, "missing": {}, "results": [prompt, token], "memory": []})
        self.assertIn("## f32: Linear attention, a prompt, µs", text)
        self.assertIn("## f32: Linear attention, a token, µs", text)
        self.assertIn("| linear attention, prompts | 3.00 | 4.000 | 1 of 1 |", text)
        self.assertIn("| linear attention, a token | 3.00 | 0.500 | 0 of 1 |", text)
        for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            self.assertEqual(len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}), 1, block)


if __name__ == "__main__":
    unittest.main()
