# SPDX-License-Identifier: Apache-2.0
"""
Gradients of JAX's jax.nn.dot_product_attention by jax.vjp, compiled ahead of time for each case. The gradients alone are a
function of what vjp has kept of a forward call, and of the gradient of its output.
"""

import numpy as np

from .. import backward
from .base import Unsupported, Way
from .jax_nn import Jax


class JaxBackward(Jax):
    def ways(self, case, arrays):
        jax = self.jax
        qkv, dout = [arrays[n] for n in ("q", "k", "v")], arrays["dout"]

        def attend(q, k, v):
            return jax.nn.dot_product_attention(q, k, v, is_causal=case.causal)

        def record(q, k, v):
            return jax.vjp(attend, q, k, v)[1]

        def differentiate(q, k, v, dout):
            return record(q, k, v)(dout)

        try:
            if case.both:
                given = (*qkv, dout)
                compiled = jax.jit(differentiate).lower(*given).compile()
            else:
                given = (jax.jit(record)(*qkv), dout)
                compiled = jax.jit(lambda pull, dout: pull(dout)).lower(*given).compile()
        except ValueError as error:
            # XLA's own word on a type that its products for the CPU do not take.
            raise Unsupported(str(error).splitlines()[0]) from error

        def run():
            return jax.block_until_ready(compiled(*given))

        def rows(gradients, picked):
            # Back to batch, head, token, channel.
            wide = [np.asarray(g).astype(np.float32).transpose(0, 2, 1, 3) for g in gradients]
            return backward.take_rows(wide, picked)

        return [Way("vjp of dot_product_attention", run, rows)]


CONTENDERS = {"jax": JaxBackward}
