# SPDX-License-Identifier: Apache-2.0
"""Whether a test provokes every sentence with which the libraries refuse a call or a file.

A sentence is what the sources hand to attn_fail() or io_fail(), or the part of one that a function of PARTS completes; places that
say the same count once. It counts as provoked where a string of a test must be a part of it: the string, whose pieces between
'|' are looked for one by one, fits the sentence, has more of its fixed text than of any other's, and a good part of all that
is fixed; or where it is a whole sentence. So a test that looks for two common words proves nothing, and has to expect more of
the sentence.

Usage: check_refusals.py [--list] SOURCE_FOLDER      --list prints every sentence with the test that was found
"""

import ast
import re
import sys
from collections import defaultdict
from functools import lru_cache
from pathlib import Path

SOURCES = ("src/**/*.c", "src/**/*.h")
TESTS = ("tests/**/*.c", "tests/**/*.h", "tests/command/*.py", "python/tests/*.py")

# Functions that take a format, and the number of this argument.
FORMATS = {"attn_fail": 1, "io_fail": 1, "io_fail_at": 1}

# Functions that take a part of a sentence: the number of this argument, and the sentence around it.
PARTS = {
    "attn_fail_axis": (4, "%s.shape[%d] is %d; expected %d, {}"),
    "attn_check_axis": (4, "%s.shape[%d] is %d; expected %d, {}"),
    "nn_model_refuse": (2, "%s: '%s' is %s; expected {}"),
    "fail_value": (2, "%s: '%s' is %s; expected {}"),
    "entry_refuse": (2, "%s: %s is %s; expected {}"),
    "refuse": (1, "%s: %s is %s; expected an expression without {} (at its byte %d)"),
}

# Sentences without a test, and why there is none.
UNTESTED = {
    "%s: cannot look at the file: %s":
        "fstat() of an open file fails on a broken file system alone",
    "%s: cannot read the temporary file: %s":
        "reading what has just been written fails on a broken disk alone",
    "%s: cannot give its permissions to the new file: %s":
        "fchmod() by a file's owner fails on file systems without permissions alone, such as vfat",
    "%s: %s has %u pairs; expected at most %d":
        "2^31 pairs are a file of more than 8 GB, and take more than 16 GB of memory",
}

# How much of the fixed text a test has to expect: this part of it, or this many characters.
ENOUGH_PART, ENOUGH_TEXT = 0.5, 24

TOKEN = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|[A-Za-z_]\w*|\d[\w.]*|\S", re.DOTALL)
CONVERSION = re.compile(r"%[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j|t)?([diouxXeEfgGcsp%])")
NUMBER = re.compile(r"[-+.\w]*")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "\\": "\\", "0": "\0"}


def unescaped(text):
    return re.sub(r"\\(x[0-9a-fA-F]{2}|.)", lambda m: ESCAPES.get(m[1], "?"), text)


class Words:
    """The words of a C file, with adjacent strings joined, and the macros that are strings in their place."""

    def __init__(self, text):
        macros = {m[1]: m[2] for m in re.finditer(r'^#define (\w+)\s+"((?:\\.|[^"\\\n])*)"\s*$', text, re.MULTILINE)}
        self.words, self.lines = [], []
        line, at = 1, 0
        for match in TOKEN.finditer(text):
            line += text.count("\n", at, match.start())
            at = match.start()
            word = match[0]
            if word.startswith(("/*", "//")):
                continue
            if word.startswith('"'):
                word = '"' + unescaped(word[1:-1])
            elif re.fullmatch(r"PRI[diux]\d+", word):
                word = '"' + word[3]
            elif word in macros:
                word = '"' + unescaped(macros[word])
            if word.startswith('"') and self.words and self.words[-1].startswith('"'):
                self.words[-1] += word[1:]
            else:
                self.words.append(word)
                self.lines.append(line)

    def arguments(self, at):
        """The arguments of the call whose '(' is the word number at, each a list of words."""
        depth, found = 0, [[]]
        for word in self.words[at:]:
            depth += (word in "([{") - (word in ")]}")
            if depth == 0:
                return found
            if depth == 1 and word == ",":
                found.append([])
            elif not (depth == 1 and word == "(" and found == [[]]):
                found[-1].append(word)
        raise SystemExit("a call without an end")

    def before(self, at):
        """The whole sentences of the function that the word number at is in, as a table has them."""
        depth = self.words[:at].count("{") - self.words[:at].count("}")
        while depth > 0:
            at -= 1
            depth += (self.words[at] == "}") - (self.words[at] == "{")
            if self.words[at].startswith('"') and "; expected " in self.words[at]:
                yield self.words[at][1:]

    def strings(self):
        return ((line, word[1:]) for line, word in zip(self.lines, self.words) if word.startswith('"'))


class Sentence:
    def __init__(self, text):
        self.text = text
        self.places = []
        self.tests = []
        self.parts = []  # fixed texts, and the letters of conversions between them: None, "s", ...
        at = 0
        for match in CONVERSION.finditer(text):
            self._fixed(text[at:match.start()])
            if match[1] == "%":
                self._fixed("%")
            else:
                self.parts.append((None, match[1]))
            at = match.end()
        self._fixed(text[at:])
        self.size = sum(len(fixed) for fixed, _ in self.parts if fixed)
        self.enough = min(ENOUGH_TEXT, ENOUGH_PART * self.size)
        self.whole = re.compile("".join(re.escape(fixed) if fixed else ".+" if conversion == "s" else NUMBER.pattern
                                        for fixed, conversion in self.parts), re.DOTALL)
        self.fit = lru_cache(maxsize=None)(self._fit)

    def _fixed(self, text):
        if text and self.parts and self.parts[-1][0]:
            self.parts[-1] = (self.parts[-1][0] + text, None)
        elif text:
            self.parts.append((text, None))

    def _fit(self, piece):
        """How many characters of fixed text a piece of this sentence has, or -1 for what is no piece of it."""

        @lru_cache(maxsize=None)
        def rest(part, at):
            if at == len(piece):
                return 0
            if part == len(self.parts):
                return -1
            fixed, conversion = self.parts[part]
            if fixed:
                return begin(fixed, part, at)
            best = 0  # the piece ends in what the conversion writes
            for end in ends(part + 1, at):
                if conversion != "s" and not NUMBER.fullmatch(piece, at, end):
                    break
                best = max(best, rest(part + 1, end))
            return best if conversion == "s" or best or NUMBER.fullmatch(piece, at) else -1

        def ends(part, at):
            """Where what a conversion writes from at on may end, as the next part begins there."""
            fixed = self.parts[part][0] if part < len(self.parts) else None
            if not fixed:
                yield from range(at, len(piece))
                return
            end = piece.find(fixed, at)
            while end >= 0:
                yield end
                end = piece.find(fixed, end + 1)
            for end in range(max(at, len(piece) - len(fixed) + 1), len(piece)):
                if fixed.startswith(piece[end:]):
                    yield end

        def begin(fixed, part, at):
            left = piece[at:]
            if fixed.startswith(left):
                return len(left)
            if not left.startswith(fixed):
                return -1
            more = rest(part + 1, at + len(fixed))
            return -1 if more < 0 else len(fixed) + more

        best = -1
        for part, (fixed, _) in enumerate(self.parts):
            if not fixed:
                best = max(best, rest(part, 0))
            else:
                for first in range(len(fixed)):
                    if fixed[first] == piece[0]:
                        best = max(best, begin(fixed[first:], part, 0))
        return best

    def score(self, pieces):
        """The fixed text that a test has of this sentence, in characters and as a part of all, or less than 0."""
        scores = [self.fit(piece) for piece in pieces]
        score = -1 if min(scores) < 0 else min(sum(scores), self.size)
        return score, score / self.size


def sentences_of(root):
    """The sentences of the sources, by their text."""
    found = {}
    unknown = []
    whole = {around.replace("{}", "%s") for _, around in PARTS.values()}

    def add(text, place):
        text = CONVERSION.sub(lambda m: "%" + m[1], text)  # %lld says what %d does
        found.setdefault(text, Sentence(text)).places.append(place)

    for path in sorted({path for pattern in SOURCES for path in root.glob(pattern)}):
        words = Words(path.read_text(encoding="utf-8"))
        for at, word in enumerate(words.words[:-1]):
            if words.words[at + 1] != "(" or word not in FORMATS and word not in PARTS:
                continue
            place = f"{path.relative_to(root).as_posix()}:{words.lines[at]}"
            arguments = words.arguments(at + 1)
            number = FORMATS[word] if word in FORMATS else PARTS[word][0]
            if number >= len(arguments) or "char" in arguments[number]:
                continue  # its declaration
            strings = [w[1:] for w in arguments[number] if w.startswith('"')]
            if word in PARTS:
                for text in strings:
                    add(PARTS[word][1].replace("{}", text), place)
            elif strings == ["%s"]:
                for text in words.before(at):
                    add(text, place)
            else:
                for text in strings:
                    if text not in whole:
                        add(text, place)
            if word in FORMATS and not strings:
                unknown.append(f"{place}: {word}() has no format that is a string")
    return found, unknown


def strings_of_python(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(v.value if isinstance(v, ast.Constant) else "1" for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def expectations_of(root):
    """Yields (place, pieces) for each string of the tests."""
    for path in sorted({path for pattern in TESTS for path in root.glob(pattern)}):
        text = path.read_text(encoding="utf-8")
        for line, string in strings_of_python(text) if path.suffix == ".py" else Words(text).strings():
            if path.suffix != ".py":
                string = CONVERSION.sub(lambda m: "%" if m[1] == "%" else "1", string)
            pieces = tuple(piece for piece in string.split("|") if piece)
            if pieces:
                yield f"{path.relative_to(root).as_posix()}:{line}", pieces


# Candidates for a string are the sentences that share so many characters in a row with it, but for what too many sentences have.
GRAM, COMMON = 8, 30


def grams(text):
    return {text[i:i + GRAM] for i in range(len(text) - GRAM + 1)}


def match(sentences, expectations):
    index = defaultdict(set)
    for sentence in sentences:
        for fixed, _ in sentence.parts:
            for gram in grams(fixed or ""):
                index[gram].add(sentence)
    index = {gram: those for gram, those in index.items() if len(those) <= COMMON}
    common = set(sentences).difference(*index.values())
    for place, pieces in expectations:
        shared = {sentence for piece in pieces for gram in grams(piece) for sentence in index.get(gram, ())}
        shared.update(sentence for sentence in common if sentence.score(pieces)[0] >= sentence.enough)
        scores = {sentence: sentence.score(pieces) for sentence in shared}
        whole = {sentence: scores[sentence] for sentence in shared
                 if sentence.size >= ENOUGH_TEXT and sentence.whole.fullmatch("|".join(pieces))}
        for rivals in scores, whole:
            best = max(rivals.values(), default=(-1, 0))
            those = [sentence for sentence, score in rivals.items() if score == best]
            if len(those) == 1 and best[0] >= those[0].enough:
                those[0].tests.append(place)


def main(root, everything):
    found, wrong = sentences_of(root)
    match(list(found.values()), expectations_of(root))
    for text, sentence in found.items():
        if everything:
            print(f"{sentence.places[0]}: {text}\n    {', '.join(sentence.tests[:3])}")
        if sentence.tests and text in UNTESTED:
            wrong.append(f"{sentence.tests[0]} expects \"{text}\", which is listed as untested")
        if not sentence.tests and text not in UNTESTED:
            wrong.append(f"{', '.join(sentence.places)}: no test expects \"{text}\"")
    wrong += [f"no source has \"{text}\", which is listed as untested" for text in UNTESTED if text not in found]
    print(*wrong, sep="\n")
    print(f"{len(found)} sentences, {len(UNTESTED)} without a test, {len(wrong)} problems")
    return int(bool(wrong) or len(found) < 700)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[-1]), "--list" in sys.argv))
