# SPDX-License-Identifier: Apache-2.0
"""
libattn itself, through its C interface and a plan, as a program that calls the
same shape again and again would use it.

The structures are those of tools/attn_structs.py. The library may be of another
version than these sources: where fields have only been added at the end, it
takes them as well.
"""

import ctypes as c
import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "tools"))

from attn_structs import Params, Tensor  # noqa: E402  pylint: disable=wrong-import-position

from ..tensors import widen  # noqa: E402  pylint: disable=wrong-import-position
from .base import Contender, Unsupported, Way, bhtd_rows  # noqa: E402  pylint: disable=wrong-import-position

DTYPE = {"f32": 0, "bf16": 1, "f16": 2}
BOOL = 3
ATTN_OK, ATTN_UNSUPPORTED = 0, 4
CAUSAL_TOP_LEFT = 1

def tensor_of(array, dtype):
    """A view of a contiguous array of four axes, or broadcast along those of length 1."""
    strides = [0 if n == 1 else s // array.itemsize for n, s in zip(array.shape, array.strides)]
    return Tensor(array.ctypes.data, dtype, (c.c_int64 * 4)(*array.shape), (c.c_int64 * 4)(*strides))


class Attn(Contender):
    """libattn."""

    def __init__(self, threads):
        super().__init__(threads)
        self.lib = c.CDLL(os.environ["PEERS_LIBATTN"])
        self.lib.attn_last_error.restype = c.c_char_p
        self.lib.attn_version_string.restype = c.c_char_p
        self._check_layout()

    def _check_layout(self):
        """That fields lie where the library has them: it names a value that it refuses."""
        one = np.zeros((1, 1, 1, 1), np.float32)
        view = c.addressof(keep := tensor_of(one, DTYPE["f32"]))
        for name, value in (("causal", 99), ("qk", 97), ("num_threads", -95), ("isa", b"none")):
            shown = value if isinstance(value, int) else f"'{value.decode()}'"
            params, plan = Params(**{name: value}), _Plan(self.lib, "attn", 5)
            status = plan.create(c.byref(plan.handle), *[view] * 4, c.addressof(params))
            text = self.lib.attn_last_error().decode()
            if status == ATTN_OK or not text.startswith(f"params.{name} is {shown};"):
                raise RuntimeError(f"attn_params has another layout than attn_structs.py: {name}={value} gave '{text}'")
        del keep

    def version(self):
        return self.lib.attn_version_string().decode()

    def _fail(self, status):
        text = self.lib.attn_last_error().decode()
        raise Unsupported(text) if status == ATTN_UNSUPPORTED else RuntimeError(text)

    def ways(self, case, arrays):
        out = np.empty(arrays["q"].shape, arrays["q"].dtype)
        # An output that is never written must not look right, and its pages must exist before anything is timed.
        out.view(np.uint8).fill(0xFF)
        tensors = [tensor_of(a, DTYPE[case.dtype]) for a in (arrays["q"], arrays["k"], arrays["v"], out)]
        params = Params(num_threads=self.threads)
        keep = [arrays, tensors, params]
        if case.causal:
            params.causal = CAUSAL_TOP_LEFT
        if case.padded:
            lengths = np.array(case.lengths, np.int64)
            params.kv_len = lengths.ctypes.data
            keep.append(lengths)
        if case.mask:
            mask = np.ascontiguousarray(arrays["mask"]).view(np.uint8)
            mask_tensor = tensor_of(mask, BOOL)
            params.mask = c.addressof(mask_tensor)
            keep += [mask, mask_tensor]

        run, detail = self._planned(tensors, params, keep)

        def rows(_, wanted):
            return widen(bhtd_rows(out, wanted), case.dtype)

        way = Way("plan", run, rows)
        way.detail = detail
        return [way]

    def plan(self, tensors, causal, **options):
        """
        A call of the core on views of q, k, v and out; whoever owns their memory keeps it alive. options: fields of
        attn_params.
        """
        params = Params(num_threads=self.threads, **options)
        if causal:
            params.causal = CAUSAL_TOP_LEFT
        return self._planned(tensors, params, [tensors, params])[0]

    def _planned(self, tensors, params, keep):
        """(a call that runs a plan, what the plan says about itself). `keep` is what has to live as long."""
        return self._planned_calls("attn", [[*tensors, params]], keep)

    def _planned_calls(self, operator, calls, keep):
        """
        The same for calls of one shape after each other, with one workspace: of each the structs that a run of the
        operator's plan takes behind the plan. operator is what the names of the plan's functions begin with.
        """
        plan = _Plan(self.lib, operator, len(calls[0]))
        pointers = [[c.addressof(argument) for argument in arguments] for arguments in calls]
        status = plan.create(c.byref(plan.handle), *pointers[0])
        if status != ATTN_OK:
            self._fail(status)
        size = plan.workspace_size(plan.handle)
        workspace = np.zeros(max(size, 1), np.uint8)
        keep += [calls, workspace, plan]  # the plan lives as long as the call does
        text = c.create_string_buffer(512)
        plan.describe(plan.handle, text, len(text))
        arguments = [(plan.handle, *p, workspace.ctypes.data, size) for p in pointers]

        def run():
            for call in arguments:
                status = plan.run(*call)
                if status != ATTN_OK:
                    self._fail(status)
            return keep

        return run, text.value.decode()


class _Plan:
    """The functions of an operator's plans, and a plan, destroyed when nothing refers to it any more."""

    def __init__(self, lib, operator, arguments):
        def function(name, restype, *argtypes):
            found = getattr(lib, f"{operator}_plan_{name}")
            found.restype, found.argtypes = restype, argtypes
            return found

        of_call = [c.c_void_p] * arguments
        self.create = function("create", c.c_int, c.c_void_p, *of_call)
        self.workspace_size = function("workspace_size", c.c_size_t, c.c_void_p)
        self.describe = function("describe", c.c_size_t, c.c_void_p, c.c_char_p, c.c_size_t)
        self.run = function("run", c.c_int, c.c_void_p, *of_call, c.c_void_p, c.c_size_t)
        self.destroy = function("destroy", None, c.c_void_p)
        self.handle = c.c_void_p()

    def __del__(self):
        self.destroy(self.handle)


CONTENDERS = {"attn": Attn}
