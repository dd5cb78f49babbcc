# SPDX-License-Identifier: Apache-2.0
"""
The tensors of a case, as .npy files in a scratch folder.

The coordinator writes them once and every worker reads them into memory of
its own. Files, and not a seed that each worker expands: all contenders then
get the same bits by construction, whatever NumPy they bring, and drawing the
normal numbers is paid for once, not by each of ten workers. They are read and
not mapped: pages of a mapped file cannot be backed by huge pages, which would
slow down whoever reads them.

Numbers are standard normal, as the rows of a trained projection roughly are.
They are rounded to the case's type here, so that the reference is computed
from what the contenders see. NumPy has no bf16, so such arrays are held as
their 16 bits in uint16; workers view them as their library's own type.
"""

import zlib
from pathlib import Path

import numpy as np

from .cases import MASK_PERIOD

# The layout of every file: batch, head, token, channel.
NAMES = ("q", "k", "v")


def to_bf16(x):
    """float32 rounded to the nearest bf16, ties to even, as uint16. Finite numbers only, which is all that is drawn."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    """The float32 whose upper half is `bits`."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def store(x, dtype):
    """A float32 array in the form in which `dtype` is kept in files."""
    if dtype == "bf16":
        return to_bf16(x)
    return x.astype(np.float16 if dtype == "f16" else np.float32)


def widen(x, dtype):
    """The stored array as float32, exactly."""
    return from_bf16(x) if dtype == "bf16" else x.astype(np.float32, copy=False)


def make(case):
    """The arrays of a case: q, k, v, and with a mask `mask` (bool, 1 x 1 x Tq x Tk)."""
    # The seed follows from the shape only: all dtypes of a shape start from the same numbers.
    shape_name = case.name.split("/", 1)[1]
    rng = np.random.default_rng(zlib.crc32(shape_name.encode()))
    heads = {"q": (case.heads, case.tq), "k": (case.kv_heads, case.tk), "v": (case.kv_heads, case.tk)}
    arrays = {
        n: store(rng.standard_normal((case.batch, h, t, case.d), dtype=np.float32), case.dtype)
        for n, (h, t) in heads.items()
    }
    if case.mask:
        mask = rng.integers(0, MASK_PERIOD, size=(1, 1, case.tq, case.tk), dtype=np.uint8) != 0
        mask[..., 0] |= ~mask.any(axis=-1)  # a row without a key means different things to different libraries
        arrays["mask"] = mask
    return arrays


def write(arrays, folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def read(folder):
    """What write() wrote, in fresh memory."""
    return {file.stem: np.load(file) for file in sorted(Path(folder).glob("*.npy"))}


def mask_sum(case, arrays):
    """Pairs that the boolean mask leaves alive, over the batch; None without a mask."""
    return int(arrays["mask"].sum()) * case.batch if case.mask else None
