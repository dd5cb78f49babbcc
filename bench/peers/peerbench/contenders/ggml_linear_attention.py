# SPDX-License-Identifier: Apache-2.0
"""
ggml's operators of linear attention: gated_linear_attn for rules without a beta, whose decays are a factor for each
channel, and gated_delta_net for those with one. Without decays they are given such that change nothing.

Both lie as batch, token, head, channel, and want a state to begin with: zeros before a prompt. gated_delta_net has its
states transposed. Every layout is made before the call. A token is tried with the state that it leaves in the place of
that before it, to which llama.cpp copies it.
"""

import ctypes as c

import numpy as np

from .. import linear_attention
from .base import Way, restarted
from .ggml import Ggml


class GgmlLinearAttention(Ggml):
    def layout(self, case, arrays):
        arrays = {n: a if n == "state" else np.ascontiguousarray(a.swapaxes(1, 2)) for n, a in arrays.items()}
        decay = arrays.get("decay", np.zeros((case.batch, case.t, case.heads), np.float32))
        state = arrays.get("state", np.zeros((case.batch, case.heads, case.d, case.d), np.float32))
        if case.has_beta:
            state = np.ascontiguousarray(state.swapaxes(2, 3))
        else:
            decay = np.repeat(np.exp(decay)[..., None], case.d, axis=3)
        return {**arrays, "decay": decay, "state": state}

    def ways(self, case, arrays):
        ways = [self._way("another state" if case.continues else "", case, arrays, False)]
        return [self._way("in place", case, arrays, True), *ways] if case.continues else ways

    def _way(self, form, case, arrays, in_place):
        outputs, states = case.batch * case.t * case.heads * case.d, case.batch * case.heads * case.d**2
        out = np.full(outputs + states, np.nan, np.float32)
        left = out[outputs:].reshape(arrays["state"].shape)
        given = [arrays.get(n) for n in ("q", "k", "v", "decay", "beta")] + [left if in_place else arrays["state"]]
        sizes = (c.c_int64 * 4)(case.batch, case.heads, case.t, case.d)
        addresses = (None if a is None else a.ctypes.data for a in (*given, out))
        handle = self.lib.peers_ggml_create_linear_attention(self.threads, sizes, *addresses)

        def rows(_, wanted):
            written = out[:outputs].reshape(case.batch, case.t, case.heads, case.d).swapaxes(1, 2)
            return linear_attention.take_rows(written, left.swapaxes(2, 3) if case.has_beta else left, wanted)

        label = "gated_delta_net" if case.has_beta else "gated_linear_attn"
        way = Way(f"{label}, {form}" if form else label, self.call(handle, out, given), rows)
        return restarted(way, lambda: np.copyto(left, arrays["state"])) if in_place else way


CONTENDERS = {"ggml": GgmlLinearAttention}
