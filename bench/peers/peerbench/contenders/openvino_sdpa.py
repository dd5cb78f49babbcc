# SPDX-License-Identifier: Apache-2.0
"""
OpenVINO's scaled_dot_product_attention: a model of one operator, compiled for
the CPU with the precision that the case names, for latency, with the run's
threads. Inputs lie in this process's memory; results in the request's.

What the plugin makes of the precision is its own decision. Where the processor
has no f16 arithmetic it computes in bf16 when told f16, with bf16's errors; then it is
told f32, which keeps what the f16 inputs hold. The way's name says what it
answered.
"""

import sys

import numpy as np

from ..tensors import from_bf16
from .base import Contender, Way, bhtd_rows


class OpenVino(Contender):
    def __init__(self, threads):
        super().__init__(threads)
        # Its telemetry would start a process and send what it counts; without that package OpenVINO has a stub for it.
        sys.modules["openvino_telemetry"] = None
        import openvino
        from openvino import opset13

        self.ov, self.ops = openvino, opset13
        self.core = openvino.Core()

    def version(self):
        return self.ov.__version__

    def _tensor(self, array, element):
        if element == self.ov.Type.bf16:
            return self.ov.Tensor(array, array.shape, element)
        return self.ov.Tensor(array, shared_memory=True)

    def _way(self, label, case, element, arrays, mask):
        ov, ops = self.ov, self.ops
        parameters = [ops.parameter(list(arrays[n].shape), element) for n in ("q", "k", "v")]
        inputs = [self._tensor(arrays[n], element) for n in ("q", "k", "v")]
        keep = [arrays]
        k, v = parameters[1:]
        if case.group > 1:
            k, v = (self._repeat_heads(x, case) for x in (k, v))
        extra = []
        if mask is not None:
            kind = ov.Type.boolean if mask.dtype == bool else element
            extra = [ops.parameter(list(mask.shape), kind)]
            keep.append(mask)
            inputs.append(self._tensor(mask, kind))
        attention = ops.scaled_dot_product_attention(parameters[0], k, v, *extra, causal=case.causal)
        model = ov.Model([attention], parameters + extra)
        compiled = self._compile(model, case.dtype)
        if case.dtype == "f16" and self._precision(compiled) == "bf16":
            compiled = self._compile(model, "f32")
        request = compiled.create_infer_request()
        for index, tensor in enumerate(inputs):
            request.set_input_tensor(index, tensor)

        def run():
            request.infer()
            return keep, compiled, request

        def rows(_, wanted):
            data = request.get_output_tensor(0).data
            data = from_bf16(data.view(np.uint16)) if element == ov.Type.bf16 else data
            return bhtd_rows(data, wanted).astype(np.float32)

        return Way(f"{label}, computed in {self._precision(compiled)}", run, rows)

    def _compile(self, model, precision):
        options = {
            "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": self.threads,
            "PERFORMANCE_HINT": "LATENCY",
        }
        return self.core.compile_model(model, "CPU", options)

    @staticmethod
    def _precision(compiled):
        return compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()

    def _repeat_heads(self, node, case):
        """Key heads repeated within the model, as exported models do; the plugin may fuse it."""
        ops, shape = self.ops, [case.batch, case.kv_heads, case.group, case.tk, case.d]
        axis = ops.constant(np.array([2], np.int64))
        wide = ops.broadcast(ops.unsqueeze(node, axis), ops.constant(np.array(shape, np.int64)))
        merged = ops.constant(np.array([case.batch, case.heads, case.tk, case.d], np.int64))
        return ops.reshape(wide, merged, False)

    def ways(self, case, arrays):
        element = {"f32": self.ov.Type.f32, "bf16": self.ov.Type.bf16, "f16": self.ov.Type.f16}[case.dtype]
        if not (case.mask or case.padded):
            return [self._way("direct", case, element, arrays, None)]
        live = arrays["mask"] if case.mask else self._live_keys(case)
        return [
            self._way("boolean mask", case, element, arrays, live),
            self._way("additive mask", case, element, arrays, self._additive(live, case.dtype)),
        ]

    @staticmethod
    def _live_keys(case):
        return (np.arange(case.tk)[None, :] < np.array(case.lengths)[:, None])[:, None, None, :]

    @staticmethod
    def _additive(live, dtype):
        minus_inf = {"f32": np.float32(-np.inf), "f16": np.float16(-np.inf), "bf16": np.uint16(0xFF80)}[dtype]
        return np.where(live, minus_inf.dtype.type(0), minus_inf)


CONTENDERS = {"openvino": OpenVino}
