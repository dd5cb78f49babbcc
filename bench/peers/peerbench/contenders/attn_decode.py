# SPDX-License-Identifier: Apache-2.0
"""
libattn's decoding: one plan for the shape, run on each layer's queries, keys
and values where they lie. Without a causal option, as the newest token sees all keys.
int8 and E4M3 have a scale for each token and head, int4 has one for each 32 channels,
as attn_quantise() makes them; q is as given, in bf16, or in f32. Sums of few queries may have any order: it is an option
that any user has.
"""

import ctypes as c

import numpy as np

from .. import decode
from ..tensors import widen
from .attn import ATTN_OK, DTYPE, Attn, Params, tensor_of
from .base import Way, bhtd_rows

F32 = DTYPE["f32"]

# Quantised types: attn_dtype, and numbers in a byte.
QUANTISED = {"int8": (4, 1), "e4m3": (6, 1), "int4": (7, 2)}
GROUP = 32  # channels of int4 with one scale

# attn_params.sums
SUMS = {"the bits of prefill": 0, "sums in any order": 1}
AS_GIVEN = "sums in any order, q in bf16"  # beside quantised keys and values


class AttnDecode(Attn):
    def layout(self, case, arrays):
        if not case.quantised:
            return arrays
        arrays = {**arrays, "q_given": arrays["q"], "q": widen(arrays["q"], case.given)}
        for name in ("k", "v"):
            # One at a time, and the original goes, which may be the only reference to it.
            arrays[name], arrays[f"{name}_scale"] = self._quantised(arrays[name], case)
        return arrays

    def _quantised(self, x, case):
        """x in the case's type as bytes, and its scales, one sequence of one layer after the other."""
        _, packed = QUANTISED[case.dtype]
        small = np.empty((*x.shape[:3], case.d // packed), np.uint8)
        scale = np.empty((*x.shape[:3], 1 if packed == 1 else case.d // GROUP), np.float32)
        for b in range(len(x)):
            numbers = np.ascontiguousarray(widen(x[b : b + 1], case.given))
            views = [tensor_of(numbers, F32), self._view(case, small[b : b + 1]), tensor_of(scale[b : b + 1], F32)]
            status = self.lib.attn_quantise(*(c.byref(view) for view in views), c.c_int(self.threads))
            if status != ATTN_OK:
                self._fail(status)
        return small, scale

    @staticmethod
    def _view(case, array):
        """A view of keys, values, queries or outputs; of bytes with several numbers in each, strides count these."""
        if array.dtype != np.uint8:
            return tensor_of(array, F32 if case.quantised and array.dtype == np.float32 else DTYPE[case.given])
        kind, packed = QUANTISED[case.dtype]
        view = tensor_of(array, kind)
        view.shape[3] *= packed
        for axis in range(3):
            view.stride[axis] *= packed
        return view

    def ways(self, case, arrays):
        ways = [self._plan(case, arrays, arrays["q"], label, sums) for label, sums in SUMS.items()]
        if case.quantised:
            ways.append(self._plan(case, arrays, arrays["q_given"], AS_GIVEN, SUMS["sums in any order"]))
        return ways

    def _plan(self, case, arrays, q, label, sums):
        out = np.empty(arrays["q"].shape, arrays["q"].dtype)
        # An output that is never written must not look right, and its pages must exist before anything is timed.
        out.view(np.uint8).fill(0xFF)
        parts = [decode.layers(case, a) for a in (q, arrays["k"], arrays["v"], out)]
        calls = [[self._view(case, a) for a in layer] for layer in zip(*parts, strict=True)]
        scales = []
        if case.quantised:
            layers = (decode.layers(case, arrays[f"{name}_scale"]) for name in ("k", "v"))
            scales = [[tensor_of(a, F32) for a in layer] for layer in zip(*layers, strict=True)]
        params = [
            Params(num_threads=self.threads, sums=sums, k_scale=k, v_scale=v)
            for k, v in ([c.addressof(t) for t in pair] for pair in scales)
        ] or [Params(num_threads=self.threads, sums=sums)] * len(calls)
        run, detail = self._planned_calls(
            "attn", [[*call, own] for call, own in zip(calls, params, strict=True)], [arrays, out, scales]
        )

        def rows(_, wanted):
            return widen(bhtd_rows(out, wanted), "f32" if case.quantised else case.dtype)

        way = Way(label, run, rows)
        way.detail = detail
        return way


CONTENDERS = {"attn": AttnDecode}
