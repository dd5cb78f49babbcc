# SPDX-License-Identifier: Apache-2.0
"""
attn-bench's naive implementation (bench/naive.c) through native/naive_shim.c:
softmax between two OpenBLAS products, with the whole matrix of scores of a head
in memory. It is f32 only.

OpenBLAS is started with the kernels for the processor's widest instruction
set, as attn-bench starts it: by itself it may choose those of an older one.
"""

import ctypes as c
import os

import numpy as np

from .base import Contender, Way, bhtd_rows, refuse


def best_core():
    """OpenBLAS's name for its kernels of the widest instruction set here; None where it finds them itself."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as info:
            flags = next((line.split() for line in info if line.startswith("flags")), [])
    except OSError:
        return None
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= set(flags):
        return "SkylakeX"
    return "Haswell" if {"avx2", "fma"} <= set(flags) else None


class Naive(Contender):
    def __init__(self, threads):
        super().__init__(threads)
        core = best_core()
        if core:
            # Looked at when the library is loaded, and not before.
            os.environ["OPENBLAS_CORETYPE"] = core
        self.lib = c.CDLL(os.environ["PEERS_NAIVE"])
        self.lib.peers_naive_create.restype = c.c_void_p
        self.lib.peers_naive_create.argtypes = [c.c_int, c.POINTER(c.c_int64), c.c_int, *([c.c_void_p] * 6)]
        self.lib.peers_naive_run.argtypes = [c.c_void_p]
        self.lib.peers_naive_destroy.argtypes = [c.c_void_p]
        self.lib.peers_naive_strategy.argtypes = [c.c_void_p]
        self.lib.peers_naive_strategy.restype = self.lib.peers_naive_blas.restype = c.c_char_p

    def version(self):
        return f"OpenBLAS with its {self.lib.peers_naive_blas().decode()} kernels"

    def ways(self, case, arrays):
        refuse(case.dtype != "f32", "it computes in f32 only")
        q, k, v = (arrays[n] for n in ("q", "k", "v"))
        out = np.full(q.shape, np.nan, np.float32)
        sizes = (c.c_int64 * 6)(case.batch, case.heads, case.kv_heads, case.tq, case.tk, case.d)
        mask = arrays["mask"].view(np.uint8) if case.mask else None
        lengths = np.array(case.lengths, np.int64) if case.padded else None
        address = [None if a is None else a.ctypes.data for a in (q, k, v, mask, lengths, out)]
        handle = self.lib.peers_naive_create(self.threads, sizes, case.causal, *address)
        if not handle:
            raise MemoryError("there is not enough memory for its scores")
        owner = _Handle(self.lib, handle, (q, k, v, mask, lengths, out))

        def run():
            if self.lib.peers_naive_run(owner.handle) != 0:
                raise RuntimeError("the naive implementation failed")
            return out

        return [Way(f"threads: {self.lib.peers_naive_strategy(handle).decode()}", run, bhtd_rows)]


class _Handle:
    """Frees a case of the shim when nothing refers to it any more."""

    def __init__(self, lib, handle, keep):
        self.lib, self.handle, self.keep = lib, handle, keep

    def __del__(self):
        self.lib.peers_naive_destroy(self.handle)


CONTENDERS = {"naive": Naive}
