# SPDX-License-Identifier: Apache-2.0
"""attn bench: what it counts and prints. How fast anything is, is judged by no test."""

import json
import unittest

from support import VERSION, Array, CommandTest, normal

QUICK = ("--repetitions", "2", "--min-time", "0.0002", "--threads", "1")


class Bench(CommandTest):
    def bench(self, *options):
        result = self.attn("bench", *options, *QUICK, "--json")
        self.assertEqual(result.stderr, "")
        return json.loads(result.stdout)

    def test_text(self):
        lines = self.attn("bench", "--q-len", "5", *QUICK).stdout.splitlines()
        self.assertEqual([line[:12].strip() for line in lines], ["plan", "time", "products", "", "keys", "tokens"])
        self.assertIn("B=1 Hq=8 Hkv=8 Tq=5 Tk=5 dk=64 dv=64 causal=none", lines[0])

    def test_json(self):
        found = self.bench("--q-len", "6", "--k-len", "9", "--heads", "4", "--kv-heads", "2", "--batch", "3", "--head-dim",
                           "5", "--value-dim", "7")
        self.assertEqual(found["shape"], {"batch": 3, "heads": 4, "kv_heads": 2, "q_len": 6, "k_len": 9, "head_dim": 5,
                                          "value_dim": 7})
        self.assertEqual((found["version"], found["threads"], found["repetitions"]), (VERSION, 1, 2))
        self.assertEqual(found["pairs"], 3 * 4 * 6 * 9)
        fastest = found["time_fastest"]
        self.assertGreater(fastest, 0)
        self.assertGreaterEqual(found["time_median"], fastest)
        self.assertAlmostEqual(found["gflops"] * fastest * 1e9, 2 * found["pairs"] * (5 + 7), delta=1)
        self.assertAlmostEqual(found["fraction"], found["gflops"] / found["peak_gflops"])
        self.assertAlmostEqual(found["gbytes_per_second"] * fastest * 1e9, 3 * 2 * 9 * (5 + 7) * 4, delta=1)
        # So few keys are read in no time that could be measured.
        self.assertEqual((found["read_gbytes_per_second"], found["read_fraction"]), (None, None))
        self.assertAlmostEqual(found["queries_per_second"] * fastest, 3 * 6)
        self.assertEqual((found["peak_factors"] in ("f32", "bf16"), found["loads_gflops"] > 0), (True, True))

    def test_memory(self):
        found = self.bench("--q-len", "1", "--k-len", "64", "--head-dim", "16")
        self.assertGreater(found["read_gbytes_per_second"], 0)
        self.assertAlmostEqual(found["read_fraction"], found["gbytes_per_second"] / found["read_gbytes_per_second"])
        self.assertIn(" at which k and v are read", self.attn("bench", "--q-len", "64", *QUICK).stdout)

    def test_only_what_is_seen_counts(self):
        size = ("--heads", "2", "--head-dim", "4")
        for options, pairs, keys in (
                (("--q-len", "9", "--causal", "top-left"), 45, 9),
                (("--q-len", "1", "--k-len", "9", "--causal", "top-left"), 1, 1),
                (("--q-len", "1", "--k-len", "300", "--causal", "bottom-right", "--window", "100,0"), 101, 101),
                (("--q-len", "7", "--cu-seqlens", "0,3,7"), 9 + 16, 7),
                (("--q-len", "2", "--k-len", "9", "--cu-seqlens", "0,1,2", "--cu-seqlens-k", "0,4,8"), 8, 8),
                (("--q-len", "9", "--kv-type", "int8"), 81, 9), (("--q-len", "9", "--dtype", "f16"), 81, 9)):
            found = self.bench(*size, *options)
            self.assertEqual(found["pairs"], 2 * pairs, options)
            row = {"int8": 2 * (4 + 4), "f16": 2 * 2 * 4}.get(options[-1], 2 * 4 * 4)
            self.assertAlmostEqual(found["gbytes_per_second"] * found["time_fastest"] * 1e9, 2 * keys * row, delta=0.5)

    def test_types_and_forms(self):
        for options, says in ((("--dtype", "bf16"), "q=bf16 k=bf16 v=bf16 out=bf16"), (("--kv-type", "int4"), "k=i4 v=i4"),
                              (("--kv-type", "fp8", "--dtype", "f16"), "q=f16 k=f8_e4m3"), (("--rope", "half"), "with rope"),
                              (("--isa", "scalar"), ": scalar kernel"), (("--softcap", "5", "--alibi"), "alibi_slopes")):
            self.assertIn(says, self.bench("--q-len", "5", *options)["plan"], options)
        self.write(b_npy=normal((8, 9), 1))
        self.assertIn("relative_bias", self.bench("--q-len", "5", "--relative-bias", "b.npy")["plan"])

    def test_refusals(self):
        def fails(says, *options, code=2):
            self.fails(code, says, "bench", *options)
        fails("option --q-len N is missing")
        fails("unexpected argument 'x'", "x")
        for option in ("--query", "--mask", "--layout", "--kv-len"):
            fails(f"unknown option '{option}'", "--q-len", "5", option, "q.npy")
        for option in ("batch", "heads", "kv-heads", "q-len", "k-len", "head-dim", "value-dim", "repetitions"):
            for value in ("0", "-1", "x", "99999999999999999999"):
                fails(f"--{option} is '{value}'; expected a whole number from 1 to", *(("--q-len", "5") if option != "q-len"
                                                                                      else ()), f"--{option}={value}")
        fails("--kv-heads is '3'; expected a divisor of --heads, 8", "--q-len", "5", "--kv-heads", "3")
        fails("--dtype is 'i8'; expected f32, bf16 or f16", "--q-len", "5", "--dtype", "i8")
        fails("--kv-type is 'i8'; expected as-given, int8, fp8 or int4", "--q-len", "5", "--kv-type", "i8")
        for value in ("0", "61", "nan"):
            fails(f"--min-time is '{value}'; expected a number from", "--q-len", "5", "--min-time", value)
        fails("the queries", "--q-len", "1000000000000", "--batch", "1000000", "--heads", "1000000", code=1)
        fails("--head-scale has 1 values; expected 8", "--q-len", "5", "--head-scale", "1")


if __name__ == "__main__":
    unittest.main()
