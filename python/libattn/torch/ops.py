# SPDX-License-Identifier: Apache-2.0
"""torch.ops.libattn.attention and attention_backward: attention as PyTorch's dispatcher, autograd and compiler know it.

An operator takes tensors, numbers and words, so the options of libattn.attention() are taken apart here and put together
again where it is called. What a schema cannot hold, functions of Python's, is refused before.
"""
from __future__ import annotations

from typing import Any

import torch

from ..attention import attention, attention_backward
from ..options import BlockMask, Disentangled, Dropout, RelativeBias, Rope, Tree, Window

TENSORS = (
    "mask", "head_scale", "sinks", "alibi", "bias_table", "rel_k", "rel_q", "rope_q", "rope_k", "query_offset", "lengths",
    "starts", "prefix", "global_tokens", "block_offsets", "block_columns", "segments_q", "segments_k", "tree_ancestors",
    "cu_seqlens_q", "cu_seqlens_k", "block_table", "dropout_key")
"""Options that are tensors, in the order of the schema, behind q, k and v."""

NUMBERS = {
    "layout": 'str layout="bhtd"', "causal": 'str causal=""', "scale": "float? scale=None",
    "temperature": "float? temperature=None", "softcap": "float? softcap=None", "window": "bool window=False",
    "window_left": "SymInt? window_left=None", "window_right": "SymInt? window_right=None",
    "first_tokens": "SymInt first_tokens=0", "block_size": "int block_size=0", "block_heads": "int block_heads=1",
    "tree_tokens": "SymInt tree_tokens=0", "bias_kind": 'str bias_kind="clipped"', "bias_distance": "int bias_distance=0",
    "span": "int span=0", "delta": 'str delta="query-key"', "rotation": 'str rotation="half-split"',
    "dropout_p": "float dropout_p=0.0", "scores_of": "str? scores_of=None", "inputs": "str? inputs=None",
    "sums": "str? sums=None", "num_threads": "int? num_threads=None", "isa": "str? isa=None"}
"""The others, by name and as the schema has them: keywords."""

GRADIENTS = {
    "q": "q", "k": "k", "v": "v", "mask": "mask", "head_scale": "head_scale", "sinks": "sinks", "alibi": "alibi",
    "bias_table": "relative_bias", "rel_k": "rel_k", "rel_q": "rel_q"}
"""Tensors that have a gradient, with the names that libattn.attention_backward() has for them."""

_tensors = "".join(f", Tensor? {name}=None" for name in TENSORS)
_numbers = ", ".join(NUMBERS.values())

_schemas = (f"attention(Tensor q, Tensor k, Tensor v{_tensors}, *, {_numbers}) -> (Tensor out, Tensor lse)",
            f"attention_backward(Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor d_out, Tensor? d_lse{_tensors}, "
            f"*, str[] wanted, {_numbers}) -> Tensor[]")

library = torch.library.Library("libattn", "DEF")  # type: ignore[no-untyped-call]
for _schema in _schemas:
    library.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))  # type: ignore[no-untyped-call]


def core_options(tensors: dict[str, Any], numbers: dict[str, Any]) -> dict[str, Any]:
    """The options of libattn.attention() from those of the operator."""
    t, n = tensors.get, numbers.get
    names = ("mask", "head_scale", "sinks", "alibi", "query_offset", "lengths", "starts", "prefix", "block_table")
    options = {name: tensors[name] for name in names if t(name) is not None}
    names = ("causal", "scale", "temperature", "softcap", "scores_of", "inputs", "sums", "num_threads", "isa")
    options.update((name, numbers[name]) for name in names if n(name) not in (None, ""))
    if t("bias_table") is not None:
        options["relative_bias"] = RelativeBias(tensors["bias_table"], n("bias_kind", "clipped"), n("bias_distance", 0))
    if t("rel_k") is not None or t("rel_q") is not None:
        options["disentangled"] = Disentangled(n("span", 0), t("rel_k"), t("rel_q"), n("delta", "query-key"))
    if t("rope_q") is not None:
        options["rope"] = Rope(tensors["rope_q"], t("rope_k"), n("rotation", "half-split"))
    if n("window"):
        tokens = () if t("global_tokens") is None else tensors["global_tokens"]
        options["window"] = Window(n("window_left"), n("window_right"), n("first_tokens", 0), tokens)
    if t("block_offsets") is not None:
        heads = n("block_heads", 1)
        rows = (len(tensors["block_offsets"]) - 1) // max(heads, 1)
        options["block_mask"] = BlockMask(n("block_size", 0), heads, rows, tensors["block_offsets"], t("block_columns"))
    if t("segments_q") is not None:
        options["segments"] = (tensors["segments_q"], t("segments_k"))
    if t("tree_ancestors") is not None:
        options["tree"] = Tree(n("tree_tokens", 0), tensors["tree_ancestors"])
    if t("cu_seqlens_q") is not None:
        keys = t("cu_seqlens_k")
        options["cu_seqlens"] = tensors["cu_seqlens_q"] if keys is None else (tensors["cu_seqlens_q"], keys)
    if t("dropout_key") is not None:
        seed, offset = tensors["dropout_key"].tolist()
        options["dropout"] = Dropout(n("dropout_p", 0.0), seed, offset)
    return options


def rows_of(x: Any) -> Any:
    """x with its channels side by side, which is all that libattn needs of strides."""
    return x.contiguous() if x.dim() and x.shape[-1] > 1 and x.stride(-1) != 1 else x


def _named(tensors: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(TENSORS, tensors))


def _attention(q: Any, k: Any, v: Any, *tensors: Any, **numbers: Any) -> tuple[Any, Any]:
    options = core_options(_named(tensors), numbers)
    result = attention(rows_of(q), rows_of(k), rows_of(v), return_lse=True, layout=numbers.get("layout", "bhtd"),
                            **options)
    return result.out, result.lse


def _attention_fake(q: Any, k: Any, v: Any, *tensors: Any, **numbers: Any) -> tuple[Any, Any]:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not 1 <= x.dim() <= 4:
            raise ValueError(f"{name} has {x.dim()} axes; expected 1 to 4")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"k has {k.shape[-1]} channels; expected {q.shape[-1]}, as q has")
    if numbers.get("layout", "bhtd") == "bhtd":
        rows = q.shape[:-1]
    else:
        # With tokens first an array of two axes has the heads of one token, and lse keeps its axis of tokens.
        rows = (*q.shape[:-3], *(q.shape[-2:-1] or (1,)), *(q.shape[-3:-2] or (1,)))
    return q.new_empty((*q.shape[:-1], v.shape[-1])), q.new_empty(rows, dtype=torch.float32)


def _attention_backward(q: Any, k: Any, v: Any, out: Any, lse: Any, d_out: Any, d_lse: Any, *tensors: Any,
                        wanted: list[str], **numbers: Any) -> list[Any]:
    named = _named(tensors)
    options = core_options(named, numbers)
    gradients = attention_backward(
        rows_of(q), rows_of(k), rows_of(v), out, lse, rows_of(d_out), d_lse=d_lse, wanted=[GRADIENTS[name] for name in wanted],
        layout=numbers.get("layout", "bhtd"), **options)
    given = {"q": q, "k": k, "v": v} | named
    return [getattr(gradients, GRADIENTS[name]).to(given[name].dtype) for name in wanted]


def _attention_backward_fake(q: Any, k: Any, v: Any, out: Any, lse: Any, d_out: Any, d_lse: Any, *tensors: Any,
                             wanted: list[str], **numbers: Any) -> list[Any]:
    given = {"q": q, "k": k, "v": v} | _named(tensors)
    return [given[name].new_empty(given[name].shape) for name in wanted]


NAMES = ("q", "k", "v", *TENSORS)
FORWARD_MODE = "libattn.torch has no forward-mode derivatives (torch.func.jvp); use those of backward()"


class Attention(torch.autograd.Function):
    """The operator, and how its gradients are computed.

    torch.library.register_autograd() would do, but spends a millisecond in each call on a schema as long as this one, and
    does not know torch.func.grad().
    """

    @staticmethod
    def forward(numbers: dict[str, Any], *tensors: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.libattn.attention(*tensors, **numbers)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, Any]) -> None:
        numbers, *tensors = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, *output)
        ctx.numbers = numbers

    @staticmethod
    def backward(ctx: Any, d_out: Any, d_lse: Any) -> Any:
        *tensors, out, lse = ctx.saved_tensors
        wanted = [name for name, needed in zip(NAMES, ctx.needs_input_grad[1:]) if needed and name in GRADIENTS]
        if d_out is None:
            d_out = torch.zeros_like(out)
        q, k, v, *options = tensors
        numbers = ctx.numbers | {"wanted": wanted}
        if transformed():
            got = Backward.apply(numbers, q, k, v, out, lse, d_out, d_lse, *options)  # type: ignore[no-untyped-call]
        else:
            got = torch.ops.libattn.attention_backward(q, k, v, out, lse, d_out, d_lse, *options, **numbers)
        by_name = dict(zip(wanted, got))
        return None, *(by_name.get(name) for name in NAMES[: len(tensors)])

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError(FORWARD_MODE)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], numbers: dict[str, Any], *tensors: Any) -> tuple[Any, Any]:
        outputs, axes = _map_attention(info, in_dims[1:], *tensors, **numbers)
        return outputs, axes


class Backward(torch.autograd.Function):
    """The operator of gradients, which has none itself."""

    @staticmethod
    def forward(numbers: dict[str, Any], *tensors: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return tuple(torch.ops.libattn.attention_backward(*tensors, **numbers))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError(
            "libattn.torch has no gradients of gradients (backward of a backward with create_graph=True); where these are "
            "needed compute attention by PyTorch's, within torch.nn.attention.sdpa_kernel(SDPBackend.MATH)")

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError(FORWARD_MODE)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], numbers: dict[str, Any], *tensors: Any) -> tuple[Any, Any]:
        outputs, axes = _map_backward(info, in_dims[1:], *tensors, **numbers)
        return tuple(outputs), tuple(axes)


def transformed() -> bool:
    """Whether a transform of torch.func is active. It has to meet the functions themselves, above the dispatcher."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None


def _recorded(tensors: tuple[Any, ...]) -> bool:
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def _attention_autograd(*tensors: Any, **numbers: Any) -> Any:
    if _recorded(tensors):
        return Attention.apply(numbers, *tensors)  # type: ignore[no-untyped-call]
    return Attention.forward(numbers, *tensors)


def _backward_autograd(*tensors: Any, **numbers: Any) -> Any:
    if _recorded(tensors):
        return list(Backward.apply(numbers, *tensors))  # type: ignore[no-untyped-call]
    return list(Backward.forward(numbers, *tensors))


def _mapped(op: Any) -> Any:
    """The rule of torch.func.vmap for an operator: a call for each element, whose threads share its work."""

    def call_each(info: Any, in_dims: tuple[Any, ...], *args: Any, **numbers: Any) -> tuple[Any, Any]:
        if not info.batch_size:
            raise ValueError("libattn.torch is mapped (torch.func.vmap) over an axis of length 0; expected 1 or more")
        each = [op(*(x if axis is None else x.select(axis, n) for x, axis in zip(args, in_dims)), **numbers)
                for n in range(info.batch_size)]
        outputs = [torch.stack(parts) for parts in zip(*each)]
        return (outputs, [0] * len(outputs)) if isinstance(each[0], list) else (tuple(outputs), (0,) * len(outputs))

    return call_each


_map_attention, _map_backward = _mapped(torch.ops.libattn.attention), _mapped(torch.ops.libattn.attention_backward)

for _name, _key, _kernel in (("attention", "CPU", _attention), ("attention", "Autograd", _attention_autograd),
                             ("attention_backward", "CPU", _attention_backward),
                             ("attention_backward", "Autograd", _backward_autograd)):
    library.impl(_name, _kernel, _key)  # type: ignore[no-untyped-call]
torch.library.register_fake("libattn::attention", _attention_fake, lib=library)
torch.library.register_fake("libattn::attention_backward", _attention_backward_fake, lib=library)
torch.library.register_vmap("libattn::attention", _map_attention, lib=library)
torch.library.register_vmap("libattn::attention_backward", _map_backward, lib=library)
