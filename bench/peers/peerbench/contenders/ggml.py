# SPDX-License-Identifier: Apache-2.0
"""
ggml's flash_attn_ext through native/ggml_shim.c. Queries and output are f32,
as its callers have them; keys and values are f32 in f32 cases and f16 in f16
ones. bf16 is left out: keys in bf16 take it off its tiled kernel, to a loop
over single rows. It has no causal option and no lengths; its callers make a
mask, from which it finds tiles to skip, and so does this one.
"""

import ctypes as c
import os

import numpy as np

from .base import Contender, Way, bthd_rows, refuse


class Ggml(Contender):
    def __init__(self, threads):
        super().__init__(threads)
        self.lib = c.CDLL(os.environ["PEERS_GGML"])
        self.lib.peers_ggml_version.restype = c.c_char_p
        self.lib.peers_ggml_create.restype = c.c_void_p
        pointers = [c.c_void_p] * 4
        self.lib.peers_ggml_create.argtypes = [c.c_int, c.c_int, c.POINTER(c.c_int64), *pointers, c.c_int64, c.c_void_p]
        self.lib.peers_ggml_kind.argtypes = [c.c_char_p]
        self.lib.peers_ggml_bytes.argtypes = [c.c_int, c.c_int64]
        self.lib.peers_ggml_bytes.restype = c.c_int64
        self.lib.peers_ggml_convert.argtypes = [c.c_int, c.c_void_p, c.c_void_p, c.c_int64, c.c_int64]
        self.lib.peers_ggml_create_linear_attention.restype = c.c_void_p
        self.lib.peers_ggml_create_linear_attention.argtypes = [c.c_int, c.POINTER(c.c_int64)] + [c.c_void_p] * 7
        self.lib.peers_ggml_run.argtypes = [c.c_void_p]
        self.lib.peers_ggml_destroy.argtypes = [c.c_void_p]

    def version(self):
        return self.lib.peers_ggml_version().decode()

    def notes(self):
        return "built on this machine with -march=native"

    def layout(self, case, arrays):
        # Its queries are f32 whatever the keys are. bf16 arrays are left alone: they are refused.
        return arrays if case.dtype == "bf16" else {**arrays, "q": arrays["q"].astype(np.float32, copy=False)}

    def ways(self, case, arrays):
        refuse(case.dtype == "bf16", "its tiled kernel takes keys and values in f32 and f16 only")
        q, k, v = (arrays[n] for n in ("q", "k", "v"))
        mask = self._mask(case, arrays)
        out = np.full((case.batch, case.tq, case.heads, case.d), np.nan, np.float32)
        sizes = (1, case.batch, case.heads, case.kv_heads, case.tq, case.tk, case.d)
        run = self.graph(case.dtype, sizes, q, k, v, mask, out)
        return [Way("flash_attn_ext" if mask is None else "flash_attn_ext, f16 mask", run, bthd_rows)]

    def kind(self, name):
        """ggml's number of a type by ggml's name of it."""
        number = self.lib.peers_ggml_kind(name.encode())
        if number < 0:
            raise RuntimeError(f"ggml knows no type '{name}'")
        return number

    def graph(self, kind, sizes, q, k, v, mask, out):
        """A call that computes `out`. sizes: layers, batch, heads, heads of keys, queries, keys, head size."""
        handle = self.lib.peers_ggml_create(
            self.threads,
            self.kind(kind),
            (c.c_int64 * len(sizes))(*sizes),
            *(a.ctypes.data for a in (q, k, v)),
            None if mask is None else mask.ctypes.data,
            0 if mask is None else mask.shape[0],
            out.ctypes.data,
        )
        return self.call(handle, out, (q, k, v, mask))

    def call(self, handle, out, keep):
        """A call that computes what the shim has made, and returns `out`. `keep` is what has to live as long."""
        if not handle:
            raise MemoryError("ggml could not make the case")
        owner = _Handle(self.lib, handle, (*keep, out))

        def run():
            if self.lib.peers_ggml_run(owner.handle) != 0:
                raise RuntimeError("ggml_graph_compute failed")
            return out

        return run

    @staticmethod
    def _mask(case, arrays):
        """f16, 0 or -Inf, batch x queries x keys; None when every pair is alive."""
        if not (case.causal or case.padded or case.mask):
            return None
        # Filled in place: intermediate arrays of this size would count as memory that ggml needs.
        mask = np.full((case.batch if case.padded else 1, case.tq, case.tk), 0, np.float16)
        if case.mask:
            np.copyto(mask, np.float16(-np.inf), where=~arrays["mask"][0])
        if case.causal:
            for i in range(case.tq):
                mask[:, i, i + 1 :] = -np.inf
        if case.padded:
            for b, length in enumerate(case.lengths):
                mask[b, :, length:] = -np.inf
        return mask


class _Handle:
    """Frees a case of the shim when nothing refers to it any more."""

    def __init__(self, lib, handle, keep):
        self.lib, self.handle, self.keep = lib, handle, keep

    def __del__(self):
        self.lib.peers_ggml_destroy(self.handle)


CONTENDERS = {"ggml": Ggml}
