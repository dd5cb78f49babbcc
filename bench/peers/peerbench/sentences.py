# SPDX-License-Identifier: Apache-2.0
"""
Real English prose for the encoder: 200 sentences of the descriptions of data
sets that scikit-learn ships, in the order of the files. Markup, tables and
references are left out roughly; a tokenizer takes what remains.
"""

import re

COUNT = 200
FEWEST_WORDS = 4

# A paragraph that begins like this is no prose.
OTHER = (">>>", "..", "=", "|", "-", "_", "@")


def paragraphs(text):
    for block in re.split(r"\n\s*\n", text):
        # Entries of a list are paragraphs of their own.
        for part in re.split(r"\n\s*[-*•]\s+", "\n" + block):
            line = " ".join(part.split())
            if line and not line.startswith(OTHER) and not re.search(r"===|>>>|---", line):
                yield line


def plain(line):
    """Without inline markup."""
    line = re.sub(r":[\w:]+:`~?([^`<]+?)(?:\s*<[^>]*>)?`", r"\1", line)
    line = re.sub(r"`+([^`<]+?)(?:\s*<[^>]*>)?`+_*", r"\1", line)
    return re.sub(r"\*+([^*]+)\*+", r"\1", line)


def sentences(texts, count=COUNT):
    """The first `count` different sentences of texts."""
    found = {}
    for text in texts:
        for line in paragraphs(text):
            for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z0-9])", plain(line)):
                if len(sentence.split()) >= FEWEST_WORDS:
                    found[sentence] = None
    if len(found) < count:
        raise RuntimeError(f"there are {len(found)} sentences; expected {count}")
    return list(found)[:count]
