# SPDX-License-Identifier: Apache-2.0
"""Linear attention: with a state of fixed size instead of keys and values."""
from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack, overload

from . import _core
from ._arrays import Maker
from .options import Array, Layout

A = TypeVar("A")


class LinearOptions(TypedDict, total=False):
    """Options of linear_attention()."""

    decay: Array | None
    beta: Array | None
    scale: float | None
    state: Array | None
    resets: Array | None
    cu_seqlens: Array | None
    lengths: Array | None
    features: Literal["elu", "positive"] | None
    projection: Array | None
    normalise: bool
    bidirectional: bool
    num_threads: int | None
    isa: str | None


@overload
def linear_attention(q: A, k: Array, v: Array, *, out: A | None = None, return_state: Literal[False] = False,
                     layout: Layout = "bhtd", **options: Unpack[LinearOptions]) -> A: ...


@overload
def linear_attention(q: A, k: Array, v: Array, *, out: A | None = None, return_state: Literal[True] | Array,
                     layout: Layout = "bhtd", **options: Unpack[LinearOptions]) -> tuple[A, A]: ...


def linear_attention(q: Any, k: Any, v: Any, *, out: Any = None, return_state: Any = False, layout: Layout = "bhtd",
                     **options: Any) -> Any:
    """Each token writes its key and value to a state S of (dk, dv) numbers, and reads it with its query.

        linear        S += k vᵀ                                       out = scale * qᵀ S
        gated         S = exp(decay) S + k vᵀ                         (decay)
        delta         S += beta k (v - kᵀ S)ᵀ                         (beta)
        gated delta   the same, of exp(decay) S                       (decay, beta)

    Args:
        q: (B, Hq, T, dk) float32, bfloat16 or float16, or in the order of layout, as k and v.
        k: (B, Hk, T, dk).
        v: (B, H, T, dv), H the heads of S. Hq is a multiple or a divisor of H, Hk a divisor.
        out: (B, max(Hq, H), T, dv), where the result is written; None: a new array of q's type.
        return_state: True: S after the last token, too, float32; or the array that it is written to, which may be state.
        decay: (B|1, H|1, T|1, 1), or a number for each row of S, (B|1, H|1, T|1, dk): logarithms, up to 0; in the order
            of layout.
        beta: (B|1, H|1, T|1, 1).
        scale: None: 1 / sqrt(dk).
        state: float32 (B, H, dk, dv), S before the first token; None: 0.
        resets: bool (B|1, H|1, T, 1): S is cleared before the token.
        cu_seqlens: (S + 1,) offsets of ragged sequences; B is 1, and each has a state.
        lengths: (B,), the tokens that each sequence has.
        features: None; 'elu', elu(x) + 1 of q and k (Katharopoulos et al. 2020); 'positive', FAVOR+ (Choromanski et al.
            2021) with projection and normalise.
        projection: float32 (H|1, m, dk), of draw_features().
        normalise: out is divided by the sum of qᵀ k; the state has a column more.
        bidirectional: each token reads what all tokens write.

    Returns:
        out, or (out, state).
    """
    call = _core.LinearCall(q, k, v, layout, options)
    maker, new = Maker(q), out is None
    if new:
        batch, heads, tokens = call.q.shape[:3]
        heads = max(heads, call.v.shape[1])
        order = (batch, heads, tokens) if layout == "bhtd" else (batch, tokens, heads)
        out = maker.empty((*order, call.v.shape[3])[4 - call.q.ndim :])
    asked = return_state is not False
    state = maker.empty(call.state_shape, "float32") if return_state is True else return_state if asked else None
    call.run(out, state)
    out = maker.finish(out) if new else out
    if not asked:
        return out
    return out, maker.finish(state) if return_state is True else state


@dataclass(slots=True, eq=False)
class LinearGradients(Generic[A]):
    """Gradients, of the shape and type of what they are of."""

    q: A | None = None
    k: A | None = None
    v: A | None = None
    decay: A | None = None
    state: A | None = None


def linear_attention_backward(q: A, k: A, v: A, d_out: A, *, out: A | None = None, d_state: A | None = None,
                              wanted: Collection[str] = ("q", "k", "v"), layout: Layout = "bhtd",
                              **options: Unpack[LinearOptions]) -> LinearGradients[A]:
    """Gradients of linear_attention(): from d_out, that of a number with respect to out.

    Args:
        q, k, v: as linear_attention() had them.
        d_out: the gradient of out, of its shape.
        out: what it gave: needed with normalise only.
        d_state: the gradient of the last state, or None.
        wanted: names of LinearGradients' fields.
        options: as linear_attention() had them; beta is not possible yet.
    """
    call = _core.LinearCall(q, k, v, layout, options)
    maker = Maker(q)
    given: dict[str, Any] = {"q": q, "k": k, "v": v, "decay": options.get("decay"), "state": options.get("state")}
    arrays = {}
    for name in wanted:
        if name not in given:
            raise ValueError(f"wanted has {name!r}; expected some of {', '.join(given)}")
        if given[name] is None and name != "state":
            raise ValueError(f"wanted has {name!r}, and the call has no {name}")
        arrays[name] = (maker.empty(call.state_shape, "float32") if name == "state" else
                        Maker(given[name]).empty(tuple(given[name].shape)))
    call.backward(out, d_out, d_state, arrays)
    return LinearGradients(**{name: maker.finish(array) for name, array in arrays.items()})


def draw_features(features: int, channels: int, *, heads: int = 1, seed: int = 0, offset: int = 0) -> Any:
    """A projection for features 'positive' (Choromanski et al. 2021, section 2.4): float32 of NumPy's, (heads, features,
    channels). seed and offset choose it, the same on every machine up to rounding."""
    import numpy as np

    for name, value in (("features", features), ("channels", channels), ("heads", heads)):
        if not isinstance(value, int) or value < 0:
            raise ValueError(f"{name} is {value!r}; expected 0 or more")
    projection = np.empty((heads, features, channels), np.float32)
    _core.draw_features(projection, seed, offset)
    return projection
