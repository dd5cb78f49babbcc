# SPDX-License-Identifier: Apache-2.0
"""
What a case of each suite of attention is: its fields, its name, and how much work it is; layer_kinds.py
has those of layers and models. The cases themselves stand in cases.py.

Needs nothing but the standard library, like that file.
"""

from dataclasses import asdict, dataclass
from typing import ClassVar

DTYPES = ("f32", "bf16", "f16")

# One pair in this many is hidden by the boolean mask, at random: no tile is wholly visible or hidden.
MASK_PERIOD = 64

# What a cache may hold, and the bytes of a number. int8 and int4 are whatever a library makes of as many bits, e4m3 is
# fp8 with 4 bits of significand; scales do not count.
CACHE_BYTES = {"f32": 4, "bf16": 2, "f16": 2, "int8": 1, "e4m3": 1, "int4": 0.5}

# Keys and values of all layers of a case "from memory": more than a last level of cache, as in attn-bench, but half of
# that in 4 bits, as every worker is given four times as much in bf16. And those of a case that stays in one.
FAR_BYTES = 512 << 20
NEAR_BYTES = 16 << 20


def far_bytes(dtype):
    """What a case of that type has at least to come from memory."""
    return FAR_BYTES // 2 if dtype == "int4" else FAR_BYTES


class Saved:
    """What all cases have: a name of its suite, and fields that travel as JSON."""

    suite: ClassVar[str]

    def to_json(self):
        return {"suite": self.suite, **asdict(self)}


@dataclass(frozen=True)
class Case(Saved):
    """One shape of attention with its options. `quick` cases make up --quick, `series` names a curve over T."""

    suite: ClassVar[str] = "attention"

    dtype: str
    batch: int
    heads: int
    kv_heads: int
    tq: int
    tk: int
    d: int
    causal: bool = False
    mask: bool = False
    padded: bool = False
    quick: bool = False
    series: str = ""
    memory: bool = False

    @property
    def name(self):
        parts = [
            f"{self.dtype}/B{self.batch}/H{self.heads}/Tq{self.tq}/Tk{self.tk}/d{self.d}",
            f"causal:{'top-left' if self.causal else 'none'}",
        ]
        if self.kv_heads != self.heads:
            parts.append(f"kv_heads:{self.kv_heads}")
        if self.mask:
            parts.append("mask:bool")
        if self.padded:
            parts.append("padded")
        return "/".join(parts)

    @property
    def kind(self):
        """The heading under which the report shows it, and by which a bar finds it."""
        if self.padded:
            return "padded"
        if self.mask:
            return "mask"
        return "causal" if self.causal else "dense"

    @property
    def group(self):
        """Query heads that share one key head."""
        return self.heads // self.kv_heads

    @property
    def lengths(self):
        """Live keys of each sequence: with padding the middles of B equal parts of 0..Tk, half of Tk on average."""
        if not self.padded:
            return [self.tk] * self.batch
        return [self.tk * (2 * b + 1) // (2 * self.batch) for b in range(self.batch)]

    def live_pairs(self, mask_sum=None):
        """(query, key) pairs that take part. `mask_sum` is the number of true elements of the boolean mask."""
        if self.mask:
            if mask_sum is None:
                raise ValueError("a case with a boolean mask needs the number of pairs that it leaves alive")
            return self.heads * mask_sum
        pairs = 0
        for length in self.lengths:
            if self.causal:
                pairs += sum(min(i + 1, length) for i in range(self.tq))
            else:
                pairs += self.tq * length
        return self.heads * pairs

    def flops(self, mask_sum=None):
        return 4.0 * self.d * self.live_pairs(mask_sum)

    @property
    def tokens(self):
        return self.tk


@dataclass(frozen=True)
class DecodeCase(Saved):
    """
    A token more for each of `batch` sequences that have `tk` tokens with it, in every one of `layers`: a call
    computes all layers, as a model does, so that each finds its keys and values where the others have left them.
    `dtype` is the type of the caches; queries have it, too, and bf16 where that is quantised.
    """

    suite: ClassVar[str] = "decode"
    series: ClassVar[str] = ""
    memory: ClassVar[bool] = False

    dtype: str
    batch: int
    heads: int
    kv_heads: int
    tk: int
    d: int
    layers: int
    quick: bool = False

    @property
    def name(self):
        parts = [f"{self.dtype}/decode/B{self.batch}/H{self.heads}/Tk{self.tk}/d{self.d}"]
        if self.kv_heads != self.heads:
            parts.append(f"kv_heads:{self.kv_heads}")
        return "/".join([*parts, f"layers:{self.layers}"])

    @property
    def kind(self):
        return "decode" if self.group == 1 else "decode-grouped"

    @property
    def group(self):
        return self.heads // self.kv_heads

    @property
    def tokens(self):
        return self.tk

    @property
    def given(self):
        """The type of the arrays that contenders are given: who has quantised caches makes them from bf16."""
        return "bf16" if self.quantised else self.dtype

    @property
    def quantised(self):
        """Whether the caches have less than 16 bits for a number."""
        return self.dtype not in DTYPES

    @property
    def far(self):
        """Whether keys and values come from memory."""
        return self.bytes() >= far_bytes(self.dtype)

    def bytes(self):
        """Keys and values of all layers, as the caches hold them."""
        return int(2 * self.layers * self.batch * self.kv_heads * self.tk * self.d * CACHE_BYTES[self.dtype])

    def flops(self):
        return 4.0 * self.d * self.layers * self.batch * self.heads * self.tk


@dataclass(frozen=True)
class BackwardCase(Saved):
    """
    Gradients of self-attention with respect to q, k and v, of what a forward call has left; with `both` the
    forward call is computed and timed, too.
    """

    suite: ClassVar[str] = "backward"
    series: ClassVar[str] = ""
    memory: ClassVar[bool] = False

    dtype: str
    batch: int
    heads: int
    kv_heads: int
    t: int
    d: int
    causal: bool = False
    both: bool = False
    quick: bool = False

    @property
    def name(self):
        parts = [
            f"{self.dtype}/{'forward-backward' if self.both else 'backward'}",
            f"B{self.batch}/H{self.heads}/T{self.t}/d{self.d}",
            f"causal:{'top-left' if self.causal else 'none'}",
        ]
        if self.kv_heads != self.heads:
            parts.append(f"kv_heads:{self.kv_heads}")
        return "/".join(parts)

    @property
    def kind(self):
        return ("both" if self.both else "backward") + ("-causal" if self.causal else "")

    @property
    def group(self):
        return self.heads // self.kv_heads

    @property
    def tokens(self):
        return self.t

    def flops(self):
        """Five products for each live pair, as in attn-bench, whatever is computed again; seven with the forward's."""
        pairs = self.t * (self.t + 1) // 2 if self.causal else self.t * self.t
        return (14.0 if self.both else 10.0) * self.d * self.batch * self.heads * pairs


# Rules of linear attention, as the operator LinearAttention of ONNX calls them.
RULES = ("linear", "gated", "delta", "gated_delta")


@dataclass(frozen=True)
class LinearAttentionCase(Saved):
    """
    Attention with a state of d x d for each head: a prompt of `t` tokens from an empty state, or with t = 1 a token that
    goes on from a state. Both leave the state behind them. Decays are those of a head.
    """

    suite: ClassVar[str] = "linear-attention"
    series: ClassVar[str] = ""
    memory: ClassVar[bool] = False
    dtype: ClassVar[str] = "f32"

    rule: str
    batch: int
    heads: int
    t: int
    d: int
    quick: bool = False

    @property
    def name(self):
        return f"{self.dtype}/linear-attention/B{self.batch}/H{self.heads}/T{self.t}/d{self.d}/rule:{self.rule}"

    @property
    def kind(self):
        return "linear-attention-token" if self.continues else "linear-attention"

    @property
    def continues(self):
        """Whether there is a state before the first token."""
        return self.t == 1

    @property
    def has_decay(self):
        return self.rule.startswith("gated")

    @property
    def has_beta(self):
        return self.rule.endswith("delta")

    @property
    def tokens(self):
        return self.t

    def flops(self):
        """Those of the recurrence, as in attn-bench, whatever is computed besides: S is written and read by each token."""
        return (6.0 if self.has_beta else 4.0) * self.d * self.d * self.t * self.batch * self.heads
