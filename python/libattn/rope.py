# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding (Su et al. 2021)."""
from __future__ import annotations

from typing import Any, Literal, TypedDict, TypeVar, Unpack

import numpy as np

from . import _core
from ._arrays import Maker
from .options import Array, Layout, Rotation

A = TypeVar("A")


class Rotations(TypedDict, total=False):
    """How frequencies are chosen, see rope_table()."""

    pairs: int
    base: float
    scaling: Literal["linear", "ntk", "yarn", "llama3", "longrope"] | None
    factor: float
    original_length: int
    beta_fast: float
    beta_slow: float
    attention_factor: float
    low_freq_factor: float
    high_freq_factor: float
    no_truncation: bool
    short_factor: Array
    long_factor: Array
    length: int


def rope_table(positions: Array | int, **config: Unpack[Rotations]) -> Any:
    """Cosines and sines of positions.

    Args:
        positions: whole numbers up to 2^53 in size, (T,); or T, for 0 to T - 1.
        pairs: of channels that are turned: half the rotated dimension.
        base: 10000 unless it is given.
        scaling: None, or for sequences longer than in training 'linear' (Chen et al. 2023), 'ntk', 'yarn' (Peng et al.
            2023), 'llama3' or 'longrope' (Ding et al. 2024).
        factor: how much longer.
        original_length: positions in training, of 'yarn', 'llama3' and 'longrope'.
        beta_fast, beta_slow, attention_factor, no_truncation: of 'yarn'; attention_factor of 'longrope', too.
        low_freq_factor, high_freq_factor: of 'llama3'.
        short_factor, long_factor: of 'longrope', (pairs,); length: tokens of the sequences, which chooses.

    Returns:
        float32 of NumPy's, (T, 2 * pairs): pairs cosines, then pairs sines.
    """
    pairs = config.get("pairs")
    if not isinstance(pairs, int) or not 1 <= pairs <= 2048:
        raise ValueError(f"pairs is {pairs!r}; expected 1 to 2048")
    numbers = None if isinstance(positions, int) else np.asarray(positions)
    if numbers is not None:
        if numbers.dtype.kind not in "iu" and numbers.size or numbers.ndim != 1:
            raise ValueError(f"positions is of the type {numbers.dtype} and has the shape {numbers.shape}; expected a list "
                             "of whole numbers")
        numbers = np.ascontiguousarray(numbers, np.int64)
    rows = positions if numbers is None else len(numbers)
    if rows < 0:
        raise ValueError(f"positions is {positions}; expected 0 or more")
    table = np.empty((rows, 2 * pairs), np.float32)
    _core.rope_table(dict(config), numbers, table)
    return table


def rope(x: A, table: Array, *, rotation: Rotation = "half-split", out: A | None = None, layout: Layout = "bhtd",
         num_threads: int | None = None) -> A:
    """Rotates the rows of x.

    Args:
        x: (B, H, T, d) float32, bfloat16 or float16, or in the order of layout; channels side by side.
        table: float32 (T, 2 * pairs), or (B|1, H|1, T, 2 * pairs), of rope_table(); 2 * pairs is at most d, further
            channels stay as they are.
        rotation: which channels are turned together.
        out: where the result is written, which may be x; None: a new array.
    """
    maker, new = Maker(x), out is None
    result: Any = maker.empty(tuple(x.shape)) if new else out  # type: ignore[attr-defined]
    _core.rope(x, table, rotation, result, layout, num_threads)
    return maker.finish(result) if new else result  # type: ignore[no-any-return]
