# SPDX-License-Identifier: Apache-2.0
"""The snippets of the documents: those of a page run one after the other, as a reader would type them."""
import pathlib
import re

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs"
NEEDS = {"python-torch": "torch", "python-transformers": "transformers", "python-onnx": "onnx"}
PAGES = sorted(FOLDER.glob("python*.md"))


def test_pages_are_found():
    assert {"python", "python-numpy", *NEEDS} == {page.stem for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_snippets(page):
    if page.stem in NEEDS:
        pytest.importorskip(NEEDS[page.stem])
    text = page.read_text(encoding="utf-8")
    snippets = list(re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    assert snippets
    names = {"__name__": page.stem}
    for snippet in snippets:
        # As many lines in front as it has in the page, for the message of an error.
        lines = "\n" * (text[: snippet.start(1)].count("\n"))
        exec(compile(lines + snippet[1], str(page), "exec"), names)
