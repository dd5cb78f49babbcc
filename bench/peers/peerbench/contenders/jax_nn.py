# SPDX-License-Identifier: Apache-2.0
"""
JAX's jax.nn.dot_product_attention, compiled ahead of time for each case. It
takes batch, token, head, channel, has options for causality and key lengths,
and shares key heads by itself. A call ends when its result is ready.

XLA has no option for the number of threads of the CPU: it takes as many as the
process may use cores, so the process is confined to that many.
"""

import numpy as np

from .base import Contender, Unsupported, Way, bthd_rows, use_cores


class Jax(Contender):
    def __init__(self, threads):
        super().__init__(threads)
        use_cores(threads)
        import jax

        self.jax = jax

    def version(self):
        return self.jax.__version__

    def layout(self, case, arrays):
        import ml_dtypes

        own = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}[case.dtype]
        return {
            n: self.jax.numpy.asarray(a if n == "mask" else np.ascontiguousarray(a.view(own).transpose(0, 2, 1, 3)))
            for n, a in arrays.items()
        }

    def ways(self, case, arrays):
        jax = self.jax
        q, k, v = (arrays[n] for n in ("q", "k", "v"))
        given = {}
        if case.padded:
            given["key_value_seq_lengths"] = jax.numpy.asarray(np.array(case.lengths, np.int32))
        if case.mask:
            given["mask"] = arrays["mask"]

        def attend(q, k, v, given):
            return jax.nn.dot_product_attention(q, k, v, is_causal=case.causal, **given)

        try:
            compiled = jax.jit(attend).lower(q, k, v, given).compile()
        except ValueError as error:
            # XLA's own word on a type that its products for the CPU do not take.
            raise Unsupported(str(error).splitlines()[0]) from error

        def run():
            return compiled(q, k, v, given).block_until_ready()

        def rows(out, wanted):
            return bthd_rows(np.asarray(out), wanted).astype(np.float32)

        return [Way("dot_product_attention", run, rows)]


CONTENDERS = {"jax": Jax}
