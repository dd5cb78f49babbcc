#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command lines of attn-scaling and simulate-threads, and what attn-scaling writes: test_scaling.py PROGRAM SIMULATOR."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

scaling, simulator = sys.argv[1:3]


def run(program, *arguments, **settings):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=300,
                          env={**os.environ, **settings})


class Usage(unittest.TestCase):
    def test_refusals(self):
        for program, arguments, sentence in [
            (scaling, ["-r", "0"], "attn-scaling: --repetitions is '0'; expected a number from 1 to 1000"),
            (scaling, ["-r", "1x"], "attn-scaling: --repetitions is '1x'; expected a number from 1 to 1000"),
            (scaling, ["more"], "attn-scaling: an argument is 'more'; expected none"),
            (scaling, ["--check"], "attn-scaling: --check is given; expected --oversubscribed with it"),
            (simulator, ["--isa", "mmx"], "simulate-threads: --isa is 'mmx'; expected the name of an instruction set of this build"),
            (simulator, ["--measure", "0"], "simulate-threads: --measure is '0'; expected a number from 1 to 100"),
            (simulator, ["more"], "simulate-threads: an argument is 'more'; expected none"),
        ]:
            result = run(program, *arguments)
            self.assertEqual((result.returncode, result.stderr.strip(), result.stdout), (2, sentence, ""))

    def test_help(self):
        for program in scaling, simulator:
            result = run(program, "--help")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertTrue(result.stdout.startswith("Usage: "))
            self.assertEqual(run(program, "--such").returncode, 2)

    def test_file(self):
        result = run(scaling, "--filter", "nothing", "-o", "/nowhere/file")
        self.assertEqual(result.returncode, 1)
        self.assertIn("--out is '/nowhere/file'; expected a file that can be written", result.stderr)


class Page(unittest.TestCase):
    def test_tables(self):
        """docs/scaling.md shows what the simulator prints."""
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/scaling.md")
        with open(path, encoding="utf-8") as file:
            page = file.read()
        for isa in "avx512", "amx_bf16":
            result = run(simulator, "--isa", isa)
            if "expected the name of an instruction set" in result.stderr:
                self.skipTest(f"this build has no {isa}")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(result.stdout, page)


class Document(unittest.TestCase):
    def test_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            result = run(scaling, "--filter", "encoder-128", "-r", "1", "-o", path)
            self.assertEqual((result.returncode, result.stdout), (0, ""))
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
        rows = document["runs"]
        processors = len(os.sched_getaffinity(0))
        self.assertEqual(document["topology"]["processors"], processors)
        for price in "increment_alone_ns", "increment_ns", "region_ns", "first_write_ns":
            self.assertGreater(document["prices"][price], 0)
        self.assertEqual(rows[0]["threads"], 1)
        self.assertEqual(rows[-1]["threads"], processors)
        self.assertEqual(rows[0]["speed_up"], 1.0)
        for row in rows:
            self.assertEqual(row["shape"], "encoder-128")
            self.assertGreater(row["seconds"], 0)
            self.assertTrue(0 < row["evenness"] <= 1.001)

    def test_bound_threads(self):  # as docs/scaling.md asks for: the first thread has one processor then
        result = run(scaling, "--filter", "encoder-128", "-r", "1", OMP_PROC_BIND="true")
        self.assertEqual(result.returncode, 0)
        document = json.loads(result.stdout)
        self.assertEqual(document["topology"]["processors"], len(os.sched_getaffinity(0)))
        self.assertEqual(document["runs"][-1]["threads"], len(os.sched_getaffinity(0)))

    def test_oversubscribed(self):
        result = run(scaling, "--filter", "heads-2048-causal", "-r", "1", "--oversubscribed")
        self.assertEqual(result.returncode, 0)
        (row,) = json.loads(result.stdout)["oversubscribed"]
        self.assertEqual(row["threads"], len(os.sched_getaffinity(0)))
        self.assertEqual(row["oversubscribed_threads"], 8 * row["threads"])
        self.assertAlmostEqual(row["ratio"], row["oversubscribed_seconds"] / row["seconds"], places=3)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
