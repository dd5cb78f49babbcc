# SPDX-License-Identifier: Apache-2.0
"""
OpenVINO's linear layer: MatMul with weights as constants, and Add, in the forms that openvino_layers.py has for a
precision; in bf16 with activations in f32, which its nodes convert, and in bf16. All matrices of a case are in one graph;
each has an input of its own, so that none is quantised or converted for all of them at once.
"""

import functools

import numpy as np

from .. import linear
from ..tensors import from_bf16, to_bf16, widen
from .base import Way
from .openvino_layers import OpenVinoLayers


class OpenVinoLinear(OpenVinoLayers):
    def ways(self, case, arrays):
        wide = {name: widen(a, case.dtype if a.dtype == np.uint16 else "f32") for name, a in arrays.items()}
        ways = []
        for activations in ("f32", "bf16") if case.dtype == "bf16" else ("f32",):
            element = getattr(self.ov.Type, activations)
            make = functools.partial(self._products, case, wide, element)
            x = to_bf16(wide["x"]) if activations == "bf16" else wide["x"]
            for label, compiled in self._forms(case, make, lambda: [[wide["x"]] * case.matrices]).items():
                ways.append(self._linear(f"activations in {activations}, {label}", case, compiled, x, element))
        return ways

    def _products(self, case, arrays, element):
        """The graph of all products, with weights in f32, which the plugin rounds."""
        ops, parameters, results = self.ops, [], []
        for n in range(case.matrices):
            parameters.append(ops.parameter([case.rows, case.inputs], element, name=f"x_{n}"))
            weight, bias = (ops.constant(of(arrays, n)) for of in (linear.matrix, linear.bias))
            y = ops.add(ops.matmul(self._as(parameters[-1], self.ov.Type.f32), weight, False, True), bias)
            results.append(self._as(y, element))
        return self.ov.Model(results, parameters)

    def _as(self, node, element):
        return node if node.get_element_type() == element else self.ops.convert(node, element)

    def _linear(self, label, case, compiled, x, element):
        shape = (case.rows, case.outputs)

        def request_with(outputs):
            request = compiled.create_infer_request()
            for n, output in enumerate(outputs):
                request.set_input_tensor(n, self._tensor(x, element))
                request.set_output_tensor(n, self._tensor(output, element))
            return request

        def unwritten():
            return np.full(shape, 0xFFFF, np.uint16) if x.dtype == np.uint16 else np.full(shape, np.nan, np.float32)

        # One for all matrices: memory of activations is used again in a model, and stays in a cache.
        out = unwritten()
        request = request_with([out] * case.matrices)

        def run():
            request.infer()
            return x, out, compiled, request

        def rows(_, wanted):
            outputs = [unwritten() for _ in range(case.matrices)]
            request_with(outputs).infer()
            read = from_bf16 if x.dtype == np.uint16 else np.asarray
            return linear.take_rows(wanted, lambda n: read(outputs[n]))

        return Way(label, run, rows)


CONTENDERS = {"openvino": OpenVinoLinear}
