# SPDX-License-Identifier: Apache-2.0
"""What the operators have in common."""
from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx
from onnx.reference.op_run import OpRun

import libattn
from libattn.attention import Stage

Floats = Any
"""A NumPy array of float32, float16, or bfloat16 of ml_dtypes."""

TYPES = ("float32", "bfloat16", "float16")
SOFTMAX_TYPES = {int(onnx.TensorProto.FLOAT): "float32", int(onnx.TensorProto.FLOAT16): "float16",
                 int(onnx.TensorProto.DOUBLE): "float64", int(onnx.TensorProto.BFLOAT16): "bfloat16"}


class Operator(OpRun):
    """An operator, with what its class must know of its versions.

    versions: those that the class computes, by the opset that introduced them. A node of another version, or with an
    attribute or an input that its version lacks, is refused when the model is loaded.
    """

    versions: ClassVar[tuple[int, ...]] = ()

    def __init__(self, onnx_node: Any, run_params: dict[str, Any], schema: Any = None) -> None:
        name, domain = type(self).__name__, type(self).op_domain
        opset = run_params["opsets"].get(domain)
        try:
            found = onnx.defs.get_schema(name, domain) if opset is None else onnx.defs.get_schema(name, opset, domain)
        except onnx.defs.SchemaError:
            raise ValueError(f"opset {opset} of the domain {domain!r} has no operator {name}") from None
        if found.since_version not in self.versions:
            raise NotImplementedError(f"{name} is of version {found.since_version}; libattn has "
                                      f"{', '.join(map(str, self.versions))}")
        for attribute in onnx_node.attribute:
            if attribute.name not in found.attributes:
                raise ValueError(f"{name} of version {found.since_version} has no attribute {attribute.name}")
        if len(onnx_node.input) > len(found.inputs):
            raise ValueError(f"{name} has {len(onnx_node.input)} inputs; version {found.since_version} takes "
                             f"{len(found.inputs)} at most")
        self.version: int = found.since_version
        super().__init__(onnx_node, run_params, schema)

    def asks_for(self, output: int) -> bool:
        """Whether the node names this output."""
        return len(self.output) > output and bool(self.output[output])


def floats(x: Any, name: str, axes: tuple[int, ...]) -> Floats:
    """x, if libattn takes its type and it has a number of axes that is expected."""
    if x.dtype.name not in TYPES:
        raise NotImplementedError(f"{name} has elements of the type {x.dtype}; libattn computes with {', '.join(TYPES)}")
    if x.ndim not in axes:
        raise ValueError(f"{name} has {x.ndim} axes; expected {' or '.join(map(str, axes))}")
    return x


def split_heads(x: Floats, name: str, heads: int) -> Floats:
    """(B, T, H * d) as (B, T, H, d): a view where strides permit."""
    if heads < 1 or x.shape[2] % heads:
        raise ValueError(f"{name} has rows of {x.shape[2]} numbers; expected a multiple of its {heads} heads")
    return x.reshape(x.shape[0], x.shape[1], heads, x.shape[2] // heads)


def side_by_side(x: Floats) -> Floats:
    """x, copied where the numbers of a row are apart, as they are behind a Transpose of the last axis."""
    return x if x.strides[-1] == x.itemsize or x.shape[-1] < 2 else np.ascontiguousarray(x)


def softmax_type(precision: int | None) -> str:
    """The type that softmax_precision names; float32, which libattn has, if it names none."""
    if precision is None:
        return "float32"
    if precision not in SOFTMAX_TYPES:
        raise ValueError(f"softmax_precision is {precision}; expected one of {', '.join(map(str, SOFTMAX_TYPES))}, "
                         "which are the numbers of " + ", ".join(SOFTMAX_TYPES.values()))
    return SOFTMAX_TYPES[precision]


def softmax64(scores: Any) -> Any:
    """Weights in float64; a row whose keys are all hidden has none."""
    scores = scores.astype(np.float64)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = weights.sum(axis=-1, keepdims=True)
    return np.divide(weights, total, out=weights, where=total != 0)


def scores_of(q: Floats, k: Floats, stage: Stage, **options: Any) -> Any:
    """Scores alone, float32 (B, Hq, Tq, Tk). They need no v, of which one column is the cheapest."""
    return libattn.attention(q, k, k[..., :1], return_scores=stage, **options).scores


def instead(numbers: Any) -> Any:
    """A function for libattn.attention() that puts numbers, (B, Hq, Tq, Tk), in the place of its own."""
    return lambda tile: numbers[tile.batch, tile.head, tile.queries, tile.keys]


def as_type(x: Any, dtype: Any) -> Any:
    """x in another type. What is too large for it becomes infinite, which is what the type has for it."""
    with np.errstate(over="ignore"):
        return x.astype(dtype, copy=False)
