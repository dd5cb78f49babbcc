# SPDX-License-Identifier: Apache-2.0
"""Embeds sentences with all-MiniLM-L6-v2 in PyTorch, as a reference for attn embed.

The encoder is written out below and runs in double precision on the weights of
the model's folder; tokens are those of the package tokenizers with the model's
own tokenizer.json, cut to 256 as the model is used. Written is a float32 array
(sentences, width), one row for each line of the input.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import numpy
import safetensors.torch
import tokenizers
import torch
from torch.nn import functional

MOST_TOKENS = 256


class Encoder:
    """BERT without padding: one sentence at a time."""

    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        self.weights = {name: t.double() for name, t in tensors.items() if t.is_floating_point()}
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(MOST_TOKENS)

    def linear(self, x, name):
        return functional.linear(x, self.weights[name + ".weight"], self.weights[name + ".bias"])

    def norm(self, x, name):
        return functional.layer_norm(x, x.shape[-1:], self.weights[name + ".weight"], self.weights[name + ".bias"],
                                     self.config["layer_norm_eps"])

    def attention(self, x, prefix, seen):
        heads = self.config["num_attention_heads"]
        q, k, v = (self.linear(x, f"{prefix}attention.self.{name}").view(len(x), heads, -1).transpose(0, 1)
                   for name in ("query", "key", "value"))
        weights = torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5, -1)
        seen.append(weights)
        return self.linear((weights @ v).transpose(0, 1).reshape(x.shape), f"{prefix}attention.output.dense")

    def embed(self, sentence, seen):
        """The embedding of a sentence; the attention weights (head, query, key) of each layer are appended to seen."""
        ids = torch.tensor(self.tokenizer.encode(sentence).ids)
        x = (self.weights["embeddings.word_embeddings.weight"][ids]
             + self.weights["embeddings.position_embeddings.weight"][:len(ids)]
             + self.weights["embeddings.token_type_embeddings.weight"][0])
        x = self.norm(x, "embeddings.LayerNorm")
        for layer in range(self.config["num_hidden_layers"]):
            prefix = f"encoder.layer.{layer}."
            x = self.norm(self.attention(x, prefix, seen) + x, f"{prefix}attention.output.LayerNorm")
            hidden = functional.gelu(self.linear(x, f"{prefix}intermediate.dense"))
            x = self.norm(self.linear(hidden, f"{prefix}output.dense") + x, f"{prefix}output.LayerNorm")
        return functional.normalize(x.mean(0), dim=0)


def main():
    parser = argparse.ArgumentParser(description="Embeds sentences in PyTorch, in double precision.")
    parser.add_argument("--model", type=Path, required=True, help="folder with model.safetensors and its other files")
    parser.add_argument("--out", type=Path, required=True, help="the .npy file to write")
    parser.add_argument("sentences", type=Path, help="text file, one sentence a line")
    arguments = parser.parse_args()
    try:
        encoder = Encoder(arguments.model)
        lines = arguments.sentences.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        sys.exit(f"reference_embeddings: {error}")
    torch.set_num_threads(1)
    with torch.no_grad():
        embeddings = numpy.stack([encoder.embed(line, []).numpy() for line in lines])
    # numpy adds .npy to a name that lacks it, but not to an open file.
    partial = arguments.out.with_name(f".{arguments.out.name}.{os.getpid()}")
    with open(partial, "wb") as file:
        numpy.save(file, embeddings.astype(numpy.float32))
    partial.replace(arguments.out)


if __name__ == "__main__":
    main()
