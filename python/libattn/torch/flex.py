# SPDX-License-Identifier: Apache-2.0
"""flex_attention() with the score and mask functions that libattn knows.

PyTorch's torch.nn.attention.flex_attention compiles any function of a score. libattn has its kernels already, so what
stands here are objects: each is such a function, which PyTorch's flex_attention takes, too, and says which options of
libattn.attention() it is.

    from libattn.torch import flex

    out = flex.flex_attention(q, k, v, flex.alibi(slopes), flex.and_masks(flex.causal(), flex.documents(labels)))

offset of these: the position of the first query among the keys, a whole number or (B,) of them; all parts of a call have the
same. Where the last query is to see the last key it is the number of keys less that of queries.
"""
from __future__ import annotations

import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.attention import flex_attention as pytorch

from ..options import RelativeBias, Window
from .call import attention

Offset = int | torch.Tensor
"""The position of the first query: one for all sequences, or (B,)."""


class _Part(ABC):
    """What is known of a function: the options that it stands for."""

    offset: Offset | None = None  # None: positions of queries do not matter

    @abstractmethod
    def options(self, batch: int) -> dict[str, Any]:
        """Of attention(), without causality and positions."""

    def parts(self) -> Iterable[_Part]:
        return (self,)

    def positions(self, b: torch.Tensor, q_idx: torch.Tensor) -> torch.Tensor:
        if self.offset is None:
            return q_idx
        return q_idx + (self.offset[b] if isinstance(self.offset, torch.Tensor) else self.offset)


class ScoreMod(_Part):
    """A function of a score."""

    @abstractmethod
    def __call__(self, score: torch.Tensor, b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor,
                 kv_idx: torch.Tensor) -> torch.Tensor:
        """The score of a query and a key after it."""


class MaskMod(_Part):
    """Which keys a query sees."""

    hides_later_keys = False

    @abstractmethod
    def __call__(self, b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor, kv_idx: torch.Tensor) -> torch.Tensor:
        """Whether the query sees the key."""


# ----------------------------------------------------------------------------------- scores --

class softcap(ScoreMod):
    """score = cap * tanh(score / cap), before anything is added."""

    def __init__(self, cap: float) -> None:
        self.cap = cap

    def __call__(self, score: torch.Tensor, b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor,
                 kv_idx: torch.Tensor) -> torch.Tensor:
        return self.cap * torch.tanh(score / self.cap)

    def options(self, batch: int) -> dict[str, Any]:
        return {"softcap": self.cap}


class alibi(ScoreMod):
    """The score gets -slopes[h] * |position - key| (Press et al. 2022). slopes: (Hq,), which may require a gradient;
    libattn.alibi_slopes() has the usual ones."""

    def __init__(self, slopes: Any, offset: Offset = 0) -> None:
        self.slopes, self.offset = torch.as_tensor(slopes), offset

    def __call__(self, score: torch.Tensor, b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor,
                 kv_idx: torch.Tensor) -> torch.Tensor:
        return score - self.slopes[h] * (self.positions(b, q_idx) - kv_idx).abs()

    def options(self, batch: int) -> dict[str, Any]:
        return {"alibi": self.slopes}


class relative_bias(ScoreMod):
    """The score gets table[h, clip(key - position, -max_distance, max_distance) + max_distance] (Shaw et al. 2018). table:
    (Hq, 2 * max_distance + 1), which may require a gradient."""

    def __init__(self, table: torch.Tensor, offset: Offset = 0) -> None:
        if table.dim() != 2 or table.shape[1] % 2 == 0:
            raise ValueError(f"table has the shape {tuple(table.shape)}; expected (heads, 2 * max_distance + 1)")
        self.table, self.max_distance, self.offset = table, table.shape[1] // 2, offset

    def __call__(self, score: torch.Tensor, b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor,
                 kv_idx: torch.Tensor) -> torch.Tensor:
        distance = (kv_idx - self.positions(b, q_idx)).clamp(-self.max_distance, self.max_distance)
        return score + self.table[h, distance + self.max_distance]

    def options(self, batch: int) -> dict[str, Any]:
        return {"relative_bias": RelativeBias(self.table, "clipped", self.max_distance)}


class t5_bias(ScoreMod):
    """The score gets the entry of a table that the distance of the key has in T5 (Raffel et al. 2020).

    table: (Hq, buckets), which may require a gradient; Transformers' relative_attention_bias.weight transposed.
    bidirectional: as in encoders. T5 does not scale its scores: scale=1.0.
    """

    def __init__(self, table: torch.Tensor, *, max_distance: int = 128, bidirectional: bool, offset: Offset = 0) -> None:
        if table.dim() != 2 or table.shape[1] < 2 or bidirectional and (table.shape[1] % 2 or table.shape[1] < 4):
            raise ValueError(f"table has the shape {tuple(table.shape)}; expected (heads, buckets), 2 buckets or more, "
                             f"bidirectional an even number, 4 or more")
        self.table, self.max_distance, self.bidirectional, self.offset = table, max_distance, bidirectional, offset

    def __call__(self, score: torch.Tensor, b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor,
                 kv_idx: torch.Tensor) -> torch.Tensor:
        distance = kv_idx - self.positions(b, q_idx)
        buckets = self.table.shape[1] // (2 if self.bidirectional else 1)
        first = (distance > 0) * buckets if self.bidirectional else 0
        away = distance.abs() if self.bidirectional else (-distance).clamp(min=0)
        exact = buckets // 2
        steps = torch.log(away.clamp(min=1).double() / exact) / math.log(self.max_distance / exact) * (buckets - exact)
        far = (exact + steps.long()).clamp(max=buckets - 1)
        return score + self.table[h, first + torch.where(away < exact, away, far)]

    def options(self, batch: int) -> dict[str, Any]:
        kind: Any = "t5-bidirectional" if self.bidirectional else "t5"
        return {"relative_bias": RelativeBias(self.table, kind, self.max_distance)}


class additive(ScoreMod):
    """The score gets bias[b, h, q, k]. bias: (B, Hq, Tq, Tk), where an axis of 1 may be expanded; it may require a
    gradient."""

    def __init__(self, bias: torch.Tensor) -> None:
        if bias.dim() != 4:
            raise ValueError(f"bias has {bias.dim()} axes; expected 4: batch, heads, queries, keys")
        self.bias = bias

    def __call__(self, score: torch.Tensor, b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor,
                 kv_idx: torch.Tensor) -> torch.Tensor:
        return score + self.bias[b, h, q_idx, kv_idx]

    def options(self, batch: int) -> dict[str, Any]:
        return {"mask": self.bias}


class compose(ScoreMod):
    """One after the other: a softcap first, if there is one, then what is added."""

    def __init__(self, *mods: ScoreMod) -> None:
        for mod in mods:
            known_score_mod(mod)
        self.mods = mods

    def __call__(self, score: torch.Tensor, b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor,
                 kv_idx: torch.Tensor) -> torch.Tensor:
        for mod in self.mods:
            score = mod(score, b, h, q_idx, kv_idx)
        return score

    def parts(self) -> Iterable[_Part]:
        return tuple(part for mod in self.mods for part in mod.parts())

    def options(self, batch: int) -> dict[str, Any]:
        return {}


# ------------------------------------------------------------------------------------ masks --

class causal(MaskMod):
    """Keys up to the query's own position."""

    hides_later_keys = True

    def __init__(self, offset: Offset = 0) -> None:
        self.offset = offset

    def __call__(self, b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor, kv_idx: torch.Tensor) -> torch.Tensor:
        return kv_idx <= self.positions(b, q_idx)

    def options(self, batch: int) -> dict[str, Any]:
        return {}


class prefix_lm(MaskMod):
    """Keys up to the query's own position, and all of the first prefix[b] ones. prefix: a whole number, or (B,)."""

    hides_later_keys = True

    def __init__(self, prefix: int | torch.Tensor, offset: Offset = 0) -> None:
        self.prefix, self.offset = prefix, offset

    def __call__(self, b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor, kv_idx: torch.Tensor) -> torch.Tensor:
        prefix = self.prefix[b] if isinstance(self.prefix, torch.Tensor) else self.prefix
        return (kv_idx < prefix) | (kv_idx <= self.positions(b, q_idx))

    def options(self, batch: int) -> dict[str, Any]:
        return {"prefix": self.prefix}


class sliding_window(MaskMod):
    """Keys from left before to right after the query's own position, None: no limit, and the first_tokens of all."""

    def __init__(self, left: int | None, right: int | None = None, *, first_tokens: int = 0, offset: Offset = 0) -> None:
        self.left, self.right, self.first_tokens, self.offset = left, right, first_tokens, offset

    def __call__(self, b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor, kv_idx: torch.Tensor) -> torch.Tensor:
        distance = kv_idx - self.positions(b, q_idx)
        seen = kv_idx >= 0
        if self.left is not None:
            seen = seen & (distance >= -self.left)
        if self.right is not None:
            seen = seen & (distance <= self.right)
        return seen | (kv_idx < self.first_tokens)

    def options(self, batch: int) -> dict[str, Any]:
        return {"window": Window(self.left, self.right, self.first_tokens)}


class documents(MaskMod):
    """Keys of the query's own document. labels: (T,) or (B, T) whole numbers, of queries, and of keys if these differ."""

    def __init__(self, labels: torch.Tensor, labels_of_keys: torch.Tensor | None = None) -> None:
        self.labels, self.labels_of_keys = labels, labels if labels_of_keys is None else labels_of_keys
        for x in (self.labels, self.labels_of_keys):
            if x.dim() not in (1, 2):
                raise ValueError(f"labels have the shape {tuple(x.shape)}; expected (tokens,) or (batch, tokens)")

    def __call__(self, b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor, kv_idx: torch.Tensor) -> torch.Tensor:
        def of(labels: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            return labels[index] if labels.dim() == 1 else labels[b, index]

        return of(self.labels, q_idx) == of(self.labels_of_keys, kv_idx)

    def options(self, batch: int) -> dict[str, Any]:
        return {"segments": tuple(x.expand(batch, -1) if x.dim() == 1 else x for x in (self.labels, self.labels_of_keys))}


class key_lengths(MaskMod):
    """The first lengths[b] keys; those behind them are padding. lengths: (B,)."""

    def __init__(self, lengths: torch.Tensor) -> None:
        self.lengths = lengths

    def __call__(self, b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor, kv_idx: torch.Tensor) -> torch.Tensor:
        return kv_idx < self.lengths[b]

    def options(self, batch: int) -> dict[str, Any]:
        return {"lengths": self.lengths}


class and_masks(MaskMod):
    """Keys that all of these show."""

    def __init__(self, *mods: MaskMod) -> None:
        for mod in mods:
            known_mask_mod(mod, "an argument of and_masks()")
        self.mods = mods

    def __call__(self, b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor, kv_idx: torch.Tensor) -> torch.Tensor:
        seen = kv_idx >= 0
        for mod in self.mods:
            seen = seen & mod(b, h, q_idx, kv_idx)
        return seen

    def parts(self) -> Iterable[_Part]:
        return tuple(part for mod in self.mods for part in mod.parts())

    def options(self, batch: int) -> dict[str, Any]:
        return {}


# -------------------------------------------------------------------------------- attention --

def flex_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, score_mod: ScoreMod | None = None,
                   block_mask: MaskMod | pytorch.BlockMask | None = None, scale: float | None = None,
                   enable_gqa: bool = False, return_lse: bool = False) -> Any:
    """torch.nn.attention.flex_attention.flex_attention() of the functions that this module has.

    Args:
        query: (B, Hq, Tq, d) float32, bfloat16 or float16; key: (B|1, Hkv, Tk, d); value: (B|1, Hkv, Tk, dv).
        score_mod: softcap, alibi, relative_bias, t5_bias, additive, or compose of them.
        block_mask: causal, prefix_lm, sliding_window, documents, key_lengths, or and_masks of them. libattn finds the keys
            that none of its queries sees by itself. Or a BlockMask that create_block_mask() has made of one of these, which
            is compared with it once; a compiled function cannot do that, so give it the mask itself.
        scale: multiplies query · key; None: 1 / sqrt(d).
        enable_gqa: Hq may be a multiple of Hkv.
        return_lse: lse, too, float32 (B, Hq, Tq).

    Returns:
        (B, Hq, Tq, dv), 0 in a row that sees no key; or a pair with lse.

    Raises:
        NotImplementedError: a function that libattn does not know.
        ValueError: parts do not go together.
    """
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() != 4:
            raise ValueError(f"{name} has {x.dim()} axes; expected 4: batch, heads, tokens, channels")
    batch = query.shape[0]
    if query.shape[1] != key.shape[1] and not enable_gqa:
        raise ValueError(f"key has {key.shape[1]} heads; expected {query.shape[1]}, as query has, or enable_gqa=True")
    parts: list[_Part] = []
    if score_mod is not None:
        parts += known_score_mod(score_mod).parts()
    if isinstance(block_mask, pytorch.BlockMask):
        block_mask = _mask_of(block_mask, query, key)
    if block_mask is not None:
        parts += known_mask_mod(block_mask, "block_mask").parts()
    options = _options(parts, batch)
    k, v = (x.expand(batch, -1, -1, -1) if x.shape[0] == 1 else x for x in (key, value))
    return attention(query, k, v, scale=scale, return_lse=return_lse, **options)


def known_score_mod(mod: Any) -> ScoreMod:
    if isinstance(mod, ScoreMod):
        return mod
    raise NotImplementedError(
        f"score_mod is {mod!r}, which libattn does not know; expected softcap, alibi, relative_bias, t5_bias, additive or "
        f"compose of libattn.torch.flex (libattn.attention takes any score_function, without autograd)")


def known_mask_mod(mod: Any, name: str) -> MaskMod:
    if isinstance(mod, MaskMod):
        return mod
    raise NotImplementedError(
        f"{name} is {mod!r}, which libattn does not know; expected causal, prefix_lm, sliding_window, documents, key_lengths "
        f"or and_masks of libattn.torch.flex (a mask of bool for each pair is the option mask of libattn.torch.attention)")


def _options(parts: Iterable[_Part], batch: int) -> dict[str, Any]:
    """What all parts say together."""
    options: dict[str, Any] = {}
    offset: Offset | None = None
    added = False
    hides_later_keys = plainly_causal = False
    for part in parts:
        if isinstance(part, softcap) and added:
            raise ValueError("softcap comes after something that is added; libattn caps scores before: give it first")
        added |= isinstance(part, ScoreMod) and not isinstance(part, softcap)
        if isinstance(part, MaskMod) and part.hides_later_keys:
            hides_later_keys = True
            plainly_causal |= isinstance(part, causal)
        if part.offset is not None:
            if offset is not None and not _same(offset, part.offset):
                raise ValueError(f"parts have the offsets {offset} and {part.offset}; expected one for all")
            offset = part.offset
        for name, value in part.options(batch).items():
            if name in options:
                raise ValueError(f"two parts stand for the option {name} of libattn.torch.attention; expected one")
            options[name] = value
    if plainly_causal:
        options.pop("prefix", None)  # hidden by the other mask, so there is none
    first = isinstance(offset, int) and offset == 0
    if hides_later_keys:
        options["causal"] = "top-left" if first else "offset"
    if offset is not None and not first:
        options["query_offset"] = offset
    return options


def _same(a: Offset, b: Offset) -> bool:
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return a is b
    return a == b


_compared: weakref.WeakSet[Any] = weakref.WeakSet()


def _mask_of(blocks: pytorch.BlockMask, query: torch.Tensor, key: torch.Tensor) -> MaskMod:
    """The mask that a BlockMask has been made of; refuses one whose blocks say something else."""
    mask = known_mask_mod(blocks.mask_mod, "block_mask.mask_mod")
    if tuple(blocks.seq_lengths) != (query.shape[2], key.shape[2]):
        raise ValueError(f"block_mask is of {tuple(blocks.seq_lengths)} queries and keys; expected "
                         f"{(query.shape[2], key.shape[2])}")
    if torch.compiler.is_compiling():
        raise NotImplementedError("block_mask is a BlockMask, whose blocks a compiled function cannot compare with its mask; "
                                  "give the mask itself: block_mask=block_mask.mask_mod")
    if blocks not in _compared:
        # None of the masks depends on the head.
        own = pytorch.create_block_mask(mask, query.shape[0], 1, query.shape[2], key.shape[2], device="cpu",
                                        BLOCK_SIZE=blocks.BLOCK_SIZE)
        seen, full = blocks.to_dense().bool(), _full(blocks)
        if (own.to_dense().bool() & ~seen).any() or (full & ~_full(own)).any():
            raise NotImplementedError("block_mask lists other blocks than its mask_mod has; libattn takes what "
                                      "create_block_mask() makes of a mask, and libattn.BlockMask for patterns of blocks")
        _compared.add(blocks)
    return mask


def _full(blocks: pytorch.BlockMask) -> torch.Tensor:
    """Blocks all of whose pairs are seen, without a look at the mask."""
    if blocks.full_kv_num_blocks is None or blocks.full_kv_indices is None:
        return torch.zeros_like(blocks.to_dense(), dtype=torch.bool)
    full = pytorch.BlockMask.from_kv_blocks(blocks.full_kv_num_blocks, blocks.full_kv_indices, BLOCK_SIZE=blocks.BLOCK_SIZE,
                                            seq_lengths=blocks.seq_lengths)
    return full.to_dense().bool()
