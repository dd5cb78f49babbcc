# SPDX-License-Identifier: Apache-2.0
"""Keys and values of sequences that grow, in pages."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeVar, Unpack

from . import _core
from ._arrays import Maker, missing_axes
from .attention import Result
from .options import Array, Layout, Quantised, Rotation, ScoreOptions
from .rope import Rotations

A = TypeVar("A")


class Usage(NamedTuple):
    """What a cache has and uses. bytes: allocated; page_bytes: of a page in all layers; tokens: of all sequences."""

    num_pages: int
    pages_in_use: int
    page_size: int
    page_bytes: int
    num_sequences: int
    tokens: int
    bytes: int


class Cache:
    """Keys and values of some sequences in all layers of a model.

        cache = Cache(layers=30, kv_heads=3, dk=64, dtype="bfloat16", max_tokens=8192, max_sequences=64)
        a = cache.add()
        cache.step([a], [100])                    # a prompt of 100 tokens; 1 for each token afterwards
        for layer in range(30):
            cache.append(layer, k, v)             # (1, kv_heads, 100, 64), those of the step
            out = cache.attend(layer, q)          # causal, each query at its place
        cache.truncate(a, 98)

    One thread at a time works with a cache; another one gets a RuntimeError. After an error it is as it was.

    Args:
        layers: of the model.
        kv_heads: heads of keys and values of a layer.
        dk: head size of keys, 1 to 1024.
        dv: head size of values; 0: dk.
        dtype: of what is kept: 'float32', 'bfloat16', 'float16', 'int8', 'float8_e4m3fn' or 'int4'.
        max_tokens: of a sequence.
        max_sequences: at once.
        page_size: tokens in a page; 0: max_tokens, so that each sequence lies side by side.
        num_pages: of all sequences together; 0: as many as max_sequences full ones need.
        window: keys before its own position that a query sees; 0: all. Pages that nobody can see are handed back.
        first_tokens: that all see nevertheless.
        rope: None, or what rope_table() takes: how keys are rotated when they are appended.
        rotation: which channels are turned together.
        v_in_k: the values of a token are the first dv channels of its key (latent attention).
    """

    def __init__(self, *, layers: int, kv_heads: int, dk: int, dv: int = 0,
                 dtype: Literal["float32", "bfloat16", "float16", "int8", "float8_e4m3fn", "int4"] = "float32",
                 max_tokens: int, max_sequences: int = 1, page_size: int = 0, num_pages: int = 0, window: int = 0,
                 first_tokens: int = 0, rope: Rotations | None = None, rotation: Rotation = "half-split",
                 v_in_k: bool = False) -> None:
        config = {"layers": layers, "kv_heads": kv_heads, "dk": dk, "dv": dv, "dtype": dtype, "max_tokens": max_tokens,
                  "max_sequences": max_sequences, "page_size": page_size, "num_pages": num_pages, "window": window,
                  "first_tokens": first_tokens, "v_in_k": v_in_k}
        self._cache = _core.Cache(config, None if rope is None else dict(rope), rotation)

    @property
    def usage(self) -> Usage:
        """What is in use."""
        return Usage(*self._cache.usage())

    @property
    def keys(self) -> int:
        """Tk of the step: its longest sequence, in whole pages."""
        return self._cache.keys()

    def add(self) -> int:
        """Adds a sequence without tokens and returns its id. CacheFull: there are max_sequences."""
        return self._cache.add()

    def fork(self, sequence: int) -> int:
        """Adds a sequence with the tokens of another one, whose pages they share, and returns its id."""
        return self._cache.fork(sequence)

    def truncate(self, sequence: int, length: int) -> None:
        """Forgets the tokens from length on."""
        self._cache.truncate(sequence, length)

    def keep(self, sequence: int, length: int, tokens: Sequence[int]) -> None:
        """Of the tokens from length on keeps those that are listed, ascending: the accepted ones of a tree of drafts."""
        self._cache.keep(sequence, length, tokens)

    def remove(self, sequence: int) -> None:
        """Forgets a sequence."""
        self._cache.remove(sequence)

    def length(self, sequence: int) -> int:
        """Tokens of a sequence; -1 if there is none of that id."""
        return self._cache.length(sequence)

    def step(self, sequences: Sequence[int], tokens: Sequence[int], positions: Array | None = None) -> None:
        """Begins a step: sequences[i] gets tokens[i] more. CacheFull: there are not enough pages; none has grown.

        positions: by which the step's tokens are rotated, where that is not their place in their sequence.
        """
        self._cache.step(sequences, tokens, positions)

    def append(self, layer: int, k: Array, v: Array | None = None, *, layout: Layout = "bhtd",
               num_threads: int | None = None) -> None:
        """Keeps keys and values of the step's tokens, (1, kv_heads, T, dk) and (1, kv_heads, T, dv), in a layer.

        Those of the first sequence come first. v is None with v_in_k, else it is not.
        """
        self._cache.append(layer, k, v, layout, num_threads)

    def rotate(self, q: A, *, out: A | None = None, layout: Layout = "bhtd", num_threads: int | None = None) -> A:
        """The step's queries, (1, Hq, T, dk), rotated as the keys are. out may be q; None: a new array."""
        maker, new = Maker(q), out is None
        result: Any = maker.empty(tuple(q.shape)) if new else out  # type: ignore[attr-defined]
        self._cache.rotate(q, result, layout, num_threads)
        return maker.finish(result) if new else result  # type: ignore[no-any-return]

    def attend(self, layer: int, q: A, *, out: A | None = None, return_lse: bool = False, return_weights: bool = False,
               return_key_sums: bool = False, layout: Layout = "bhtd", **options: Unpack[ScoreOptions]) -> A | Result[A]:
        """The attention of the step's tokens in a layer: each query stands at its token's place, and sees the keys up to it.

        Args:
            layer: one to which this step's keys have been appended.
            q: (1, Hq, T, dk), those of the first sequence first.
            out: (1, Hq, T, dv), where the result is written; None: a new array of q's type.
            return_lse, return_weights, return_key_sums: as for attention(); Tk is `keys`, key_sums (sequences, Hq, Tk).
            options: those of attention(), but for what hides keys by their place. prefix and tree are those of the
                step's sequences, tree.ancestors (T, words) of its tokens.

        Returns:
            out, or a Result where more is asked for.
        """
        maker, new = Maker(q), out is None
        shape = tuple(q.shape)  # type: ignore[attr-defined]
        heads, tokens = ((1,) * 4 + shape)[-3:-1][:: 1 if layout == "bhtd" else -1]
        missing = missing_axes(len(shape), layout)
        result: Any = maker.empty((*shape[:-1], self._cache.dv)) if new else out

        def wanted(asked: bool, *shape: int) -> Any:
            return maker.empty(shape[missing:], "float32") if asked else None

        tk = self._cache.keys()
        lse = wanted(return_lse, 1, heads, tokens)
        weights = wanted(return_weights, 1, heads, tokens, tk)
        key_sums = maker.empty((self._cache.sequences, heads, tk), "float32") if return_key_sums else None
        self._cache.attend(layer, q, result, lse, weights, key_sums, layout, dict(options))
        result = maker.finish(result) if new else result
        if lse is None and weights is None and key_sums is None:
            return result  # type: ignore[no-any-return]
        return Result(result, maker.finish(lse), maker.finish(weights), maker.finish(key_sums))


def store(x: Array, slots: Array, pool: Array | Quantised, *, rotations: Array | None = None,
          rotation: Rotation = "half-split", layout: Layout = "bhtd", num_threads: int | None = None) -> None:
    """Writes rows to places of a pool of pages, which a block_table then reads.

    Args:
        x: (1, H, T, d) float32, bfloat16 or float16, or in the order of layout.
        slots: (T,): head h of token t goes to row slots[t] % page_size of page slots[t] / page_size; -1: nowhere.
        pool: (pages, H, page_size, d), or a Quantised with such data, written.
        rotations: None, or rows of rope_table() by which x is rotated on its way, (T, 2 * pairs).
    """
    _core.store(x, slots, rotations, rotation, pool, layout, num_threads)
