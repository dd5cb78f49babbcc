# SPDX-License-Identifier: Apache-2.0
"""docs/python-torch.md and examples/python/train_torch.py do what they say."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "python" / "train_torch.py"
PAGE = ROOT / "docs" / "python-torch.md"


def run(*arguments):
    return subprocess.run([sys.executable, str(PROGRAM), *map(str, arguments)], capture_output=True, text=True,
                          env=os.environ | {"OMP_NUM_THREADS": "1"})


@pytest.mark.skipif(not PROGRAM.exists(), reason="the examples are not here")
def test_training():
    result = run()
    assert result.returncode == 0, result.stderr
    losses = [float(x) for x in re.findall(r"held back ([0-9.]+)", result.stdout)]
    assert len(losses) == 3 and losses == sorted(losses, reverse=True)


@pytest.mark.skipif(not PROGRAM.exists(), reason="the examples are not here")
def test_training_on_too_little(tmp_path):
    (tmp_path / "short.txt").write_text("a few words")
    assert run(tmp_path / "short.txt").returncode == 2


@pytest.mark.skipif(not PAGE.exists(), reason="the documents are not here")
def test_the_page():
    """Its programs run, one after the other."""
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(programs) == 4
    names = {}
    for program in programs:
        exec(program, names)
    assert names["out"].shape == (2, 8, 100, 64)
