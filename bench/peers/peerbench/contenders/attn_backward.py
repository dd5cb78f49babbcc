# SPDX-License-Identifier: Apache-2.0
"""
libattn's gradients: a plan of attn_backward() in memory that was allocated in advance, on what a forward call has
left; with the forward call, a plan of each.
"""

import ctypes as c

import numpy as np

from .. import backward
from ..tensors import widen
from .attn import CAUSAL_TOP_LEFT, DTYPE, Attn, Params, tensor_of
from .base import Way

from attn_structs import Gradients  # isort: skip  # attn.py has made it known


class AttnBackward(Attn):
    def ways(self, case, arrays):
        kind = DTYPE[case.dtype]
        q, k, v, dout = (arrays[n] for n in ("q", "k", "v", "dout"))
        out, lse = np.empty_like(q), np.empty((*q.shape[:3], 1), np.float32)
        gradients = [np.empty_like(a) for a in (q, k, v)]
        for array in gradients:
            # What is never written must not look right, and its pages must exist before anything is timed.
            array.view(np.uint8).fill(0xFF)
        tensors = [tensor_of(a, kind) for a in (q, k, v, out)]
        lse_tensor = tensor_of(lse, DTYPE["f32"])
        asked = [tensor_of(a, kind) for a in (dout, *gradients)]
        params = Params(num_threads=self.threads, lse=c.addressof(lse_tensor))
        if case.causal:
            params.causal = CAUSAL_TOP_LEFT
        names = ("out", "q", "k", "v")
        wanted = Gradients(**{n: c.addressof(t) for n, t in zip(names, asked, strict=True)})
        keep = [arrays, out, lse, gradients, tensors, lse_tensor, asked, params, wanted]
        forward, _ = self._planned(tensors, params, keep)
        run_backward, detail = self._planned_calls("attn_backward", [[*tensors, params, wanted]], keep)

        def both():
            forward()
            return run_backward()

        def rows(_, picked):
            return backward.take_rows([widen(a, case.dtype) for a in gradients], picked)

        forward()
        way = Way("plans" if case.both else "plan", both if case.both else run_backward, rows)
        way.detail = detail
        return [way]


CONTENDERS = {"attn": AttnBackward}
