# SPDX-License-Identifier: Apache-2.0
"""
libattn's linear attention: a plan, run in memory that was allocated in advance. A token changes its state in place, as
decoding has it, or writes another.
"""

import ctypes as c

import numpy as np

from .. import linear_attention
from .attn import DTYPE, Attn, tensor_of
from .base import Way, restarted

from attn_structs import LinearAttentionParams  # isort: skip  # attn.py has made it known

F32 = DTYPE["f32"]


class AttnLinearAttention(Attn):
    def ways(self, case, arrays):
        if not case.continues:
            return [self._way("plan", case, arrays, False)]
        return [self._way("plan, in place", case, arrays, True), self._way("plan, another state", case, arrays, False)]

    def _way(self, label, case, arrays, in_place):
        # What is never written must not look right, and its pages must exist before anything is timed.
        out = np.full_like(arrays["v"], np.nan)
        left = np.full((case.batch, case.heads, case.d, case.d), np.nan, np.float32)
        tensors = [tensor_of(a, F32) for a in (arrays["q"], arrays["k"], arrays["v"], out)]
        options = {"state_out": left}
        options.update({name: arrays[name][..., None] for name in ("decay", "beta") if name in arrays})
        if case.continues:
            options["state_in"] = left if in_place else arrays["state"]
        views = {name: tensor_of(array, F32) for name, array in options.items()}
        addresses = {name: c.addressof(view) for name, view in views.items()}
        params = LinearAttentionParams(num_threads=self.threads, **addresses)
        keep = [arrays, out, left, tensors, options, views, params]
        run, detail = self._planned_calls("attn_linear_attention", [[*tensors, params]], keep)

        def rows(_, wanted):
            return linear_attention.take_rows(out, left, wanted)

        way = Way(label, run, rows)
        if in_place:
            way = restarted(way, lambda: np.copyto(left, arrays["state"]))
        way.detail = detail
        return way


CONTENDERS = {"attn": AttnLinearAttention}
