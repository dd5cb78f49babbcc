# SPDX-License-Identifier: Apache-2.0
"""LinearAttention of opset 27."""
from __future__ import annotations

from typing import Any

import numpy as np

import libattn

from ._operator import Floats, Operator, as_type, floats, side_by_side, split_heads

RULES = {"linear": (), "gated": ("decay",), "delta": ("beta",), "gated_delta": ("decay", "beta")}
"""The inputs that each update_rule has."""


class LinearAttention(Operator):
    """LinearAttention of version 27, by libattn.linear_attention().

    query: (B, T, Hq * dk), key: (B, T, H * dk), value: (B, T, H * dv), decay: (B, T, H) or (B, T, H * dk), beta: (B, T,
    H) or (B, T, 1); past_state: (B, H, dk, dv). The state is float32 while it is computed with; present_state has the type
    of past_state, or of query without one. chunk_size is a hint of which no use is made.
    """

    op_domain = ""
    versions = (27,)

    def _run(self, query: Floats, key: Floats, value: Floats, past_state: Floats | None = None,
             decay: Floats | None = None, beta: Floats | None = None, *, q_num_heads: int, kv_num_heads: int,
             chunk_size: int = 64, scale: float = 0.0, update_rule: str = "gated_delta") -> tuple[Any, ...]:
        if update_rule not in RULES:
            raise ValueError(f"update_rule is {update_rule!r}; expected one of {', '.join(RULES)}")
        for name, gate in (("decay", decay), ("beta", beta)):
            if (gate is not None) != (name in RULES[update_rule]):
                raise ValueError(f"{name} is {'missing' if gate is None else 'given'}; the rule {update_rule!r} has "
                                 f"{' and '.join(RULES[update_rule]) or 'neither decay nor beta'}")
        if kv_num_heads < 1 or q_num_heads < 1 or q_num_heads % kv_num_heads:
            raise ValueError(f"q_num_heads is {q_num_heads}; expected a multiple of kv_num_heads, which is {kv_num_heads}")
        q = side_by_side(split_heads(floats(query, "query", (3,)), "query", q_num_heads))
        k = side_by_side(split_heads(floats(key, "key", (3,)), "key", kv_num_heads))
        v = side_by_side(split_heads(floats(value, "value", (3,)), "value", kv_num_heads))
        batch, tokens, _, dk = q.shape
        options: dict[str, Any] = {"scale": scale or None}
        if decay is not None:
            floats(decay, "decay", (3,))
            options["decay"] = _decay(decay, batch, tokens, kv_num_heads, dk)
        if beta is not None:
            floats(beta, "beta", (3,))
            if beta.shape not in ((batch, tokens, kv_num_heads), (batch, tokens, 1)):
                raise ValueError(f"beta has the shape {beta.shape}; expected {(batch, tokens, kv_num_heads)} or "
                                 f"{(batch, tokens, 1)}")
            options["beta"] = beta[..., None]
        if past_state is not None:
            floats(past_state, "past_state", (4,))
            options["state"] = np.ascontiguousarray(past_state, np.float32)
        out = np.empty((batch, tokens, q_num_heads, v.shape[3]), q.dtype)
        _, state = libattn.linear_attention(q, k, v, out=out, return_state=True, layout="bthd", **options)
        kind = query.dtype if past_state is None else past_state.dtype
        return out.reshape(batch, tokens, q_num_heads * v.shape[3]), as_type(state, kind)


def _decay(decay: Floats, batch: int, tokens: int, heads: int, dk: int) -> Floats:
    """(B, T, H, 1), or (B, T, H, dk)."""
    if decay.shape not in ((batch, tokens, heads), (batch, tokens, heads * dk)):
        raise ValueError(f"decay has the shape {decay.shape}; expected {(batch, tokens, heads)} or "
                         f"{(batch, tokens, heads * dk)}")
    if (decay > 0).any():
        raise NotImplementedError(f"decay has a {decay.max()}, with which the state grows; libattn takes numbers up to 0")
    return side_by_side(split_heads(decay, "decay", heads))
