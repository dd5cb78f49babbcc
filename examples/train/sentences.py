# SPDX-License-Identifier: Apache-2.0
"""Collects 200 real English sentences of many lengths, one per line.

All come from what the pinned packages ship, and in this order:

  - every sentence of the data set descriptions of scikit-learn (BSD-3-Clause,
    sklearn/datasets/descr/*.rst), freed of the markup, in the files' order;
  - the longest sentences of the GNU General Public License, which numpy ships
    in its LICENSE.txt because of a library that it bundles;
  - sentences of one to three words, then ones of every length, from the
    newspaper editorials that vader.py reads (vaderSentiment, MIT).

A sentence begins with a capital letter, a figure or a quotation mark and ends
with a full stop, a question mark or an exclamation mark. Tables, formulas,
programs, headings, lists of names and references are left out.

The same packages give the same bytes on every machine.
"""

import argparse
import importlib.metadata
import re
from pathlib import Path

import common
import vader

COUNT = 200
LONG, SHORT = 20, 20
PINNED = {"scikit-learn": "1.9.1", "numpy": "2.4.6"}

# Directives whose indented block is prose; every other directive's is left out.
PROSE = ("dropdown", "note", "warning", "topic")
# Where a full stop ends no sentence.
ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|etc|et al|vs|cf|Dr|Mr|Mrs|Ms|St|No|Jr|Sr|Fig|Inc|Corp|Co|Gov|Gen|Sen|Rep"
                          r"|Jan|Feb|Mar|Apr|Aug|Sept|Oct|Nov|Dec)|\b[A-Z])\.$")
# What no sentence has, and what shows that two were not told apart or that one lost its end.
STRANGE = re.compile(r"[`|<>\\{}*_=@#~&]|\.\.|--|::|https?:|\bpp\.|\(\d{4}\)|\bet\.? al\b|\[[A-Z]| [,.]"
                     r"|[a-z]\. [a-z]|: [A-Z]|[.?!]\"\w|\bin\.$")
# A verb or a pronoun that tells a sentence of the descriptions from an entry of a list.
VERB = re.compile(r"\b(?:is|are|was|were|be|has|have|can|will|may|should|must|this|they|it|you|we|see)\b", re.I)


def paragraphs(source):
    """The paragraphs of an RST text, each on one line, still with inline markup; without what is no prose."""
    # Tables: from a rule of = with a gap to the last such rule before an empty line.
    source = re.sub(r"(?m)^ *=+(?: +=+)+ *\n(?:.+\n)*", "\n", source)
    # Headings: a line and the rule below it.
    source = re.sub(r"(?m)^.+\n([-=~^\"'#*])\1{2,} *$", "", source)
    found, lines, skipped, last = [], [], None, 0
    for line in [*source.split("\n"), ""]:
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if text and skipped is not None:
            if indent > skipped:
                continue
            skipped = None
        directive = re.match(r"\.\. *([\w-]*)(::)?", text)
        if directive or text.startswith(">>>"):
            if not (directive and directive[1] in PROSE and directive[2]):
                skipped = indent if directive else indent - 1
            text = ""
        item = re.match(r"(?:[-*+•]|\d+[.)]|\(\w\)|:[\w .-]+:)\s+", text)
        if (not text or item) and lines:
            found.append(" ".join(lines))
            lines = []
            # A paragraph that ends in two colons announces a block that is to stand as it is.
            if found[-1].endswith("::") and not item:
                skipped = last
        if text:
            lines.append(text[item.end() :] if item else text)
            last = indent
    return found


def plain(paragraph):
    """Without inline markup."""
    paragraph = re.sub(r":[\w:]+:`~[\w.]*?(\w+)`", r"\1", paragraph)
    paragraph = re.sub(r":(?!math)[\w:]+:`([^`<]+?)(?: <[^>]*>)?`", r"\1", paragraph)
    paragraph = re.sub(r"`([^`<]+?)\s*<[^>]*>`__?", r"\1", paragraph)
    paragraph = re.sub(r"``?([^`]+)``?_?_?", r"\1", paragraph)
    paragraph = re.sub(r"\s*\[[\w#]+\]_", "", paragraph)
    paragraph = re.sub(r"(\*\*?)(\S(?:.*?\S)?)\1", r"\2", paragraph)
    return re.sub(r"\s+", " ", paragraph).strip()


def sentences(paragraph):
    found, start = [], 0
    for end in re.finditer(r"[.?!][\"')\]]*(?= +[\"'(]?[A-Z0-9]|$)", paragraph):
        sentence = paragraph[start : end.end()].strip()
        if end[0] == "." and ABBREVIATION.search(sentence) and end.end() < len(paragraph):
            continue
        found.append(sentence)
        start = end.end()
    return [sentence for sentence in found if is_sentence(sentence)]


def is_sentence(text):
    """Whether head and end are a sentence's, and nothing in it is markup, an address, a formula or a reference."""
    return (re.match(r"[\"']?[A-Z0-9]", text) and re.search(r"[.?!][\"')]*$", text) and re.search(r"[a-z]", text)
            and text.isascii() and not STRANGE.search(text) and text.count("(") == text.count(")")
            and text.count('"') % 2 == text.count("''") % 2 == 0)


def from_descriptions():
    folder = Path(str(importlib.metadata.distribution("scikit-learn").locate_file("sklearn/datasets/descr")))
    files = sorted(folder.glob("*.rst"))
    if not files:
        common.fail(f"{folder} has no descriptions of data sets; expected *.rst")
    found = []
    for path in files:
        # References are no prose and stand last.
        source = re.split(r"(?m)^ *(?:\.\. (?:rubric|dropdown):: )?References\b", path.read_text(encoding="utf-8"))[0]
        for paragraph in paragraphs(source):
            found += filter(VERB.search, sentences(plain(paragraph)))
    return found


def from_licence():
    paths = [path for path in importlib.metadata.files("numpy") if path.name == "LICENSE.txt"]
    text = paths[0].read_text(encoding="utf-8") if paths else ""
    start, end = text.find("GNU GENERAL PUBLIC LICENSE"), text.find("END OF TERMS AND CONDITIONS")
    if not 0 <= start < end:
        common.fail("the LICENSE.txt of numpy does not hold the GNU General Public License")
    found = []
    for paragraph in re.split(r"\n *\n", text[start:end]):
        paragraph = re.sub(r"^\s*(?:\d+\.|[a-z]\))\s+", "", paragraph)
        found += sentences(re.sub(r"\s+", " ", paragraph).strip())
    return sorted(found, key=lambda sentence: -len(sentence.split()))[:LONG]


def from_people(path):
    """The texts that are one sentence: first the shortest, then one of every length in turn."""
    by_length = {}
    for text, _ in vader.read_texts(path, ("nytEditorialSnippets",)):
        if sentences(text) == [text]:
            by_length.setdefault(len(text.split()), []).append(text)
    short = [text for length in (1, 2, 3) for text in by_length.pop(length, [])]
    found = short[:: max(1, len(short) // SHORT)][:SHORT]
    for turn in range(COUNT):
        found += [by_length[length][turn] for length in sorted(by_length) if turn < len(by_length[length])]
    return found


def main():
    parser = argparse.ArgumentParser(prog=common.PROGRAM, description=__doc__.splitlines()[0])
    vader.add_argument(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the file to write")
    arguments = parser.parse_args()
    common.make_folder(arguments.out.parent)
    for name, version in PINNED.items():
        if importlib.metadata.version(name) != version:
            common.fail(f"{name} is {importlib.metadata.version(name)}; expected {version}, whose text this is")
    described, licence, people = from_descriptions(), from_licence(), from_people(arguments.data)
    found = list(dict.fromkeys(described + licence + people))[:COUNT]
    if len(found) < COUNT:
        common.fail(f"the packages gave {len(found)} sentences; expected {COUNT}")
    lengths = [len(sentence.split()) for sentence in found]
    common.say(f"{len(found)} sentences of {min(lengths)} to {max(lengths)} words")
    common.write_all(arguments.out.parent, {arguments.out.name: common.lines_bytes(found)})


if __name__ == "__main__":
    main()
