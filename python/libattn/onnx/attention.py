# SPDX-License-Identifier: Apache-2.0
"""Attention of opset 23 and later."""
from __future__ import annotations

from typing import Any

import numpy as np

import libattn
from libattn.attention import Stage

from ._operator import (TYPES, Floats, Operator, as_type, floats, instead, scores_of, side_by_side, softmax64, softmax_type,
                        split_heads)

STAGES: tuple[Stage | None, ...] = ("scaled", "capped", "masked", None)
"""What qk_matmul_output holds, by qk_matmul_output_mode; the last mode has weights."""


class Attention(Operator):
    """Attention of versions 23, 24 (nonpad_kv_seqlen) and 25 (windows), by libattn.attention().

    Q: (B, Hq, Tq, dk), or with q_num_heads and kv_num_heads (B, Tq, Hq * dk); K and V likewise. float32, float16 and
    bfloat16, which V may have others of than Q. qk_matmul_output is computed if the node names it, and only then memory
    grows with Tq * Tk; so it does with the softmax_precision DOUBLE.
    """

    op_domain = ""
    versions = (23, 24, 25)

    def _run(self, Q: Floats, K: Floats, V: Floats, attn_mask: Any = None, past_key: Floats | None = None,
             past_value: Floats | None = None, nonpad_kv_seqlen: Any = None, *, is_causal: int = 0,
             kv_num_heads: int | None = None, left_window_size: int = -1, q_num_heads: int | None = None,
             qk_matmul_output_mode: int = 0, right_window_size: int = -1, scale: float | None = None,
             softcap: float = 0.0, softmax_precision: int | None = None) -> tuple[Any, ...]:
        if not 0 <= qk_matmul_output_mode < len(STAGES):
            raise ValueError(f"qk_matmul_output_mode is {qk_matmul_output_mode}; expected 0 to {len(STAGES) - 1}")
        q, k, v = _heads_first(Q, K, V, q_num_heads, kv_num_heads)
        past = 0
        if past_key is not None and past_value is not None:
            if nonpad_kv_seqlen is not None:
                raise ValueError("nonpad_kv_seqlen is given, and so is past_key; expected one of them")
            past = past_key.shape[2] if past_key.ndim == 4 else 0
            k, v = _behind("past_key", past_key, k), _behind("past_value", past_value, v)
        elif past_key is not None or past_value is not None:
            raise ValueError("one of past_key and past_value is missing; expected both or none")
        present = k, v
        q, k, v = map(side_by_side, (q, k, v))
        batch, _, tokens, _ = q.shape
        scoring: dict[str, Any] = {"scale": scale, "softcap": softcap or None}
        hiding: dict[str, Any] = {}
        offset: Any = past
        if nonpad_kv_seqlen is not None:
            hiding["lengths"] = _lengths(nonpad_kv_seqlen, batch, k.shape[2])
            offset = hiding["lengths"] - tokens
        if attn_mask is not None:
            longest = int(max(hiding["lengths"], default=0)) if "lengths" in hiding else 0
            hiding["mask"] = _mask(attn_mask, self.version, k.shape[2], longest)
        for name, size in (("left_window_size", left_window_size), ("right_window_size", right_window_size)):
            if size < -1:
                raise ValueError(f"{name} is {size}; expected -1 for no limit, or 0 or more")
        if left_window_size >= 0 or right_window_size >= 0:
            hiding["window"] = tuple(None if size < 0 else size for size in (left_window_size, right_window_size))
        if is_causal:
            hiding["causal"] = "offset"
        if is_causal or "window" in hiding:
            hiding["query_offset"] = offset
        out, written = _output(Q.ndim, q, v)
        stage = STAGES[qk_matmul_output_mode]
        asked = self.asks_for(3)
        more: Any = None
        if softmax_type(softmax_precision) == "float64":
            weights = as_type(softmax64(scores_of(q, k, "masked", **scoring, **hiding)), q.dtype)
            libattn.attention(q, k, v, out=written, weight_function=instead(as_type(weights, np.float32)), **scoring,
                              **hiding)
            if asked:
                more = weights if stage is None else _scores(q, k, stage, scoring, hiding)
        elif asked and stage is None:
            more = libattn.attention(q, k, v, out=written, return_weights=True, **scoring, **hiding).weights
        else:
            libattn.attention(q, k, v, out=written, **scoring, **hiding)
            if asked and stage is not None:
                more = _scores(q, k, stage, scoring, hiding)
        return (out, *present, as_type(more, q.dtype)) if asked else (out, *present)


def _heads_first(Q: Floats, K: Floats, V: Floats, q_heads: int | None, kv_heads: int | None) -> tuple[Floats, ...]:
    """Views (B, H, T, d)."""
    arrays = []
    for name, x, heads, attribute in (("Q", Q, q_heads, "q_num_heads"), ("K", K, kv_heads, "kv_num_heads"),
                                      ("V", V, kv_heads, "kv_num_heads")):
        floats(x, name, (3, 4))
        if x.ndim != Q.ndim:
            raise ValueError(f"{name} has {x.ndim} axes; expected {Q.ndim}, as Q has")
        if x.ndim == 3:
            if heads is None:
                raise ValueError(f"{attribute} is missing; {name} has 3 axes, and its heads must be told")
            x = split_heads(x, name, heads).transpose(0, 2, 1, 3)
        elif heads is not None and heads != x.shape[1]:
            raise ValueError(f"{attribute} is {heads}; {name} has {x.shape[1]} heads")
        arrays.append(x)
    return tuple(arrays)


def _behind(name: str, past: Floats, new: Floats) -> Floats:
    """past, then what is new, along the tokens."""
    floats(past, name, (4,))
    if past.dtype != new.dtype:
        raise ValueError(f"{name} has elements of the type {past.dtype}; expected {new.dtype}, as the new ones have")
    expected = (*new.shape[:2], past.shape[2], new.shape[3])
    if past.shape != expected:
        raise ValueError(f"{name} has the shape {past.shape}; expected {expected}")
    return np.concatenate((past, new), axis=2)


def _lengths(lengths: Any, batch: int, keys: int) -> Any:
    if lengths.shape != (batch,):
        raise ValueError(f"nonpad_kv_seqlen has the shape {lengths.shape}; expected ({batch},)")
    for number in lengths:
        if not 0 <= number <= keys:
            raise ValueError(f"nonpad_kv_seqlen has a {number}; expected 0 to {keys}, the tokens of K")
    return lengths


def _mask(mask: Any, version: int, keys: int, longest: int) -> Any:
    """A mask as libattn reads it, which hides the keys behind a shorter one, too, but repeats one of length 1."""
    if mask.dtype.name not in (*TYPES, "bool"):
        raise NotImplementedError(f"attn_mask has elements of the type {mask.dtype}; expected bool, "
                                  f"{', '.join(TYPES)}")
    if mask.ndim > 4:
        raise ValueError(f"attn_mask has {mask.ndim} axes; expected 4 at most")
    mask = np.atleast_1d(mask)
    columns = mask.shape[-1]
    if columns == keys:
        return mask
    if version == 23:
        if columns != 1:
            raise ValueError(f"attn_mask has {columns} columns; expected {keys}, the tokens of K, or 1 that is repeated")
        return mask
    if not longest <= columns < keys:
        raise ValueError(f"attn_mask has {columns} columns; expected {longest} to {keys}: no more than K has tokens, and no "
                         "fewer than nonpad_kv_seqlen says")
    if columns == 1:
        hidden = np.full((*mask.shape[:-1], 1), False if mask.dtype == bool else -np.inf, mask.dtype)
        return np.concatenate((mask, hidden), axis=-1)
    return mask


def _output(axes: int, q: Floats, v: Floats) -> tuple[Floats, Floats]:
    """A new Y of so many axes, and its view (B, Hq, Tq, dv)."""
    batch, heads, tokens, _ = q.shape
    if axes == 4:
        out = np.empty((batch, heads, tokens, v.shape[3]), q.dtype)
        return out, out
    out = np.empty((batch, tokens, heads, v.shape[3]), q.dtype)
    return out.reshape(batch, tokens, heads * v.shape[3]), out.transpose(0, 2, 1, 3)


def _scores(q: Floats, k: Floats, stage: Stage, scoring: dict[str, Any], hiding: dict[str, Any]) -> Any:
    """qk_matmul_output. Before the mask nothing hides a key, padding included, so all products are there."""
    return scores_of(q, k, stage, **scoring, **(hiding if stage == "masked" else {}))
