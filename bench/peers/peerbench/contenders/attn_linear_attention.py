# SPDX-License-Identifier: Apache-2.0
"""
libattn's linear attention: a plan, run in memory that was allocated in advance. A token changes its state in place, as
decoding has it, or writes another.
"""

import ctypes as c

import numpy as np

from .. import linear_attention
from .attn import ATTN_OK, DTYPE, Attn, tensor_of
from .base import Way, restarted

from attn_structs import LinearAttentionParams  # isort: skip  # attn.py has made it known

F32 = DTYPE["f32"]


class AttnLinearAttention(Attn):
    def __init__(self, threads):
        super().__init__(threads)
        lib = self.lib
        lib.attn_linear_attention_plan_workspace_size.restype = c.c_size_t
        lib.attn_linear_attention_plan_workspace_size.argtypes = [c.c_void_p]
        lib.attn_linear_attention_plan_describe.argtypes = [c.c_void_p, c.c_char_p, c.c_size_t]
        lib.attn_linear_attention_plan_run.argtypes = [c.c_void_p] * 7 + [c.c_size_t]
        lib.attn_linear_attention_plan_destroy.argtypes = [c.c_void_p]

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
        run, detail = self._planned_linear(tensors, params, keep)

        def rows(_, wanted):
            return linear_attention.take_rows(out, left, wanted)

        way = Way(label, run, rows)
        if in_place:
            way = restarted(way, lambda: np.copyto(left, arrays["state"]))
        way.detail = detail
        return way

    def _planned_linear(self, tensors, params, keep):
        """(a call that runs a plan, what the plan says about itself). `keep` is what has to live as long."""
        plan = c.c_void_p()
        pointers = [*(c.addressof(t) for t in tensors), c.addressof(params)]
        status = self.lib.attn_linear_attention_plan_create(c.byref(plan), *map(c.c_void_p, pointers))
        if status != ATTN_OK:
            self._fail(status)
        size = self.lib.attn_linear_attention_plan_workspace_size(plan)
        workspace = np.zeros(max(size, 1), np.uint8)
        keep += [workspace, _LinearAttentionPlan(self.lib, plan)]
        text = c.create_string_buffer(512)
        self.lib.attn_linear_attention_plan_describe(plan, text, len(text))
        run_plan, arguments = self.lib.attn_linear_attention_plan_run, (plan, *pointers, workspace.ctypes.data, size)

        def run():
            status = run_plan(*arguments)
            if status != ATTN_OK:
                self._fail(status)
            return keep

        return run, text.value.decode()


class _LinearAttentionPlan:
    """Destroys a plan when nothing refers to it any more."""

    def __init__(self, lib, handle):
        self.lib, self.handle = lib, handle

    def __del__(self):
        self.lib.attn_linear_attention_plan_destroy(self.handle)


CONTENDERS = {"attn": AttnLinearAttention}
