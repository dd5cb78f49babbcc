# SPDX-License-Identifier: Apache-2.0
"""Attention for PyTorch on CPUs, with gradients, for torch.compile and torch.export, too.

    import libattn.torch

    out = libattn.torch.attention(q, k, v, causal=True)             # (batch, heads, tokens, channels)
    out.sum().backward()
"""
from .call import Options, attention

__all__ = ["Options", "attention"]
