#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model of ONNX's operators RotaryEmbedding, Attention and LinearAttention, evaluated by the onnx package's reference
implementations and with libattn's operators in their place. Prints how far the results are apart.

Needs the onnx package, 1.23 or later. Exit code: 0 they agree, 1 they do not.
"""
from __future__ import annotations

import sys
from typing import Any

import libattn.onnx
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

WIDTH, HEADS, KV_HEADS, HEAD_SIZE, POSITIONS = 64, 4, 2, 16, 256
TOLERANCE = 1e-5  # relative to the largest number; float32, and sums in another order


def weights(random: np.random.Generator) -> list[onnx.TensorProto]:
    """Projections, and the cosines and sines of all positions."""
    sizes = {"wq": HEADS * HEAD_SIZE, "wk": KV_HEADS * HEAD_SIZE, "wv": KV_HEADS * HEAD_SIZE, "lk": KV_HEADS * HEAD_SIZE,
             "lv": KV_HEADS * HEAD_SIZE, "ld": KV_HEADS}
    arrays = {name: random.standard_normal((WIDTH, columns)) * WIDTH**-0.5 for name, columns in sizes.items()}
    angles = np.outer(np.arange(POSITIONS), 10000.0 ** (-np.arange(HEAD_SIZE // 2) / (HEAD_SIZE // 2)))
    arrays |= {"cos": np.cos(angles), "sin": np.sin(angles)}
    return [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]


def build(random: np.random.Generator) -> onnx.ModelProto:
    """A layer of causal attention, then one of gated linear attention, for any batch and any number of tokens."""
    heads: dict[str, Any] = {"q_num_heads": HEADS, "kv_num_heads": KV_HEADS}
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "wq"], ["q"]),
        node("MatMul", ["x", "wk"], ["k"]),
        node("MatMul", ["x", "wv"], ["v"]),
        node("RotaryEmbedding", ["q", "cos", "sin", "positions"], ["q_turned"], num_heads=HEADS),
        node("RotaryEmbedding", ["k", "cos", "sin", "positions"], ["k_turned"], num_heads=KV_HEADS),
        node("Attention", ["q_turned", "k_turned", "v"], ["mixed"], is_causal=1, **heads),
        node("Add", ["x", "mixed"], ["hidden"]),
        node("MatMul", ["hidden", "lk"], ["keys"]),
        node("MatMul", ["hidden", "lv"], ["values"]),
        node("MatMul", ["hidden", "ld"], ["gate"]),
        node("Softplus", ["gate"], ["rate"]),
        node("Neg", ["rate"], ["decay"]),
        node("LinearAttention", ["hidden", "keys", "values", "", "decay"], ["y", "state"], update_rule="gated", **heads),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "tokens", WIDTH]),
              helper.make_tensor_value_info("positions", TensorProto.INT64, ["batch", "tokens"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "tokens", WIDTH]),
               helper.make_tensor_value_info("state", TensorProto.FLOAT, ["batch", KV_HEADS, HEAD_SIZE, HEAD_SIZE])]
    model = helper.make_model(helper.make_graph(nodes, "layers", inputs, outputs, weights(random)),
                              opset_imports=[helper.make_opsetid("", 27)])
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> int:
    """Compares the two at several sizes."""
    random = np.random.default_rng(0)
    model = build(random)
    plain, ours = ReferenceEvaluator(model), ReferenceEvaluator(model, new_ops=libattn.onnx.ops)
    worst = 0.0
    for batch, tokens in ((1, 1), (2, 37), (1, 200)):
        given = {"x": random.standard_normal((batch, tokens, WIDTH)).astype(np.float32),
                 "positions": np.tile(np.arange(tokens), (batch, 1))}
        for name, want, got in zip(plain.output_names, plain.run(None, given), ours.run(None, given), strict=True):
            difference = float(np.abs(got - want).max() / np.abs(want).max())
            worst = max(worst, difference)
            print(f"batch {batch}, {tokens} tokens, {name}: {difference:.1e} of the largest number apart")
    if not worst <= TOLERANCE:
        print(f"too far apart: expected {TOLERANCE:.0e} at most", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
