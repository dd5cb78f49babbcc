# SPDX-License-Identifier: Apache-2.0
"""
ONNX Runtime's multi-head attention and BERT. A multi-head attention layer is built as a graph in every
way that its operators for CPUs offer, and the fastest is kept:

    com.microsoft Attention             one product for q, k, v inside the operator
    MatMul, com.microsoft MultiHeadAttention; grouped heads repeated by Expand
    MatMul, com.microsoft GroupQueryAttention   causal cases; q, k, v from one product or three
    MatMul, ai.onnx Attention           opset 23, takes grouped heads

The encoder is the graph that convert_minilm.py has made, as exported and as
optimised for BERT. All graph optimisations are on. In int8 the same graphs are
quantised dynamically before; bf16 it does not have for CPUs.
"""

import os
import tempfile
from pathlib import Path

import numpy as np

from .. import embedding, layer
from .base import Way, refuse
from .onnx_runtime import DOMAIN, OnnxRuntime


class Graph:
    """Nodes and weights of a model under construction."""

    def __init__(self, onnx):
        self.onnx, self.nodes, self.weights, self.inputs = onnx, [], {}, {}

    def add(self, operator, inputs, outputs, **options):
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, outputs, **options))
        return outputs[0]

    def weight(self, name, array):
        self.weights[name] = np.ascontiguousarray(array)
        return name

    def linear(self, x, weight, bias, name):
        """x times the transpose of a weight as PyTorch has it, which is transposed here and not in the run."""
        product = self.add("MatMul", [x, self.weight(f"w_{name}", weight.T)], [f"{name}_product"])
        if bias is None:
            return product
        return self.add("Add", [product, self.weight(f"b_{name}", bias)], [name])


class OnnxLayers(OnnxRuntime):
    def layout(self, case, arrays):
        return arrays

    def check(self, case):
        refuse(case.dtype == "bf16", "its operators for CPUs take no bf16")

    def ways(self, case, arrays):
        return self._mha(case, arrays) if case.suite == "mha" else self._embed(case, arrays)

    # ---------------------------------------------------------------- mha --

    def _mha(self, case, arrays):
        forms = {"MatMul, ai.onnx Attention": self._standard}
        if case.group == 1:
            forms["Attention"] = self._packed
            forms["MatMul, MultiHeadAttention"] = self._multi
        elif not case.causal:
            forms["MatMul, heads repeated, MultiHeadAttention"] = self._multi
        if case.causal:
            forms["MatMul, GroupQueryAttention"] = self._grouped
            forms["one MatMul, GroupQueryAttention"] = self._grouped_packed
        return [self._layer(label, case, arrays, build) for label, build in forms.items()]

    def _layer(self, label, case, arrays, build):
        """A way from a function that adds to a graph all up to the last product, and returns that product's input."""
        graph = Graph(self.onnx)
        attended = build(graph, case, arrays)
        last = graph.linear(attended, arrays["w_o"], layer.bias(arrays, "o"), "o")
        session = self._session_of(case, graph, {"x": arrays["x"].shape}, {last: arrays["x"].shape})
        binding = session.io_binding()
        values = [self.ort.OrtValue.ortvalue_from_numpy(a) for a in (arrays["x"], np.full_like(arrays["x"], np.nan))]
        binding.bind_ortvalue_input("x", values[0])
        binding.bind_ortvalue_output(last, values[1])

        def run():
            session.run_with_iobinding(binding)
            return values

        def rows(result, wanted):
            return result[1].numpy()[wanted[:, 0], wanted[:, 1]]

        return Way(label, run, rows)

    def _session_of(self, case, graph, inputs, outputs):
        """A session of a graph, in the precision of the case; inputs and outputs are {name: shape}, all f32."""
        helper, number = self.onnx.helper, self.onnx.TensorProto.FLOAT
        info = [
            [helper.make_tensor_value_info(name, number, shape) for name, shape in part.items()]
            for part in (inputs, outputs)
        ]
        weights = [self.onnx.numpy_helper.from_array(array, name) for name, array in graph.weights.items()]
        imports = [helper.make_opsetid("", 23), helper.make_opsetid(DOMAIN, 1)]
        model = helper.make_model(
            helper.make_graph(graph.nodes, "layer", *info, weights), opset_imports=imports, ir_version=10
        )
        return self._open(self._quantised(model) if case.dtype == "int8" else model.SerializeToString())

    @staticmethod
    def _quantised(model):
        """The bytes of a model whose products are quantised dynamically, weights with a scale for each output."""
        from onnxruntime.quantization import QuantType, quantize_dynamic

        # Of the two operators called Attention it knows its own, which holds a product.
        own = any(n.op_type == "Attention" and n.domain == DOMAIN for n in model.graph.node)
        kinds = ["MatMul", "Attention"] if own else ["MatMul"]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "int8.onnx"
            # The types behind operators of its own domain are not inferred.
            options = {"DefaultTensorType": model.graph.output[0].type.tensor_type.elem_type}
            quantize_dynamic(
                model, str(path), kinds, per_channel=True, weight_type=QuantType.QInt8, extra_options=options
            )
            return path.read_bytes()

    @staticmethod
    def _three(graph, arrays):
        return [graph.linear("x", arrays[f"w_{p}"], layer.bias(arrays, p), p) for p in "qkv"]

    @staticmethod
    def _joined(case, arrays):
        """Weight and bias of one product for q, k and v."""
        biases = np.concatenate([arrays[f"b_{p}"] for p in "qkv"]) if case.bias else None
        return np.concatenate([arrays[f"w_{p}"] for p in "qkv"]), biases

    def _packed(self, graph, case, arrays):
        weight, biases = self._joined(case, arrays)
        inputs = ["x", graph.weight("w_qkv", weight.T), graph.weight("b_qkv", biases) if case.bias else ""]
        options = {"num_heads": case.heads, "unidirectional": int(case.causal)}
        return graph.add("Attention", inputs, ["attended"], domain=DOMAIN, **options)

    def _multi(self, graph, case, arrays):
        q, k, v = self._three(graph, arrays)
        if case.group > 1:
            k, v = (self._repeat(graph, case, name) for name in (k, v))
        options = {"num_heads": case.heads, "unidirectional": int(case.causal)}
        return graph.add("MultiHeadAttention", [q, k, v], ["attended"], domain=DOMAIN, **options)

    @staticmethod
    def _repeat(graph, case, name):
        apart = graph.weight("apart", np.array([case.batch, case.t, case.kv_heads, 1, case.head_dim], np.int64))
        wide = graph.weight("wide", np.array([case.batch, case.t, case.kv_heads, case.group, case.head_dim], np.int64))
        joined = graph.weight("joined", np.array([case.batch, case.t, case.d_model], np.int64))
        split = graph.add("Reshape", [name, apart], [f"{name}_split"])
        return graph.add("Reshape", [graph.add("Expand", [split, wide], [f"{name}_wide"]), joined], [f"{name}_joined"])

    def _standard(self, graph, case, arrays):
        options = {"q_num_heads": case.heads, "kv_num_heads": case.kv_heads, "is_causal": int(case.causal)}
        return graph.add("Attention", self._three(graph, arrays), ["attended"], **options)

    def _grouped(self, graph, case, arrays):
        return self._group(graph, case, self._three(graph, arrays))

    def _grouped_packed(self, graph, case, arrays):
        return self._group(graph, case, [graph.linear("x", *self._joined(case, arrays), "qkv"), "", ""])

    @staticmethod
    def _group(graph, case, inputs):
        last = graph.weight("last", np.full(case.batch, case.t - 1, np.int32))
        total = graph.weight("total", np.array([case.t], np.int32))
        options = {"num_heads": case.heads, "kv_num_heads": case.kv_heads}
        outputs = ["attended", "present_k", "present_v"]
        return graph.add("GroupQueryAttention", [*inputs, "", "", last, total], outputs, domain=DOMAIN, **options)

    # -------------------------------------------------------------- embed --

    def _embed(self, case, arrays):
        folder = Path(os.environ["PEERS_MINILM_ONNX"])
        tail = "-int8" if case.dtype == "int8" else ""
        return [self._encoder(label, folder / f"{label}{tail}.onnx", case, arrays) for label in ("plain", "fused")]

    def _encoder(self, label, path, case, arrays):
        session, feeds = self._open(str(path)), []
        types = {i.name: np.int32 if "int32" in i.type else np.int64 for i in session.get_inputs()}
        for first, last in embedding.batches(case, arrays):
            ids, mask = embedding.padded(arrays, first, last)
            values = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            feeds.append({name: values[name].astype(kind) for name, kind in types.items()})

        def run():
            return [session.run(None, feed)[0] for feed in feeds]

        return Way(f"{label} graph", run, lambda out, _: np.concatenate(out))


CONTENDERS = {"onnxruntime": OnnxLayers}
