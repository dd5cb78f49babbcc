# SPDX-License-Identifier: Apache-2.0
"""Results are arrays of the library that q is of."""
from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .options import Array


class Maker:
    """Makes arrays like one that is given.

    PyTorch's and NumPy's are made as such. Of other libraries arrays cannot be written, so these get NumPy's, which
    finish() hands over: without a copy where from_dlpack() of that library takes them as they are.
    """

    def __init__(self, like: Array) -> None:
        torch = sys.modules.get("torch")
        self.torch: Any = torch if torch is not None and isinstance(like, torch.Tensor) else None
        self.namespace: Any = None
        self.dtype: Any = getattr(like, "dtype", "float32")
        if self.torch is None and not isinstance(like, np.ndarray):
            if hasattr(like, "__array_namespace__"):
                self.namespace = like.__array_namespace__()
            elif not hasattr(like, "dtype"):
                self.dtype = np.asarray(like).dtype

    def empty(self, shape: tuple[int, ...], dtype: str | None = None) -> Any:
        """An array that libattn can write; dtype: None for that of the given one."""
        if self.torch is not None:
            return self.torch.empty(shape, dtype=self.dtype if dtype is None else getattr(self.torch, dtype))
        wanted = self.dtype if dtype is None else dtype
        if self.namespace is None:
            return np.empty(shape, wanted)
        # Other libraries want their alignment, else they copy.
        wanted = np.dtype(wanted)
        size = wanted.itemsize * int(np.prod(shape, dtype=np.int64))
        memory = np.empty(size + 64, np.uint8)
        start = -memory.ctypes.data % 64
        return memory[start : start + size].view(wanted).reshape(shape)

    def finish(self, array: Any) -> Any:
        """The array as the caller gets it."""
        if array is None or self.namespace is None:
            return array
        try:
            return self.namespace.from_dlpack(array)
        except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
            return self.namespace.asarray(array)  # bfloat16 of NumPy's cannot be handed over


def missing_axes(ndim: int, layout: str) -> int:
    """How many axes in front q does without, of the four (batch, head, token, channel)."""
    # With tokens first an array of two axes has heads and channels of one token: its results keep their heads.
    return 4 - ndim if layout == "bhtd" else min(4 - ndim, 1)
