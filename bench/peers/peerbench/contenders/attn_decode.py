# SPDX-License-Identifier: Apache-2.0
"""
libattn's decoding: one plan for the shape, run on each layer's queries, keys
and values where they lie. Without a causal option, as the newest token sees all keys.
"""

import numpy as np

from .. import decode
from ..tensors import widen
from .attn import DTYPE, Attn, Params, tensor_of
from .base import Way, bhtd_rows, refuse


class AttnDecode(Attn):
    def ways(self, case, arrays):
        refuse(case.dtype == "int8", "this version of libattn has no keys and values in 8 bits")
        out = np.empty(arrays["q"].shape, arrays["q"].dtype)
        # An output that is never written must not look right, and its pages must exist before anything is timed.
        out.view(np.uint8).fill(0xFF)
        parts = [decode.layers(case, a) for a in (arrays["q"], arrays["k"], arrays["v"], out)]
        calls = [[tensor_of(a, DTYPE[case.dtype]) for a in layer] for layer in zip(*parts, strict=True)]
        params = Params(num_threads=self.threads)
        run, detail = self._planned_over(calls, params, [arrays, out, calls, params])

        def rows(_, wanted):
            return widen(bhtd_rows(out, wanted), case.dtype)

        way = Way("plan", run, rows)
        way.detail = detail
        return [way]


CONTENDERS = {"attn": AttnDecode}
