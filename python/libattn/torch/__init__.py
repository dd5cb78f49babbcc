# SPDX-License-Identifier: Apache-2.0
"""Attention for PyTorch on CPUs, with gradients, for torch.compile and torch.export, too.

    import libattn.torch

    out = libattn.torch.attention(q, k, v, causal=True)             # (batch, heads, tokens, channels)
    out.sum().backward()

    with libattn.torch.sdpa_replaced():                             # models that call F.scaled_dot_product_attention
        out = model(x)
"""
from . import flex
from .call import Options, attention
from .flash import flash_attn_func, flash_attn_varlen_func
from .flex import flex_attention
from .functional import scaled_dot_product_attention, sdpa_replaced

__all__ = ["Options", "attention", "flash_attn_func", "flash_attn_varlen_func", "flex", "flex_attention",
           "scaled_dot_product_attention", "sdpa_replaced"]
