# SPDX-License-Identifier: Apache-2.0
"""
Tests of the suite of gradients: its cases, reference, bars and report. They need no peer and no network, and time nothing;
those that need NumPy are skipped without it.

    python3 -m unittest discover -s bench/peers
"""

import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

from peerbench import bars, cases, figures, registry, report_markdown  # noqa: E402

try:
    import numpy as np

    from peerbench import backward, suites, tensors
except ImportError:
    np = None

ZEN, SAPPHIRE = "AMD EPYC 9R14 bf16/avx512_bf16 f32/avx512", "Intel(R) Xeon(R) 8488C bf16/amx_bf16 f32/avx512"


def entries(attn, torch):
    return {"attn": {"status": "ok", "samples": [attn]}, "torch": {"status": "ok", "samples": [torch]}}


class Cases(unittest.TestCase):
    def test_every_shape_is_there_in_both_types_and_passes(self):
        every = cases.all_cases("backward")
        shapes = {(c.dtype, c.d, c.causal, c.both) for c in every}
        self.assertEqual(len(shapes), len(every))
        self.assertEqual(
            shapes, {(t, d, c, b) for t in ("f32", "bf16") for d in (64, 128) for c in (0, 1) for b in (0, 1)}
        )
        self.assertEqual({c.kind for c in every if c.quick}, {"backward", "backward-causal"})

    def test_work_is_five_products_or_seven(self):
        for causal in (False, True):
            forward = cases.self_attention("f32", 2, 4, 5, 3, causal=causal).flops()
            alone, both = (cases.BackwardCase("f32", 2, 4, 2, 5, 3, causal=causal, both=b) for b in (False, True))
            self.assertEqual((alone.flops(), both.flops()), (2.5 * forward, 3.5 * forward))

    def test_who_takes_part(self):
        mine = [n for n in registry.NAMES if registry.takes_part(n, "backward")]
        self.assertEqual(mine, ["attn", "torch", "torch-mkl", "jax"])

    def test_bars_are_those_of_the_machine(self):
        results = [
            figures.summarise(
                {"case": c.name, "kind": c.kind, "dtype": c.dtype, "flops": 1.0, "contenders": entries(0.1, 0.16)}
            )
            for c in cases.all_cases("backward")
        ]
        for machine, asked in (
            (ZEN, {("f32", 1.8), ("bf16", 1.5)}),
            (SAPPHIRE, {("f32", 1.3), ("f32", 1.45), ("bf16", 2.5)}),
            ("AMD EPYC bf16/avx512_bf16 bf16/emulated_amx_bf16", {("f32", 1.8), ("bf16", 1.5)}),
            ("Other", {("bf16", 1.5)}),
        ):
            verdicts = bars.check(results, machine=machine)
            self.assertEqual({(v["case"].split("/")[0], v["least"]) for v in verdicts}, asked)
            # Both passes together have none.
            self.assertFalse([v for v in verdicts if "forward-backward" in v["case"]])
            self.assertEqual([v["met"] for v in verdicts], [v["least"] < 1.6 for v in verdicts])

    def test_a_machine_is_its_processor_and_peaks(self):
        context = {"cpu": "AMD EPYC 9R14", "peaks": {"f32/avx512": 1.0, "bf16/avx512_bf16": 2.0}}
        self.assertEqual(bars.machine_of(context), ZEN)

    def test_speed_is_operations(self):
        result = figures.summarise(
            {
                "case": "f32/backward/x", "suite": "backward", "kind": "backward", "dtype": "f32", "flops": 1e9,
                "items": None, "peak_gflops": 20.0, "contenders": entries(0.1, 0.2),
            }
        )  # fmt: skip
        text = "\n".join(report_markdown.case_table([result], ["attn", "torch"]))
        self.assertIn("| `f32/backward/x` | **10** | 5 | 2.00 | 0.50 |", text)
        titles = dict(report_markdown.KINDS)
        self.assertLessEqual({c.kind for c in cases.all_cases("backward")}, set(titles))


@unittest.skipIf(np is None, "NumPy is not installed")
class Reference(unittest.TestCase):
    suite = suites.SUITES["backward"] if np is not None else None

    @staticmethod
    def loss(case, wide):
        """In float64, a query at a time."""
        total = 0.0
        for b in range(case.batch):
            for h in range(case.heads):
                for i in range(case.t):
                    end = i + 1 if case.causal else case.t
                    k, v = (wide[n][b, h // case.group, :end] for n in ("k", "v"))
                    weights = np.exp(k @ wide["q"][b, h, i] / np.sqrt(case.d))
                    total += wide["dout"][b, h, i] @ (weights @ v) / weights.sum()
        return total

    def test_rows_are_derivatives(self):
        step = 1e-4
        for causal in (False, True):
            case = cases.BackwardCase("f32", 2, 4, 2, 7, 3, causal=causal)
            arrays = self.suite.make(case)
            rows = self.suite.pick_rows(case)
            expected, sizes = self.suite.expect(case, arrays, rows)
            wide = {name: a.astype(np.float64) for name, a in arrays.items()}
            for n, (which, b, h, t) in enumerate(rows):
                for channel in range(case.d):
                    place, found = (b, h, t, channel), []
                    before = wide["qkv"[which]][place]
                    for sign in (1, -1):
                        wide["qkv"[which]][place] = before + sign * step
                        found.append(self.loss(case, wide))
                    wide["qkv"[which]][place] = before
                    self.assertAlmostEqual(expected[n, channel], (found[0] - found[1]) / (2 * step), places=6)
            self.assertTrue((sizes > 0).all())

    @staticmethod
    def gradients(case, arrays, causal=None):
        """In float32, all heads at once; what is rounded in bf16 is rounded."""
        q, k, v, dout = (tensors.widen(arrays[n], case.dtype) for n in ("q", "k", "v", "dout"))
        k, v = (np.repeat(x, case.group, axis=1) for x in (k, v))

        def rounded(x):
            return tensors.from_bf16(tensors.to_bf16(x)) if case.dtype == "bf16" else x.astype(np.float32)

        def summed(x):
            return x.reshape(case.batch, case.kv_heads, case.group, case.t, case.d).sum(axis=2)

        scale = np.float32(case.d**-0.5)
        scores = scale * q @ k.swapaxes(2, 3)
        if case.causal if causal is None else causal:
            scores = np.where(np.tri(case.t, dtype=bool), scores, -np.inf)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        delta = (dout * rounded(p @ v)).sum(axis=-1, keepdims=True)
        ds = rounded(p * (dout @ v.swapaxes(2, 3) - delta))
        p = rounded(p)
        wide = scale * ds @ k, summed(scale * ds.swapaxes(2, 3) @ q), summed(p.swapaxes(2, 3) @ dout)
        return [rounded(x) for x in wide]

    def judged(self, case, gradients, rows):
        expected = self.suite.expect(case, self.suite.make(case), rows)
        return self.suite.disagree(case, backward.take_rows(gradients, rows), expected)[1]

    def test_right_and_wrong_gradients(self):
        for dtype in ("f32", "bf16"):
            for causal in (False, True):
                case = cases.BackwardCase(dtype, 2, 4, 2, 150, 32, causal=causal)
                arrays = self.suite.make(case)
                rows = self.suite.pick_rows(case)
                right = self.gradients(case, arrays)
                with self.subTest(case=case.name):
                    self.assertIsNone(self.judged(case, right, rows))
                dq, dk, dv = right
                nan = dv.copy()
                nan[-1, -1, -1] = np.nan
                for defect, wrong in (
                    ("another mask", self.gradients(case, arrays, causal=not causal)),
                    ("dq without its scale", [dq * np.float32(case.d**0.5), dk, dv]),
                    ("another query head's", [np.roll(dq, 1, axis=1), dk, dv]),
                    ("half of the group", [dq, dk / 2, dv]),
                    ("dk for dv", [dq, dv, dk]),
                    ("a row that is not written", [dq, dk, nan]),
                ):
                    with self.subTest(case=case.name, defect=defect):
                        self.assertIsNotNone(self.judged(case, wrong, rows))

    def test_types_of_a_shape_start_from_the_same_numbers(self):
        f32, bf16 = (self.suite.make(cases.BackwardCase(t, 1, 2, 2, 9, 4)) for t in ("f32", "bf16"))
        for name, array in f32.items():
            np.testing.assert_array_equal(tensors.to_bf16(array), bf16[name])
        # And the forward call with its gradients from those of the gradients alone.
        both = self.suite.make(cases.BackwardCase("f32", 1, 2, 2, 9, 4, both=True))
        np.testing.assert_array_equal(both["q"], f32["q"])

    def test_rows_are_of_all_three_and_different(self):
        for case in cases.all_cases("backward"):
            rows = self.suite.pick_rows(case)
            self.assertEqual(len({tuple(row) for row in rows.tolist()}), 3 * backward.NUM_ROWS)
            for which in range(3):
                self.assertIn([which, 0, 0, 0], rows.tolist())
                self.assertIn([which, 0, 7, case.t - 1], rows.tolist())
        grouped = cases.BackwardCase("f32", 1, 8, 2, 30, 4)
        self.assertEqual(max(h for which, _, h, _ in self.suite.pick_rows(grouped).tolist() if which), 1)


if __name__ == "__main__":
    unittest.main()
