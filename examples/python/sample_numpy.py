# SPDX-License-Identifier: Apache-2.0
"""Attention of a trained encoder on five English sentences, with NumPy: output, weights, and a picture of one head.

    python examples/python/sample_numpy.py --out pictures

Compares the results with those of a computation in double precision, which lie in the sample beside the input
(tests/data/README.md). The picture is left out where there is no matplotlib.
"""
import argparse
import pathlib
import sys

import numpy as np
from safetensors.numpy import load_file

import libattn

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=pathlib.Path, default=DATA / "minilm.safetensors")
    parser.add_argument("--out", type=pathlib.Path, help="the folder for heatmap.png")
    arguments = parser.parse_args()

    sample = load_file(arguments.sample)
    wrong = 0
    for layer in ("layer0", "layer5"):
        q, k, v = (sample[f"{layer}.{name}"] for name in "qkv")  # (5, 12, 26, 32): sentences, heads, tokens, channels
        lengths = sample["kv_len"]  # tokens of each sentence; what comes after them is padding and is not read
        out, lse, weights, *_ = libattn.attention(q, k, v, lengths=lengths, return_lse=True, return_weights=True)
        for name, result in (("out", out), ("lse", lse), ("weights", weights)):
            error = np.abs(result - sample[f"{layer}.{name}"]).max()
            print(f"{layer} {name:8}{result.shape!s:18} largest difference from double precision {error:.1e}")
            wrong += not error < 2e-5
        # The same as a mask, which needs not be stored for each query and head.
        masked = libattn.attention(q, k, v, mask=sample["mask"])
        wrong += not np.array_equal(masked, out)
        if layer == "layer0":
            picture = weights[0, 4]

    words = (arguments.sample.parent / "tokens.txt").read_text(encoding="utf-8").split("\n")[: picture.shape[1]]
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        try:
            axes = libattn.heatmap(picture, queries=words, keys=words)
        except ImportError:
            print("no picture: matplotlib is not installed")
        else:
            axes.set_title("all-MiniLM-L6-v2, layer 0, head 4")
            axes.figure.savefig(arguments.out / "heatmap.png", bbox_inches="tight")
            print(f"drew which tokens of the first sentence attend to which: {arguments.out / 'heatmap.png'}")
    if wrong:
        print(f"{wrong} results are not what they should be", file=sys.stderr)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
