# SPDX-License-Identifier: Apache-2.0
"""
PyTorch's scaled_dot_product_attention with its flash kernel for CPUs.

The same class serves two contenders: PyTorch as it is, and with MKL's path for
Intel processors switched on by a preloaded library (native/mkl_intel.c), which
makes its matrix products faster on other makers' processors.

A mask is tried as booleans and as floats: PyTorch turns booleans into floats in
every call, so a user who keeps a float mask may be faster.
"""

from .base import Contender, Way


def load_torch(threads):
    """The module, set to its number of threads."""
    import torch

    torch.set_num_threads(threads)
    # What autograd would record is not what is measured.
    enter_for_ever(torch.inference_mode(True))
    return torch


_entered = []


def enter_for_ever(context):
    """Kept, because a context that nothing refers to is left at once."""
    context.__enter__()
    _entered.append(context)


def tensors_of(torch, case, arrays):
    """q, k, v as tensors on the arrays' own memory."""
    given = getattr(case, "given", case.dtype)  # quantised caches are made from another type
    own = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[given]
    return [torch.from_numpy(arrays[n]).view(own) for n in ("q", "k", "v")]


def boolean_mask(torch, case, arrays):
    """The mask, or the padding as a mask over keys that is broadcast over heads and queries; None without either."""
    if case.mask:
        return torch.from_numpy(arrays["mask"])
    if case.padded:
        lengths = torch.tensor(case.lengths)
        return (torch.arange(case.tk)[None, :] < lengths[:, None])[:, None, None, :]
    return None


def additive_mask(torch, mask, dtype):
    return torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, float("-inf"))


def torch_rows(output, rows):
    b, h, i = rows.T.tolist()
    return output[b, h, i].float().numpy()


class Pytorch(Contender):
    """One or the other of the two PyTorch contenders."""

    def __init__(self, threads):
        super().__init__(threads)
        self.torch = load_torch(threads)
        from torch.nn.attention import SDPBackend, sdpa_kernel

        # Only the flash kernel: what it does not take is reported, and not computed by the unfused path unnoticed.
        enter_for_ever(sdpa_kernel(SDPBackend.FLASH_ATTENTION))

    def version(self):
        return self.torch.__version__

    def ways(self, case, arrays):
        torch = self.torch
        attend = torch.nn.functional.scaled_dot_product_attention
        q, k, v = tensors_of(torch, case, arrays)
        mask = boolean_mask(torch, case, arrays)
        if mask is not None:
            floats = additive_mask(torch, mask, q.dtype)
            return [
                Way("boolean mask", lambda: attend(q, k, v, attn_mask=mask), torch_rows),
                Way("additive mask", lambda: attend(q, k, v, attn_mask=floats), torch_rows),
            ]
        if case.group > 1:

            def repeated():
                return attend(
                    q,
                    k.repeat_interleave(case.group, 1),
                    v.repeat_interleave(case.group, 1),
                    is_causal=case.causal,
                )

            return [
                Way("enable_gqa", lambda: attend(q, k, v, is_causal=case.causal, enable_gqa=True), torch_rows),
                Way("heads repeated in the call", repeated, torch_rows),
            ]
        return [Way("flash", lambda: attend(q, k, v, is_causal=case.causal), torch_rows)]


CONTENDERS = {"torch": Pytorch, "torch-mkl": Pytorch}

__all__ = ["CONTENDERS", "additive_mask", "boolean_mask", "load_torch", "tensors_of", "torch_rows"]
