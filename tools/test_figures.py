# SPDX-License-Identifier: Apache-2.0
"""Tests tools/figures: that the documents agree with the stored figures, and on documents and runs made up here."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOADER = importlib.machinery.SourceFileLoader("figures", str(HERE / "figures"))
figures = importlib.util.module_from_spec(importlib.util.spec_from_loader("figures", LOADER))
LOADER.exec_module(figures)

TABLES = {
    "speed": {
        "kind": "grid",
        "value": "fraction",
        "digits": 3,
        "corner": "case",
        "columns": [
            {"title": "wide", "run": "wide"},
            {"title": "times", "run": "wide", "relative": True, "digits": 2},
            {"title": "narrow", "run": "narrow"},
        ],
        "rows": [{"title": "one", "case": "a", "reference": "a"}, {"title": "two", "case": "b", "reference": "a"}],
    },
    "sweep": {
        "kind": "grid",
        "run": "wide",
        "value": "speedup_over_naive",
        "digits": 1,
        "columns": [{"fills": [4, 16]}],
        "rows": [{"title": "1 head", "case": "h1-t{}"}],
    },
    "others": {"kind": "peers", "run": "beside", "dtype": "f32", "of": "dense"},
    "all-others": {
        "kind": "all-peers",
        "run": "beside",
        "columns": [{"title": "libattn", "peer": "attn"}, {"title": "Torch", "peer": "torch"}],
        "rows": [{"title": "first", "case": "f32/B1/H8/Tq64/Tk64/d64/causal:none"}],
    },
    "margins": {"kind": "margins", "run": "beside"},
}

HEAD = {"machine": "M", "cpu": "C", "date": "2026-01-02", "threads": 2, "command": "`run`"}
RUNS = {
    "wide": {
        **HEAD,
        "rows": {
            "a": {"fraction": 0.8},
            "b": {"fraction": 0.5},
            "h1-t4": {"speedup_over_naive": 1.25},
            "h1-t16": {"speedup_over_naive": 2.0},
        },
    },
    "narrow": {**HEAD, "command": "`other`", "rows": {"a": {"fraction": 0.7}, "b": {"fraction": 0.6004}}},
    "beside": {
        **HEAD,
        "results": [
            {
                "case": "f32/B1/H8/Tq64/Tk64/d64/causal:none",
                "dtype": "f32",
                "kind": "dense",
                "values": {"attn": 100.0, "torch": 80.0},
                "best_peer": "torch",
                "ratios": {"attn": 1.25},
            },
            {
                "case": "f32/B1/H8/Tq16/Tk64/d64/causal:none/kv_heads:2",
                "dtype": "f32",
                "kind": "dense",
                "values": {"attn": 101.0, "ggml": 100.0},
                "best_peer": "ggml",
                "ratios": {"attn": 1.01},
            },
        ],
    },
}

README = "# Title\n\n<!-- figures speed -->\n<!-- end of figures -->\n\n| free | table |\n|---|---|\n"
PERFORMANCE = (
    "".join(f"<!-- figures {name} -->\n<!-- end of figures -->\n" for name in ("sweep", "others", "all-others", "margins"))
    + "\n<!-- by hand: it was counted -->\n\n| n |\n|---|\n| 1 |\n"
)

BENCH_RUN = {
    "context": {
        "cpu": "AMD EPYC",
        "date": "2026-03-04T05:06:07+0000",
        "threads": 2,
        "command": "ATTN_MAX_CPU_ISA=avx2 attn-bench --check -f 'H8|B8' --format json --out /somewhere/run.json",
    },
    "benchmarks": [
        {"name": "forward/a", "case": "a", "fraction": 0.912345678, "gflops": 5.0},
        {"name": "forward/b", "case": "b", "fraction": 0.25},
        {"name": "forward/h1-t4", "case": "h1-t4", "speedup_over_naive": 1.5},
        {"name": "forward/h1-t16", "case": "h1-t16", "speedup_over_naive": 1.5},
        {"name": "naive/a", "case": "a", "thread_use": "heads", "fraction": 0.1},
        {"name": "peak/f32/avx2", "gflops": 100.0},
    ],
}


class Documents(unittest.TestCase):
    def test_the_documents_show_the_stored_figures(self):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            self.assertEqual(figures.main(["--check"]), 0, errors.getvalue())
        self.assertEqual(errors.getvalue(), "")


class MadeUp(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "docs" / "figures").mkdir(parents=True)
        self.write("README.md", README)
        self.write("docs/performance.md", PERFORMANCE)
        self.store("tables", TABLES)
        for name, run in RUNS.items():
            self.store(name, run)

    def write(self, name, text):
        (self.root / name).write_text(text, encoding="utf-8")

    def read(self, name):
        return (self.root / name).read_text(encoding="utf-8")

    def store(self, name, content):
        self.write(f"docs/figures/{name}.json", json.dumps(content))

    def figures(self, *argv):
        """Exit code and what is said."""
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            code = figures.main(list(argv), self.root)
        return code, errors.getvalue()

    def refused(self, sentence, *argv):
        before = self.read("README.md")
        code, said = self.figures(*argv)
        self.assertEqual(code, 1)
        self.assertIn(sentence, said)
        self.assertEqual(self.read("README.md"), before)

    def test_tables(self):
        self.assertEqual(self.figures(), (0, ""))
        self.assertEqual(
            self.read("README.md"),
            "# Title\n\n<!-- figures speed -->\n\n"
            "| case | wide | times | narrow |\n|---|---:|---:|---:|\n"
            "| one | 0.800 | 1.00 | 0.700 |\n| two | 0.500 | 1.60 | 0.600 |\n\n"
            "- wide; times: M, 2026-01-02: `run`\n- narrow: M, 2026-01-02: `other`\n\n"
            "<!-- end of figures -->\n\n| free | table |\n|---|---|\n",
        )
        text = self.read("docs/performance.md")
        self.assertIn("| | 4 | 16 |\n|---|---:|---:|\n| 1 head | 1.2 | 2.0 |\n\nM, 2026-01-02: `run`\n", text)
        self.assertIn(
            "| case | libattn | best peer | | ratio |\n|---|---:|---|---:|---:|\n"
            "| B1 H8 T64 d64 | 100 | torch | 80 | 1.25 |\n"
            "| B1 H8 Tq16 Tk64 d64 kv_heads:2 | 101 | ggml | 100 | 1.01 |\n",
            text,
        )
        self.assertIn("| | libattn | Torch |\n|---|---:|---:|\n| first | 100 | 80 |\n", text)
        self.assertIn("| f32 dense | 1.03 | 1.01 | 1 of 2 |", text)

    def test_check(self):
        code, said = self.figures("--check")
        self.assertEqual(code, 1)
        self.assertIn("+| one | 0.800 | 1.00 | 0.700 |", said)
        self.assertEqual(self.read("README.md"), README)
        self.figures()
        self.assertEqual(self.figures("--check"), (0, ""))
        self.write("README.md", self.read("README.md").replace("0.800", "0.900"))
        code, said = self.figures("--check")
        self.assertEqual(code, 1)
        self.assertIn("-| one | 0.900 |", said)

    def test_text_around_tables_stays(self):
        self.figures()
        once = self.read("docs/performance.md")
        self.figures()
        self.assertEqual(self.read("docs/performance.md"), once)
        self.assertTrue(once.endswith("| n |\n|---|\n| 1 |\n"))

    def test_a_table_without_mark(self):
        self.write("docs/performance.md", PERFORMANCE + "\ntext\n\n| n |\n|---|\n| 1 |\n")
        code, said = self.figures()
        self.assertEqual(code, 1)
        self.assertIn("neither made by tools/figures nor marked", said)

    def test_wrong_documents(self):
        for text, sentence in (
            ("<!-- figures speed -->\n", "the table speed has no line"),
            ("<!-- figures speed -->\n<!-- figures speed -->\n<!-- end of figures -->\n", "has no line"),
            ("<!-- end of figures -->\n", "ends no table"),
            ("<!-- figures nothing -->\n<!-- end of figures -->\n", "tables.json has no 'nothing'"),
            ("nothing\n", "the table speed is in no document"),
        ):
            self.write("README.md", text)
            self.refused(sentence)

    def test_wrong_figures(self):
        for name, content, sentence in (
            ("wide", {**HEAD, "rows": {}}, "has no 'a'"),
            ("wide", {**HEAD, "rows": {"a": {}}}, "'a' of wide has no 'fraction'"),
            ("wide", {"rows": RUNS["wide"]["rows"]}, "wide.json has no 'machine'"),
            ("beside", {**HEAD, "results": []}, "has no case of f32, dense"),
            ("tables", {**TABLES, "speed": {"kind": "pie"}}, "is of kind 'pie'"),
        ):
            with self.subTest(sentence):
                kept = self.read(f"docs/figures/{name}.json")
                self.store(name, content)
                self.refused(sentence)
                self.write(f"docs/figures/{name}.json", kept)
        self.write("docs/figures/narrow.json", "{")
        self.refused("is no JSON")

    def test_a_run_that_no_table_shows(self):
        self.figures()
        self.store("spare", RUNS["wide"])
        self.refused("spare.json: no table shows it", "--check")

    def add(self, run, name, *more):
        self.write("run.json", json.dumps(run))
        return self.figures("--add", name, str(self.root / "run.json"), "--machine", "Zen 9", *more)

    def test_add_of_attn_bench(self):
        self.assertEqual(self.add(BENCH_RUN, "wide"), (0, ""))
        stored = json.loads(self.read("docs/figures/wide.json"))
        self.assertEqual(
            stored["rows"],
            {
                "a": {"fraction": 0.91235},
                "b": {"fraction": 0.25},
                "h1-t4": {"speedup_over_naive": 1.5},
                "h1-t16": {"speedup_over_naive": 1.5},
            },
        )
        self.assertEqual(stored["date"], "2026-03-04")
        self.assertEqual(stored["command"], "`ATTN_MAX_CPU_ISA=avx2 attn-bench --check -f 'H8|B8'`")
        self.assertNotIn("somewhere", self.read("docs/figures/wide.json"))
        self.assertIn("| two | 0.250 | 3.65 | 0.600 |", self.read("README.md"))
        self.assertIn("- wide; times: Zen 9, 2026-03-04: `ATTN_MAX", self.read("README.md"))

    def test_add_of_peers(self):
        entry = {"status": "ok", "samples": [0.5, 0.25], "seconds": 0.25, "gflops": 123.456789}
        result = {
            "case": "f32/B1/H8/Tq64/Tk64/d64/causal:none",
            "suite": "attention",
            "dtype": "f32",
            "kind": "dense",
            "contenders": {
                "attn": entry,
                "torch": {**entry, "gflops": 61.7},
                "jax": {"status": "missing", "reason": "not there"},
                "ggml": {"status": "wrong", "reason": "differs", "samples": [0.1]},
            },
            "best_peer": "torch",
            "ratios": {"attn": 2.0009},
        }
        run = {"context": {**BENCH_RUN["context"], "command": "bench/peers/run --out=x -r 4"}, "results": [result]}
        self.assertEqual(self.add(run, "beside"), (0, ""))
        stored = json.loads(self.read("docs/figures/beside.json"))
        self.assertEqual(stored["results"][0]["values"], {"attn": 123.46, "torch": 61.7})
        self.assertEqual(stored["command"], "`bench/peers/run -r 4`")
        self.assertIn("| B1 H8 T64 d64 | 123 | torch | 62 | 2.00 |", self.read("docs/performance.md"))

    def test_add_refuses(self):
        for run, name, sentence in (
            (BENCH_RUN, "unheard", "no table of docs/figures/tables.json shows the run 'unheard'"),
            ({**BENCH_RUN, "benchmarks": BENCH_RUN["benchmarks"][:1]}, "wide", "lacks what the tables show of 'wide'"),
            ({"context": BENCH_RUN["context"]}, "wide", "neither of attn-bench nor of bench/peers"),
            ({"benchmarks": []}, "wide", "has no 'context'"),
            (BENCH_RUN, "../wide", "NAME is '../wide'"),
            (BENCH_RUN, "tables", "NAME is 'tables'"),
        ):
            with self.subTest(sentence):
                before = self.read("docs/figures/wide.json")
                code, said = self.add(run, name)
                self.assertEqual(code, 1)
                self.assertIn(sentence, said)
                self.assertEqual(self.read("docs/figures/wide.json"), before)
        self.assertIn("cannot be read", self.figures("--add", "wide", "/nowhere.json", "--machine", "M")[1])

    def test_usage(self):
        for argv in (["--add", "wide", "run.json"], ["--machine", "M"], ["--check", "--add", "a", "b", "--machine", "M"]):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as ended:
                figures.main(argv, self.root)
            self.assertEqual(ended.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
