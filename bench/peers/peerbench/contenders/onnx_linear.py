# SPDX-License-Identifier: Apache-2.0
"""
ONNX Runtime's linear layer: MatMul and Add, of which it makes one product with packed weights. All matrices of a case are
in one graph; each has an input of its own, so that none is quantised for all of them at once. In int8 the graph is
quantised dynamically, as in onnx_layers.py.
"""

import numpy as np

from .. import linear
from .base import Way
from .onnx_layers import Graph, OnnxLayers


class OnnxLinear(OnnxLayers):
    def ways(self, case, arrays):
        graph = Graph(self.onnx)
        inputs = [f"x_{n}" for n in range(case.matrices)]
        outputs = [
            graph.linear(x, linear.matrix(arrays, n), linear.bias(arrays, n), f"y_{n}") for n, x in enumerate(inputs)
        ]
        shape = (case.rows, case.outputs)
        session = self._session_of(
            case, graph, dict.fromkeys(inputs, arrays["x"].shape), dict.fromkeys(outputs, shape)
        )
        x = self.ort.OrtValue.ortvalue_from_numpy(arrays["x"])

        def bound(values):
            binding = session.io_binding()
            for name in inputs:
                binding.bind_ortvalue_input(name, x)
            for name, value in zip(outputs, values, strict=True):
                binding.bind_ortvalue_output(name, value)
            return binding

        def unwritten():
            return self.ort.OrtValue.ortvalue_from_numpy(np.full(shape, np.nan, np.float32))

        # One for all matrices: memory of activations is used again in a model, and stays in a cache.
        same = bound([unwritten()] * case.matrices)

        def rows(_, wanted):
            values = [unwritten() for _ in outputs]
            session.run_with_iobinding(bound(values))
            return linear.take_rows(wanted, lambda n: values[n].numpy())

        return [Way("MatMul, Add", lambda: session.run_with_iobinding(same), rows)]


CONTENDERS = {"onnxruntime": OnnxLinear}
