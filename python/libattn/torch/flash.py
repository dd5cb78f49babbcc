# SPDX-License-Identifier: Apache-2.0
"""flash_attn_func() and flash_attn_varlen_func(), with the arguments and the meaning of flash-attn, 2.1 and later."""
from __future__ import annotations

from typing import Any

import torch

from .call import attention

Answer = torch.Tensor | tuple[torch.Tensor, torch.Tensor, None]


def flash_attn_func(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0,
                    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int, int] = (-1, -1),
                    softcap: float = 0.0, alibi_slopes: torch.Tensor | None = None, deterministic: bool = False,
                    return_attn_probs: bool = False) -> Answer:
    """Attention of sequences of one length, tokens before heads.

    Args:
        q: (B, Tq, Hq, d) float32, bfloat16 or float16; k, v: (B, Tk, Hkv, d), Hq a multiple of Hkv.
        dropout_p: the probability with which a weight becomes 0; set it to 0 where nothing is trained.
        softmax_scale: None: 1 / sqrt(d).
        causal: the last query sees the last key (bottom-right aligned).
        window_size: (left, right), keys before and after its own position that a query sees, -1: all. Positions are aligned
            as with causal, so query i stands at i + Tk - Tq.
        softcap: score = softcap * tanh(score / softcap); 0: none.
        alibi_slopes: (Hq,) or (B, Hq): the score gets -slope * |position - key|. They may require a gradient.
        deterministic: libattn always is.
        return_attn_probs: (out, lse, None), where flash-attn has weights for tests in the third place.

    Returns:
        (B, Tq, Hq, d), and lse (B, Hq, Tq) in float32 where it is asked for, -inf in a row without keys.
    """
    batch, queries, heads = q.shape[:-1]
    offset = k.shape[1] - queries
    options = _options(dropout_p, softmax_scale, window_size, softcap)
    if causal:
        options["causal"] = "bottom-right"
    elif offset != 0 and ("window" in options or alibi_slopes is not None):
        options["query_offset"] = torch.full((batch,), offset, dtype=torch.int64, device="cpu")
    if alibi_slopes is not None and alibi_slopes.dim() == 2:
        return _slopes_of_batches(q, k, v, alibi_slopes, options, return_attn_probs)
    options.update(alibi=alibi_slopes, layout="bthd")
    return _answer(attention(q, k, v, return_lse=return_attn_probs, **options))


def flash_attn_varlen_func(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor,
        max_seqlen_q: int | None = None, max_seqlen_k: int | None = None, dropout_p: float = 0.0,
        softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int, int] = (-1, -1),
        softcap: float = 0.0, alibi_slopes: torch.Tensor | None = None, deterministic: bool = False,
        return_attn_probs: bool = False, block_table: torch.Tensor | None = None) -> Answer:
    """Attention of sequences of different lengths, one after the other without padding.

    Args:
        q: (total of queries, Hq, d); k, v: (total of keys, Hkv, d), or with block_table pools (pages, page size, Hkv, d).
        cu_seqlens_q, cu_seqlens_k: (S + 1,) whole numbers: where each sequence begins, from 0 on, and the end.
        max_seqlen_q, max_seqlen_k: libattn reads the lengths in cu_seqlens and has no need of them.
        alibi_slopes: (Hq,).
        block_table: int32 (S, pages): the pages of each sequence. There are no gradients then.
        The others are those of flash_attn_func().

    Returns:
        (total of queries, Hq, d), and lse (Hq, total of queries) where it is asked for.
    """
    options = _options(dropout_p, softmax_scale, window_size, softcap)
    if alibi_slopes is not None and alibi_slopes.dim() != 1:
        raise NotImplementedError(f"alibi_slopes has the shape {tuple(alibi_slopes.shape)}; libattn has slopes of its own for "
                                  f"each head, not for each sequence of a ragged batch: (heads,)")
    cu_seqlens_q, cu_seqlens_k = torch.as_tensor(cu_seqlens_q), torch.as_tensor(cu_seqlens_k)
    if cu_seqlens_q.dim() != 1 or cu_seqlens_q.shape != cu_seqlens_k.shape:
        raise ValueError(f"cu_seqlens_q and cu_seqlens_k have the shapes {tuple(cu_seqlens_q.shape)} and "
                         f"{tuple(cu_seqlens_k.shape)}; expected (sequences + 1,) of both")
    if causal:
        options["causal"] = "bottom-right"
    elif "window" in options or alibi_slopes is not None:
        options["query_offset"] = cu_seqlens_k.diff() - cu_seqlens_q.diff()
    if block_table is None:
        options["cu_seqlens"] = (cu_seqlens_q, cu_seqlens_k)
    else:
        options.update(cu_seqlens=cu_seqlens_q, block_table=block_table, lengths=cu_seqlens_k.diff())
        k, v = k.transpose(1, 2), v.transpose(1, 2)
    options.update(alibi=alibi_slopes, layout="bthd")
    return _answer(attention(q, k, v, return_lse=return_attn_probs, **options))


def _answer(result: Any) -> Answer:
    return (*result, None) if isinstance(result, tuple) else result


def _options(dropout_p: float, softmax_scale: float | None, window_size: tuple[int, int], softcap: float) -> dict[str, Any]:
    options: dict[str, Any] = {"scale": softmax_scale}
    if dropout_p:
        options["dropout"] = dropout_p
    if softcap:
        options["softcap"] = softcap
    if tuple(window_size) != (-1, -1):
        for side in window_size:
            if side < -1:
                raise ValueError(f"window_size is {tuple(window_size)}; expected numbers of keys, or -1 for all")
        options["window"] = tuple(None if side == -1 else side for side in window_size)
    return options


def _slopes_of_batches(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slopes: torch.Tensor, options: dict[str, Any],
                       return_attn_probs: bool) -> Answer:
    """Batches with slopes of their own, as heads of one batch: libattn has slopes for heads. q, k and v are copied."""
    batch, queries, heads, _ = q.shape
    if slopes.shape != (batch, heads):
        raise ValueError(f"alibi_slopes has the shape {tuple(slopes.shape)}; expected ({batch}, {heads}) or ({heads},)")
    if "query_offset" in options:
        options["query_offset"] = options["query_offset"][:1]
    q, k, v = (x.transpose(1, 2).flatten(0, 1)[None] for x in (q, k, v))
    out, lse = attention(q, k, v, alibi=slopes.flatten(), return_lse=True, **options)
    out, lse = out.view(batch, heads, queries, -1).transpose(1, 2), lse.view(batch, heads, queries)
    return (out, lse, None) if return_attn_probs else out
