# SPDX-License-Identifier: Apache-2.0
"""FlexAttention of the preview opset 1."""
from __future__ import annotations

from typing import Any

import numpy as np

import libattn

from ._operator import Floats, Operator, as_type, floats, instead, scores_of, side_by_side, softmax64, softmax_type


class FlexAttention(Operator):
    """FlexAttention of ai.onnx.preview's version 1, by libattn.attention().

    Q: (B, Hq, Tq, dk), K: (B, H, Tk, dk), V: (B, H, Tk, dv). Graphs see all scores and all weights at once, as the
    operator defines it, so with score_mod or prob_mod memory grows with Tq * Tk. What they compute takes the place of
    libattn's own numbers by score_function and weight_function. They may use values of the graph around them. A row that
    score_mod hides wholly gives 0.
    """

    op_domain = "ai.onnx.preview"
    versions = (1,)

    def need_context(self) -> bool:
        return bool(self.has_subgraph)

    def _run(self, Q: Floats, K: Floats, V: Floats, *, score_mod: Any = None, prob_mod: Any = None,
             scale: float | None = None, softmax_precision: int | None = None,
             context: dict[str, Any] | None = None, **others: Any) -> tuple[Any, ...]:
        q, k, v = (side_by_side(floats(x, name, (4,))) for x, name in ((Q, "Q"), (K, "K"), (V, "V")))
        kind = _dtype(softmax_type(softmax_precision))
        options: dict[str, Any] = {"scale": scale}
        scores = weights = None
        if score_mod is not None or kind == np.float64:
            scores = as_type(scores_of(q, k, "scaled", scale=scale), kind)
            if score_mod is not None:
                scores = self._modified("score_mod", scores, context, others)
            options["score_function"] = instead(as_type(scores, np.float32))
        if kind == np.float64:
            weights = softmax64(scores)
        elif prob_mod is not None:
            weights = as_type(libattn.attention(q, k, v, return_weights=True, **options).weights, kind)
        if prob_mod is not None:
            weights = self._modified("prob_mod", weights, context, others)
        if weights is not None:
            options["weight_function"] = instead(as_type(weights, np.float32))
        return (libattn.attention(q, k, v, **options),)

    def _modified(self, name: str, numbers: Any, context: dict[str, Any] | None, others: dict[str, Any]) -> Any:
        """What the graph of an attribute makes of scores or weights, of the same shape and type."""
        graph = next(attribute.g for attribute in self.onnx_node.attribute if attribute.name == name)
        if len(graph.input) != 1 or len(graph.output) != 1:
            raise ValueError(f"{name} has {len(graph.input)} inputs and {len(graph.output)} outputs; expected one each")
        # Its own constants come before values of the same name around it.
        own = {constant.name for constant in graph.initializer}
        feeds = {key: value for key, value in (context or {}).items() if key not in own}
        feeds[graph.input[0].name] = numbers
        given = {key: value for key, value in others.items() if value is not None}
        result = getattr(self, f"_run_{name}")(feeds, **given)[0]
        if result.shape != numbers.shape or result.dtype != numbers.dtype:
            raise ValueError(f"{name} gives {result.dtype} of the shape {result.shape}; expected {numbers.dtype} of "
                             f"{numbers.shape}, as it gets")
        return result


def _dtype(name: str) -> Any:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)
