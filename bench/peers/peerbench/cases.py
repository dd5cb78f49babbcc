# SPDX-License-Identifier: Apache-2.0
"""
The cases, as data: which shapes and masks every contender is given.

Names of bare attention are those of attn-bench, so that a row here can be found
there. Work is counted as there, too: 4 d operations for each pair of query and
key that is alive, whatever a library computes besides. A layer adds its
products, 2 operations for each weight and token.

There are four suites: `attention`, `decode` (a token more for each sequence, against
long caches), `mha` (a layer with its projections) and `embed` (sentences through a
real encoder).

This file needs nothing but the standard library: --list and the tests work
without the virtual environment.
"""

from dataclasses import asdict, dataclass
from typing import ClassVar

DTYPES = ("f32", "bf16", "f16")

# What a layer or model may be asked to multiply; bare attention has DTYPES.
PRECISIONS = ("f32", "bf16", "int8")

# One pair in this many is hidden by the boolean mask, at random: no tile is wholly visible or hidden.
MASK_PERIOD = 64

# What a cache may hold, and the bytes of a number. int8 is whatever a library makes of 8 bits; its scales do not count.
CACHE_BYTES = {"f32": 4, "bf16": 2, "f16": 2, "int8": 1}

# Keys and values of all layers of a case "from memory": more than a last level of cache, as in attn-bench. And those
# of a case that stays in one.
FAR_BYTES = 512 << 20
NEAR_BYTES = 16 << 20


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
    `dtype` is the type of the caches; queries have it, too, and bf16 where that is int8.
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
        """The type of the arrays that contenders are given: who has caches in int8 makes them from bf16."""
        return "bf16" if self.dtype == "int8" else self.dtype

    @property
    def far(self):
        """Whether keys and values come from memory."""
        return self.bytes() >= FAR_BYTES

    def bytes(self):
        """Keys and values of all layers, as the caches hold them."""
        return 2 * self.layers * self.batch * self.kv_heads * self.tk * self.d * CACHE_BYTES[self.dtype]

    def flops(self):
        return 4.0 * self.d * self.layers * self.batch * self.heads * self.tk


@dataclass(frozen=True)
class MhaCase(Saved):
    """
    Self-attention of `batch` sequences of `t` tokens with its four projections. `promised` cases are those that a
    bar speaks of. `dtype` is a precision: in bf16 x and the weights are bf16, in int8 both are f32, and everybody
    quantises them.
    """

    suite: ClassVar[str] = "mha"
    series: ClassVar[str] = ""
    memory: ClassVar[bool] = False

    batch: int
    t: int
    d_model: int
    heads: int
    kv_heads: int
    bias: bool = False
    causal: bool = False
    promised: bool = False
    quick: bool = False
    dtype: str = "f32"

    @property
    def name(self):
        parts = [f"{self.dtype}/mha/B{self.batch}/T{self.t}/C{self.d_model}/H{self.heads}"]
        if self.kv_heads != self.heads:
            parts.append(f"kv_heads:{self.kv_heads}")
        parts.append(f"causal:{'top-left' if self.causal else 'none'}")
        if self.bias:
            parts.append("bias")
        return "/".join(parts)

    @property
    def kind(self):
        return "mha" if self.promised else "mha-small"

    @property
    def group(self):
        return self.heads // self.kv_heads

    @property
    def head_dim(self):
        return self.d_model // self.heads

    @property
    def tokens(self):
        return self.t

    @property
    def widths(self):
        """Outputs of the projections of queries, keys, values, and of the last one; all have d_model inputs."""
        kv = self.kv_heads * self.head_dim
        return {"q": self.d_model, "k": kv, "v": kv, "o": self.d_model}

    def projection_flops(self):
        return 2.0 * self.batch * self.t * self.d_model * sum(self.widths.values())

    def attention_flops(self):
        pairs = self.t * (self.t + 1) // 2 if self.causal else self.t * self.t
        return 4.0 * self.head_dim * self.batch * self.heads * pairs

    def flops(self, _sum=None):
        return self.projection_flops() + self.attention_flops()


@dataclass(frozen=True)
class EmbedCase(Saved):
    """
    All sentences through the encoder, sorted by length and `batch` at a time. `tokens` is the batch, for plots. `dtype`
    is a precision: everybody is given the model in f32 and rounds or quantises it before.
    """

    suite: ClassVar[str] = "embed"
    series: ClassVar[str] = ""
    memory: ClassVar[bool] = False
    kind: ClassVar[str] = "embed"

    batch: int
    quick: bool = False
    dtype: str = "f32"

    @property
    def name(self):
        return f"{self.dtype}/embed/all-MiniLM-L6-v2/batch{self.batch}"

    @property
    def tokens(self):
        return self.batch


def from_json(fields):
    """The case that to_json() was called on."""
    fields = dict(fields)
    kinds = {kind.suite: kind for kind in (Case, DecodeCase, MhaCase, EmbedCase)}
    return kinds[fields.pop("suite")](**fields)


def self_attention(dtype, batch, heads, t, d, kv_heads=None, **options):
    """As many keys as queries."""
    return Case(dtype, batch, heads, kv_heads or heads, t, t, d, **options)


def _sweeps(dtype):
    """The curves over T: 8 heads as far as a run stays short, and one head for the long ones."""
    eight = (128, 256, 512, 1024, 2048, 4096) if dtype == "f32" else (128, 512, 2048)
    one = (512, 2048, 8192, 16384) if dtype != "f16" else (8192,)
    for causal in (False, True):
        tail = "causal" if causal else "dense"
        for t in eight:
            yield self_attention(
                dtype,
                1,
                8,
                t,
                64,
                causal=causal,
                series=f"8 heads, {tail}",
                quick=t == 2048 or (t == 512 and dtype == "f32"),
            )
        for t in one:
            yield self_attention(
                dtype, 1, 1, t, 64, causal=causal, series=f"1 head, {tail}", memory=dtype == "f32", quick=False
            )


def _head_sizes(dtype):
    sizes = (32, 80, 96, 128, 256) if dtype == "f32" else (32, 80, 128, 256) if dtype == "bf16" else (128,)
    for causal in (False, True):
        for d in sizes:
            yield self_attention(
                dtype, 1, 8, 2048 if d < 256 else 1024, d, causal=causal, quick=d == 128 and dtype == "f32"
            )


def _encoders(dtype):
    """Batches of short sequences, the work of an embedding or classification service."""
    yield self_attention(dtype, 8, 12, 128, 64, quick=True)
    if dtype != "f16":
        yield self_attention(dtype, 32, 12, 128, 64)
        yield self_attention(dtype, 8, 12, 512, 64)
        yield self_attention(dtype, 8, 16, 256, 64)
        yield self_attention(dtype, 16, 12, 128, 32)


def _padded(dtype):
    """Half of the keys are padding, at different places in each sequence."""
    yield self_attention(dtype, 8, 12, 128, 64, padded=True, quick=True)
    if dtype != "f16":
        yield self_attention(dtype, 8, 12, 512, 64, padded=True)
        yield self_attention(dtype, 8, 4, 1024, 64, padded=True)


def _masked(dtype):
    yield self_attention(dtype, 1, 8, 2048, 64, mask=True, quick=dtype == "f32")
    if dtype == "f32":
        yield self_attention(dtype, 8, 12, 128, 64, mask=True)


def _grouped(dtype):
    """Grouped-query attention at prefill: four or eight query heads share a key head."""
    yield self_attention(dtype, 1, 16, 1024, 128, kv_heads=4, causal=True, quick=dtype == "f32")
    if dtype != "f16":
        yield self_attention(dtype, 1, 32, 2048, 64, kv_heads=4, causal=True)
        yield self_attention(dtype, 1, 8, 2048, 64, kv_heads=2)


def attention_cases():
    """Bare attention, in the order of the report."""
    cases = []
    for dtype in DTYPES:
        for part in (_sweeps, _head_sizes, _encoders, _padded, _masked, _grouped):
            cases.extend(part(dtype))
    return cases


def decode_cases():
    """From memory as many heads of keys as queries, a quarter, a single one, and a batch; a layer that stays in L3."""
    cases = []
    for dtype, size in CACHE_BYTES.items():
        # Sequences, query heads, key heads, tokens.
        for batch, heads, kv_heads, tk in ((1, 32, 32, 4096), (1, 32, 8, 4096), (1, 1, 1, 131072), (8, 32, 8, 1024)):
            layers = -(-FAR_BYTES // (2 * batch * kv_heads * tk * 128 * size))
            cases.append(DecodeCase(dtype, batch, heads, kv_heads, tk, 128, layers, quick=batch == 1 < heads))
        cases.append(DecodeCase(dtype, 1, 32, 32, NEAR_BYTES // (2 * 32 * 128 * size), 128, 1))
    return cases


def mha_cases(dtype="f32"):
    """An encoder's layer at two sizes of batch, a decoder's at prefill, and one token."""
    encoder = {"d_model": 768, "heads": 12, "kv_heads": 12, "bias": True, "dtype": dtype}
    decoder = {"d_model": 2048, "heads": 32, "kv_heads": 8, "dtype": dtype}
    return [
        MhaCase(8, 512, **encoder, promised=True, quick=True),
        MhaCase(1, 4096, **decoder, promised=True),
        MhaCase(1, 4096, **decoder, causal=True, promised=True),
        MhaCase(1, 128, **encoder, quick=True),
        MhaCase(1, 1, **encoder, quick=True),
    ]


def embed_cases(dtype="f32"):
    """One sentence at a time, as a service without load has them; small batches; a throughput job."""
    return [EmbedCase(1, quick=True, dtype=dtype), EmbedCase(16, dtype=dtype), EmbedCase(64, quick=True, dtype=dtype)]


SUITES = {"attention": attention_cases, "decode": decode_cases, "mha": mha_cases, "embed": embed_cases}

# Those whose cases are there in all types anyway; --precision is for the others.
ALL_TYPES = ("attention", "decode")


def all_cases(suite="attention", precisions=("f32",)):
    """The cases of a suite, or of "all" of them, in the order of the report; layers and models in each precision."""
    cases = []
    for name, make in SUITES.items():
        if suite not in (name, "all"):
            continue
        if name in ALL_TYPES:
            cases += make()
        else:
            cases += [case for precision in precisions for case in make(precision)]
    return cases


# Small enough to be over at once, and of the same code path as what follows: pays for first-call costs.
def warm_up_case(case):
    """A tiny case of the same kind, run before memory is measured so that libraries have loaded what they load."""
    fields = case.to_json()
    del fields["suite"]
    fields.update(batch=1, heads=2 * case.group, kv_heads=2, tq=96, tk=96, memory=False, series="")
    return Case(**fields)
