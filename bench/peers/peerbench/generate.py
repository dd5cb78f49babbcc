# SPDX-License-Identifier: Apache-2.0
"""
Texts as token ids for SmolLM2-135M-Instruct, and its logits in float64.

    ids     batch x (prompt + NEW), int32: prose, a stretch of it for each sequence

The tokens that follow the prompt are given, and not what a library finds most
likely: all then compute the same, whatever their rounding. The reference is the
definition of the model (Touvron et al. 2023) written down in NumPy on the
weights in f32, without any of the libraries that are compared.
"""

import functools
import json
import os
from pathlib import Path

import numpy as np

# Tokens behind the prompt that there are in every case, so that the cases share their texts, and the reference.
NEW = 128

# Root mean square of the differences over the standard deviation of a row of logits. f32 in any order, with caches in
# f32, stays below 1e-5. bf16 has 2^-9 in each weight and in all that lies between the products of 30 layers, whose
# errors add up: 0.01 to 0.035 of everybody's. int8 has outliers in its activations, beside which the rest has few steps:
# 0.06 to 0.19 with a scale for a row of them or for 32 numbers. A way that is off by more than this, as PyTorch's with a
# scale for all rows is by 0.6 to 2.9, is no answer, and takes no part.
TOLERANCE = {"f32": 1e-3, "bf16": 0.06, "int8": 0.2}


def folder():
    """What convert_smollm.py made."""
    return Path(os.environ["PEERS_SMOLLM_FILES"])


@functools.cache
def config():
    return json.loads((folder() / "config.json").read_text(encoding="utf-8"))


def make(case):
    from tokenizers import Tokenizer  # pylint: disable=import-outside-toplevel

    lines = Path(os.environ["PEERS_SENTENCES"]).read_text(encoding="utf-8").split("\n")
    ids = Tokenizer.from_file(str(folder() / "tokenizer.json")).encode(" ".join(lines)).ids
    return {"ids": stretches(ids, case.batch, case.prompt + NEW)}


def stretches(ids, count, length):
    """So many stretches of a text, the first at its beginning, the last at its end, the others between."""
    if len(ids) < length:
        raise ValueError(f"the text has {len(ids)} tokens; expected {length} or more")
    starts = [(len(ids) - length) * n // max(1, count - 1) for n in range(count)]
    return np.array([ids[start : start + length] for start in starts], np.int32)


def pick_rows(case):
    """Sequences: the first and the last."""
    return np.array(sorted({0, case.batch - 1}))


def reference_rows(case, arrays, rows):
    """The logits after the last token of a call."""
    found = [logits_of(arrays["ids"][b].tobytes(), case.prompt, case.new or NEW) for b in rows]
    return np.stack([one[int(case.new > 0)] for one in found])


@functools.lru_cache(maxsize=4)
def logits_of(ids, prompt, new):
    """Logits after the prompt and after so many more: both calls of a sequence, for one pass over the model."""
    from safetensors import safe_open  # pylint: disable=import-outside-toplevel

    with safe_open(str(folder() / "model.safetensors"), "np") as file:
        return forward(file.get_tensor, config(), np.frombuffer(ids, np.int32), [prompt - 1, prompt + new - 1])


def forward(weight, sizes, ids, wanted):
    """float64 logits of the wanted positions. weight(name) gives a matrix, sizes are those of config.json."""

    def matrix(name):
        return weight(name + ".weight").astype(np.float64)

    def norm(x, name):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + sizes["rms_norm_eps"]) * matrix(name)

    heads, kv_heads = sizes["num_attention_heads"], sizes["num_key_value_heads"]
    d = sizes["hidden_size"] // heads
    angles = np.arange(len(ids))[:, None] * sizes["rope_theta"] ** (-np.arange(0, d, 2) / d)[None, :]
    cosines, sines = np.cos(angles)[:, None], np.sin(angles)[:, None]

    def rotated(x):
        a, b = x[..., : d // 2], x[..., d // 2 :]
        return np.concatenate([a * cosines - b * sines, b * cosines + a * sines], axis=-1)

    embedding = weight("model.embed_tokens.weight")
    x = embedding[ids].astype(np.float64)
    hidden = ~np.tri(len(ids), dtype=bool)
    for n in range(sizes["num_hidden_layers"]):
        layer = f"model.layers.{n}."
        h = norm(x, layer + "input_layernorm")
        q, k, v = (
            (h @ matrix(f"{layer}self_attn.{p}_proj").T).reshape(len(ids), count, d)
            for p, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        )
        q, k, out = rotated(q), rotated(k), np.empty((len(ids), heads, d))
        for head in range(heads):
            scores = q[:, head] @ k[:, head * kv_heads // heads].T / np.sqrt(d)
            scores[hidden] = -np.inf
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            out[:, head] = weights @ v[:, head * kv_heads // heads] / weights.sum(axis=-1, keepdims=True)
        x = x + out.reshape(len(ids), -1) @ matrix(layer + "self_attn.o_proj").T
        h = norm(x, layer + "post_attention_layernorm")
        gate, up = (h @ matrix(f"{layer}mlp.{p}_proj").T for p in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ matrix(layer + "mlp.down_proj").T
    return norm(x[wanted], "model.norm") @ embedding.T.astype(np.float64)


def disagreement(case, output, expected, tolerance=None):
    """
    (largest difference, None) or (largest difference, a sentence on what is wrong). tolerance: another than that of
    the type.
    """
    if output.shape != expected.shape:
        return float("inf"), f"the logits have shape {output.shape}; expected {expected.shape}"
    if not np.isfinite(output).all():
        return float("inf"), "the logits have NaN or Inf"
    errors = np.sqrt(np.mean((output.astype(np.float64) - expected) ** 2, axis=1)) / expected.std(axis=1)
    worst, tolerance = float(errors.max()), TOLERANCE[case.dtype] if tolerance is None else tolerance
    if worst > tolerance:
        return worst, (
            f"logits differ by {worst:.2g} of their deviation from the float64 reference;"
            f" {tolerance:g} is accepted for {case.dtype}"
        )
    return worst, None


def flops(case, _arrays):
    """Products and live pairs; logits are computed after a prompt once, and after each new token."""
    sizes = config()
    c, d_ff, layers = sizes["hidden_size"], sizes["intermediate_size"], sizes["num_hidden_layers"]
    kv = sizes["num_key_value_heads"] * c // sizes["num_attention_heads"]
    weights = layers * (2 * c * c + 2 * c * kv + 3 * c * d_ff)
    tokens = case.new or case.prompt
    first = case.prompt if case.new else 0
    pairs = tokens * first + tokens * (tokens + 1) // 2
    head = sizes["vocab_size"] * c * (case.new or 1)
    return float(case.batch) * (2 * weights * tokens + 2 * head + 4 * c * layers * pairs)


def items(case, _arrays):
    """Tokens of a call."""
    return case.batch * (case.new or case.prompt)
