# SPDX-License-Identifier: Apache-2.0
"""
ONNX Runtime's fused operators for CPUs: com.microsoft MultiHeadAttention, and
GroupQueryAttention for causal cases. A model of one node is made for each case.

Both take q, k and v as batch, token, head * channel, which is how they are
handed over here. The fast path of MultiHeadAttention has no mask, so a mask or
a key length is expected to cost it much. The operators exist in f32, and the
grouped one in f16 as well; there is none in bf16 for CPUs.
"""

import numpy as np

from .base import Contender, Way, bthd_rows, refuse

DOMAIN = "com.microsoft"


class OnnxRuntime(Contender):
    def __init__(self, threads):
        super().__init__(threads)
        import onnx
        import onnxruntime

        self.onnx, self.ort = onnx, onnxruntime
        onnxruntime.disable_telemetry_events()

    def version(self):
        return self.ort.__version__

    def _session(self, node, inputs, outputs):
        helper = self.onnx.helper
        info = [
            [helper.make_tensor_value_info(n, self._type(a), a.shape) for n, a in part.items()]
            for part in (inputs, outputs)
        ]
        graph = helper.make_graph([node], "case", *info)
        imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
        return self._open(helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString())

    def _open(self, model):
        """A session of a model's bytes, or of its file."""
        options = self.ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        # Its arena of memory lives and dies with this session, and so with the case.
        options.log_severity_level = 3
        return self.ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def _type(self, array):
        types = {np.float32: "FLOAT", np.float16: "FLOAT16", np.int32: "INT32"}
        return getattr(self.onnx.TensorProto, types[array.dtype.type])

    def _bound(self, node, inputs, outputs, same=None):
        """
        A call that returns {name: value}. Inputs and outputs are bound to memory, so that it neither copies nor allocates
        them. same: {output: input} that lie in one place.
        """
        session = self._session(node, inputs, outputs)
        binding = session.io_binding()
        values = {}
        for part, bind in ((inputs, binding.bind_ortvalue_input), (outputs, binding.bind_ortvalue_output)):
            for name, array in part.items():
                own = (same or {}).get(name)
                values[name] = values[own] if own else self.ort.OrtValue.ortvalue_from_numpy(array)
                bind(name, values[name])

        def run():
            session.run_with_iobinding(binding)
            return values

        return run

    def _way(self, label, node, inputs, outputs):
        run = self._bound(node, inputs, outputs)

        def rows(values, wanted):
            array = values["out"].numpy()
            b, t, width = array.shape
            return bthd_rows(array.reshape(b, t, -1, self.head_size(width)), wanted).astype(np.float32)

        return Way(label, run, rows)

    def head_size(self, width):
        """Channels of a head in a row of `width`; set by ways()."""
        return width // self.heads

    def layout(self, case, arrays):
        return {n: a if n == "mask" else self._merge_heads(a) for n, a in arrays.items()}

    def ways(self, case, arrays):
        refuse(case.dtype == "bf16", "its attention operators for CPUs take no bf16")
        self.heads = case.heads
        q, k, v = (arrays[n] for n in ("q", "k", "v"))
        ways = []
        if case.causal and not case.mask:
            ways.append(self._grouped(case, q, k, v))
        if case.group == 1 and case.dtype == "f32":
            ways.append(self._multi_head(case, q, k, v, arrays))
        refuse(
            not ways,
            "MultiHeadAttention takes f32 and as many key as query heads, GroupQueryAttention causal cases only",
        )
        return ways

    @staticmethod
    def _merge_heads(array):
        b, h, t, d = array.shape
        return np.ascontiguousarray(array.transpose(0, 2, 1, 3)).reshape(b, t, h * d)

    def _multi_head(self, case, q, k, v, arrays):
        names, inputs = ["q", "k", "v"], {"q": q, "k": k, "v": v}
        if case.padded:
            # The lengths themselves: the most compact of the forms that the operator takes.
            names += ["", "lengths"]
            inputs["lengths"] = np.array(case.lengths, np.int32)
        if case.mask:
            names += ["", "", "bias"]
            inputs["bias"] = np.where(arrays["mask"], np.float32(0), np.float32(np.finfo(np.float32).min))
        options = {"unidirectional": 1} if case.causal else {}
        node = self.onnx.helper.make_node(
            "MultiHeadAttention",
            names,
            ["out"],
            domain=DOMAIN,
            num_heads=case.heads,
            mask_filter_value=-1e30,
            **options
        )
        return self._way("MultiHeadAttention", node, inputs, {"out": np.empty_like(q)})

    def _grouped(self, case, q, k, v):
        names = ["q", "k", "v", "", "", "last", "total"]
        inputs = {
            "q": q,
            "k": k,
            "v": v,
            "last": np.array(case.lengths, np.int32) - 1,
            "total": np.array(case.tk, np.int32).reshape(1),
        }
        cache = (case.batch, case.kv_heads, case.tk, case.d)
        outputs = {
            "out": np.empty_like(q),
            "present_k": np.empty(cache, q.dtype),
            "present_v": np.empty(cache, q.dtype),
        }
        node = self.onnx.helper.make_node(
            "GroupQueryAttention", names, list(outputs), domain=DOMAIN, num_heads=case.heads, kv_num_heads=case.kv_heads
        )
        return self._way("GroupQueryAttention", node, inputs, outputs)


CONTENDERS = {"onnxruntime": OnnxRuntime}
