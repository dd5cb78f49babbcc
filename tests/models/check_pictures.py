# SPDX-License-Identifier: Apache-2.0
"""Checks the attention weights that attn embed writes, and draws them.

The weights of every layer and head for one sentence are compared with those of
the encoder in reference_embeddings.py, which runs in double precision. Then the
attn command draws all heads of a layer, one head, and one query's weights, with
the tokens as labels; each picture has to be a PNG of some size.
"""

import argparse
import struct
import subprocess
import sys
from pathlib import Path

import safetensors.numpy
import torch

from reference_embeddings import Encoder

SENTENCE = "The animal did not cross the street because it was too tired."
# f32 against double, for numbers up to 1 that pass six layers.
TOLERANCE = 2e-5
PNG = b"\x89PNG\r\n\x1a\n"


def fail(sentence):
    sys.exit(f"check_pictures: {sentence}")


def check_weights(path, model):
    seen = []
    torch.set_num_threads(1)
    with torch.no_grad():
        Encoder(model).embed(SENTENCE, seen)
    found = safetensors.numpy.load_file(path)
    if sorted(found) != [f"layer{n}" for n in range(len(seen))]:
        fail(f"{path} holds {sorted(found)}; expected layer0 to layer{len(seen) - 1}")
    worst = max(abs(found[f"layer{n}"] - expected.numpy()).max() for n, expected in enumerate(seen))
    print(f"weights of {len(seen)} layers within {worst:.1e}")
    if not worst <= TOLERANCE:
        fail(f"the weights are off by up to {worst}; expected at most {TOLERANCE}")


def draw(attn, weights, labels, picture, options):
    subprocess.run([attn, "heatmap", weights, "--labels", labels, "-o", picture, *options], check=True)
    start = picture.read_bytes()[:24]
    width, height = struct.unpack(">II", start[16:24])
    print(f"{picture.name}: {width} x {height}")
    if start[:8] != PNG or min(width, height) < 100:
        fail(f"{picture} is no picture")


def main():
    parser = argparse.ArgumentParser(description="Checks and draws the weights that attn embed writes.")
    parser.add_argument("--attn", required=True, help="the attn command")
    parser.add_argument("--model", type=Path, required=True, help="folder with model.safetensors and its other files")
    parser.add_argument("--out", type=Path, required=True, help="folder for weights and pictures")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    weights, labels = arguments.out / "weights.safetensors", arguments.out / "tokens.txt"
    subprocess.run([arguments.attn, "embed", arguments.model, "--weights", weights, "--labels", labels],
                   input=SENTENCE.encode(), check=True)
    check_weights(weights, arguments.model)
    draw(arguments.attn, f"{weights}:layer2", labels, arguments.out / "heads.png", [])
    draw(arguments.attn, f"{weights}:layer3", labels, arguments.out / "head.png", ["--head", "1"])
    draw(arguments.attn, f"{weights}:layer3", labels, arguments.out / "row.png", ["--head", "1", "--row", "9"])


if __name__ == "__main__":
    main()
