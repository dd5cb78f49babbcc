# SPDX-License-Identifier: Apache-2.0
"""
ONNX Runtime's GroupQueryAttention for a token of decoding: a model with a node for
each layer, to which the new token's query, key and value are handed over.

Past and present keys are bound to the same memory, in which the operator then writes the
new ones in place, as ONNX Runtime GenAI has it; the same again in every call. Caches
in int8 and int4 have a scale for each channel of a head, which is part of the model:
it is taken from the values themselves. Their queries are f32.
"""

import numpy as np

from .. import decode
from ..tensors import widen
from .base import Way, bthd_rows, refuse
from .onnx_runtime import DOMAIN, OnnxRuntime


BITS = {"int8": 8, "int4": 4}

# Of 16 even steps on normal numbers of deviation 1, for the least mean square (Max 1960, table II).
NORMAL_STEP = 0.3352


class OnnxDecode(OnnxRuntime):
    def check(self, case):
        refuse(case.dtype == "bf16", "its attention operators for CPUs take no bf16")
        refuse(case.dtype == "e4m3", "its attention has no keys and values in fp8")

    def layout(self, case, arrays):
        # Caches lie as batch, head, token, channel; a single token's query lies the same in either order.
        return arrays

    def ways(self, case, arrays):
        nodes, inputs, outputs, shared, keep = [], {}, {}, {}, []
        options = {"num_heads": case.heads, "kv_num_heads": case.kv_heads}
        inputs["last"] = np.full(case.batch, case.tk - 1, np.int32)
        inputs["total"] = np.array([case.tk], np.int32)
        if case.quantised:
            options.update(k_quant_type="PER_CHANNEL", v_quant_type="PER_CHANNEL", kv_cache_bit_width=BITS[case.dtype])
        parts = zip(*(decode.layers(case, arrays[n]) for n in ("q", "k", "v")), strict=True)
        for n, (q, k, v) in enumerate(parts):
            values = {"q": q, "k": k[:, :, -1:], "v": v[:, :, -1:]}
            inputs.update({f"{name}{n}": self._token(case, x) for name, x in values.items()})
            names = [f"{name}{n}" for name in ("q", "k", "v", "past_k", "past_v")] + ["last", "total"]
            for name, x in (("k", k), ("v", v)):
                if case.quantised:
                    x, inputs[f"scale_{name}{n}"] = quantise(widen(x, case.given), BITS[case.dtype])
                inputs[f"past_{name}{n}"] = x
                shared[f"present_{name}{n}"] = f"past_{name}{n}"
            if case.quantised:
                names += [""] * 5 + [f"scale_k{n}", f"scale_v{n}"]
            outputs[f"out{n}"] = np.full_like(inputs[f"q{n}"], np.nan)
            results = [f"{name}{n}" for name in ("out", "present_k", "present_v")]
            nodes.append(
                self.onnx.helper.make_node("GroupQueryAttention", names, results, domain=DOMAIN, **options)
            )
        every = {**outputs, **{name: inputs[past] for name, past in shared.items()}}
        binding, session = self._bound(nodes, inputs, outputs, every, shared, keep)

        def run():
            session.run_with_iobinding(binding)
            return keep

        def rows(_, wanted):
            out = np.concatenate(list(outputs.values()))
            return bthd_rows(out.reshape(len(out), 1, case.heads, case.d), wanted).astype(np.float32)

        return [Way("past and present in one buffer", run, rows)]

    @staticmethod
    def _token(case, x):
        """batch x heads x 1 x d as batch x 1 x heads * d, in the type of queries."""
        x = np.ascontiguousarray(x).reshape(case.batch, 1, -1)
        return widen(x, case.given) if case.quantised else x

    def _bound(self, nodes, inputs, outputs, every, shared, keep):
        """(binding, session), with what has to live as long put into `keep`."""
        helper = self.onnx.helper
        info = [
            [helper.make_tensor_value_info(n, self._type(a), a.shape) for n, a in part.items()]
            for part in (inputs, every)
        ]
        graph = helper.make_graph(nodes, "token", *info)
        imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
        session = self._open(helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString())
        binding = session.io_binding()
        # These are views: the memory is NumPy's.
        values = {n: self.ort.OrtValue.ortvalue_from_numpy(a) for n, a in {**inputs, **outputs}.items()}
        for name in inputs:
            binding.bind_ortvalue_input(name, values[name])
        for name in every:
            binding.bind_ortvalue_output(name, values[shared.get(name, name)])
        keep += [session, binding, values, inputs, outputs]
        return binding, session

    def _type(self, array):
        kinds = {"int8": self.onnx.TensorProto.INT8, "uint8": self.onnx.TensorProto.UINT8}
        return kinds.get(array.dtype.name) or super()._type(array)


def quantise(x, bits=8):
    """
    (int8, f32 scales): batch x heads x tokens x d by a scale for each channel of each head. Of 4 bits two channels are
    a byte, the first in its lower half, and 8 stands for nothing. 7 steps up to the largest of thousands of numbers
    would be wide ones: these have the step with which normal numbers lose least, and the outermost are cut off.
    """
    most = 2 ** (bits - 1) - 1
    scale = np.maximum(np.abs(x).max(axis=(0, 2)), np.finfo(np.float32).tiny) / np.float32(most)
    if bits == 4:
        deviation = np.sqrt(np.mean(x * x, axis=(0, 2))) + np.finfo(np.float32).tiny
        scale = np.minimum(scale, np.float32(NORMAL_STEP) * deviation)
    numbers = np.clip(np.rint(x / scale[None, :, None, :]), -most - 1, most).astype(np.int8)
    if bits == 4:
        shifted = (numbers + np.int8(8)).view(np.uint8)
        numbers = shifted[..., 0::2] | shifted[..., 1::2] << 4
    return numbers, scale.reshape(-1)


CONTENDERS = {"onnxruntime": OnnxDecode}
