# SPDX-License-Identifier: Apache-2.0
"""Tests tools/files: that docs/files.md is what it makes, and on files made up here."""

import contextlib
import importlib.machinery
import importlib.util
import io
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOADER = importlib.machinery.SourceFileLoader("files", str(HERE / "files"))
files = importlib.util.module_from_spec(importlib.util.spec_from_loader("files", LOADER))
LOADER.exec_module(files)

C = "/* SPDX-License-Identifier: Apache-2.0 */\n"
SCRIPT = "#!/usr/bin/env bash\n# SPDX-License-Identifier: Apache-2.0\n"


def run(*argv, root=HERE.parent):
    """Exit code and what is said."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        code = files.main(list(argv), root)
    return code, errors.getvalue()


class List(unittest.TestCase):
    def test_it_is_up_to_date(self):
        self.assertEqual(run("--check"), (0, ""))


class MadeUp(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "docs").mkdir()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def line(self, name, text):
        """What the list says of a file."""
        self.write(name, text)
        self.assertEqual(run(root=self.root), (0, ""))
        rows = (self.root / "docs/files.md").read_text(encoding="utf-8").splitlines()
        start = f"| [{Path(name).name}](../{name}) | "
        found = [row for row in rows if row.startswith(start)]
        self.assertEqual(len(found), 1, rows)
        return found[0][len(start):].removesuffix(" |")

    def test_comments_of_c(self):
        for comment, line in (
            ("/* One line. And more. */\n", "One line"),
            ("/*\n * Two\n * lines (Dao et al. 2022) of 1.5. More.\n */\n", "Two lines (Dao et al. 2022) of 1.5"),
            ("/*\n * A product:\n *\n *     y = x.\n */\n", "A product"),
            ("/*\n * A product\n *     y = x. */\n", "A product"),
            ("/*\n * Without a stop\n *\n * A second paragraph.\n */\n", "Without a stop"),
            ("/**\n * @file\n * @brief A header.\n * More.\n */\n", "A header"),
            ("/**\n * @file x.h\n * @brief A header.\n */\n", "A header"),
            ("/* a | b, <c> and *d. */\n", r"a \| b, \<c> and \*d"),
            (f"/* {'Title ' * 7}: {'x' * 160}. */\n", " ".join(["Title"] * 7)),
            (f"/* Title: {'x' * 99}; {'y' * 99}. */\n", f"Title: {'x' * 99}"),
            ("/* Title: a list. */\n", "Title: a list"),
        ):
            with self.subTest(comment):
                self.assertEqual(self.line("src/api/x.h", C + comment + "#ifndef X\n#endif\n"), line)

    def test_comments_of_scripts(self):
        self.assertEqual(self.line("tools/run", SCRIPT + "#\n# Runs it.\n# Not this.\nset -e\n# Nor this.\n"), "Runs it")
        self.assertEqual(self.line("tests/x.sh", SCRIPT + "# Tests\n# it.\n\n# Not this.\n"), "Tests it")
        self.assertEqual(self.line("bench/x.py", f'{SCRIPT}"""\nMeasures\nit.\n\nMore.\n"""\n'), "Measures it")
        self.assertEqual(self.line("tools/make", f'#!/usr/bin/env python3\n"""Makes it."""\n'), "Makes it")

    def test_what_is_listed(self):
        for name in ("src/a.c", "src/b/c.h", "src/rows.h.in", "include/attn/a.h", "examples/a.c"):
            self.write(name, C + f"/* This is {name}. */\n")
        for name in ("src/meson.build", "src/exports.txt", "tests/data/x.npy", "other/a.c", "bench/.cache/a.c"):
            self.write(name, "nothing to read\n")
        self.assertEqual(run(root=self.root), (0, ""))
        rows = (self.root / "docs/files.md").read_text(encoding="utf-8")
        self.assertEqual(
            rows.removeprefix(files.HEAD),
            "\n## include/attn\n\n| file | |\n|---|---|\n| [a.h](../include/attn/a.h) | This is include/attn/a.h |\n"
            "\n## src\n\n| file | |\n|---|---|\n| [a.c](../src/a.c) | This is src/a.c |\n"
            "| [rows.h.in](../src/rows.h.in) | This is src/rows.h.in |\n"
            "\n## src/b\n\n| file | |\n|---|---|\n| [c.h](../src/b/c.h) | This is src/b/c.h |\n"
            "\n## examples\n\n| file | |\n|---|---|\n| [a.c](../examples/a.c) | This is examples/a.c |\n",
        )

    def test_check(self):
        self.assertEqual(self.line("src/a.c", C + "/* One. */\n"), "One")
        self.assertEqual(run("--check", root=self.root), (0, ""))
        before = (self.root / "docs/files.md").read_text(encoding="utf-8")
        self.write("src/a.c", C + "/* Two. */\n")
        code, said = run("--check", root=self.root)
        self.assertEqual(code, 1)
        self.assertIn("-| [a.c](../src/a.c) | One |\n+| [a.c](../src/a.c) | Two |", said)
        self.assertIn("run tools/files", said)
        self.assertEqual((self.root / "docs/files.md").read_text(encoding="utf-8"), before)

    def test_files_that_do_not_say(self):
        for name, text in (
            ("src/a.c", C),
            ("src/a.c", C + "int x; /* too late */\n"),
            ("src/a.c", C + "#include <math.h>\n/* too late */\n"),
            ("src/a.c", C + "/* */\n"),
            ("tools/a", SCRIPT + "\n# too late\n"),
            ("tools/a.py", "# SPDX-License-Identifier: Apache-2.0\nx = 1\n"),
        ):
            with self.subTest(text):
                self.write(name, text)
                code, said = run(root=self.root)
                self.assertEqual(code, 1)
                self.assertEqual(said, f"files: {name} has no comment behind its SPDX line that says what it is for\n")
                self.assertFalse((self.root / "docs/files.md").exists())
                (self.root / name).unlink()
        self.write("tools/a.py", "def\n")
        self.assertIn("tools/a.py is no Python", run(root=self.root)[1])

    def test_usage(self):
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as ended:
            files.main(["--write"], self.root)
        self.assertEqual(ended.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
