# SPDX-License-Identifier: Apache-2.0
"""Compares the embeddings of attn embed with those of reference_embeddings.py, in each precision.

A cosine says how far a single embedding is off; what embeddings are used for,
finding what is most alike, depends on the order of similarities, of which
Spearman's rank correlation (1904) is a measure. docs/embed.md has what each
precision promises.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy

# The lowest cosine of all sentences, and the rank correlation of the similarities of all pairs, at least.
LEAST = {"f32": (0.99999, 0.99999), "bf16": (0.9995, 0.999), "int8": (0.995, 0.99)}


def embed(attn, model, sentences, precision, max_tokens):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "embeddings.npy"
        run = subprocess.run([attn, "embed", model, sentences, "--output", path, "--precision", precision, "--max-tokens",
                              str(max_tokens)], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            sys.exit(f"check_embeddings: attn embed ended with {run.returncode}: {run.stderr}")
        return numpy.load(path).astype(numpy.float64)


def similarities(rows):
    """The cosines of all pairs."""
    rows = rows / numpy.linalg.norm(rows, axis=1, keepdims=True)
    return (rows @ rows.T)[numpy.tril_indices(len(rows), -1)]


def ranks(values):
    """Equal numbers share the mean of theirs."""
    found, inverse, counts = numpy.unique(values, return_inverse=True, return_counts=True)
    last = numpy.cumsum(counts)
    return ((last - (counts - 1) / 2)[inverse.reshape(values.shape)])


def main():
    parser = argparse.ArgumentParser(description="Compares embeddings with reference ones, in each precision.")
    parser.add_argument("attn", help="the attn command")
    parser.add_argument("--model", type=Path, required=True, help="the folder of the encoder")
    parser.add_argument("--reference", type=Path, required=True, help="what reference_embeddings.py has written")
    parser.add_argument("--max-tokens", type=int, default=256, help="of a sentence, as the reference has it")
    parser.add_argument("sentences", type=Path, help="text file, one sentence a line")
    options = parser.parse_args()
    reference = numpy.load(options.reference).astype(numpy.float64)
    good = True
    for precision, (cosine, correlation) in LEAST.items():
        rows = embed(options.attn, options.model, options.sentences, precision, options.max_tokens)
        if rows.shape != reference.shape:
            sys.exit(f"check_embeddings: the embeddings are of shape {rows.shape}; expected {reference.shape}")
        lengths = numpy.linalg.norm(rows, axis=1) * numpy.linalg.norm(reference, axis=1)
        lowest = ((rows * reference).sum(1) / lengths).min()
        found = numpy.corrcoef(ranks(similarities(rows)), ranks(similarities(reference)))[0, 1]
        passed = bool(lowest >= cosine and found >= correlation)
        good = good and passed
        print(f"{'ok    ' if passed else 'FAILED'} {precision}: the lowest cosine of {len(rows)} sentences is {lowest:.9f} "
              f"(allowed: {cosine}), the rank correlation of their similarities {found:.9f} (allowed: {correlation})")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
