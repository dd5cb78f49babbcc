# SPDX-License-Identifier: Apache-2.0
"""Compares attn tokenize with the reference on the byte-pair tokens of SmolLM2, token by token.

The reference is the package tokenizers with the same tokenizer.json, less its
added tokens: names such as "<|im_end|>" are ordinary text here. Both sides encode

- Unicode's code points, each in several surroundings;
- random strings that mix scripts, numbers, white space of all kinds,
  punctuation, shortened words, names of special tokens, and long repetitions;
- prose (scikit-learn's data set descriptions) and code (the modules of numpy).

A cut between two pieces shows only where tokens would go over it. So there is a
second vocabulary, made here, that has every pair of bytes as a token; those pairs
come first that have one of the ASCII characters around a code point in them.

DIFFERENCES lists the code points on which the two sides disagree, as Unicode has
grown. Another one fails the check, and so does one of the list on which they agree.
The list was made with utf8proc 2.8, which is Unicode 15, PCRE2 10.42, which is
Unicode 14, and tokenizers 0.23.3,
whose letters are those of Unicode 16, and numbers those of Unicode 17.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import tokenizers

from check_wordpiece import CHUNK, SHOWN, code_points, prose

DIFFERENCES = (
    ("letters that are unassigned here",
     "1C89-1C8A A7CB-A7CD A7DA-A7DC 105C0-105F3 10D4A-10D65 10D6F-10D85 10EC2-10EC4 11380-11389 1138B 1138E 11390-113B5 "
     "113B7 113D1 113D3 11BC0-11BE0 13460-143FA 16100-1611D 16D40-16D6C 18CFF 1E5D0-1E5ED 1E5F0 2EBF0-2EE5D"),
    ("numbers that are unassigned here",
     "10D40-10D49 116D0-116E3 11BF0-11BF9 11DE0-11DE9 16130-16139 16D70-16D79 16FF4-16FF6 1CCF0-1CCF9 1E5F1-1E5FA"),
    ("letters that are unassigned to the expressions here",
     "1123F-11240 11F02 11F04-11F10 11F12-11F33 1342F 13441-13446 1B132 1B155 1DF25-1DF2A 1E030-1E06D 1E4D0-1E4EB 2B739 "
     "31350-323AF"),
)
LISTED = {c for _, ranges in DIFFERENCES for c in code_points(ranges)}
# All planes with assigned characters, and some of the others. NUL, with which texts end on their way, has its own check.
CHARACTERS = [chr(c) for c in (*range(1, 0xD800), *range(0xE000, 0x34000), *range(0x34000, 0xE0000, 97),
                               *range(0xE0000, 0xE1000), *range(0xE1000, 0x110000, 97))]
# Between letters, after and before spaces, between numbers, after white space and a shortened word, twice, at the end.
AROUND = "a{0}b {0} b1{0}1\n\n{0}'s{0}{0}"


def alphabet():
    """The characters that stand for bytes 0 to 255."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = iter(range(0x100, 0x200))
    return [chr(b if b in visible else next(hidden)) for b in range(256)]


def every_pair(description):
    """A vocabulary of bytes and pairs of bytes; a pair whose bytes are not around goes after all that are."""
    characters = alphabet()
    ascii_around = {ord(c) for c in AROUND.format("")}
    pairs = sorted(((a, b) for a in range(256) for b in range(256)),
                   key=lambda pair: (not ascii_around & set(pair), pair))
    tokens = characters + [characters[a] + characters[b] for a, b in pairs]
    model = description["model"] | {"vocab": {token: i for i, token in enumerate(tokens)},
                                    "merges": [[characters[a], characters[b]] for a, b in pairs]}
    return description | {"added_tokens": [], "model": model}


class Sides:
    """The program and the reference, with the same file."""

    def __init__(self, name, program, path, description):
        self.name, self.program, self.path = name, program, path
        path.write_text(json.dumps(description | {"added_tokens": []}), encoding="utf-8")
        self.reference = tokenizers.Tokenizer.from_file(str(path))

    def ours(self, texts, separator):
        command = [self.program, "tokenize", self.path] + ["-0"] * (separator == "\0")
        run = subprocess.run(command, input="".join(t + separator for t in texts).encode(), stdout=subprocess.PIPE,
                             check=True)
        return [[int(token) for token in line.split()] for line in run.stdout.split(b"\n")[:-1]]

    def differing(self, texts, separator="\0"):
        """The numbers of texts that become different tokens, with what they become on both sides."""
        ours, found = self.ours(texts, separator), []
        if len(ours) != len(texts):
            sys.exit(f"check_byte_pairs: {len(texts)} texts became {len(ours)} lines")
        for first in range(0, len(texts), CHUNK):
            for i, encoding in enumerate(self.reference.encode_batch(texts[first:first + CHUNK]), first):
                if encoding.ids != ours[i]:
                    found.append((i, ours[i], encoding.ids))
        return found

    def compare(self, what, texts, separator="\0"):
        bad = self.differing(texts, separator)
        print(f"{'FAILED' if bad else 'ok    '} {self.name}: {what}: {len(texts)} texts, {len(bad)} differ")
        for i, left, right in bad[:SHOWN]:
            print(f"       {ascii(texts[i][:200])}: {left[:40]}; expected {right[:40]}")
        return not bad

    def compare_characters(self):
        """Those that differ must be those that are listed."""
        found = {CHARACTERS[i] for i, _, _ in self.differing([AROUND.format(c) for c in CHARACTERS])}
        print(f"{'ok    ' if found == LISTED else 'FAILED'} {self.name}: {len(CHARACTERS)} code points, "
              f"{len(found & LISTED)} differ as listed, {len(found - LISTED)} otherwise, "
              f"{len(LISTED - found)} are listed and do not")
        for c in sorted(found ^ LISTED)[:SHOWN]:
            print(f"       U+{ord(c):04X}")
        return found == LISTED


def random_text(rng):
    """A string of pieces from one or several kinds."""
    ranges = {
        "ascii": (0x20, 0x7E), "digits": (0x30, 0x39), "control": (0x01, 0xA0), "latin": (0xC0, 0x24F),
        "greek": (0x370, 0x3FF), "cyrillic": (0x400, 0x52F), "arabic": (0x600, 0x6FF), "devanagari": (0x900, 0x97F),
        "thai": (0xE00, 0xE7F), "hangul": (0xAC00, 0xD7A3), "kana": (0x3040, 0x30FF), "ideographs": (0x4E00, 0x9FFF),
        "marks": (0x300, 0x36F), "spaces": (0x2000, 0x2070), "numbers": (0x2070, 0x218F), "symbols": (0x2190, 0x2BFF),
        "circled": (0x2460, 0x24FF), "faces": (0x1F300, 0x1F6FF), "any": (0x01, 0x10FFFF)}
    words = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "''s", "'",
             " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\u00a0", "\u3000", "\u200d", "\ufeff", "\ufffd", "the", " the",
             "don't", "I'll", "3.14", "1,000,000", "½", "²", "x²", "e\u0301", "naïve", "straße", "日本語", "👩\u200d👩\u200d👧", "🇫🇷",
             "for (int i = 0; i < n; i++)\n    sum += a[i];\n", "def f(x):\n\treturn x**2\n", "    ", "====", "a" * 300,
             "ab" * 200, "!" * 99, " " * 77, "\n" * 33]
    kinds = rng.sample(sorted(ranges), rng.randint(1, 4))
    pieces = []
    for _ in range(rng.choice((1, 3, 10, 30, 120))):
        if rng.random() < 0.4:
            pieces.append(rng.choice(words))
        else:
            first, last = ranges[rng.choice(kinds)]
            c = chr(rng.randint(first, last))
            if c not in LISTED and not 0xD800 <= ord(c) < 0xE000:
                pieces.append(c)
    return "".join(pieces)


def code():
    """Python files, which are full of brackets, numbers and indentation."""
    return [path.read_text(encoding="utf-8") for path in sorted(Path(numpy.__file__).parent.glob("*/*.py"))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the command attn")
    parser.add_argument("--model", type=Path, required=True, help="folder with tokenizer.json")
    parser.add_argument("--random", type=int, default=4000, metavar="N", help="random strings (default 4000)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args()
    print(f"tokenizers {tokenizers.__version__}; --seed {options.seed} repeats this run")
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        description = json.loads((options.model / "tokenizer.json").read_text(encoding="utf-8"))
        model = Sides("model's vocabulary", options.program, Path(folder) / "model.json", description)
        pairs = Sides("every pair", options.program, Path(folder) / "pairs.json", every_pair(description))
        texts = [random_text(rng) for _ in range(options.random)]
        files, lines = prose()
        results = [pairs.compare_characters()]
        for sides in (model, pairs):
            results.append(sides.compare("NUL characters", ["\0", "a\0b", " \0", "\0\0 a\0"], separator="\n"))
            results.append(sides.compare("random strings", texts))
            results.append(sides.compare("prose, by file", files))
            results.append(sides.compare("prose, by line", lines))
            results.append(sides.compare("code, by file", code()))
    print(f"{sum(results)} of {len(results)} comparisons passed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
