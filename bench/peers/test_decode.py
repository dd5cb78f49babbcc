# SPDX-License-Identifier: Apache-2.0
"""
Tests of the suite of decoding: its cases, reference and tolerances, what is put back between samples, and its report.
They need no peer and no network, and time nothing; those that need NumPy are skipped without it.

    python3 -m unittest discover -s bench/peers
"""

import contextlib
import io
import json
import re
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

from peerbench import bars, cases, command_line, figures, registry, report_markdown  # noqa: E402

try:
    import numpy as np

    from peerbench import coordinator, decode, suites, tensors, worker
    from peerbench.contenders import onnx_decode, openvino_decode
    from peerbench.contenders.base import Way
except ImportError:
    np = None

MIB = 1 << 20


class Cases(unittest.TestCase):
    def test_every_shape_is_there_in_every_type(self):
        every = cases.all_cases("decode")
        self.assertEqual({c.suite for c in every}, {"decode"})
        far = {(c.batch, c.heads, c.kv_heads, c.tk) for c in every if c.far}
        self.assertEqual(far, {(1, 32, 32, 4096), (1, 32, 8, 4096), (1, 1, 1, 131072), (8, 32, 8, 1024)})
        for dtype in ("f32", "bf16", "f16", "int8", "e4m3", "int4"):
            mine = [c for c in every if c.dtype == dtype]
            self.assertEqual((len(mine), {c.d for c in mine}), (len(far) + 1, {128}))
            self.assertEqual(far, {(c.batch, c.heads, c.kv_heads, c.tk) for c in mine if c.far})

    def test_bytes_are_those_of_the_caches(self):
        for case in cases.all_cases("decode"):
            size = {"f32": 4, "bf16": 2, "f16": 2, "int8": 1, "e4m3": 1, "int4": 0.5}[case.dtype]
            one = 2 * case.batch * case.kv_heads * case.tk * case.d * size
            least = 256 * MIB if case.dtype == "int4" else 512 * MIB
            self.assertEqual(case.quantised, size < 2)
            self.assertEqual(case.given, "bf16" if size < 2 else case.dtype)
            self.assertEqual(case.bytes(), case.layers * one)
            if case.far:
                # As few layers as come from memory.
                self.assertLessEqual(least, case.bytes())
                self.assertLess(case.bytes() - one, least)
            else:
                self.assertEqual((case.bytes(), case.layers), (16 * MIB, 1))
        self.assertEqual(cases.DecodeCase("f32", 2, 4, 2, 10, 8, 3).flops(), 4 * 8 * 3 * 2 * 4 * 10)

    def test_types_cannot_be_chosen_as_for_layers(self):
        with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()) as said:
            command_line.main(["--suite", "decode", "--precision", "int8", "--list"])
        self.assertEqual(ended.exception.code, command_line.USAGE)
        self.assertIn("--precision is given with --suite decode", said.getvalue())

    def test_grouped_heads_have_a_bar_of_their_own(self):
        entries = {"attn": {"status": "ok", "samples": [0.1]}, "ggml": {"status": "ok", "samples": [0.12]}}
        results = [
            figures.summarise({"case": c.name, "kind": c.kind, "dtype": c.dtype, "flops": 1.0, "contenders": entries})
            for c in cases.all_cases("decode")
        ]
        verdicts = bars.check(results)
        self.assertEqual(len(verdicts), len(results))
        for verdict in verdicts:
            grouped = "kv_heads:8" in verdict["case"]
            self.assertEqual((verdict["least"], verdict["met"]), (1.5, False) if grouped else (1.05, True))


class Registry(unittest.TestCase):
    def test_who_decodes(self):
        self.assertEqual(
            [n for n in registry.NAMES if not registry.takes_part(n, "decode")],
            ["jax", "llama.cpp", "naive", "fla", "attn-python", "torch-sdpa", "torch-eager"],
        )
        self.assertEqual([s for s in cases.SUITES if registry.takes_part("vllm", s)], ["decode"])
        # What a worker imports first has to be there.
        for name in registry.NAMES:
            self.assertTrue(registry.module(name, registry.home(name)), name)
        self.assertEqual((registry.home("vllm"), registry.home("torch")), ("decode", "attention"))

    def test_modules_exist(self):
        folder = Path(registry.__file__).parent / "contenders"
        for name in registry.NAMES:
            for suite in cases.SUITES:
                if file := registry.module(name, suite):
                    text = (folder / f"{file}.py").read_text(encoding="utf-8")
                    self.assertRegex(text, rf'CONTENDERS = {{[^}}]*"{re.escape(name)}":')


@unittest.skipIf(np is None, "NumPy is not installed")
class Reference(unittest.TestCase):
    suite = suites.SUITES["decode"] if np is not None else None

    def judged(self, case, arrays=None, rows=None, output=None, name="attn"):
        """What the suite says about float32 rows that are computed by other means, or about `output` of a contender."""
        arrays = self.suite.make(case) if arrays is None else arrays
        rows = self.suite.pick_rows(case) if rows is None else rows
        expected = self.suite.expect(case, self.suite.make(case), rows)
        if output is None:
            output = self.attention(case, arrays)
        tolerance = registry.tolerance(name, case.suite, case.dtype)
        return self.suite.disagree(case, output[rows[:, 0], rows[:, 1], rows[:, 2]], expected, tolerance)[1]

    @staticmethod
    def attention(case, arrays):
        """All layers, one after the other, as a contender computes them."""
        outputs = []
        parts = zip(*(decode.layers(case, arrays[n]) for n in ("q", "k", "v")), strict=True)
        for q, k, v in parts:
            q, k, v = (tensors.widen(x, case.given) for x in (q, k, v))
            k, v = (np.repeat(x, case.group, axis=1) for x in (k, v))
            scores = np.einsum("bhid,bhjd->bhij", q, k) / np.float32(np.sqrt(case.d))
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            outputs.append(np.einsum("bhij,bhjd->bhid", weights / weights.sum(axis=-1, keepdims=True), v))
        return np.concatenate(outputs)

    def test_right_outputs_agree(self):
        for dtype in cases.CACHE_BYTES:
            for case in (cases.DecodeCase(dtype, 2, 4, 2, 200, 64, 3), cases.DecodeCase(dtype, 1, 3, 3, 96, 32, 1)):
                with self.subTest(case=case.name):
                    self.assertIsNone(self.judged(case))

    def test_wrong_outputs_are_caught(self):
        for dtype in cases.CACHE_BYTES:
            case = cases.DecodeCase(dtype, 2, 4, 2, 96, 32, 3)
            arrays = self.suite.make(case)
            right = self.attention(case, arrays)
            shorter = cases.DecodeCase(dtype, 2, 4, 2, 95, 32, 3)
            missing = {"q": arrays["q"], **{n: arrays[n][:, :, :-1] for n in "kv"}}
            interleaved = {"q": arrays["q"][:, [0, 2, 1, 3]], **{n: arrays[n] for n in "kv"}}
            for name, output in (
                ("the newest token is not seen", self.attention(shorter, missing)),
                ("a layer for another", np.roll(right, case.batch, axis=0)),
                ("a sequence for another", np.roll(right, 1, axis=0)),
                ("another query of the group", self.attention(case, interleaved)),
                ("one layer only", np.concatenate([right[: case.batch], np.full_like(right[case.batch :], np.nan)])),
            ):
                with self.subTest(dtype=dtype, defect=name):
                    self.assertIsNotNone(self.judged(case, arrays, output=output))

    def test_sums_in_f16_are_accepted_of_ggml_while_they_are_short(self):
        for tokens, good in ((4096, True), (131072, False)):
            case = cases.DecodeCase("f16", 1, 1, 1, tokens, 16, 1)
            arrays = self.suite.make(case)
            q, k, v = (tensors.widen(arrays[n], "f16")[0, 0] for n in "qkv")
            scores = (k @ q[0]) / np.float32(4)
            weights, total = np.exp(scores - scores.max()), np.zeros(16, np.float16)
            for weight, value in zip(weights, v, strict=True):
                total += (weight * value).astype(np.float16)
            output = (total.astype(np.float32) / weights.sum())[None, None, None]
            with self.subTest(tokens=tokens):
                self.assertEqual(self.judged(case, arrays, output=output, name="ggml") is None, good)
                self.assertIsNotNone(self.judged(case, arrays, output=output, name="onnxruntime"))

    def test_types_are_told_from_coarser_ones(self):
        def blocks(x, steps):
            """Blocks of 32 with their own scale, as q8_0 with 127 steps."""
            parts = x.reshape(*x.shape[:3], -1, 32)
            scale = np.abs(parts).max(axis=-1, keepdims=True) / steps
            return (np.rint(parts / scale) * scale).reshape(x.shape)

        def significand(x, steps):
            """Numbers with so many steps from one power of two to the next, as fp8 with 8 or 4 of them."""
            return np.ldexp(np.rint(np.frexp(x)[0] * 2 * steps) / (2 * steps), np.frexp(x)[1])

        for dtype, right, wrong in (
            ("int8", [(blocks, 127)], [(blocks, 15), (significand, 8)]),
            ("e4m3", [(significand, 8), (blocks, 127)], [(significand, 4), (blocks, 7)]),
            ("int4", [(blocks, 7)], [(blocks, 3)]),
        ):
            case = cases.DecodeCase(dtype, 1, 4, 4, 4096, 128, 1)
            arrays, rows = self.suite.make(case), self.suite.pick_rows(case)
            wide = {n: tensors.widen(a, case.given) for n, a in arrays.items()}
            for change, steps in right + wrong:
                changed = {n: tensors.to_bf16(change(wide[n], steps)) if n != "q" else arrays[n] for n in arrays}
                with self.subTest(dtype=dtype, change=change.__name__, steps=steps):
                    self.assertEqual(self.judged(case, changed, rows) is None, (change, steps) in right)

    def test_scales_for_channels(self):
        rng = np.random.default_rng(3)
        x = rng.standard_normal((2, 3, 50, 8), dtype=np.float32) * np.arange(1, 9, dtype=np.float32)
        x[:, 1, :, 5] = 0
        numbers, scales = onnx_decode.quantise(x)
        self.assertEqual((numbers.dtype, scales.dtype, scales.shape), (np.int8, np.float32, (24,)))
        steps = scales.reshape(1, 3, 1, 8)
        self.assertLessEqual(float((np.abs(numbers * steps - x) / steps).max()), 0.5001)
        self.assertEqual(int(np.abs(numbers[:, 0]).max()), 127)

    def test_four_bits_of_channels(self):
        rng = np.random.default_rng(4)
        x = rng.standard_normal((1, 2, 400, 6), dtype=np.float32) * np.arange(1, 7, dtype=np.float32)
        packed, scales = onnx_decode.quantise(x, 4)
        self.assertEqual((packed.dtype, packed.shape, scales.shape), (np.uint8, (1, 2, 400, 3), (12,)))
        numbers = np.stack([packed & 15, packed >> 4], axis=-1).reshape(x.shape).astype(np.float32) - 8
        back = numbers * scales.reshape(1, 2, 1, 6)
        self.assertEqual((int(numbers.min()), int(numbers.max())), (-8, 7))
        # Of 16 even steps the best have an error of 0.107; up to the largest of 400 numbers it would be 0.125.
        error = np.sqrt(np.mean((back - x) ** 2, axis=2) / np.mean(x * x, axis=2))
        self.assertLess(float(np.sqrt(np.mean(error**2))), 0.115)


@unittest.skipIf(np is None, "NumPy is not installed")
class Samples(unittest.TestCase):
    def test_what_calls_change_is_put_back_before_each_sample(self):
        done = []
        machine = worker.Worker.__new__(worker.Worker)
        machine.calls = 2
        machine.way = Way("w", lambda: done.append("run"), None, before=lambda: done.append("before"))
        for _ in range(2):
            machine.time({})
        self.assertEqual(done, ["before", "run", "run", "run"] * 2)

    def state(self, tokens):
        """A state of OpenVINO's without OpenVINO; `filled` has what it was filled with."""
        state = openvino_decode._State.__new__(openvino_decode._State)
        state.case = cases.DecodeCase("f32", 1, 1, 1, tokens, 8, 1)
        state.length, state.calls, state.filled, state.seen = tokens - 1, 0, [], []
        state.request = type("Request", (), {"infer": lambda _: state.seen.append(state.length + 1)})()

        def fill(length):
            state.filled.append(length)
            state.length = length

        state.fill = fill
        return state

    def test_samples_have_as_many_keys_as_the_case_on_average(self):
        for tokens, calls in ((4096, 2), (512, 60), (1024, 25)):
            state = self.state(tokens)
            for _ in range(6):
                state.run()
            means = []
            for _ in range(5):
                state.before()
                state.seen.clear()
                for _ in range(calls):
                    state.run()
                means.append(sum(state.seen) / calls)
            with self.subTest(tokens=tokens, calls=calls):
                # The first sample does not know yet how many calls it will have.
                for mean in means[1:]:
                    self.assertLessEqual(abs(mean - tokens), max(1, tokens / openvino_decode.SLACK))

    def test_a_state_that_is_near_enough_is_left_alone(self):
        state = self.state(4096)
        for _ in range(10):
            state.before()
            state.run()
            state.run()
        self.assertEqual(state.filled, [])
        for _ in range(100):
            state.before()
            state.run()
            state.run()
        # Each time it has become 64 tokens too long, two in a sample.
        self.assertEqual(state.filled, [4094] * 3)

    def test_limits_of_the_machine(self):
        rows = [
            {"name": "peak/f32/avx2", "gflops": 5.0},
            {"name": "forward/x", "gflops": 1.0},
            {"name": "bandwidth/read", "bytes_per_second": 2.5e10},
        ]
        with tempfile.TemporaryDirectory() as folder:
            bench = Path(folder) / "attn-bench"
            bench.write_text(f"#!{sys.executable}\nprint({json.dumps(json.dumps({'benchmarks': rows}))})\n")
            bench.chmod(0o755)
            self.assertEqual(coordinator.measure_limits(bench, 2), ({"f32/avx2": 5.0}, 25.0))
            bench.write_text("#!/bin/sh\nexit 1\n")
            self.assertEqual(coordinator.measure_limits(bench, 2), ({}, None))
        self.assertEqual(coordinator.measure_limits(None, 2), ({}, None))


class Report(unittest.TestCase):
    def test_time_and_bandwidth(self):
        def result(name, read, **samples):
            entries = {n: {"status": "ok", "samples": s} for n, s in samples.items()}
            return figures.summarise(
                {
                    "case": name, "suite": "decode", "kind": "decode", "dtype": "int8", "flops": 1e9, "bytes": 5e8,
                    "tokens": 1, "series": "", "peak_gflops": 100.0, "read_gb_per_second": read, "contenders": entries,
                }
            )  # fmt: skip

        results = [
            result("int8/decode/far", 50.0, attn=[0.02, 0.03], ggml=[0.025]),
            result("int8/decode/near", None, attn=[0.0125], ggml=[0.01]),
        ]
        self.assertAlmostEqual(results[0]["contenders"]["attn"]["gb_per_second"], 25.0)
        text = "\n".join(report_markdown.case_table(results, ["attn", "ggml"]))
        self.assertIn("| case | attn | ggml | x attn | of read | ms | ms, best peer |", text)
        self.assertIn("| `int8/decode/far` | **25.0** | 20.0 | 1.25 | 0.50 | 20.0 | 25.0 |", text)
        self.assertIn("| `int8/decode/near` | 40.0 | **50.0** | 0.80 | – | 12.5 | 10.0 |", text)
        context = {"date": "", "cpu": "", "threads": 2, "cores": 2, "system": "", "rounds": 1}
        context.update(peaks={}, versions={}, notes={}, read_gb_per_second=50.0)
        text = report_markdown.render({"context": context, "missing": {}, "results": results, "memory": []})
        self.assertIn("## int8: Decoding, GB/s of keys and values", text)
        self.assertIn("Memory is read at 50.0 GB/s.", text)
        for dtype in cases.CACHE_BYTES:
            shown = [{**results[0], "dtype": dtype}]
            text = report_markdown.render({"context": context, "missing": {}, "results": shown, "memory": []})
            self.assertIn(f"## {dtype}: Decoding, GB/s of keys and values", text)
        for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            self.assertEqual(len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}), 1, block)


if __name__ == "__main__":
    unittest.main()
