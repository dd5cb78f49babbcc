# SPDX-License-Identifier: Apache-2.0
"""The lists of mutations: the .txt files of this folder, and what is wrong with them.

    tests: check_kernels avx2, check_forward avx2      the tests for what follows, by their names in Meson

    src/kernels/join.h: what is broken, in a few words
    - the text that is in the file, once
    + what takes its place
    = why no test can notice it; only where that is so

Lines that begin with '- ' and '+ ' are one text each, line by line; '+' alone is an empty line. Blank lines part mutations; lines
that begin with '#' are comments.
"""
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent


class Wrong(Exception):
    """A list is wrong; the text says where and how."""


class Mutation:
    """One change of one file, the tests that are to notice it, and the proof if none can."""

    def __init__(self, source, line, file, what, tests):
        self.list, self.line, self.file, self.what, self.tests = source, line, file, what, tests
        self.old, self.new, self.proof, self.number, self.at = [], [], "", 0, 0

    def place(self):
        return f"{self.file}:{self.at}"

    def fail(self, text):
        raise Wrong(f"{self.list}:{self.line}: {text}")

    def finish(self, root, number):
        """Looks whether the file has the text once."""
        self.number = number
        self.old, self.new = "\n".join(self.old), "\n".join(self.new)
        path = root / self.file
        if not path.is_file():
            self.fail(f"there is no file {self.file}")
        text = path.read_text(encoding="utf-8")
        if not self.old or self.old == self.new:
            self.fail("nothing is changed")
        if text.count(self.old) != 1:
            self.fail(f"{self.file} has this text {text.count(self.old)} times, expected 1: {self.old}")
        if not self.tests:
            self.fail("no tests are named")
        self.at = text[:text.index(self.old)].count("\n") + 1
        return self


def read(path):
    """The mutations of one list, not looked at yet."""
    tests, mutation, found = [], None, []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("tests:"):
            tests = [name.strip() for name in line[6:].split(",") if name.strip()]
        elif line.startswith("src/") and ": " in line:
            file, what = line.split(": ", 1)
            mutation = Mutation(path.name, number, file, what, tests)
            found.append(mutation)
        elif line[:2] in ("- ", "+ ", "-", "+") and mutation:
            (mutation.old if line[0] == "-" else mutation.new).append(line[2:])
        elif line.startswith("= ") and mutation:
            mutation.proof = line[2:]
        elif not line:
            mutation = None
        elif not line.startswith("#"):
            raise Wrong(f"{path.name}:{number}: '{line}' is none of the lines that a list has")
    return found


def read_all(root):
    """All mutations, of which each text is in its file once."""
    mutations = [mutation for path in sorted(FOLDER.glob("*.txt")) for mutation in read(path)]
    seen = set()
    for number, mutation in enumerate(mutations):
        mutation.finish(root, number)
        key = (mutation.file, mutation.at, mutation.old, mutation.new)
        if key in seen:
            mutation.fail("the same mutation has come before")
        seen.add(key)
    return mutations
