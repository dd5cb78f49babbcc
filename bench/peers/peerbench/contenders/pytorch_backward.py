# SPDX-License-Identifier: Apache-2.0
"""
Gradients of PyTorch's scaled_dot_product_attention, by its flash kernel and by its math path, as autograd
computes them. The gradients alone are asked for again and again of one forward call, whose graph is retained.

The process may have entered inference mode for bare attention, in which nothing is recorded: here it is left for each call.
"""

from .. import backward
from .base import Way
from .pytorch import Pytorch, tensors_of


class PytorchBackward(Pytorch):
    def ways(self, case, arrays):
        from torch.nn.attention import SDPBackend

        backends = {"flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH}
        return [self._way(label, backend, case, arrays) for label, backend in backends.items()]

    def _way(self, label, backend, case, arrays):
        torch = self.torch
        from torch.nn.attention import sdpa_kernel

        def recorded(run):
            def wrapped():
                with torch.inference_mode(False), torch.enable_grad(), sdpa_kernel(backend):
                    return run()

            return wrapped

        def leaves():
            own = tensors_of(torch, case, arrays)
            dout = torch.from_numpy(arrays["dout"]).view(own[0].dtype)
            return [x.requires_grad_() for x in own], dout

        qkv, dout = recorded(leaves)()

        def attend():
            return torch.nn.functional.scaled_dot_product_attention(
                *qkv, is_causal=case.causal, enable_gqa=case.group > 1
            )

        def rows(gradients, picked):
            return backward.take_rows([g.float().numpy() for g in gradients], picked)

        if case.both:
            return Way(label, recorded(lambda: torch.autograd.grad(attend(), qkv, dout)), rows)
        out = recorded(attend)()
        return Way(label, recorded(lambda: torch.autograd.grad(out, qkv, dout, retain_graph=True)), rows)


CONTENDERS = {"torch": PytorchBackward, "torch-mkl": PytorchBackward}
