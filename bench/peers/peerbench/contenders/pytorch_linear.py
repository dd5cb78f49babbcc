# SPDX-License-Identifier: Apache-2.0
"""
PyTorch's linear layer in the ways in which people run it, of which the fastest is kept.

    linear                      torch.nn.functional.linear: MKL in f32, oneDNN in bf16
    mkldnn._linear_pointwise    oneDNN on weights that were packed before, the operator that torch.compile takes in bf16
    mkl._mkl_linear             the same of MKL, which it takes in f32
    dynamic int8                as pytorch_layers.py has it, and the operator below the modules on oneDNN's packed weights
"""

import numpy as np

from .. import linear
from ..tensors import widen
from .base import Way
from .pytorch_layers import PytorchLayers


class PytorchLinear(PytorchLayers):
    def ways(self, case, arrays):
        torch = self.torch
        own = torch.bfloat16 if case.dtype == "bf16" else torch.float32

        def tensor(array):
            return torch.from_numpy(widen(array, case.dtype if array.dtype == np.uint16 else "f32")).to(own)

        x = tensor(arrays["x"])
        weights = [
            (tensor(linear.matrix(arrays, n)), tensor(linear.bias(arrays, n))) for n in range(case.matrices)
        ]
        return [
            self._way(label, x, [make(*pair) for pair in weights]) for label, make in self._forms(case, x).items()
        ]

    def _forms(self, case, x):
        """{label: what makes a function of x from a weight and a bias}."""
        if case.dtype == "int8":
            return {
                "dynamic int8 linear": self._dynamic,
                "dynamic int8 of 8 bits": self._packed_linear,
                "dynamic int8 of 8 bits, oneDNN": self._packed_by_onednn,
            }
        forms = {"linear": self._plain_linear}
        if self.torch.backends.mkldnn.is_available():
            forms["mkldnn._linear_pointwise"] = lambda weight, bias: self._onednn(x, weight, bias)
        if case.dtype == "f32" and self.torch.backends.mkl.is_available():
            forms["mkl._mkl_linear"] = lambda weight, bias: self._mkl(x, weight, bias)
        return forms

    @staticmethod
    def _way(label, x, products):
        def run():
            # Each output is let go, so that the next has its memory: it is used again in a model, and stays in a cache.
            for product in products:
                product(x)

        return Way(
            label, run, lambda _, wanted: linear.take_rows(wanted, lambda n: products[n](x).float().numpy())
        )

    def _dynamic(self, weight, bias):
        return self._quantise(self.torch.nn.Sequential(self._linear_module(weight, bias)).eval())[0]

    def _packed_by_onednn(self, weight, bias):
        engines = self.torch.backends.quantized
        usual, engines.engine = engines.engine, "onednn"
        try:
            return self._packed_linear(weight, bias)
        finally:
            engines.engine = usual

    def _onednn(self, x, weight, bias):
        operators = self.torch.ops.mkldnn
        packed = operators._reorder_linear_weight(weight, len(x))
        return lambda x: operators._linear_pointwise(x, packed, bias, "none", [], "")

    def _mkl(self, x, weight, bias):
        operators, rows = self.torch.ops.mkl, len(x)
        packed = operators._mkl_reorder_linear_weight(weight, rows)
        return lambda x: operators._mkl_linear(x, packed, weight, bias, rows)


CONTENDERS = {"torch": PytorchLinear, "torch-mkl": PytorchLinear}
