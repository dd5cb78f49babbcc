# SPDX-License-Identifier: Apache-2.0
"""
The cases, as data: which shapes and masks every contender is given.

Names of bare attention are those of attn-bench, so that a row here can be found
there. Work is counted as there, too: 4 d operations for each pair of query and
key that is alive, whatever a library computes besides. A layer adds its
products, 2 operations for each weight and token.

There are nine suites: `attention`, `decode` (a token more for each sequence, against
long caches), `backward` (gradients, alone and with the forward call), `linear-attention`
(attention with a state), `linear` (one linear layer), `mha` (a layer with its
projections), `embed` (sentences through a real encoder), `generate` (text by a real
language model) and `transformers` (models in Transformers, with its kinds of attention).

This file needs nothing but the standard library: --list and the tests work
without the virtual environment.
"""

from .case_kinds import (
    CACHE_BYTES,
    DTYPES,
    MASK_PERIOD,
    NEAR_BYTES,
    RULES,
    BackwardCase,
    Case,
    DecodeCase,
    LinearAttentionCase,
    far_bytes,
)
from .layer_kinds import PRECISIONS, EmbedCase, GenerateCase, LinearCase, MhaCase, TransformersCase


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
            layers = -(-far_bytes(dtype) // int(2 * batch * kv_heads * tk * 128 * size))
            cases.append(DecodeCase(dtype, batch, heads, kv_heads, tk, 128, layers, quick=batch == 1 < heads))
        cases.append(DecodeCase(dtype, 1, 32, 32, NEAR_BYTES // int(2 * 32 * 128 * size), 128, 1))
    return cases


def backward_cases():
    """The usual shapes of training, in the two types that it has; the gradients alone, then with the forward call."""
    return [
        BackwardCase(dtype, 1, 8, 8, 2048, d, causal=causal, both=both, quick=d == 64 and not both)
        for dtype in ("f32", "bf16")
        for both in (False, True)
        for causal in (False, True)
        for d in (64, 128)
    ]


def linear_attention_cases():
    """Eight heads at prefill, and a token for one sequence and for 64."""
    return [
        LinearAttentionCase(rule, batch, 8, t, d, quick=t != 8192 and d == 128)
        for batch, t in ((1, 2048), (1, 8192), (1, 1), (64, 1))
        for d in (64, 128)
        for rule in RULES
    ]


# (outputs, inputs): an encoder's products with 384 channels and with 768, and a language model's.
LINEAR_SHAPES = ((1152, 384), (384, 1536), (768, 768), (3072, 768), (4096, 4096))


def linear_cases(dtype="f32"):
    """From one row, whose time is that of reading weights, to many."""
    return [
        LinearCase(
            rows, outputs, inputs, quick=rows in (1, 24, 128) and (outputs, inputs) in LINEAR_SHAPES[:4:3], dtype=dtype
        )
        for outputs, inputs in LINEAR_SHAPES
        for rows in (1, 8, 24, 128, 1300)
    ]


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


def generate_cases(dtype="f32"):
    """A prompt, a single sequence behind it, and eight at once."""
    return [
        GenerateCase(1, 512, quick=True, dtype=dtype),
        GenerateCase(1, 512, 128, quick=True, dtype=dtype),
        GenerateCase(8, 512, 128, dtype=dtype),
    ]


def transformers_cases():
    """A long prompt, and training on many short texts and on a few long ones."""
    return [
        TransformersCase("prefill", 1, 2048, quick=True),
        TransformersCase("prefill", 1, 2048, dtype="bf16"),
        *(
            TransformersCase("train", batch, t, dropout, quick=t == 512 and dropout)
            for batch, t in ((32, 128), (8, 512))
            for dropout in (False, True)
        ),
    ]


SUITES = {
    "attention": attention_cases,
    "decode": decode_cases,
    "backward": backward_cases,
    "linear-attention": linear_attention_cases,
    "linear": linear_cases,
    "mha": mha_cases,
    "embed": embed_cases,
    "generate": generate_cases,
    "transformers": transformers_cases,
}

# Those whose cases are there in all their types anyway; --precision is for the others.
ALL_TYPES = ("attention", "decode", "backward", "linear-attention", "transformers")


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


def from_json(fields):
    """The case that to_json() was called on."""
    fields = dict(fields)
    attention = (Case, DecodeCase, BackwardCase, LinearAttentionCase)
    layers = (LinearCase, MhaCase, EmbedCase, GenerateCase, TransformersCase)
    return {kind.suite: kind for kind in (*attention, *layers)}[fields.pop("suite")](**fields)


# Small enough to be over at once, and of the same code path as what follows: pays for first-call costs.
def warm_up_case(case):
    """A tiny case of the same kind, run before memory is measured so that libraries have loaded what they load."""
    fields = case.to_json()
    del fields["suite"]
    fields.update(batch=1, heads=2 * case.group, kv_heads=2, tq=96, tk=96, memory=False, series="")
    return Case(**fields)


__all__ = ["ALL_TYPES", "CACHE_BYTES", "DTYPES", "MASK_PERIOD", "PRECISIONS", "SUITES", "all_cases", "from_json"]
