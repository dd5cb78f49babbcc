# SPDX-License-Identifier: Apache-2.0
"""
Tests of the suite of linear layers: its cases, the matrices that contenders make, reference and tolerances, and its
report. They need no peer and no network, and time nothing; those that need NumPy are skipped without it.

    python3 -m unittest discover -s bench/peers
"""

import re
import sys
import unittest
import unittest.mock
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

from peerbench import bars, cases, command_line, figures, layer_kinds, registry, report_markdown  # noqa: E402

try:
    import numpy as np

    from peerbench import linear, suites, tensors
except ImportError:
    np = None


class Cases(unittest.TestCase):
    every = cases.all_cases("linear", cases.PRECISIONS)
    kinds = {c.kind for c in every}

    def test_every_shape_is_there_in_every_precision(self):
        shapes = {(c.dtype, c.outputs, c.inputs, c.rows) for c in self.every}
        expected = {
            (dtype, *shape, rows)
            for dtype in ("f32", "bf16", "int8")
            for shape in ((1152, 384), (384, 1536), (768, 768), (3072, 768), (4096, 4096))
            for rows in (1, 8, 24, 128, 1300)
        }
        self.assertEqual((len(self.every), shapes), (len(expected), expected))
        self.assertEqual({c.kind for c in self.every if c.rows == 1}, {"linear-row"})
        self.assertEqual({c.kind for c in self.every if c.rows > 1}, {"linear"})
        for dtype in cases.PRECISIONS:
            self.assertEqual({c.rows for c in self.every if c.quick and c.dtype == dtype}, {1, 24, 128})

    def test_few_rows_have_their_weights_from_memory(self):
        for case in self.every:
            held = case.matrices * case.outputs * case.inputs * {"f32": 4, "bf16": 2, "int8": 1}[case.dtype]
            self.assertEqual(case.far, case.rows <= 24)
            if case.far:
                self.assertGreaterEqual(held, layer_kinds.WEIGHT_BYTES)
                self.assertIn(f"/matrices:{case.matrices}", case.name)
            else:
                self.assertEqual((case.matrices, "matrices" in case.name), (1, False))
            self.assertEqual(case.bytes(), held if case.rows == 1 else None)

    def test_work_is_that_of_all_matrices(self):
        case = cases.LinearCase(3, 5, 7)
        self.assertEqual(case.flops(), 2 * 3 * 5 * 7 * case.matrices)
        self.assertEqual(cases.LinearCase(128, 5, 7).flops(), 2 * 128 * 5 * 7)

    def test_names_parse_back(self):
        for case in self.every:
            self.assertEqual(case, cases.from_json(case.to_json()))

    def test_who_takes_part(self):
        mine = [n for n in registry.NAMES if registry.takes_part(n, "linear")]
        self.assertEqual(mine, ["attn", "torch", "torch-mkl", "onnxruntime", "openvino"])
        gaps = command_line.find_gaps(mine, ("linear",), {}, {"libattn_nn": "not built"})
        self.assertEqual(gaps, {"linear": {"attn": "not built"}})
        folder = Path(registry.__file__).parent / "contenders"
        for name in mine:
            self.assertTrue((folder / f"{registry.module(name, 'linear')}.py").is_file(), name)

    def test_libattn_is_never_slower_than_the_others(self):
        asked = {(bar.kind, dtype): bar.least for bar in bars.BARS for dtype in bar.dtypes if bar.kind in self.kinds}
        self.assertEqual(asked, {(k, d): 1.0 for k in self.kinds for d in cases.PRECISIONS})


@unittest.skipIf(np is None, "NumPy is not installed")
class Reference(unittest.TestCase):
    suite = suites.SUITES["linear"] if np is not None else None

    def setUp(self):
        # As many matrices as a test can look at.
        fewer = unittest.mock.patch.object(layer_kinds, "WEIGHT_BYTES", 4 * 5 * 96 * 64)
        fewer.start()
        self.addCleanup(fewer.stop)

    @staticmethod
    def outputs(case, arrays):
        """All of them in float32, each from a matrix that is moved number by number."""
        x, w = (tensors.widen(arrays[n], case.dtype) for n in ("x", "w"))
        found = []
        for n in range(case.matrices):
            numbers, moved = w.ravel().tolist(), arrays["b"].tolist()
            last = n % len(moved)
            weight = np.array(numbers[len(numbers) - n :] + numbers[: len(numbers) - n], np.float32).reshape(w.shape)
            bias = np.array(moved[len(moved) - last :] + moved[: len(moved) - last], np.float32)
            found.append(x @ weight.T + bias)
        return found

    def case(self, dtype, rows=8):
        case = cases.LinearCase(rows, 96, 64, dtype=dtype)
        arrays = self.suite.make(case)
        picked = self.suite.pick_rows(case)
        return case, arrays, picked, self.suite.expect(case, arrays, picked)

    def test_right_outputs_agree(self):
        for dtype in cases.PRECISIONS:
            for rows in (1, 8, 128):
                case, arrays, picked, expected = self.case(dtype, rows)
                with self.subTest(case=case.name):
                    self.assertEqual(case.matrices, 1 if rows == 128 else {"f32": 5, "bf16": 10, "int8": 20}[dtype])
                    outputs = self.outputs(case, arrays)
                    found = linear.take_rows(picked, lambda n, outputs=outputs: outputs[n])
                    worst, wrong = self.suite.disagree(case, found, expected)
                    self.assertIsNone(wrong)
                    self.assertLess(worst, 1e-5)

    def test_wrong_outputs_are_caught(self):
        for dtype in cases.PRECISIONS:
            case, arrays, picked, expected = self.case(dtype)
            right = self.outputs(case, arrays)
            no_bias = self.outputs(case, {**arrays, "b": np.zeros_like(arrays["b"])})
            nan = [output.copy() for output in right]
            nan[-1][-1, -1] = np.nan
            defects = {
                "next matrix": right[1:] + right[:1],
                "first matrix for all": right[:1] * case.matrices,
                "rows in another order": [output[::-1] for output in right],
                "nan": nan,
                "scaled": [np.float32(1.2) * output for output in right],
            }
            if dtype != "int8":  # whose bound is several times the size of a bias
                defects["no bias"] = no_bias
            for name, outputs in defects.items():
                with self.subTest(dtype=dtype, defect=name):
                    found = linear.take_rows(picked, lambda n, outputs=outputs: outputs[n])
                    self.assertIsNotNone(self.suite.disagree(case, found, expected)[1])

    def test_precisions_are_told_from_coarser_ones(self):
        case, arrays, picked, expected = self.case("f32")
        rounded = {**arrays, "x": tensors.from_bf16(tensors.to_bf16(arrays["x"]))}
        outputs = self.outputs(case, rounded)
        self.assertIsNotNone(self.suite.disagree(case, linear.take_rows(picked, lambda n: outputs[n]), expected)[1])
        # bf16 with x in 8 bits, int8 with x in 4.
        for dtype, steps in (("bf16", 127), ("int8", 7)):
            case, arrays, picked, expected = self.case(dtype)
            x = tensors.widen(arrays["x"], dtype)
            step = np.abs(x).max(axis=1, keepdims=True) / steps
            outputs = self.outputs(case, {**arrays, "x": tensors.store(np.round(x / step) * step, dtype)})
            found = linear.take_rows(picked, lambda n, outputs=outputs: outputs[n])
            self.assertIsNotNone(self.suite.disagree(case, found, expected)[1], dtype)

    def test_no_two_matrices_are_equal(self):
        case, arrays, _, _ = self.case("int8")
        every = [linear.matrix(arrays, n) for n in range(case.matrices)]
        self.assertEqual({m.shape for m in every}, {(96, 64)})
        self.assertEqual(len({m.tobytes() for m in every}), case.matrices)

    def test_precisions_of_a_shape_start_from_the_same_numbers(self):
        wide, narrow = (self.case(dtype)[1] for dtype in ("f32", "bf16"))
        for name in ("x", "w"):
            np.testing.assert_array_equal(tensors.to_bf16(wide[name]), narrow[name])


class Report(unittest.TestCase):
    def test_time_of_a_product_and_what_it_comes_to(self):
        def result(name, kind, size, read, **samples):
            entries = {n: {"status": "ok", "samples": s} for n, s in samples.items()}
            return figures.summarise(
                {
                    "case": name, "suite": "linear", "kind": kind, "dtype": "f32", "flops": 1e9, "items": 20,
                    "bytes": size, "tokens": 1, "series": "", "peak_gflops": 100.0, "read_gb_per_second": read,
                    "contenders": entries,
                }
            )  # fmt: skip

        one = result("f32/linear/M1", "linear-row", 5e8, 50.0, attn=[0.02, 0.03], torch=[0.025])
        many = result("f32/linear/M24", "linear", None, None, attn=[0.0125], torch=[0.01])
        text = "\n".join(report_markdown.case_table([one], ["attn", "torch"]))
        heads = "| of read | GFLOP/s | GFLOP/s, best peer | GB/s | GB/s, best peer |"
        self.assertIn(f"| case | attn | torch | x attn {heads}", text)
        self.assertIn("| `f32/linear/M1` | **1000** | 1250 | 1.25 | 0.50 | 50.0 | 40.0 | 25.0 | 20.0 |", text)
        text = "\n".join(report_markdown.case_table([many], ["attn", "torch"]))
        self.assertIn("| case | attn | torch | x attn | of peak | GFLOP/s | GFLOP/s, best peer |", text)
        self.assertIn("| `f32/linear/M24` | 625 | **500** | 0.80 | 0.80 | 80.0 | 100 |", text)
        context = {"date": "", "cpu": "", "threads": 2, "cores": 2, "system": "", "rounds": 1}
        context.update(peaks={}, versions={}, notes={})
        text = report_markdown.render({"context": context, "missing": {}, "results": [one, many], "memory": []})
        self.assertIn("## f32: Linear layer, one row, µs", text)
        self.assertIn("## f32: Linear layer, µs", text)
        self.assertIn("| linear layer | 1.00 | 0.800 | 0 of 1 |", text)
        for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            self.assertEqual(len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}), 1, block)


if __name__ == "__main__":
    unittest.main()
