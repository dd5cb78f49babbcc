# SPDX-License-Identifier: Apache-2.0
"""Calls of libattn_nn from Python, for programs that compare it with PyTorch: tensors as the library sees them, errors
against float64 beside those of float32, and a command line with a list of checks.
"""
import ctypes
import sys
from ctypes import byref, c_char_p, c_float, c_int32, c_int64, c_void_p
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from attn_structs import Tensor  # noqa: E402  pylint: disable=wrong-import-position

UNIT = 2.0**-24
# Roundings of one layer, for cases in which float32 happens to be exact; models have several layers.
FLOOR_LAYER, FLOOR_MODEL = 24, 48


class Failure(Exception):
    pass


class Library:
    """Calls by name; a status that is not 0 is a Failure with the library's sentence."""

    def __init__(self, path):
        self.dll = ctypes.CDLL(path)
        self.dll.attn_last_error.restype = c_char_p

    def __call__(self, name, *arguments):
        function = getattr(self.dll, name, None)
        if function is None:
            raise Failure(f"there is no {name}")
        converted = [c_int64(a) if isinstance(a, int) else c_float(a) if isinstance(a, float) else a
                     for a in arguments]
        status = function(*converted)
        if status != 0:
            raise Failure(f"{name}: status {status}, {self.dll.attn_last_error().decode()}")

    def make(self, name, *arguments):
        made = c_void_p()
        self(name, byref(made), *arguments)
        return made

    def free(self, name, made):
        getattr(self.dll, name)(made)


def view(x):
    """A tensor of two or three axes, (B, T, C) or (rows, columns), or a vector; x must be kept."""
    assert x.is_contiguous() and x.dtype == torch.float32
    t = Tensor(data=x.data_ptr(), dtype=0)
    shape = [1] * (4 - x.dim()) + list(x.shape)
    if x.dim() == 3:
        shape = [x.shape[0], 1, x.shape[1], x.shape[2]]
    stride = 1
    for axis in (3, 2, 1, 0):
        t.shape[axis], t.stride[axis] = shape[axis], stride
        stride *= shape[axis]
    return t


def address(thing):
    return ctypes.cast(ctypes.pointer(thing), c_void_p)


def int64s(values):
    return (c_int64 * len(values))(*values)


def int32s(values):
    flat = [int(v) for v in values.flatten()]
    return (c_int32 * len(flat))(*flat)


def compare(what, got, exact, naive, floor=FLOOR_LAYER):
    """Largest errors relative to the largest number of each row."""
    exact, got, naive = exact.double(), got.double(), naive.double()
    if got.shape != exact.shape or torch.isnan(got).any():
        raise Failure(f"{what}: shape {tuple(got.shape)} for {tuple(exact.shape)}, "
                      f"{int(torch.isnan(got).sum())} NaN")
    size = exact.abs().amax(-1, keepdim=True).clamp_min(float(exact.square().mean().sqrt()) / 2 + 1e-30) * UNIT
    mine, theirs = float(((got - exact).abs() / size).max()), float(((naive - exact).abs() / size).max())
    if not mine <= 2 * theirs + floor:
        raise Failure(f"{what}: off by {mine:.1f} units, float32 torch by {theirs:.1f}; expected at most "
                      f"{2 * theirs + floor:.1f}")


def run_checks(usage, checks):
    """The command line of a program with checks, each a name, a function of the library and further arguments."""
    arguments = sys.argv[1:]
    seed = 1
    if "--seed" in arguments:
        at = arguments.index("--seed")
        seed = int(arguments[at + 1])
        del arguments[at:at + 2]
    if not arguments or arguments[0].startswith("-"):
        print(usage)
        sys.exit(0 if arguments[:1] == ["--help"] else 2)
    lib, words = Library(arguments[0]), arguments[1:]
    print(f"seed {seed}, torch {torch.__version__}")
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False
    torch.set_grad_enabled(False)
    passed = failed = 0
    for name, check, rest in checks:
        if words and not any(word in name for word in words):
            continue
        torch.manual_seed(seed)
        try:
            check(lib, *rest)
            passed += 1
        except Failure as failure:
            failed += 1
            print(f"FAILED {name}: {failure}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
