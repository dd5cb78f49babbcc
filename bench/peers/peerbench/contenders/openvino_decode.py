# SPDX-License-Identifier: Apache-2.0
"""
OpenVINO's decoding: a model that keeps keys and values as its state, as models
exported for it do. In each layer ReadValue, Gather by the index of a beam, Concat with
the token's own, and scaled_dot_product_attention; heads of keys repeated by a
product with ones, the form in which its plugin for CPUs recognises grouped
heads. The plugin makes one node of all that, which is checked.

The state grows by the token in every call, so the calls of a sample have on
average as many keys as the case: the state is cut or filled before a sample,
which is not timed, where it would be off by more than 1 in 64. Outputs are those
of a further call on the case's own keys.

What the state holds is asked for by KV_CACHE_PRECISION: the type of the case, and
u8, OpenVINO's own default, for int8. The model is written in f32, as exported ones
are, and the precision in which it is computed is a hint: f32 and, but in f32 cases,
the type itself; where f16 would become bf16 it is f32 alone, as in bare attention.
"""

import numpy as np

from .. import decode
from ..tensors import widen
from .base import Way, bhtd_rows, refuse
from .openvino_sdpa import OpenVino

# A state may be off by a token in so many of the case's, before a sample.
SLACK = 64


class OpenVinoDecode(OpenVino):
    def check(self, case):
        refuse(case.dtype == "e4m3", "its state for attention has no fp8")
        refuse(case.dtype == "int4", "its state in u4 cannot be set from outside: the process ends")

    def ways(self, case, arrays):
        ways = []
        for hint in dict.fromkeys(("f32", case.given)):
            compiled = self._stateful(case, hint)
            precision = self._precision(compiled)
            if not (case.dtype == "f16" and precision == "bf16"):
                held = compiled.get_property("KV_CACHE_PRECISION").get_type_name()
                state = _State(self, case, arrays, compiled)
                ways.append(state.way(f"state of {held}, computed in {precision}"))
        return ways

    def _stateful(self, case, hint):
        cache = self.ov.Type.u8 if case.dtype == "int8" else getattr(self.ov.Type, case.dtype)
        options = {
            "INFERENCE_PRECISION_HINT": hint,
            "INFERENCE_NUM_THREADS": self.threads,
            "PERFORMANCE_HINT": "LATENCY",
            "KV_CACHE_PRECISION": cache,
        }
        compiled = self.core.compile_model(self._model(case), "CPU", options)
        kinds = [n.get_rt_info()["layerType"].astype(str) for n in compiled.get_runtime_model().get_ops()]
        found = kinds.count("ScaledDotProductAttention")
        if found != case.layers or "Softmax" in kinds:
            raise RuntimeError(f"the plugin made {found} attention nodes of {case.layers} layers")
        return compiled

    def _model(self, case):
        """Inputs: the beam, then q, k and v of each layer."""
        ov, ops, element = self.ov, self.ops, self.ov.Type.f32
        beam = ops.parameter(ov.PartialShape([-1]), ov.Type.i32, name="beam")
        parameters, results, sinks = [beam], [], []
        for n in range(case.layers):
            heads = {"q": case.heads, "k": case.kv_heads, "v": case.kv_heads}
            token = {p: ops.parameter(ov.PartialShape([-1, h, -1, case.d]), element) for p, h in heads.items()}
            parameters += token.values()
            caches = []
            for part in ("k", "v"):
                joined = self._remembered(case, f"{part}{n}", token[part], beam)
                sinks.append(ops.assign(joined, f"{part}{n}"))
                caches.append(self._repeated(case, joined))
            results.append(ops.result(ops.scaled_dot_product_attention(token["q"], *caches, causal=False)))
        return ov.Model(results, sinks, parameters, "token")

    def _integers(self, *values):
        return self.ops.constant(np.array(values, np.int64))

    def _remembered(self, case, name, new, beam):
        """The state, which begins without tokens, and the new one behind it."""
        ops, first = self.ops, self._integers(0)
        batch = ops.gather(ops.shape_of(new), first, self.ops.constant(np.int64(0)))
        shape = ops.concat([batch, self._integers(case.kv_heads, 0, case.d)], 0)
        nothing = ops.broadcast(ops.constant(np.zeros((1, 1, 1, 1), np.float32)), shape)
        dims = self.ov.PartialShape([-1, case.kv_heads, -1, case.d])
        past = ops.gather(ops.read_value(nothing, name, self.ov.Type.f32, dims), beam, ops.constant(np.int64(0)))
        return ops.concat([past, new], 2)

    def _repeated(self, case, node):
        if case.group == 1:
            return node
        ones = self.ops.constant(np.ones((1, 1, case.group, 1, 1), np.float32))
        wide = self.ops.multiply(self.ops.unsqueeze(node, self._integers(2)), ones)
        return self.ops.reshape(wide, self._integers(0, case.heads, -1, case.d), True)


class _State:
    """
    A request with its state: how many tokens it has, and how many it should have before a sample. What goes in and
    comes out is f32.
    """

    def __init__(self, owner, case, arrays, compiled):
        self.owner, self.case, self.compiled = owner, case, compiled
        self.request = compiled.create_infer_request()
        self.layers = [decode.layers(case, arrays[n]) for n in ("q", "k", "v")]
        self.keep = [arrays, np.arange(case.batch, dtype=np.int32)]
        self.request.set_input_tensor(0, owner.ov.Tensor(self.keep[-1], shared_memory=True))
        for n, (q, k, v) in enumerate(zip(*self.layers, strict=True)):
            for index, x in enumerate((q, k[:, :, -1:], v[:, :, -1:])):
                self.request.set_input_tensor(1 + 3 * n + index, self._tensor(x))
        self.length, self.calls = -1, 0
        self.fill(case.tk - 1)

    def _tensor(self, x):
        self.keep.append(x := np.ascontiguousarray(widen(x, self.case.given)))
        return self.owner.ov.Tensor(x, shared_memory=True)

    def fill(self, tokens):
        """Puts the first tokens of the case into the state."""
        held = len(self.keep)
        for state in self.request.query_state():
            part, n = state.name[0], int(state.name[1:])
            state.state = self._tensor(self.layers["qkv".index(part)][n][:, :, :tokens])
            # It has been copied.
            del self.keep[held:]
        self.length = tokens

    def run(self):
        self.request.infer()
        self.length += 1
        self.calls += 1
        return self

    def before(self):
        """As many tokens too few at the start as there are too many at the end of as many calls as there were last."""
        first, last = self.length + 1, self.length + max(1, self.calls)
        slack = max(1, self.case.tk // SLACK)
        if first < self.case.tk - slack or last > self.case.tk + slack:
            self.fill(self.case.tk - 1 - min(self.calls, self.case.tk) // 2)
        self.calls = 0

    def rows(self, _, wanted):
        self.fill(self.case.tk - 1)
        self.request.infer()
        self.length += 1
        data = [self.request.get_output_tensor(n).data for n in range(self.case.layers)]
        return bhtd_rows(np.concatenate(data), wanted)

    def way(self, label):
        return Way(label, self.run, self.rows, before=self.before)


CONTENDERS = {"openvino": OpenVinoDecode}
