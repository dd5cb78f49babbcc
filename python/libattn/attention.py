# SPDX-License-Identifier: Apache-2.0
"""Attention and its gradients."""
from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar, Unpack, overload

from . import _core
from ._arrays import Maker, missing_axes
from .options import Array, Layout, Options, Quantised

A = TypeVar("A")
Stage = Literal["raw", "scaled", "capped", "masked"]


class Result(NamedTuple, Generic[A]):
    """What attention() gives where more than out is asked for; None stands for what was not.

    out: (B, H, Tq, dv), or in the order of layout. lse: float32 (B, H, Tq), the natural logarithm of the sum of the
    exponentials of a row's scores. weights: float32 (B, H, R, Tk). key_sums: float32 (B, H, Tk), the weights that each
    key received from all queries. scores: float32 (B, H, R, Tk).
    """

    out: A
    lse: A | None = None
    weights: A | None = None
    key_sums: A | None = None
    scores: A | None = None


@overload
def attention(q: A, k: Array | Quantised, v: Array | Quantised, *, out: A | None = None, layout: Layout = "bhtd",
              **options: Unpack[Options]) -> A: ...


@overload
def attention(q: A, k: Array | Quantised, v: Array | Quantised, *, out: A | None = None, return_lse: bool = False,
              return_weights: bool | Sequence[int] = False, return_key_sums: bool = False,
              return_scores: Stage | None = None, layout: Layout = "bhtd", **options: Unpack[Options]) -> Result[A]: ...


def attention(q: Any, k: Any, v: Any, *, out: Any = None, return_lse: bool = False,
              return_weights: bool | Sequence[int] = False, return_key_sums: bool = False,
              return_scores: Stage | None = None, layout: Layout = "bhtd", **options: Any) -> Any:
    """softmax(scale * q kᵀ) v, with what stands between the two products, and without storing it.

    Arrays may have any strides, but channels side by side, and are not copied; with fewer than four axes those in front have the length 1.

    Args:
        q: (B, Hq, Tq, dk) float32, bfloat16 or float16, as k, v and out; with layout "bthd" (B, Tq, Hq, dk).
        k: (B, Hkv, Tk, dk), or a Quantised; Hq is a multiple of Hkv.
        v: (B, Hkv, Tk, dv), or a Quantised.
        out: where the result is written; None: a new array of q's type.
        return_lse: lse, too.
        return_weights: weights, too: True for all rows, or a list of queries.
        return_key_sums: key_sums, too.
        return_scores: scores, too, after the step that is named: 'raw', 'scaled', 'capped' or 'masked'. Their rows are
            those of return_weights if it is a list.
        layout: the order of the axes of q, k, v and out.

    Scores:
        scale: multiplies q·k; None: 1 / sqrt(dk).
        temperature: scores are divided by it.
        head_scale: (Hq,), multiplies the scale of each head.
        softcap: score = softcap * tanh(score / softcap).
        sinks: (Hq,), a logit of each head that takes part in the sum and has no value.
        alibi: (Hq,), slopes: the score gets -slope * |position - key|; alibi_slopes() has the usual ones.
        relative_bias: a RelativeBias.
        disentangled: a Disentangled.
        rope: a Rope: q and k are rotated while they are read.
        score_function: gets a tile with batch, head, `queries` (a column of their indices), `keys` (a row) and `values`,
            their scores as NumPy's (queries, keys); changes values in place, or returns new ones; -inf hides a key.
            Called in any order, from several threads, and possibly twice for a score. An exception ends the call.
        weight_function: the same with weights, before they are multiplied with v.

    Which keys a query sees, those that all of these allow:
        mask: (B|1, Hq|1, Tq|1, Tk|1): bool, True attends; or float, added to the score.
        causal: 'top-left', query 0 sees key 0; 'bottom-right', the last query sees the last key; 'offset', by
            query_offset. True where these agree.
        query_offset: (B,), the position of each sequence's first query.
        lengths, starts: (B,), keys from lengths[b] on, and before starts[b], are padding and are not read.
        prefix: (B,), keys at the start that causality does not hide.
        window: (left, right), keys before and after its own position that a query sees, None: all; or a Window.
        block_mask: a BlockMask, of longformer(), bigbird(), strided() or one's own.
        segments: (B, T) labels of packed documents, or a pair of those of queries and of keys.
        tree: a Tree of drafted tokens.

    Sequences:
        cu_seqlens: (S + 1,) offsets of ragged sequences, or a pair of those of queries and of keys; B is 1.
        block_table: int32 (S, pages): pages of each sequence. k and v are then pools (pages, Hkv, page_size, d), and
            lengths says how many keys there are.

    Others:
        dropout: a Dropout.
        scores_of: 'int8' multiplies q and k as int8.
        inputs: 'may-be-bf16' permits to round q, k and v where that is faster.
        sums: 'free' permits to add channels in any order where that is faster.
        num_threads: None: what set_num_threads() says.
        isa: the name of an instruction set, see instruction_sets().

    Returns:
        out, or a Result where more is asked for.

    Raises:
        ValueError: an argument is wrong; nothing has been written.
        NotImplementedError: libattn, or this processor, cannot do that.
        MemoryError: no memory.
    """
    call = _core.Call(q, k, v, layout, options)
    maker = Maker(q)
    batch, heads, tq, _ = call.q.shape
    tk = call.keys
    missing = missing_axes(call.q.ndim, layout)
    rows = None if isinstance(return_weights, bool) else [int(row) for row in return_weights]
    count = tq if rows is None else len(rows)
    if out is None:
        channels = call.v.shape[3]
        shape = (batch, heads, tq, channels) if layout == "bhtd" else (batch, tq, heads, channels)
        out, new = maker.empty(shape[4 - call.q.ndim :]), True
    else:
        new = False
    if not (return_lse or return_weights is not False or return_key_sums or return_scores is not None):
        call.set_outputs(out)
        call.run()
        return maker.finish(out) if new else out

    def wanted(asked: bool, *shape: int) -> Any:
        return maker.empty(shape[missing:], "float32") if asked else None

    lse = wanted(return_lse, batch, heads, tq)
    weights = wanted(return_weights is not False, batch, heads, count, tk)
    key_sums = wanted(return_key_sums, call.sequences, heads, tk)
    scores = wanted(return_scores is not None, batch, heads, count, tk)
    call.set_outputs(out, lse, weights, rows, key_sums, scores, return_scores)
    call.run()
    return Result(maker.finish(out) if new else out, *map(maker.finish, (lse, weights, key_sums, scores)))


def describe(q: Array, k: Array | Quantised, v: Array | Quantised, *, layout: Layout = "bhtd",
             **options: Unpack[Options]) -> str:
    """What attention() would do: instruction set, tiles, threads, and why, in one line. Nothing is computed."""
    call = _core.Call(q, k, v, layout, options)
    batch, heads, tq, _ = call.q.shape
    shape = (batch, heads, tq, call.v.shape[3]) if layout == "bhtd" else (batch, tq, heads, call.v.shape[3])
    call.set_outputs(Maker(q).empty(shape[4 - call.q.ndim :]))
    return call.describe()


@dataclass(slots=True, eq=False)
class Gradients(Generic[A]):
    """Gradients, of the shape and type of what they are of; float32 for those of options."""

    q: A | None = None
    k: A | None = None
    v: A | None = None
    mask: A | None = None
    head_scale: A | None = None
    sinks: A | None = None
    alibi: A | None = None
    relative_bias: A | None = None
    rel_k: A | None = None
    rel_q: A | None = None


def attention_backward(q: A, k: A, v: A, out: A, lse: A, d_out: A, *, d_lse: A | None = None,
                       wanted: Collection[str] = ("q", "k", "v"), layout: Layout = "bhtd",
                       score_gradient_function: Callable[[Any], Array | None] | None = None,
                       **options: Unpack[Options]) -> Gradients[A]:
    """Gradients of attention(): from d_out, that of a number with respect to out.

    Args:
        q, k, v: as attention() had them.
        out, lse: what it gave.
        d_out: the gradient of out, of its shape.
        d_lse: the gradient of lse, or None.
        wanted: names of Gradients' fields. mask: of an additive one. rel_k, rel_q: of Disentangled's tables.
        layout: of q, k, v, out, d_out and their gradients.
        score_gradient_function: where there is a score_function, its gradient: gets a tile as it does, of which `values`
            are gradients of what it gave, and `scores` what it got; leaves in values those of what it got.
        options: as attention() had them.

    Returns:
        Gradients; fields that were not wanted are None.
    """
    call = _core.Call(q, k, v, layout, options)
    return gradients_of(call, {"q": q, "k": k, "v": v}, out, lse, d_out, d_lse, wanted, options, score_gradient_function)


def gradients_of(call: _core.Call, qkv: dict[str, Any], out: Any, lse: Any, d_out: Any, d_lse: Any, wanted: Collection[str],
                 options: Any, score_gradient_function: Callable[[Any], Array | None] | None = None) -> Gradients[Any]:
    """attention_backward() of a call with these options."""
    maker = Maker(qkv["q"])
    given = dict(qkv)
    for name in ("mask", "head_scale", "sinks", "alibi"):
        given[name] = options.get(name)
    bias, terms = options.get("relative_bias"), options.get("disentangled")
    given["relative_bias"] = None if bias is None else bias.table
    given["rel_k"] = None if terms is None else terms.rel_k
    given["rel_q"] = None if terms is None else terms.rel_q
    arrays = {}
    for name in wanted:
        if name not in given:
            raise ValueError(f"wanted has {name!r}; expected some of {', '.join(given)}")
        if given[name] is None:
            raise ValueError(f"wanted has {name!r}, and the call has no {name}")
        own = name in ("q", "k", "v")
        arrays[name] = (Maker(given[name]) if own else maker).empty(tuple(given[name].shape), None if own else "float32")
    call.backward(out, lse, d_out, d_lse, arrays, score_gradient_function)
    return Gradients(**{name: maker.finish(array) for name, array in arrays.items()})


@overload
def merge(parts: Sequence[A], lses: Sequence[A], *, out: A | None = None, return_lse: Literal[False] = False,
          layout: Layout = "bhtd", num_threads: int | None = None) -> A: ...


@overload
def merge(parts: Sequence[A], lses: Sequence[A], *, out: A | None = None, return_lse: Literal[True],
          layout: Layout = "bhtd", num_threads: int | None = None) -> tuple[A, A]: ...


def merge(parts: Any, lses: Any, *, out: Any = None, return_lse: bool = False, layout: Layout = "bhtd",
          num_threads: int | None = None) -> Any:
    """Joins attention over disjoint sets of keys: what attention over all of them gives, up to rounding.

    Args:
        parts: what attention() gave for each set, (B, H, T, dv) or in the order of layout.
        lses: the lse of each, float32 (B, H, T).
        out: where the result is written, which may be one of parts; None: a new array.
        return_lse: the lse of all keys, too.

    Returns:
        out, or (out, lse).
    """
    if len(parts) == 0:
        raise ValueError("parts is empty; expected one array or more")
    maker, new = Maker(parts[0]), out is None
    out = maker.empty(tuple(parts[0].shape)) if new else out
    lse = maker.empty(tuple(lses[0].shape), "float32") if return_lse and len(lses) else None
    _core.merge(parts, lses, out, lse, layout, num_threads)
    out = maker.finish(out) if new else out
    return (out, maker.finish(lse)) if return_lse else out


def dropout_keeps(dropout: Any, batch: int, head: int, query: int, key: int) -> bool:
    """Whether a Dropout keeps the weight of a key for a query."""
    return _core.dropout_keeps(dropout, batch, head, query, key)
