# SPDX-License-Identifier: Apache-2.0
"""scaled_dot_product_attention() with the arguments and the meaning of PyTorch's, and in its place."""
from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .call import FLOATS, attention, has_tangent
from .ops import FORWARD_MODE

Shape = tuple[int, ...]


def scaled_dot_product_attention(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
        enable_gqa: bool = False) -> torch.Tensor:
    """torch.nn.functional.scaled_dot_product_attention(), computed by libattn.

    Args:
        query: (..., Hq, L, E), or (L, E), float32, bfloat16 or float16, all three of one type.
        key: (..., H, S, E). Axes in front are broadcast against those of query and value; with enable_gqa those in front
            of the heads.
        value: (..., H, S, Ev).
        attn_mask: broadcast to (..., Hq, L, S): bool, True takes part; or float, added to the scores, which may require a
            gradient. With is_causal both count.
        dropout_p: the probability with which a weight becomes 0, here as in PyTorch also where a module does not train.
        is_causal: query i sees the keys up to i (top-left aligned, also where L and S differ).
        scale: multiplies query · key; None: 1 / sqrt(E).
        enable_gqa: Hq may be a multiple of the heads of key and of value.

    Returns:
        (..., Hq, L, Ev), in memory in the order of query's axes. A query that sees no key gets 0.

    Raises:
        ValueError, NotImplementedError: libattn does not take that; within sdpa_replaced() PyTorch's own does.
    """
    reason = why_not(query, key, value, attn_mask, dropout_p)
    if reason is not None:
        raise NotImplementedError(reason)
    if query.dtype != key.dtype or query.dtype != value.dtype:
        if not torch.is_autocast_enabled("cpu"):
            raise ValueError(f"query, key and value are {query.dtype}, {key.dtype} and {value.dtype}; expected one type")
    lead, heads, key_heads, axes = _batch(query.shape, key.shape, value.shape, enable_gqa)
    options: dict[str, Any] = {"causal": "top-left" if is_causal else None, "dropout": dropout_p or None, "scale": scale}
    if scale == 0:  # all scores are 0: libattn takes the number for a mistake, but a factor of heads may be anything
        options.update(scale=None, head_scale=query.new_zeros(heads, dtype=torch.float32))
    if attn_mask is not None:
        options["mask"] = _mask(attn_mask, lead, heads, axes, query.shape[-2], key.shape[-2])
    q = _fold(query, lead, heads)
    k, v = (_fold(_repeated(x, key_heads), lead, key_heads) for x in (key, value))
    if axes == 4 and q.stride(1) < q.stride(2):  # tokens first in memory: so is the result
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        out: torch.Tensor = attention(q, k, v, layout="bthd", **options)
        return out.transpose(1, 2)
    out = attention(q, k, v, **options)
    return out if axes == 4 else out.reshape(*(lead if axes > 4 else ()), *out.shape[max(4 - axes, 1) :])


def why_not(query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: float) -> str | None:
    """Why libattn does not compute that, as a sentence; None where it does."""
    named = [("query", query), ("key", key), ("value", value)] + ([("attn_mask", attn_mask)] if attn_mask is not None else [])
    for name, x in named:
        if not isinstance(x, torch.Tensor):
            return f"{name} is a {type(x).__module__}.{type(x).__qualname__}; expected a torch.Tensor"
        if x.is_nested or x.layout is not torch.strided:
            return f"{name} is nested or not strided; libattn.torch.flash_attn_varlen_func takes ragged batches"
        if x.device.type not in ("cpu", "meta"):
            return f"{name} is on another device ({x.device}); libattn computes on CPUs: move it there"
        if x.dtype not in FLOATS and not (name == "attn_mask" and x.dtype == torch.bool):
            extra = ", or bool" if name == "attn_mask" else ""
            return f"{name} has elements of the type {x.dtype}; expected float32, bfloat16 or float16{extra}"
        if x.dim() < 2 and name != "attn_mask":
            return f"{name} has {x.dim()} axes; expected 2 or more"
    if not 0 <= dropout_p < 1:
        return f"dropout_p is {dropout_p}; expected 0 or more, and less than 1"
    if torch.overrides.has_torch_function(tuple(x for _, x in named)):
        return "an argument is of a subclass of torch.Tensor with functions of its own; expected a plain tensor"
    if has_tangent(tuple(x for _, x in named)):
        return FORWARD_MODE
    return None


def _batch(q: Shape, k: Shape, v: Shape, enable_gqa: bool) -> tuple[Shape, int, int, int]:
    """The axes in front of the heads, the heads of query and of key and value, and how many axes the result has."""
    if k[-2] != v[-2]:
        raise ValueError(f"value has {v[-2]} tokens; expected {k[-2]}, as key has")
    if q[-1] != k[-1]:
        raise ValueError(f"key has {k[-1]} channels; expected {q[-1]}, as query has")
    if enable_gqa:
        if min(len(q), len(k), len(v)) < 3:
            raise ValueError(f"query, key and value have {len(q)}, {len(k)} and {len(v)} axes; enable_gqa expects heads, "
                             f"3 axes or more")
        if k[-3] == 0 or v[-3] == 0 or q[-3] % k[-3] or q[-3] % v[-3]:
            raise ValueError(f"key and value have {k[-3]} and {v[-3]} heads; expected divisors of query's {q[-3]}")
        lead = _broadcast(q[:-3], k[:-3], v[:-3])
        return lead, q[-3], k[-3] if k[-3] == v[-3] else q[-3], len(lead) + 3
    full = _broadcast(q[:-2], k[:-2], v[:-2])
    if not full:
        return (), 1, 1, 2
    # Heads that share one of key and value need no copies of it.
    shared = all(len(shape) < 3 or shape[-3] == 1 for shape in (k, v))
    return full[:-1], full[-1], 1 if shared else full[-1], len(full) + 2


def _broadcast(*shapes: Shape) -> Shape:
    try:
        return tuple(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise ValueError(f"axes in front of query, key and value do not go together: {error}") from None


def _repeated(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Where key and value differ in their heads each gets as many as query has."""
    have = x.shape[-3] if x.dim() > 2 else 1
    return x if have in (1, heads) else x.repeat_interleave(heads // have, -3)


def _fold(x: torch.Tensor, lead: Shape, heads: int) -> torch.Tensor:
    """x with four axes, those in front of the heads as one."""
    x = x.expand(*lead, heads, *x.shape[-2:])
    return x if len(lead) == 1 else x.reshape(math.prod(lead), *x.shape[-3:])


def _mask(mask: torch.Tensor, lead: Shape, heads: int, axes: int, queries: int, keys: int) -> torch.Tensor:
    """A mask of four axes or fewer, of which those that are broadcast need not be stored."""
    full = (*lead, *((heads,) if axes > 2 else ()), queries, keys)
    fits = mask.dim() <= len(full) and all(n in (1, want) for n, want in zip(reversed(mask.shape), reversed(full)))
    if not fits:
        raise ValueError(f"attn_mask has the shape {tuple(mask.shape)}; expected one that is broadcast to {tuple(full)}")
    if mask.dim() <= 4 and len(lead) < 2 or mask.dim() <= 3:
        return mask
    if all(n == 1 for n in mask.shape[:-3]):
        return mask.reshape(mask.shape[-3:])
    return mask.expand(*lead, *mask.shape[-3:]).reshape(math.prod(lead), *mask.shape[-3:])


# ----------------------------------------------------------------------- in PyTorch's place --

_lock = threading.Lock()
_depth = 0   # how many have asked for it,
_strict = 0  # and how many of them for errors
_pytorch: Callable[..., torch.Tensor] = torch.nn.functional.scaled_dot_product_attention


def _replacement(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
        enable_gqa: bool = False) -> torch.Tensor:
    """libattn's, or PyTorch's own for what libattn does not take."""
    if _strict:
        return scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if why_not(query, key, value, attn_mask, dropout_p) is None:
        try:
            return scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        except (NotImplementedError, ValueError):
            pass
    return _pytorch(query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale,
                    enable_gqa=enable_gqa)


@contextlib.contextmanager
def sdpa_replaced(*, fallback: bool = True) -> Iterator[None]:
    """Puts scaled_dot_product_attention() in the place of torch.nn.functional's, for all who look it up there.

        with libattn.torch.sdpa_replaced():
            out = model(x)

    Modules of PyTorch's, of Transformers' and others that call F.scaled_dot_product_attention then use libattn. It is a
    replacement in the module, so other threads see it, too, until the last of those who asked for it has left. Code that
    has imported the function by name before, and nn.TransformerEncoderLayer's fast path (evaluation without gradients),
    do not look it up. A function has to be compiled (torch.compile) within.

    Args:
        fallback: what libattn does not take (other devices, float64, nested tensors, dropout of everything, forward-mode
            derivatives, arguments that are wrong) is left to PyTorch's own; False: it is an error, until this is left.
    """
    global _depth, _strict, _pytorch
    functional: Any = torch.nn.functional
    with _lock:
        if _depth == 0:
            _pytorch, functional.scaled_dot_product_attention = functional.scaled_dot_product_attention, _replacement
        _depth += 1
        _strict += not fallback
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            _strict -= not fallback
            if _depth == 0:
                functional.scaled_dot_product_attention = _pytorch
