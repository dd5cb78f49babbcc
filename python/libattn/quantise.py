# SPDX-License-Identifier: Apache-2.0
"""Keys and values in 8 or 4 bits."""
from __future__ import annotations

from typing import Literal

from . import _core
from ._arrays import Maker
from .options import Array, Layout, Quantised


def quantise(x: Array, dtype: Literal["int8", "float8_e4m3fn", "int4"], *, layout: Layout = "bhtd",
             num_threads: int | None = None) -> Quantised:
    """Rounds rows of x to a type of 8 or 4 bits, each with a scale of its own; 'int4' has a scale for 32 channels.

    Args:
        x: (B, H, T, d) float32, bfloat16 or float16, or in the order of layout.
        dtype: 'int8', 'float8_e4m3fn' or 'int4'.

    Returns:
        A Quantised, which attention() takes as k or v. Where NumPy or PyTorch has no type float8_e4m3fn, its data is
        uint8.
    """
    if dtype not in ("int8", "float8_e4m3fn", "int4"):
        raise ValueError(f"dtype is {dtype!r}; expected 'int8', 'float8_e4m3fn' or 'int4'")
    maker = Maker(x)
    front, channels = tuple(x.shape[:-1]), int(x.shape[-1])
    groups = (channels + 31) // 32
    data = maker.empty((*front, groups * 16 if dtype == "int4" else channels), "int8" if dtype == "int8" else "uint8")
    scale = maker.empty((*front, groups if dtype == "int4" else 1), "float32")
    _core.quantise(x, Quantised(data, scale, dtype, channels), layout, num_threads)
    return Quantised(maker.finish(data), maker.finish(scale), dtype, channels)
