# SPDX-License-Identifier: Apache-2.0
"""
ONNX Runtime's operator com.microsoft LinearAttention, a model of one node for each case. q, k, v and the output lie as
batch, token, head * channel. A token is tried with the state that it leaves in the place of that before it, which nobody
promises to be right; it is compared as all are.

The operator of the same name in ai.onnx is of opset 27, which ONNX Runtime 1.31 refuses to load.
"""

import numpy as np

from .. import linear_attention
from .base import Way, restarted
from .onnx_runtime import DOMAIN, OnnxRuntime


class OnnxLinearAttention(OnnxRuntime):
    def layout(self, case, arrays):
        def packed(array):
            return np.ascontiguousarray(array.swapaxes(1, 2)).reshape(case.batch, case.t, -1)

        return {name: array if name == "state" else packed(array) for name, array in arrays.items()}

    def ways(self, case, arrays):
        # Inputs by their place; what a case has not is left out.
        names = [n if n in arrays else "" for n in ("q", "k", "v", "state", "decay", "beta")]
        outputs = {
            "out": np.full_like(arrays["v"], np.nan),
            "left": np.full((case.batch, case.heads, case.d, case.d), np.nan, np.float32),
        }
        node = self.onnx.helper.make_node(
            "LinearAttention",
            names,
            list(outputs),
            domain=DOMAIN,
            q_num_heads=case.heads,
            kv_num_heads=case.heads,
            update_rule=case.rule,
        )

        def way(label, inputs, same=None):
            run = self._bound(node, inputs, outputs, same)
            return Way(label, run, lambda values, rows: self._rows(case, values, rows))

        if not case.continues:
            return [way("LinearAttention", arrays)]
        # Values lie in the arrays' own memory: what is changed is a copy.
        own = arrays["state"].copy()
        in_place = way("LinearAttention, in place", {**arrays, "state": own}, {"left": "state"})
        return [
            restarted(in_place, lambda: np.copyto(own, arrays["state"])),
            way("LinearAttention, another state", arrays),
        ]

    @staticmethod
    def _rows(case, values, rows):
        out = values["out"].numpy().reshape(case.batch, case.t, case.heads, case.d)
        return linear_attention.take_rows(out.swapaxes(1, 2), values["left"].numpy(), rows)


CONTENDERS = {"onnxruntime": OnnxLinearAttention}
