# SPDX-License-Identifier: Apache-2.0
"""
The sentences as token ids, and their embeddings in float64.

    ids       all tokens of all sentences behind each other, int32, shortest sentence first
    offsets   where each sentence begins, and where the last one ends, int64

Everybody is given these, and cuts them into the same batches: sorted by length
as sentence-transformers does, so that padding is small for those who pad.

The reference is the model's definition (Devlin et al. 2019) written down in
NumPy, without any of the libraries that are compared: embeddings, layers with
norms behind the residuals, mean over the tokens, length 1.
"""

import functools
import json
import math
import os
from pathlib import Path

import numpy as np

# 1 - cosine that is accepted. f32 computations in any order stay below 1e-6; bf16 products give 1e-4 and more, and with
# everything else in bf16, too, some 1e-3; int8 with a scale for each row and output 1e-3, with one for a whole tensor 1e-2.
TOLERANCE = {"f32": 1e-5, "bf16": 3e-3, "int8": 3e-2}
# How far an embedding's length may be from 1: some normalise in bf16.
LENGTH_TOLERANCE = {"f32": 1e-4, "bf16": 5e-3, "int8": 1e-4}

# As sentence_bert_config.json says.
MAX_TOKENS = 256


def model_folder():
    return Path(os.environ["PEERS_MINILM"])


@functools.cache
def config():
    return json.loads((model_folder() / "config.json").read_text(encoding="utf-8"))


def make(_case):
    from tokenizers import Tokenizer  # pylint: disable=import-outside-toplevel

    tokenizer = Tokenizer.from_file(str(model_folder() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    lines = Path(os.environ["PEERS_SENTENCES"]).read_text(encoding="utf-8").splitlines()
    return pack([tokenizer.encode(line).ids for line in lines if line.strip()])


def pack(sentences):
    """Lists of ids as arrays, shortest first."""
    ordered = sorted(sentences, key=len)
    offsets = np.concatenate([[0], np.cumsum([len(s) for s in ordered])]).astype(np.int64)
    return {"ids": np.concatenate(ordered).astype(np.int32), "offsets": offsets}


def batches(case, arrays):
    """(first, last + 1) of the sentences of each batch."""
    count = len(arrays["offsets"]) - 1
    return [(i, min(i + case.batch, count)) for i in range(0, count, case.batch)]


def padded(arrays, first, last):
    """ids and mask of a batch as rectangles, int64."""
    offsets = arrays["offsets"]
    lengths = np.diff(offsets[first : last + 1])
    mask = (np.arange(lengths.max())[None, :] < lengths[:, None]).astype(np.int64)
    ids = np.zeros(mask.shape, np.int64)
    ids[mask.astype(bool)] = arrays["ids"][offsets[first] : offsets[last]]
    return ids, mask


def flops(_case, arrays):
    """Products of the layers and live pairs; padding counts nothing."""
    c = config()
    lengths = np.diff(arrays["offsets"]).astype(np.float64)
    weights = c["hidden_size"] * (4 * c["hidden_size"] + 2 * c["intermediate_size"])
    return float(c["num_hidden_layers"] * (2 * weights * lengths.sum() + 4 * c["hidden_size"] * (lengths**2).sum()))


def pick_rows(_case):
    """Every sentence of as many as there are: offsets are not known here, so one index says "all"."""
    return np.array([-1])


def reference_rows(_case, arrays, _rows):
    return encode(arrays["ids"].tobytes(), arrays["offsets"].tobytes())


ERF_STEPS = 1024  # of the table, in a unit of the argument
ERF_END = 6  # behind it erf is 1 in float64


@functools.cache
def erf_table():
    """Points, erf there, and its derivative."""
    points = np.arange(-ERF_END * ERF_STEPS, ERF_END * ERF_STEPS + 1) / ERF_STEPS
    return points, np.array([math.erf(x) for x in points]), 2 / math.sqrt(math.pi) * np.exp(-(points**2))


def erf(x):
    """To 3e-14: three terms of Taylor's series about the nearest point of a table. NumPy has none."""
    points, values, slopes = erf_table()
    x = np.clip(x, -ERF_END, ERF_END)
    nearest = np.rint(x * ERF_STEPS).astype(np.int64) + ERF_END * ERF_STEPS
    a = points[nearest]
    t = x - a
    return values[nearest] + slopes[nearest] * t * (1 - a * t + (2 * a * a - 1) / 3 * t * t)


@functools.cache
def weights_of_model():
    from safetensors.numpy import load_file  # pylint: disable=import-outside-toplevel

    return {n: a.astype(np.float64) for n, a in load_file(model_folder() / "model.safetensors").items() if a.ndim}


@functools.cache  # the same for every size of batch
def encode(ids, offsets):
    return forward(weights_of_model(), np.frombuffer(ids, np.int32), np.frombuffer(offsets, np.int64))


def forward(weights, ids, offsets):
    """Embeddings of sentences that lie behind each other, by a model of these weights, float64."""
    c = config()
    heads, eps, activation = c["num_attention_heads"], c["layer_norm_eps"], c["hidden_act"]
    if activation != "gelu":
        raise ValueError(f"the model's activation is {activation}; expected gelu")

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(x, name):
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def attend(x, name):
        q, k, v = (
            linear(x, f"{name}.{part}").reshape(len(x), heads, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return (p / p.sum(axis=-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(len(x), -1)

    out = []
    for first, last in zip(offsets[:-1], offsets[1:], strict=True):
        x = weights["embeddings.word_embeddings.weight"][ids[first:last]]
        x = x + weights["embeddings.position_embeddings.weight"][: last - first]
        x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for number in range(c["num_hidden_layers"]):
            layer = f"encoder.layer.{number}"
            y = linear(attend(x, f"{layer}.attention.self"), f"{layer}.attention.output.dense")
            x = norm(x + y, f"{layer}.attention.output.LayerNorm")
            y = linear(x, f"{layer}.intermediate.dense")
            y = y * (1 + erf(y / math.sqrt(2))) / 2
            x = norm(x + linear(y, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
        mean = x.mean(axis=0)
        out.append(mean / np.linalg.norm(mean))
    return np.array(out)


def disagreement(case, output, expected, tolerance=None):
    """(largest 1 - cosine, None) or (that, a sentence on what is wrong). tolerance: another than that of the type."""
    tolerance = TOLERANCE[case.dtype] if tolerance is None else tolerance
    if output.shape != expected.shape:
        return float("inf"), f"the output has shape {output.shape}; expected {expected.shape}"
    if not np.isfinite(output).all():
        return float("inf"), "the output has NaN or Inf"
    output = output.astype(np.float64)
    lengths = np.linalg.norm(output, axis=1)
    worst = float((1 - (output * expected).sum(axis=1) / np.maximum(lengths, 1e-30)).max())
    least = 1 - tolerance
    if worst > tolerance:
        return worst, f"a sentence's cosine with the float64 embedding is {1 - worst:.6f}; {least} is accepted"
    if np.abs(lengths - 1).max() > LENGTH_TOLERANCE[case.dtype]:
        return worst, "an embedding does not have length 1"
    return worst, None
