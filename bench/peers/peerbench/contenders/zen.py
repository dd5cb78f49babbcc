# SPDX-License-Identifier: Apache-2.0
"""
zentorch, AMD's plugin for PyTorch: its own attention operator, called directly.
The schema is in the library's registration:

    zentorch_sdpa(query, key, value, dropout_p, is_causal, *, attn_mask, scale)
        -> (output, log-sum-exp)

Masks are additive, of rank 2 or 4 and of the query's type or f32. It runs with
MKL's Intel path switched on, like torch-mkl: that makes it faster in f16 and
bf16, and no slower in f32.
"""

from .base import Contender, Way
from .pytorch import additive_mask, boolean_mask, load_torch, tensors_of, torch_rows


class Zentorch(Contender):
    def __init__(self, threads):
        super().__init__(threads)
        self.torch = load_torch(threads)
        import zentorch

        self.zentorch = zentorch
        self.attend = self.torch.ops.zentorch.zentorch_sdpa

    def version(self):
        return f"{getattr(self.zentorch, '__version__', '?')} on PyTorch {self.torch.__version__}"

    def ways(self, case, arrays):
        torch, attend = self.torch, self.attend
        q, k, v = tensors_of(torch, case, arrays)

        def rows(result, wanted):
            return torch_rows(result[0], wanted)

        mask = boolean_mask(torch, case, arrays)
        if mask is None:
            return [Way("direct", lambda: attend(q, k, v, 0.0, case.causal), rows)]
        same = additive_mask(torch, mask, q.dtype)
        ways = [Way(f"additive mask, {case.dtype}", lambda: attend(q, k, v, 0.0, False, attn_mask=same), rows)]
        if case.dtype != "f32":
            wide = additive_mask(torch, mask, torch.float32)
            ways.append(Way("additive mask, f32", lambda: attend(q, k, v, 0.0, False, attn_mask=wide), rows))
        return ways


CONTENDERS = {"zentorch": Zentorch}
