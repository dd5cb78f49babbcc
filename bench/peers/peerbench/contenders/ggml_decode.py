# SPDX-License-Identifier: Apache-2.0
"""
ggml's flash_attn_ext for a token of decoding: a graph with a node for each
layer. Queries and output are f32; keys and values are of the case's type, q8_0
where that is int8 and q4_0 where it is int4: blocks of 32 numbers with a scale in f16, made by ggml's own function.
"""

import ctypes as c

import numpy as np

from .. import decode
from ..tensors import widen
from .base import Way, bthd_rows, refuse
from .ggml import Ggml

KINDS = {"f32": "f32", "f16": "f16", "bf16": "bf16", "int8": "q8_0", "int4": "q4_0"}


class GgmlDecode(Ggml):
    def check(self, case):
        refuse(case.dtype not in KINDS, "it has no keys and values in fp8")

    def layout(self, case, arrays):
        arrays = {**arrays, "q": widen(arrays["q"], case.given)}
        if case.quantised:
            for name in ("k", "v"):
                # One at a time, and the original goes, which may be the only reference to it.
                arrays[name] = self._quantised(arrays[name], case)
        return arrays

    def ways(self, case, arrays):
        q, k, v = (arrays[n] for n in ("q", "k", "v"))
        out = np.full((case.layers * case.batch, 1, case.heads, case.d), np.nan, np.float32)
        sizes = (case.layers, case.batch, case.heads, case.kv_heads, 1, case.tk, case.d)
        run = self.graph(KINDS[case.dtype], sizes, q, k, v, None, out)
        return [Way(f"flash_attn_ext, {KINDS[case.dtype]}", run, bthd_rows)]

    def _quantised(self, x, case):
        """The blocks as bytes, of one sequence of one layer after the other."""
        kind = self.kind(KINDS[case.dtype])
        size = self.lib.peers_ggml_bytes(kind, case.d)
        out = np.empty((*x.shape[:3], size), np.uint8)
        for part, target in zip(x, out, strict=True):
            numbers = widen(part, case.given)
            self.lib.peers_ggml_convert(
                kind, numbers.ctypes.data, target.ctypes.data, numbers.size // case.d, case.d
            )
        return out


CONTENDERS = {"ggml": GgmlDecode}
