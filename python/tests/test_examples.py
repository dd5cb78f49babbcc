# SPDX-License-Identifier: Apache-2.0
"""The example scripts, as a user runs them; each ends with 0 only if its results are right."""
import importlib.util
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"
NEEDS = {"sample_numpy": "safetensors", "server_numpy": "numpy", "train_torch": "torch", "generate_transformers": "transformers",
         "onnx_reference": "onnx"}


def test_they_are_found():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(NEEDS)


@pytest.mark.parametrize("script", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_example(script, tmp_path):
    if importlib.util.find_spec(NEEDS[script.stem]) is None:
        pytest.skip(f"there is no {NEEDS[script.stem]}")
    done = subprocess.run([sys.executable, "-B", script], check=False, capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()


def test_training_on_too_little(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "short.txt").write_text("a few words")
    done = subprocess.run([sys.executable, "-B", FOLDER / "train_torch.py", tmp_path / "short.txt"], check=False,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "short.txt" in done.stderr
