# SPDX-License-Identifier: Apache-2.0
"""
What models in Transformers compute, and what they should.

`prefill`: ids (1, t), a stretch of the text of `generate`, whose model in float64 has
the logits after the last token.

`train`: texts for all-MiniLM-L6-v2, each of sentences behind each other as long as they
fit in t tokens, so that lengths are those of real texts:

    ids, mask   (batch, t), int64; padding on the right
    targets     (batch, 384), float32, of length 1

The loss is the mean of 1 - cosine of a text's embedding and its target; a step is the
forward call, the gradients of all weights, and AdamW's update. What is compared are, for
the first texts and without dropout, the loss and slopes of it: along random directions of
some matrices, by autograd and as differences of the float64 loss.
"""

import functools
import os
from pathlib import Path

import numpy as np

from . import embedding, generate

# As many of the first texts are computed in float64, too.
CHECKED = 4
# Matrices in which the loss is compared, one of each product in attention, and directions for each.
MATRICES = tuple(
    f"encoder.layer.{layer}.attention.self.{part}.weight" for layer, part in ((0, "query"), (2, "key"), (5, "value"))
)
DIRECTIONS = 2
# The difference's step, in standard deviations of a matrix.
STEP = 1e-4

# Of slopes, relative to the root mean square of those in the same matrix: rounding to f32 gives 1e-5 or so. A gradient that
# drops a term is off by 0.1 and more.
TOLERANCE = 1e-3

# Of the prompt's logits; prompts of 2048 tokens in bf16 were found off by 0.03 to 0.07 with all three.
LOGITS_TOLERANCE = {"f32": 1e-3, "bf16": 0.1}

LEARNING_RATE = 2e-5


def make(case):
    from tokenizers import Tokenizer  # pylint: disable=import-outside-toplevel

    lines = Path(os.environ["PEERS_SENTENCES"]).read_text(encoding="utf-8").split("\n")
    if case.task == "prefill":
        ids = Tokenizer.from_file(str(generate.folder() / "tokenizer.json")).encode(" ".join(lines)).ids
        return {"ids": generate.stretches(ids, case.batch, case.t)}
    tokenizer = Tokenizer.from_file(str(embedding.model_folder() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(case.t)
    sentences = [tokenizer.encode(line, add_special_tokens=False).ids for line in lines if line.strip()]
    edges = tokenizer.encode("").ids
    return pack(texts(sentences, case.batch, case.t - len(edges)), case.t, edges)


def texts(sentences, count, longest):
    """So many lists of ids, sentences one after the other as long as they fit; from the first on again when they end."""
    found, n = [], 0
    while len(found) < count:
        text = list(sentences[n % len(sentences)][:longest])
        n += 1
        while len(text) + len(following := sentences[n % len(sentences)]) <= longest:
            text += following
            n += 1
        found.append(text)
    return found


def pack(found, t, edges):
    """Texts as rectangles, between the two tokens at their edges."""
    ids, mask = np.zeros((len(found), t), np.int64), np.zeros((len(found), t), np.int64)
    for row, text in enumerate(found):
        whole = [edges[0], *text, edges[1]]
        ids[row, : len(whole)], mask[row, : len(whole)] = whole, 1
    targets = np.random.default_rng(11).standard_normal((len(found), 384))
    targets /= np.linalg.norm(targets, axis=1, keepdims=True)
    return {"ids": ids, "mask": mask, "targets": targets.astype(np.float32)}


def directions(name, shape):
    """The directions of a matrix, of the size of its elements' standard deviation of 1."""
    rng = np.random.default_rng([MATRICES.index(name), *shape])
    return rng.standard_normal((DIRECTIONS, *shape))


def pick_rows(_case):
    """One row, with all that is compared."""
    return np.array([0])


def reference_rows(case, arrays, _rows):
    if case.task == "prefill":
        return generate.logits_of(arrays["ids"][0].tobytes(), case.t - 1, 1)[1:]
    count = min(case.batch, CHECKED)
    lengths = arrays["mask"][:count].sum(axis=1)
    ids = np.concatenate([row[:length] for row, length in zip(arrays["ids"], lengths)]).astype(np.int32)
    return loss_and_slopes(ids.tobytes(), lengths.tobytes(), arrays["targets"][:count].tobytes())[None]


@functools.lru_cache(maxsize=4)  # the same with dropout and without
def loss_and_slopes(ids, lengths, targets):
    ids, lengths = np.frombuffer(ids, np.int32), np.frombuffer(lengths, np.int64)
    targets = np.frombuffer(targets, np.float32).astype(np.float64).reshape(len(lengths), -1)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    weights = embedding.weights_of_model()

    def loss(changed=()):
        return 1 - (embedding.forward({**weights, **dict(changed)}, ids, offsets) * targets).sum(axis=1).mean()

    values = [loss()]
    for name in MATRICES:
        matrix = weights[name]
        for direction in directions(name, matrix.shape):
            step = STEP * matrix.std()
            above, below = (loss([(name, matrix + sign * step * direction)]) for sign in (1, -1))
            values.append((above - below) / (2 * step))
    return np.array(values)


def disagreement(case, output, expected, tolerance=None):
    """(largest difference, None) or (that, a sentence on what is wrong). tolerance: another than that of the type."""
    if case.task == "prefill":
        return generate.disagreement(case, output, expected, tolerance or LOGITS_TOLERANCE[case.dtype])
    tolerance = TOLERANCE if tolerance is None else tolerance
    if output.shape != expected.shape:
        return float("inf"), f"there are values of the shape {output.shape}; expected {expected.shape}"
    if not np.isfinite(output).all():
        return float("inf"), "the loss or a slope is NaN or Inf"
    errors = [abs(output[0, 0] - expected[0, 0]) / abs(expected[0, 0])]
    slopes = np.stack([output[0, 1:], expected[0, 1:]]).reshape(2, len(MATRICES), DIRECTIONS)
    errors += list(np.abs(slopes[0] - slopes[1]).max(axis=1) / np.sqrt((slopes[1] ** 2).mean(axis=1)))
    worst = float(max(errors))
    if worst > tolerance:
        what = "the loss" if errors[0] == max(errors) else f"the slope in {MATRICES[int(np.argmax(errors[1:]))]}"
        return worst, f"{what} differs by {worst:.2g} from the float64 reference; {tolerance:g} is accepted"
    return worst, None


def flops(case, arrays):
    """Products and live pairs, thrice in training; padding counts nothing, and neither does the update."""
    if case.task == "prefill":
        sizes = generate.config()
        c, d_ff, layers = sizes["hidden_size"], sizes["intermediate_size"], sizes["num_hidden_layers"]
        kv = sizes["num_key_value_heads"] * c // sizes["num_attention_heads"]
        weights = layers * (2 * c * c + 2 * c * kv + 3 * c * d_ff)
        pairs = case.t * (case.t + 1) // 2
        return float(case.batch) * (2 * weights * case.t + 2 * sizes["vocab_size"] * c + 4 * c * layers * pairs)
    lengths = arrays["mask"].sum(axis=1)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return 3 * embedding.flops(case, {"offsets": offsets})


def items(case, arrays):
    """Tokens of a call, padding not counted."""
    return case.batch * case.t if case.task == "prefill" else int(arrays["mask"].sum())
