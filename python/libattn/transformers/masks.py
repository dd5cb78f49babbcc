# SPDX-License-Identifier: Apache-2.0
"""Masks of Transformers as options of attention(), without a number for each query and key.

Transformers describes a mask by functions that are put together from others: causal_mask_function, and_masks(...) and so
on, and hands them, with the padding, to a function that makes the mask. Those that are known are recognised by their
code, and become causal, window, segments, prefix, starts and lengths; what they were made with stands in their closures.
Any other is computed as Transformers computes it for sdpa.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map
from transformers import masking_utils
from transformers.utils.import_utils import is_tracing

aten = torch.ops.aten


class Mask(torch.Tensor):
    """A mask of the shape (B, 1, Tq, Tk), True attends, that is kept as options of attention().

    It is a boolean tensor to all others: what anybody computes from it is computed from the numbers that sdpa_mask()
    gives, which are made then. It cannot be written in place.
    """

    options: dict[str, Any]
    dense: Callable[[], torch.Tensor]

    @staticmethod
    def __new__(cls, shape: tuple[int, ...], options: dict[str, Any], dense: Callable[[], torch.Tensor]) -> Mask:
        make: Any = torch.Tensor._make_wrapper_subclass
        mask: Mask = make(cls, shape, dtype=torch.bool)
        mask.options, mask.dense = options, dense
        return mask

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Mask({tuple(self.shape)}, {self.options})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (),  # type: ignore[override]
                           kwargs: Any = None) -> Any:
        if func in (aten.detach.default, aten.alias.default) or is_whole(func, args):
            own = args[0]
            return cls(tuple(own.shape), own.options, own.dense)
        for argument, value in zip(func._schema.arguments, args):
            if isinstance(value, Mask) and argument.alias_info is not None and argument.alias_info.is_write:
                raise NotImplementedError(f"{func} writes into a mask of libattn in place; expected mask.clone() to be written")
        args, kwargs = tree_map(lambda x: x.dense() if isinstance(x, Mask) else x, (args, kwargs or {}))
        return func(*args, **kwargs)


def is_whole(func: Any, args: Any) -> bool:
    """Whether it is a slice of a Mask that leaves nothing out, as of keys up to the number that there are."""
    if func is not aten.slice.Tensor or len(args) < 4 or len(args) > 4 and args[4] != 1:
        return False
    mask, axis, start, end = args[:4]
    return start in (None, 0) and (end is None or end >= mask.shape[axis])


@dataclass(frozen=True, slots=True)
class Pattern:
    """Keys that a query at position p sees, those that all fields allow. None: not limited so.

    left, right: keys before and after p. chunk: the size of chunks, and (B,) positions of their first tokens. labels:
    (B, T) of documents. positions: (B, T) within these. groups: (B, T), tokens of a group, 0 or more, see each other
    whatever else says.
    """

    causal: bool = False
    left: int | None = None
    right: int | None = None
    chunk: tuple[int, torch.Tensor] | None = None
    labels: torch.Tensor | None = None
    positions: torch.Tensor | None = None
    groups: torch.Tensor | None = None


# How to know each function: by the code that all of a kind share.
CAUSAL = masking_utils.causal_mask_function
BIDIRECTIONAL = masking_utils.bidirectional_mask_function
AND = masking_utils.and_masks().__code__
OR = masking_utils.or_masks().__code__
SLIDING = masking_utils.sliding_window_overlay(1).__code__
SLIDING_BOTH = masking_utils.sliding_window_bidirectional_overlay(1).__code__
CHUNKED = masking_utils.chunked_overlay(1, torch.zeros(1, dtype=torch.int64)).__code__
PACKED = masking_utils.packed_sequence_mask_function(torch.zeros(1, 1)).__code__
REMAPPED = masking_utils.remap_positions_for_packed_sequence(CAUSAL, torch.zeros(1, 1)).__code__
BLOCKWISE = masking_utils.blockwise_overlay(torch.zeros(1, 1)).__code__


def made_with(function: Any) -> Mapping[str, Any]:
    """The variables of a closure."""
    return {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ())}


def recognise(function: Callable[..., Any]) -> Pattern | None:
    """What a mask function of Transformers says, or None if it is another."""
    if function is CAUSAL:
        return Pattern(causal=True)
    if function is BIDIRECTIONAL:
        return Pattern()
    code, values = getattr(function, "__code__", None), made_with(function) if hasattr(function, "__code__") else {}
    if code is SLIDING and values["sliding_window"] >= 1:
        return Pattern(left=values["sliding_window"] - 1)
    if code is SLIDING_BOTH and values["sliding_window"] >= 0:
        return Pattern(left=values["sliding_window"], right=values["sliding_window"])
    if code is CHUNKED:
        return Pattern(chunk=(values["chunk_size"], values["left_padding"]))
    if code is PACKED:
        return Pattern(labels=values["packed_sequence_mask"])
    if code is REMAPPED and (inner := recognise(values["mask_function"])) is not None:
        return join(inner, Pattern(positions=values["position_ids"]))
    if code is AND:
        pattern: Pattern | None = Pattern()
        for part in map(recognise, values["mask_functions"]):
            pattern = None if pattern is None or part is None else join(pattern, part)
        return pattern
    if code is OR and len(values["mask_functions"]) == 2:
        first, second = values["mask_functions"]
        if getattr(second, "__code__", None) is BLOCKWISE and (base := recognise(first)) is not None:
            return join(base, Pattern(groups=made_with(second)["block_sequence_ids"]))
    return None


def join(one: Pattern, other: Pattern) -> Pattern | None:
    """What both allow; None where that has no form of its own."""
    for name in ("chunk", "labels", "positions", "groups"):
        if getattr(one, name) is not None and getattr(other, name) is not None:
            return None

    def least(a: int | None, b: int | None) -> int | None:
        return b if a is None else a if b is None else min(a, b)

    return Pattern(one.causal or other.causal, least(one.left, other.left), least(one.right, other.right),
                   one.chunk or other.chunk, one.labels if other.labels is None else other.labels,
                   one.positions if other.positions is None else other.positions,
                   one.groups if other.groups is None else other.groups)


def options_of(pattern: Pattern, batch: int, tq: int, tk: int, first_query: int, first_key: int) -> dict[str, Any] | None:
    """Options that say what the pattern says for tq queries and tk keys, at positions from first_query and first_key on.

    None where none do: of groups, those that are not a prefix are left to prefix_of().
    """
    options: dict[str, Any] = {}
    offset = first_query - first_key
    if pattern.causal:
        options["causal"] = "offset" if offset else "top-left"
    # A window that no query reaches the end of is none.
    left = pattern.left if pattern.left is not None and pattern.left < offset + tq - 1 else None
    right = pattern.right if pattern.right is not None and pattern.right < tk - 1 - offset else None
    if left is not None or right is not None:
        options["window"] = (left, right)
    if options and offset:
        # A tensor, as compiled models are compiled again for another number.
        options["query_offset"] = torch.full((batch,), offset, dtype=torch.int64)

    if pattern.labels is not None:
        if offset or tq != tk or pattern.positions is None or pattern.groups is not None:
            return None
        # Positions grow by one within a document, so that distances are those of indices.
        labels = pattern.labels
        if pattern.chunk is not None:
            size, start = pattern.chunk
            labels = labels * (pattern.positions.max() + 1) + (pattern.positions - start[:, None]) // size
        options["segments"] = labels.to(torch.int32)
    elif pattern.positions is not None:
        return None
    elif pattern.chunk is not None:
        size, start = pattern.chunk
        if first_key + tk > size:
            queries = (torch.arange(first_query, first_query + tq)[None] - start[:, None]) // size
            keys = (torch.arange(first_key, first_key + tk)[None] - start[:, None]) // size
            options["segments"] = (queries.to(torch.int32), keys.to(torch.int32))
    return options


def padding_of(seen: torch.Tensor) -> dict[str, Any]:
    """Options that hide the keys that are False in seen, bool (B, Tk)."""
    if bool(seen.all()):
        return {}
    tk = seen.shape[1]
    count = seen.sum(1)
    start = seen.to(torch.uint8).argmax(1)  # of equals the first
    end = tk - seen.flip(1).to(torch.uint8).argmax(1)
    start, end = torch.where(count > 0, start, 0), torch.where(count > 0, end, 0)
    if not bool((end - start == count).all()):
        return {"mask": seen[:, None, None, :]}
    options = {}
    if bool((start > 0).any()):
        options["starts"] = start
    if bool((end < tk).any()):
        options["lengths"] = end
    return options


def prefix_of(groups: torch.Tensor, starts: torch.Tensor | None, tk: int) -> torch.Tensor | None:
    """(B,) how many of the first live keys are one group, if no other token is in any; else None."""
    grouped = groups[:, :tk] >= 0
    count = grouped.sum(1)
    end = torch.where(count > 0, tk - grouped.flip(1).to(torch.uint8).argmax(1), 0)
    first = torch.zeros_like(end) if starts is None else starts
    index = torch.arange(tk)[None]
    inside = (index >= first[:, None]) & (index < end[:, None])
    last = groups.gather(1, (end - 1).clamp(min=0)[:, None])
    whole = (grouped | ~inside) & ((groups[:, :tk] == last) | ~inside)
    return (end - first).clamp(min=0) if bool(whole.all()) else None


def libattn_mask(batch_size: int, q_length: int, kv_length: int, q_offset: int | torch.Tensor = 0,
                 kv_offset: int | torch.Tensor = 0, mask_function: Callable[..., Any] = CAUSAL,
                 attention_mask: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor | None:
    """The mask function that register() registers; its arguments are those of transformers' sdpa_mask().

    Returns a Mask where options say the same. Otherwise, and while a graph is traced, when padding has no values yet,
    what sdpa_mask() returns: bool (B, 1, Tq, Tk), or None.
    """
    if attention_mask is not None and attention_mask.dtype != torch.bool:
        attention_mask = attention_mask.bool()
    arguments = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length, "q_offset": q_offset,
                 "kv_offset": kv_offset, "mask_function": mask_function, "attention_mask": attention_mask, **kwargs}

    def dense() -> torch.Tensor:
        mask = masking_utils.sdpa_mask(**{**arguments, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": False})
        assert mask is not None
        return mask

    if is_tracing(attention_mask):
        return masking_utils.sdpa_mask(**arguments)
    if attention_mask is not None and attention_mask.ndim != 2:
        return dense()
    first_query, first_key = int(q_offset), int(kv_offset)
    pattern = recognise(mask_function)
    if pattern is None:
        return dense()
    options = options_of(pattern, batch_size, q_length, kv_length, first_query, first_key)
    if options is None:
        return dense()
    if attention_mask is not None:
        seen = masking_utils.prepare_padding_mask(attention_mask, kv_length, first_key)
        assert seen is not None
        options |= padding_of(seen[:, first_key : first_key + kv_length])
    if pattern.groups is not None:
        if not pattern.causal or "window" in options or "segments" in options or "mask" in options or first_key:
            return dense()
        prefix = prefix_of(pattern.groups, options.get("starts"), kv_length)
        if prefix is None:
            return dense()
        options["prefix"] = prefix
    return Mask((batch_size, 1, q_length, kv_length), options, dense)
