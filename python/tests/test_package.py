# SPDX-License-Identifier: Apache-2.0
"""What is installed: it holds all that it needs, and imports nothing that it does not."""
import importlib.metadata
import pathlib
import subprocess
import sys

import libattn
import pytest

FOLDER = pathlib.Path(libattn.__file__).parent


def run(code):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_libraries_are_its_own():
    mapped = run("import libattn; print(*sorted({line.split()[-1] for line in open('/proc/self/maps') if '/' in line}), sep='\\n')")
    files = [pathlib.Path(line) for line in mapped.splitlines()]
    assert FOLDER / "_core.abi3.so" in files
    sleef = [file for file in files if "sleef" in file.name]
    assert sleef and all(file.parent == FOLDER for file in sleef)
    assert not [file for file in files if file.name.startswith(("libattn", "libgomp", "libomp"))]


def test_frameworks_are_not_imported():
    loaded = run("import libattn, sys; print(*[name for name in ('torch', 'transformers', 'onnx', 'jax', 'matplotlib') "
                 "if name in sys.modules])")
    assert loaded == ""


def test_info():
    info = subprocess.run([sys.executable, "-m", "libattn", "info"], check=True, capture_output=True, text=True).stdout
    assert libattn.__version__ in info and libattn.active_set() in info


def test_metadata():
    assert importlib.metadata.version("libattn") == libattn.__version__
    files = {str(file) for file in importlib.metadata.files("libattn")}
    assert {"libattn/py.typed", "libattn/_core.pyi"} <= files
    assert any(file.endswith("licenses/LICENSE") for file in files)
    assert any(file.endswith("SLEEF.txt") for file in files)


@pytest.mark.parametrize("arguments", [[], ["nonsense"]])
def test_wrong_command(arguments):
    done = subprocess.run([sys.executable, "-m", "libattn", *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 2 and "info" in done.stderr
