# SPDX-License-Identifier: Apache-2.0
"""attn info: what it says, and its warning about a second OpenMP runtime."""

import json
import os
import unittest

from support import OPENMP, SANITIZED, VERSION, CommandTest


class Info(CommandTest):
    def fields(self, **environment):
        result = self.attn("info", env={**os.environ, **environment})
        fields = {}
        for line in result.stdout.splitlines():
            fields.setdefault(line[:22].strip(), []).append(line[22:].strip())
        return fields, result.stderr

    def test_fields(self):
        fields, warnings = self.fields()
        self.assertEqual(warnings, "")
        self.assertEqual(fields["libattn"], [VERSION])
        self.assertEqual(fields["built against"], [VERSION])
        sets = fields["instruction sets"][0].split()
        self.assertIn("scalar", sets)
        self.assertIn(fields["chosen"][0].split()[0], sets)
        dot = [name for name in sets if name.endswith("_bf16")]
        self.assertRegex(fields["bf16 dot products"][0], rf"^found \(({'|'.join(dot)})\)" if dot else "^not found: ")
        for dtype in ("f32", "bf16", "f16"):
            self.assertRegex(fields[f"{dtype} kernels"][0], rf"^({'|'.join(sets)}) kernel, exact scores, \w+ weights$")
        for row in ("int8 scores", "int8 scores, bf16"):
            self.assertRegex(fields[row][0],
                             r"^(\w+ kernel, int8 scores \(\w+\), \w+ weights|none: --qk is int8, and .+)$")
        self.assertNotEqual(fields["processor"], [""])
        self.assertGreaterEqual(int(fields["threads"][0]), 1)
        for level in (1, 2, 3):
            self.assertRegex(fields[f"L{level} data cache"][0], r"^(\d+ KiB|unknown)$")
        self.assertRegex(fields["processors usable"][0], r"^[1-9]\d* of [1-9]\d*$")
        self.assertRegex(fields["SLEEF"][0], r"^3\.\d+\.\d+ ")
        self.assertEqual(len(fields["OpenMP runtime"]), 1)
        self.assertRegex(fields["OpenMP runtime"][0], r"/lib(gomp|omp|iomp5)[^/]*$" if OPENMP else r"^none")

    def test_the_environment_shows(self):
        fields, _ = self.fields(ATTN_MAX_CPU_ISA="scalar", ATTN_NUM_THREADS="1")
        self.assertEqual(fields["chosen"], ["scalar (ATTN_MAX_CPU_ISA=scalar)"])
        self.assertRegex(fields["bf16 dot products"][0], r"^(found \(\w+\), but not used|not found): bf16 is widened$")
        self.assertEqual(fields["threads"], ["1"])
        self.assertEqual(fields["environment"], ["ATTN_MAX_CPU_ISA=scalar"])
        self.assertIn("ATTN_NUM_THREADS=1", fields[""])
        self.assertRegex(fields["f32 kernels"][0], r"^scalar kernel, exact scores, \w+ weights$")
        self.assertRegex(fields["int8 scores"][0], "^none: --qk is int8, and (the instruction set in use|this processor)")

    def test_json(self):
        """One document that says what the lines say."""
        settings = {"ATTN_MAX_CPU_ISA": "avx2", "OMP_DYNAMIC": "false"}
        fields, _ = self.fields(**settings)
        result = self.attn("info", "--json", env={**os.environ, **settings})
        self.assertEqual(result.stderr, "")
        said = json.loads(result.stdout)
        self.assertEqual((said["libattn"], said["built_against"], said["warnings"]), (VERSION, VERSION, []))
        self.assertEqual(said["processor"] or "unknown", fields["processor"][0])
        self.assertEqual(said["instruction_sets"], fields["instruction sets"][0].split())
        self.assertEqual(said["chosen"], fields["chosen"][0].split()[0])
        self.assertEqual(said["bf16_dot_products"]["found"] is None,
                         fields["bf16 dot products"][0].startswith("not found"))
        for key, row in (("f32", "f32 kernels"), ("bf16", "bf16 kernels"), ("f16", "f16 kernels"),
                         ("int8_scores", "int8 scores"), ("int8_scores_bf16", "int8 scores, bf16")):
            kernel = said["kernels"][key]
            self.assertEqual(kernel["plan"] or f"none: {kernel['refused']}", fields[row][0])
            self.assertEqual((kernel["plan"] is None) + (kernel["refused"] is None), 1)
        for level, size in enumerate(said["data_caches"], 1):
            self.assertEqual("unknown" if size is None else f"{size // 1024} KiB", fields[f"L{level} data cache"][0])
        self.assertEqual("{usable} of {online}".format(**said["processors"]), fields["processors usable"][0])
        self.assertEqual(str(said["threads"]), fields["threads"][0])
        self.assertEqual({**said["environment"], **settings}, said["environment"])
        self.assertEqual(len(said["openmp_runtimes"]), 1 if OPENMP else 0)
        self.assertTrue(fields["SLEEF"][0].startswith(said["sleef"]["headers"]))

    def test_an_environment_without_settings(self):
        bare = {name: value for name, value in os.environ.items() if not name.startswith(("ATTN_", "OMP_", "GOMP_", "KMP_"))}
        self.assertIn("environment            nothing set\n", self.attn("info", env=bare).stdout)

    @unittest.skipUnless(OPENMP, "there is none to be loaded beside")
    @unittest.skipIf(SANITIZED, "a sanitizer wants to be loaded first")
    def test_two_openmp_runtimes(self):
        second = os.environ["ATTN_SECOND_OPENMP"]
        fields, warnings = self.fields(LD_PRELOAD=second)
        self.assertIn(second, fields["OpenMP runtime"] + fields.get("", []))
        self.assertRegex(warnings, r"\Aattn: warning: 2 OpenMP runtimes are loaded[^\n]+\n\Z")


if __name__ == "__main__":
    unittest.main()
