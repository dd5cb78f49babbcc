# SPDX-License-Identifier: Apache-2.0
"""libattn in Hugging Face Transformers.

    import libattn.transformers

    libattn.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="libattn")

Importing registers nothing: register() does.
"""
from __future__ import annotations

import inspect
from typing import Any

import torch
import transformers
from transformers import AttentionInterface, AttentionMaskInterface, masking_utils

from .. import torch as libattn_torch
from ..attention import attention
from ..options import Dropout
from .masks import Mask, libattn_mask

__all__ = ["Mask", "libattn_attention", "libattn_mask", "register"]


def register() -> None:
    """Makes attn_implementation="libattn" known to Transformers, for models that are made afterwards or that
    set_attn_implementation() is called on.

    Raises:
        NotImplementedError: this version of Transformers hands other arguments to mask functions.
    """
    if "q_offset" not in inspect.signature(masking_utils.sdpa_mask).parameters:
        raise NotImplementedError(f"transformers is {transformers.__version__}; expected a version whose mask functions "
                                  f"get q_length and q_offset, such as 5.24")
    AttentionInterface.register("libattn", libattn_attention)
    AttentionMaskInterface.register("libattn", libattn_mask)


def libattn_attention(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                      attention_mask: torch.Tensor | None, dropout: float = 0.0, scaling: float | None = None,
                      is_causal: bool | None = None, softcap: float | None = None, s_aux: torch.Tensor | None = None,
                      position_bias: torch.Tensor | None = None,
                      **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The attention function that register() registers.

    Args:
        module: the layer. Without a mask, its is_causal says whether queries see later keys, if is_causal does not.
        query: (B, Hq, Tq, dk) float32, bfloat16 or float16, as key and value.
        key, value: (B, Hkv, Tk, dk) and (B, Hkv, Tk, dv), heads not repeated.
        attention_mask: what libattn_mask() returned, or (B|1, Hq|1, Tq, Tk), bool or added to the scores, or None.
        dropout: the probability, while the layer trains. The seed is drawn from PyTorch's generator.
        softcap, s_aux, position_bias: Gemma 2's cap, gpt-oss' sinks (Hq,), and T5's bias (B|1, Hq|1, Tq, Tk).
        kwargs: output_attentions asks for weights. Windows are in the mask. Others are for other functions.

    Returns:
        out (B, Tq, Hq, dv), contiguous, and weights (B, Hq, Tq, Tk) of query's type, or None.
    """
    if kwargs.get("sinks") is not None:
        raise NotImplementedError(f"sinks has the shape {tuple(kwargs['sinks'].shape)}; libattn has one for each head, "
                                  f"s_aux, and none for each query")
    if kwargs.get("head_mask") is not None:
        raise NotImplementedError("head_mask is given; libattn does not multiply weights of heads, use "
                                  "attn_implementation='eager'")
    tq, tk = query.shape[2], key.shape[2]
    options: dict[str, Any] = {"scale": scaling, "softcap": softcap or None}
    if isinstance(attention_mask, Mask):
        if attention_mask.shape[2:] != (tq, tk):
            raise ValueError(f"attention_mask is of {attention_mask.shape[2]} queries and {attention_mask.shape[3]} keys; "
                             f"expected {tq} and {tk}")
        options |= attention_mask.options
    elif attention_mask is not None:
        options["mask"] = attention_mask
    elif tq > 1 and (getattr(module, "is_causal", True) if is_causal is None else is_causal):
        options["causal"] = "top-left"
    if position_bias is not None:
        options["mask"] = biased(options.get("mask"), position_bias)
    mask = options.get("mask")
    if mask is not None and mask.shape[3] != tk:
        raise ValueError(f"attention_mask or position_bias has {mask.shape[3]} keys; expected {tk}")
    if s_aux is not None:
        options["sinks"] = s_aux.float()
    if dropout > 0.0 and module.training:
        options["dropout"] = dropout
    if query.shape[0] == 1:
        query = query.expand(key.shape[0], -1, -1, -1)  # learned queries
    query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    if not kwargs.get("output_attentions"):
        return libattn_torch.attention(query, key, value, layout="bthd", **options), None
    tensors = (query, key, value, mask, s_aux)
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
        raise NotImplementedError("output_attentions is True, and weights of libattn have no gradient; expected "
                                  "torch.no_grad(), or attn_implementation='eager'")
    if "dropout" in options:
        options["dropout"] = Dropout(dropout, seed=int(torch.randint(1 << 62, ())))
    result = attention(query, key, value, return_weights=True, layout="bthd", **options)
    assert result.weights is not None
    return result.out, result.weights.to(query.dtype)


def biased(mask: torch.Tensor | None, bias: torch.Tensor) -> torch.Tensor:
    """A bias that is added to the scores where a mask, bool or added itself, does not hide them."""
    if mask is None:
        return bias
    return torch.where(mask, bias, float("-inf")) if mask.dtype == torch.bool else mask + bias
