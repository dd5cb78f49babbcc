# SPDX-License-Identifier: Apache-2.0
"""Tests what tools/coverage makes of gcovr's counts: what is missed, what is left out with a reason, and lists that are wrong."""

import importlib.machinery
import importlib.util
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOADER = importlib.machinery.SourceFileLoader("coverage", str(HERE / "coverage"))
coverage = importlib.util.module_from_spec(importlib.util.spec_from_loader("coverage", LOADER))
LOADER.exec_module(coverage)

SOURCE = """int f(int x)
{
    if (x)
        return 1;
    return 2;
}
"""


def line(number, times, *branches):
    return {"line_number": number, "count": times, "branches": [{"count": b} for b in branches]}


COUNTED = [{"file": "src/a/one.c", "lines": [line(1, 5), line(3, 5, 0, 5), line(4, 0), line(5, 5)]},
           {"file": "src/b/two.c", "lines": [line(1, 1), {**line(2, 0), "gcovr/noncode": True}]}]


class Lists(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name in ("src/a/one.c", "src/b/two.c", "tools/coverage.txt"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(SOURCE, encoding="utf-8")

    def entries(self, text):
        (self.root / "tools/coverage.txt").write_text(text, encoding="utf-8")
        return coverage.read_list(self.root)

    def refusal(self, text):
        with self.assertRaises(coverage.Problem) as caught:
            self.entries(text)
        return str(caught.exception)

    def test_what_is_missed(self):
        by_file, missed, needed = coverage.count(COUNTED, self.entries("# nothing\n"))
        self.assertEqual(missed, [("src/a/one.c", 3, "1 of 2 branches"), ("src/a/one.c", 4, "the line")])
        self.assertFalse(needed)
        rows, total = coverage.summary(by_file)
        self.assertEqual((total.lines, total.lines_run, total.branches, total.branches_run, total.left_out), (5, 4, 2, 1, 0))
        self.assertEqual([row.split() for row in rows[1:]],
                         [["src/a", "4", "75.0", "%", "2", "50.0", "%", "0"],
                          ["src/b", "1", "100.0", "%", "0", "100.0", "%", "0"],
                          ["all", "5", "80.0", "%", "2", "50.0", "%", "0"]])

    def test_what_is_left_out(self):
        entries = self.entries("src/a/one.c: x is never 1\n- if (x)\n- return 1;\n\nsrc/b/two.c: all of it\n")
        self.assertEqual([(e.first, e.last) for e in entries], [(3, 4), (1, 6)])
        by_file, missed, needed = coverage.count(COUNTED, entries)
        self.assertEqual((missed, needed), ([], {entries[0]}))
        _, total = coverage.summary(by_file)
        self.assertEqual((total.lines, total.lines_run, total.branches, total.branches_run, total.left_out), (4, 4, 1, 1, 2))

    def test_what_needs_a_set(self):
        entries = self.entries("src/a/one.c without wide: only wide kernels\n- if (x)\n- return 1;\n")
        for absent, left_out in ((("wide",), 2), ((), 0), (("other",), 0)):
            by_file, missed, _ = coverage.count(COUNTED, entries, absent)
            self.assertEqual((coverage.summary(by_file)[1].left_out, len(missed)), (left_out, 0 if left_out else 2))

    def test_a_function(self):
        entry, = self.entries("src/a/one.c f() without wide: nobody calls it\n")
        self.assertEqual((entry.file, entry.without, entry.first, entry.last), ("src/a/one.c", "wide", 1, 6))

    def test_wrong_lists(self):
        for text, sentence in (
            ("src/a/one.c: reason\n- if (y)\n", "src/a/one.c has these lines 0 times, expected 1: if (y)"),
            ("src/a/one.c: reason\n- return 1;\n- if (x)\n", "src/a/one.c has these lines 0 times"),
            ("src/a/none.c: reason\n", "there is no file src/a/none.c"),
            ("src/a/one.c: \n", "src/a/one.c has no reason"),
            ("src/a/one.c g(): reason\n", "src/a/one.c has 0 functions g(), expected 1"),
            ("- if (x)\n", "'- if (x)' is none of the lines that the list has"),
        ):
            self.assertIn("tools/coverage.txt:1: " + sentence, self.refusal(text))
        (self.root / "src/a/one.c").write_text(SOURCE + SOURCE, encoding="utf-8")
        self.assertIn("these lines 2 times", self.refusal("src/a/one.c: reason\n- if (x)\n"))

    def test_the_list_fits_the_sources(self):
        self.assertTrue(all(entry.reason for entry in coverage.read_list(HERE.parent)))


if __name__ == "__main__":
    unittest.main()
