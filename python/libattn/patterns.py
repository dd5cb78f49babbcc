# SPDX-License-Identifier: Apache-2.0
"""Block-sparse patterns, and the usual slopes of ALiBi.

Windows, strides and the like count blocks of size tokens, a multiple of 16. With causal, blocks above the diagonal are
left out; give attention() causal, too, for those on it.
"""
from __future__ import annotations

from typing import Any

from . import _core
from .options import BlockMask


def longformer(tq: int, tk: int | None = None, *, size: int, window: int, global_blocks: int = 0,
               causal: bool = False) -> BlockMask:
    """Window and global blocks (Beltagy et al. 2020, "Longformer").

    Args:
        tq, tk: tokens of q and k; tk is tq unless it is given.
        size: tokens along a block's side.
        window: blocks that a block row sees on each side of the diagonal.
        global_blocks: blocks at the start that see all and are seen by all.
    """
    return BlockMask(*_core.longformer(tq, tq if tk is None else tk, size, window, global_blocks, causal))


def bigbird(tq: int, tk: int | None = None, *, size: int, window: int, global_blocks: int = 0, random: int = 0,
            seed: int = 0, heads: int = 1, causal: bool = False) -> BlockMask:
    """Window, global and random blocks (Zaheer et al. 2020, "Big Bird").

    Args:
        random: blocks chosen in each block row among the others.
        seed: chooses them, the same on every machine.
        heads: 1: one pattern for all heads; more: each chooses its own.
        The others are those of longformer().
    """
    return BlockMask(*_core.bigbird(tq, tq if tk is None else tk, size, window, global_blocks, random, seed, heads, causal))


def strided(tq: int, tk: int | None = None, *, size: int, stride: int = 0, causal: bool = False) -> BlockMask:
    """A window and every stride-th block (Child et al. 2019, "Sparse Transformer"); stride 0: about the square root of
    the block rows. The others are those of longformer()."""
    return BlockMask(*_core.strided(tq, tq if tk is None else tk, size, stride, causal))


def alibi_slopes(heads: int) -> Any:
    """The slopes of ALiBi (Press et al. 2022, section 3) for so many heads, float32 of NumPy's."""
    return _core.alibi_slopes(heads)
