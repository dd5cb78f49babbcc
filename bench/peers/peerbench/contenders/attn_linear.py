# SPDX-License-Identifier: Apache-2.0
"""
libattn_nn's linear layer: attn_linear_forward() with weights packed before, in each format and with each product that a
precision has, of which the fastest is kept.
"""

import ctypes as c

from .. import linear
from ..tensors import widen
from .attn_nn import AttnLayers, LinearFormat, LinearOptions, activations, matrix, unwritten, vector
from .base import Way

# {precision: {name: attn_weight_format, attn_multiply, inputs with one scale}}
FORMATS = {
    "f32": {"products in f32": (1, 0, 0)},
    "bf16": {"products in bf16": (2, 1, 0), "products in f32": (2, 0, 0)},
    "int8": {
        "scales of outputs, products in int8": (3, 2, 0),
        "scales of 64 inputs, products in int8": (3, 2, 64),
        "scales of outputs, products in f32": (3, 0, 0),
    },
}


class AttnLinear(AttnLayers):
    def ways(self, case, arrays):
        return [self._linear(case, arrays, *form) for form in FORMATS[case.dtype].items()]

    def _linear(self, case, arrays, name, format_of):
        form = LinearFormat(**dict(zip(("weights", "multiply", "group"), format_of, strict=True)))
        layers = [self._layer(form, linear.matrix(arrays, n), linear.bias(arrays, n)) for n in range(case.matrices)]
        # One for all matrices: memory of activations is used again in a model, and stays in a cache.
        out = unwritten(1, case.rows, case.outputs, precision=case.dtype)
        options = LinearOptions(num_threads=self.threads)
        views = [activations(arrays["x"][None]), activations(out), options]
        pointers = [c.addressof(view) for view in views]
        calls = [(layer.pointer, *pointers) for layer in layers]
        forward, keep = self._function("attn_linear_forward"), (arrays, out, views, layers)

        def run():
            for call in calls:
                self._check(forward(*call))
            return keep

        def output_of(n):
            self._check(forward(*calls[n]))
            return widen(out[0], case.dtype)

        way = Way(f"attn_linear_forward, {name}", run, lambda _, wanted: linear.take_rows(wanted, output_of))
        way.detail = self._function("attn_linear_isa")(layers[0].pointer).decode()
        return way

    def _layer(self, form, weights, biases):
        return self._make(
            "attn_linear_quantize",
            "attn_linear_destroy",
            c.byref(form),
            1,
            c.byref(matrix(weights)),
            c.byref(vector(biases)),
        )


CONTENDERS = {"attn": AttnLinear}
