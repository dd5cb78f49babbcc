# SPDX-License-Identifier: Apache-2.0
"""ONNX's operators of attention, computed by libattn inside ONNX's reference evaluator.

    import libattn.onnx
    from onnx.reference import ReferenceEvaluator

    outputs = ReferenceEvaluator(model, new_ops=libattn.onnx.ops).run(None, inputs)

`python -m libattn.onnx report` runs the onnx package's own cases of these operators.
"""
from onnx.reference.op_run import OpRun

from .attention import Attention
from .flex import FlexAttention
from .linear_attention import LinearAttention
from .rotary import RotaryEmbedding

ops: list[type[OpRun]] = [Attention, FlexAttention, LinearAttention, RotaryEmbedding]
"""For ReferenceEvaluator's new_ops."""

__all__ = ["Attention", "FlexAttention", "LinearAttention", "RotaryEmbedding", "ops"]
