# SPDX-License-Identifier: Apache-2.0
"""
The cases, as data: which shapes and masks every contender is given.

Names are those of attn-bench, so that a row here can be found there. Work is
counted as there, too: 4 d operations for each pair of query and key that is
alive, whatever a library computes besides.

This file needs nothing but the standard library: --list and the tests work
without the virtual environment.
"""

from dataclasses import asdict, dataclass

DTYPES = ("f32", "bf16", "f16")

# One pair in this many is hidden by the boolean mask, at random: no tile is wholly visible or hidden.
MASK_PERIOD = 64


@dataclass(frozen=True)
class Case:
    """One shape with its options. `quick` cases make up --quick, `series` names a curve over T."""

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

    def to_json(self):
        return asdict(self)

    @staticmethod
    def from_json(fields):
        return Case(**fields)


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


def all_cases():
    """Every case, in the order of the report."""
    cases = []
    for dtype in DTYPES:
        for part in (_sweeps, _head_sizes, _encoders, _padded, _masked, _grouped):
            cases.extend(part(dtype))
    return cases


# Small enough to be over at once, and of the same code path as what follows: pays for first-call costs.
def warm_up_case(case):
    """A tiny case of the same kind, run before memory is measured so that libraries have loaded what they load."""
    fields = case.to_json()
    fields.update(batch=1, heads=2 * case.group, kv_heads=2, tq=96, tk=96, memory=False, series="")
    return Case(**fields)
