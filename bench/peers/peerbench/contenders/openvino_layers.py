# SPDX-License-Identifier: Apache-2.0
"""
OpenVINO's multi-head attention and BERT, compiled for the CPU for latency, with
the run's threads, in the precision of the case.

    mha     MatMul with weights as constants, Add, scaled_dot_product_attention; heads of keys repeated
            in the graph. q, k and v as one product and as three.
    embed   the graph that convert_minilm.py has exported

bf16 is asked for by its hint for inference precision. For int8 NNCF makes two graphs, and where it
is missing there is none:

    quantised   after training, on the case's own x, or on its sentences, as calibration: weights and
                activations in int8, with scales that are known before; what is not quantised in f32, and in bf16
    weights     in int8 with a scale for each output; OpenVINO quantises activations in the run, in groups
"""

import functools
import os
from pathlib import Path

import numpy as np

from .. import embedding, layer
from ..tensors import widen
from .base import Way, refuse
from .openvino_sdpa import OpenVino

# Sentences with which NNCF finds the ranges of activations; it asks for a few hundred inputs at most.
CALIBRATION = 64


class OpenVinoLayers(OpenVino):
    def __init__(self, threads):
        super().__init__(threads)
        self.encoders = {}

    def check(self, case):
        if case.dtype == "int8":
            try:
                import nncf  # noqa: F401  pylint: disable=unused-import
            except ImportError as error:
                refuse(True, f"int8 needs NNCF, which is not there: {error}")

    def ways(self, case, arrays):
        return self._mha(case, arrays) if case.suite == "mha" else self._embed(case, arrays)

    def _forms(self, case, make, inputs):
        """{label: compiled model} of a graph that `make` makes; `inputs` gives what NNCF calibrates with."""
        if case.dtype != "int8":
            compiled = self._compile(make(), case.dtype)
            return {f"computed in {self._precision(compiled)}": compiled}
        import nncf

        nncf.set_log_level(40)
        data = inputs()
        options = {"subset_size": len(data), "model_type": nncf.ModelType.TRANSFORMER, "fast_bias_correction": True}
        quantised = nncf.quantize(make(), nncf.Dataset(data), **options)
        compressed = nncf.compress_weights(make(), mode=nncf.CompressWeightsMode.INT8_SYM)
        graphs = {
            "NNCF quantised": (quantised, "f32"),
            "NNCF quantised, the rest in bf16": (quantised, "bf16"),
            "NNCF weights": (compressed, "f32"),
        }
        found = {}
        for label, (graph, rest) in graphs.items():
            compiled = self._compile(graph, rest)
            if rest == "bf16" and self._precision(compiled) != "bf16":
                continue  # the processor has none: it would be the first once more
            found[label] = compiled
        return found

    # ---------------------------------------------------------------- mha --

    def _mha(self, case, arrays):
        wide = {name: widen(a, case.dtype if a.dtype == np.uint16 else "f32") for name, a in arrays.items()}
        ways = []
        for count, products in (("one product", 1), ("three products", 3)):
            forms = self._forms(case, functools.partial(self._layer, case, wide, products), lambda: [wide["x"]])
            ways += [self._way_of(f"{count}, {label}", compiled, wide) for label, compiled in forms.items()]
        return ways

    def _way_of(self, label, compiled, arrays):
        request = compiled.create_infer_request()
        request.set_input_tensor(0, self.ov.Tensor(arrays["x"], shared_memory=True))

        def run():
            request.infer()
            return arrays, compiled, request

        def picked(_, wanted):
            return request.get_output_tensor(0).data[wanted[:, 0], wanted[:, 1]]

        return Way(label, run, picked)

    def _layer(self, case, arrays, products):
        """The graph of a layer."""
        ov, ops = self.ov, self.ops
        x = ops.parameter(list(arrays["x"].shape), ov.Type.f32, name="x")

        def linear(node, weight, bias):
            node = ops.matmul(node, ops.constant(np.ascontiguousarray(weight)), False, True)
            return node if bias is None else ops.add(node, ops.constant(bias))

        def split(node, heads):
            shape = ops.constant(np.array([case.batch, case.t, heads, case.head_dim], np.int64))
            order = ops.constant(np.array([0, 2, 1, 3], np.int64))
            return ops.transpose(ops.reshape(node, shape, False), order)

        counts = {"q": case.heads, "k": case.kv_heads, "v": case.kv_heads}
        if products == 1:
            weight = np.concatenate([arrays[f"w_{p}"] for p in "qkv"])
            bias = np.concatenate([arrays[f"b_{p}"] for p in "qkv"]) if case.bias else None
            lengths = ops.constant(np.array([case.widths[p] for p in "qkv"], np.int64))
            parts = ops.variadic_split(linear(x, weight, bias), ops.constant(np.int64(2)), lengths)
            rows = dict(zip("qkv", (parts.output(i) for i in range(3)), strict=True))
        else:
            rows = {p: linear(x, arrays[f"w_{p}"], layer.bias(arrays, p)) for p in "qkv"}
        q, k, v = (split(rows[p], counts[p]) for p in "qkv")
        if case.group > 1:
            k, v = (self._repeat(node, case) for node in (k, v))
        attended = ops.scaled_dot_product_attention(q, k, v, causal=case.causal)
        order = ops.constant(np.array([0, 2, 1, 3], np.int64))
        merged = ops.constant(np.array([case.batch, case.t, case.d_model], np.int64))
        joined = ops.reshape(ops.transpose(attended, order), merged, False)
        return ov.Model([linear(joined, arrays["w_o"], layer.bias(arrays, "o"))], [x])

    def _repeat(self, node, case):
        ops, shape = self.ops, [case.batch, case.kv_heads, case.group, case.t, case.head_dim]
        wide = ops.broadcast(
            ops.unsqueeze(node, ops.constant(np.array([2], np.int64))), ops.constant(np.array(shape, np.int64))
        )
        merged = ops.constant(np.array([case.batch, case.heads, case.t, case.head_dim], np.int64))
        return ops.reshape(wide, merged, False)

    # -------------------------------------------------------------- embed --

    def _feeds(self, batches, arrays):
        feeds = []
        for first, last in batches:
            ids, mask = embedding.padded(arrays, first, last)
            feeds.append({"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})
        return feeds

    def _encoders(self, case, arrays):
        def calibration():
            count = len(arrays["offsets"]) - 1
            each = max(1, count // CALIBRATION)
            return self._feeds([(i, i + 1) for i in range(0, count, each)], arrays)

        path = Path(os.environ["PEERS_MINILM_ONNX"]) / "plain.onnx"
        return self._forms(case, lambda: self.core.read_model(path), calibration)

    def _embed(self, case, arrays):
        if case.dtype not in self.encoders:
            self.encoders[case.dtype] = self._encoders(case, arrays)
        feeds = self._feeds(embedding.batches(case, arrays), arrays)

        def way(label, compiled):
            request = compiled.create_infer_request()

            def run():
                return [request.infer(feed)[0].copy() for feed in feeds]

            return Way(f"exported graph, {label}", run, lambda out, _: np.concatenate(out))

        return [way(label, compiled) for label, compiled in self.encoders[case.dtype].items()]


CONTENDERS = {"openvino": OpenVinoLayers}
