# SPDX-License-Identifier: Apache-2.0
"""RotaryEmbedding of opset 23."""
from __future__ import annotations

from typing import Any

import numpy as np

import libattn
from libattn.options import Layout

from ._operator import Floats, Operator, floats, side_by_side, split_heads


class RotaryEmbedding(Operator):
    """RotaryEmbedding of version 23, by libattn.rope().

    X: (B, H, T, d), or with num_heads (B, T, H * d). cos_cache, sin_cache: with position_ids, (B, T), tables (positions,
    pairs); without (B, T, pairs). pairs is half of rotary_embedding_dim, or of d where that is 0. Computed in float32 and
    rounded to the type of X once.
    """

    op_domain = ""
    versions = (23,)

    def _run(self, X: Floats, cos_cache: Floats, sin_cache: Floats, position_ids: Any = None, *, interleaved: int = 0,
             num_heads: int | None = None, rotary_embedding_dim: int = 0) -> tuple[Any, ...]:
        floats(X, "X", (3, 4))
        layout: Layout = "bhtd"
        x = X
        if X.ndim == 3:
            if not num_heads:
                raise ValueError("num_heads is missing; X has 3 axes, and its heads must be told")
            layout, x = "bthd", split_heads(X, "X", num_heads)
        elif num_heads and num_heads != X.shape[1]:
            raise ValueError(f"num_heads is {num_heads}; X has {X.shape[1]} heads")
        width = rotary_embedding_dim or x.shape[3]
        if width % 2 or not 0 <= width <= x.shape[3]:
            what = "rotary_embedding_dim" if rotary_embedding_dim else "the head size of X"
            raise ValueError(f"{what} is {width}; expected an even number, up to the head size {x.shape[3]}")
        table = np.concatenate([_rows(name, cache, position_ids, width // 2) for name, cache in
                                (("cos_cache", cos_cache), ("sin_cache", sin_cache))], axis=-1)
        out = np.empty(x.shape, x.dtype)
        libattn.rope(side_by_side(x), table[:, None], rotation="interleaved" if interleaved else "half-split", out=out,
                     layout=layout)
        return (out.reshape(X.shape),)


def _rows(name: str, cache: Floats, positions: Any, pairs: int) -> Any:
    """The rows of the tokens, float32 (B, T, pairs)."""
    floats(cache, name, (3,) if positions is None else (2,))
    if cache.shape[-1] != pairs:
        raise ValueError(f"{name} has rows of {cache.shape[-1]} numbers; expected {pairs}, half of the channels that are "
                         "turned")
    if positions is None:
        return cache.astype(np.float32)
    if positions.ndim != 2:
        raise ValueError(f"position_ids has {positions.ndim} axes; expected 2, (batch, tokens)")
    if positions.size and not 0 <= positions.min() <= positions.max() < len(cache):
        raise ValueError(f"position_ids has numbers from {positions.min()} to {positions.max()}; expected 0 to "
                         f"{len(cache) - 1}, the rows of {name}")
    return cache[positions].astype(np.float32)
