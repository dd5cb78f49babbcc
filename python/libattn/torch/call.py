# SPDX-License-Identifier: Apache-2.0
"""attention() of PyTorch tensors: libattn.attention() with gradients, for torch.compile and torch.export, too."""
from __future__ import annotations

from typing import Any, Literal, Unpack, overload

import numpy as np
import torch
from torch.autograd import forward_ad

from ..attention import attention as attend
from ..options import (BlockMask, Disentangled, Dropout, Layout, PlaceOptions, PlainScoreOptions, Quantised, RelativeBias, Rope,
                       Tree, Window)
from .ops import FORWARD_MODE, GRADIENTS, TENSORS, Attention, core_options, rows_of, transformed

FLOATS = (torch.float32, torch.bfloat16, torch.float16)


class Options(PlainScoreOptions, PlaceOptions, total=False):
    """Options of attention(): those of libattn.attention(), of which dropout may be a probability, too."""

    dropout: Dropout | float | None


OPTIONS = frozenset(Options.__annotations__)
REAL = ("scale", "temperature", "softcap")
GROUPS = {"relative_bias": RelativeBias, "disentangled": Disentangled, "rope": Rope, "block_mask": BlockMask, "tree": Tree}


@overload
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, return_lse: Literal[False] = False,
              layout: Layout = "bhtd", **options: Unpack[Options]) -> torch.Tensor: ...


@overload
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, return_lse: Literal[True], layout: Layout = "bhtd",
              **options: Unpack[Options]) -> tuple[torch.Tensor, torch.Tensor]: ...


@overload
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, return_lse: bool, layout: Layout = "bhtd",
              **options: Unpack[Options]) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]: ...


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, return_lse: bool = False, layout: Layout = "bhtd",
              **options: Any) -> Any:
    """libattn.attention() of tensors on the CPU, with gradients.

    Under torch.autocast("cpu") q, k and v are cast as PyTorch casts those of its own attention.

    Args:
        q, k, v, layout: those of libattn.attention(), torch.Tensors of float32, bfloat16 or float16.
        return_lse: lse, too, which has a gradient as out has.
        options: those of libattn.attention(). q, k, v, head_scale, sinks, alibi, a mask of floats, the table of a
            RelativeBias and those of a Disentangled have gradients. dropout may be a probability: what is dropped then
            follows from PyTorch's generator, so from torch.manual_seed().

    Returns:
        out, or (out, lse).

    Raises:
        ValueError, NotImplementedError, MemoryError: as libattn.attention().
        TypeError: an argument is not of a type that has a place in an operator, or there is no such option.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        check(x, name)
        if x.dtype not in FLOATS:
            raise ValueError(f"{name} has elements of the type {x.dtype}; expected float32, bfloat16 or float16")
    if not q.device == k.device == v.device:
        raise ValueError(f"q is on {q.device}, k on {k.device} and v on {v.device}; expected one device")
    if torch.is_autocast_enabled("cpu"):
        q, k, v = (x.to(torch.get_autocast_dtype("cpu")) for x in (q, k, v))
    tensors, numbers = apart(q, k, options, layout)
    record = torch.is_grad_enabled() and requires_grad((q, k, v), tensors, numbers)
    if not record and _plain((q, k, v), tensors):
        given = core_options(tensors, numbers)
        result = attend(rows_of(q), rows_of(k), rows_of(v), return_lse=return_lse, layout=layout, **given)
        return tuple(result[:2]) if return_lse else result
    if has_tangent((q, k, v, *tensors.values())):
        raise NotImplementedError(FORWARD_MODE)
    places = [tensors.get(name) for name in TENSORS]
    while places and places[-1] is None:
        places.pop()
    numbers["layout"] = layout
    if record and transformed():
        out, lse = Attention.apply(numbers, q, k, v, *places)  # type: ignore[no-untyped-call]
    else:
        out, lse = torch.ops.libattn.attention(q, k, v, *places, **numbers)
    return (out, lse) if return_lse else out


def check(x: Any, name: str) -> None:
    """Refuses what is not a dense tensor in this machine's memory, or a description of one."""
    if not isinstance(x, torch.Tensor):
        if isinstance(x, Quantised):
            raise TypeError(f"{name} is a Quantised, which has no gradient; use libattn.attention")
        raise TypeError(f"{name} is a {type(x).__module__}.{type(x).__qualname__}; expected a torch.Tensor")
    if x.device.type not in ("cpu", "meta"):
        raise ValueError(f"{name} is on another device ({x.device}); libattn computes on CPUs: move it there")
    if x.is_nested or x.layout is not torch.strided:
        layout = "nested" if x.is_nested else f"of the layout {x.layout}"
        raise ValueError(f"{name} is {layout}; expected torch.strided (cu_seqlens is for ragged batches)")


def as_tensor(value: Any) -> torch.Tensor:
    """An array of anybody's, or a list, as PyTorch's."""
    if isinstance(value, torch.Tensor):
        return value
    if not torch.compiler.is_compiling() and getattr(getattr(value, "dtype", None), "name", "") == "bfloat16":
        value = np.asarray(value).astype(np.float32)  # NumPy's bfloat16 is unknown to PyTorch
    return torch.as_tensor(value)


def requires_grad(qkv: tuple[torch.Tensor, ...], tensors: dict[str, torch.Tensor], numbers: dict[str, Any]) -> bool:
    """Whether a gradient is asked for; refuses one that there is not."""
    asked = [name for name, x in tensors.items() if x.requires_grad]
    for name in asked:
        if name not in GRADIENTS:
            raise NotImplementedError(f"{name} requires a gradient, which libattn does not compute; detach it")
    if not asked and not any(x.requires_grad for x in qkv):
        return False
    if "block_table" in tensors:
        raise NotImplementedError("q, k or v requires a gradient, and there is a block_table, through which libattn "
                                  "computes none; use torch.no_grad()")
    if numbers.get("scores_of", "default") != "default":
        raise NotImplementedError(f"q, k or v requires a gradient, and scores_of is {numbers['scores_of']!r}, of which "
                                  f"libattn computes none; use torch.no_grad()")
    return True


def _plain(qkv: tuple[torch.Tensor, ...], tensors: dict[str, torch.Tensor]) -> bool:
    """Whether nobody looks on: no compiler, tracer, mode, transform or subclass that has to see the operator."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack():
        return False
    if transformed() or forward_ad._current_level >= 0:
        return False
    known = (torch.Tensor, torch.nn.Parameter)
    return all(type(x) in known and x.device.type == "cpu" for x in (*qkv, *tensors.values()))


def has_tangent(tensors: tuple[torch.Tensor, ...]) -> bool:
    if torch.compiler.is_compiling() or forward_ad._current_level < 0:
        return False
    return any(forward_ad.unpack_dual(x).tangent is not None for x in tensors)  # type: ignore[no-untyped-call]


def apart(q: torch.Tensor, k: torch.Tensor, options: dict[str, Any],
          layout: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors and the other arguments of the operator, from options of attention()."""
    tensors: dict[str, torch.Tensor] = {}
    numbers: dict[str, Any] = {}

    def put(name: str, value: Any, of: str | None = None) -> None:
        if value is not None:
            x = as_tensor(value)
            check(x, of or name)
            tensors[name] = x

    for name, value in options.items():
        if value is None:
            continue
        if name in ("score_function", "weight_function"):
            raise NotImplementedError(f"{name} is a function, which an operator of PyTorch's cannot hold; use "
                                      f"libattn.attention, and libattn.attention_backward for gradients")
        if name not in OPTIONS:
            raise TypeError(f"there is no option {name!r}; there are {', '.join(sorted(OPTIONS))}")
        if name in GROUPS and not isinstance(value, GROUPS[name]):
            raise ValueError(f"{name} is a {type(value).__qualname__}; expected a libattn.{GROUPS[name].__name__}")
        if name == "relative_bias":
            put("bias_table", value.table, "relative_bias.table")
            numbers.update(bias_kind=value.kind, bias_distance=value.max_distance)
        elif name == "disentangled":
            put("rel_k", value.rel_k)
            put("rel_q", value.rel_q)
            if value.rel_k is None and value.rel_q is None:
                raise ValueError("disentangled has neither rel_k nor rel_q; expected one of them, or both")
            numbers.update(span=value.span, delta=value.delta)
        elif name == "rope":
            put("rope_q", value.q, "rope.q")
            put("rope_k", value.k, "rope.k")
            numbers["rotation"] = value.layout
        elif name == "window":
            window = window_of(value)
            numbers.update(window=True, window_left=window.left, window_right=window.right,
                           first_tokens=window.first_tokens)
            if len(window.global_tokens):
                put("global_tokens", window.global_tokens, "window.global_tokens")
        elif name == "block_mask":
            put("block_offsets", value.offsets, "block_mask.offsets")
            put("block_columns", value.columns, "block_mask.columns")
            numbers.update(block_size=value.size, block_heads=value.heads)
        elif name == "segments":
            first, second = value if isinstance(value, tuple) else (value, value)
            put("segments_q", first, "segments of queries")
            put("segments_k", second, "segments of keys")
        elif name == "tree":
            put("tree_ancestors", value.ancestors, "tree.ancestors")
            numbers["tree_tokens"] = value.tokens
        elif name == "cu_seqlens":
            first, second = value if isinstance(value, tuple) else (value, None)
            put("cu_seqlens_q", first, "cu_seqlens")
            if second is None and options.get("block_table") is None:
                tensors["cu_seqlens_k"] = tensors["cu_seqlens_q"]
            put("cu_seqlens_k", second, "cu_seqlens of keys")
        elif name == "dropout":
            put_dropout(value, tensors, numbers)
        elif name == "causal":
            numbers["causal"] = alignment(value, q, k, options, layout)
        elif name in TENSORS:
            put(name, value)
        else:
            numbers[name] = scalar(name, value)
    return tensors, numbers


def window_of(value: Any) -> Window:
    """What libattn.attention() takes as a window."""
    if isinstance(value, Window):
        return value
    sides = value if isinstance(value, tuple) else (value, value)
    if len(sides) != 2 or not all(side is None or isinstance(side, (int, torch.SymInt, np.integer)) for side in sides):
        raise ValueError(f"window is {value!r}; expected (left, right), whole numbers or None, or a libattn.Window")
    return Window(*sides)


def scalar(name: str, value: Any) -> Any:
    """A number or a word, as an operator takes it."""
    if isinstance(value, torch.Tensor) and value.requires_grad:
        raise ValueError(f"{name} is a tensor that requires a gradient; expected a number, which has none")
    if isinstance(value, (torch.Tensor, np.generic, np.ndarray)):
        value = value.item()
    types, expected = ((int, float, torch.SymInt, torch.SymFloat), "a number") if name in REAL else (
        (int, torch.SymInt), "a whole number") if name == "num_threads" else ((str,), "a word")
    if not isinstance(value, types):
        raise ValueError(f"{name} is {value!r}; expected {expected}")
    return value


def put_dropout(value: Any, tensors: dict[str, torch.Tensor], numbers: dict[str, Any]) -> None:
    """Seed and offset are a tensor: where none are given they are drawn in each call, by a compiled one, too."""
    if not isinstance(value, Dropout):
        if not isinstance(value, (int, float, np.floating, torch.SymFloat)) or not 0 <= value < 1:
            raise ValueError(f"dropout is {value!r}; expected a libattn.Dropout, or 0 or more, and less than 1")
        if value:
            tensors["dropout_key"], numbers["dropout_p"] = torch.randint(2**62, (2,), device="cpu"), value
        return
    signed = [(n + 2**63) % 2**64 - 2**63 for n in (value.seed, value.offset)]
    tensors["dropout_key"], numbers["dropout_p"] = torch.tensor(signed, device="cpu"), value.p


def alignment(causal: Any, q: torch.Tensor, k: torch.Tensor, options: dict[str, Any], layout: str) -> str:
    """What True stands for, where there is nothing to choose."""
    if causal is False:
        return ""
    if causal is not True:
        return str(causal)
    if options.get("query_offset") is not None:
        return "offset"
    axis = -2 if layout == "bhtd" else -3
    plain = all(options.get(name) is None for name in ("lengths", "block_table"))
    ragged = options.get("cu_seqlens")
    if plain and ragged is not None and not isinstance(ragged, tuple):
        return "top-left"
    if plain and ragged is None and q.dim() >= -axis and k.dim() >= -axis and q.shape[axis] == k.shape[axis]:
        return "top-left"
    raise ValueError("causal is True where queries and keys need not be the same tokens; expected 'top-left' (query 0 "
                     "sees key 0), 'bottom-right' (the last query sees the last key), or query_offset")
