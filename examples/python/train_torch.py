#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small Transformer on the characters of libattn's own documents, with libattn's attention.

Two layers, causal, with ALiBi for positions, whose slopes are learned, too. Prints the loss in bits for each character; ends
with 1 if it has not fallen enough. It takes some seconds.

    python examples/python/train_torch.py [file ...]
"""
from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import libattn
import libattn.torch

LAYERS, HEADS, WIDTH, CONTEXT, BATCH, STEPS = 2, 4, 64, 64, 16, 150


class Layer(nn.Module):
    """Attention, then a perceptron; each adds to what comes in (Radford et al. 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.perceptron = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.slopes = nn.Parameter(torch.from_numpy(libattn.alibi_slopes(HEADS)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        # (batch, tokens, 3, heads, channels): libattn reads q, k and v where they lie.
        q, k, v = self.qkv(self.norms[0](x)).view(batch, tokens, 3, HEADS, WIDTH // HEADS).unbind(2)
        seen = libattn.torch.attention(q, k, v, causal=True, alibi=self.slopes, layout="bthd",
                                       dropout=0.1 if self.training else None)
        x = x + self.out(seen.flatten(2))
        return x + self.perceptron(self.norms[1](x))


class Model(nn.Module):
    def __init__(self, letters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(letters, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, letters)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        x = self.embedding(letters)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def bits(model: Model, text: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Mean over all characters of stretches of the text that begin there."""
    rows = text[starts[:, None] + torch.arange(CONTEXT + 1)]
    return F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()) / torch.log(torch.tensor(2.0))


def main() -> int:
    docs = Path(__file__).resolve().parents[2] / "docs"
    files = [Path(name) for name in sys.argv[1:]] or sorted(docs.glob("*.md"))
    letters = "".join(file.read_text(encoding="utf-8") for file in files)
    alphabet = {letter: n for n, letter in enumerate(sorted(set(letters)))}
    text = torch.tensor([alphabet[letter] for letter in letters])
    if len(text) < 20 * CONTEXT:
        names = ", ".join(map(str, files))
        print(f"{names}: {len(text)} characters are too few to learn from", file=sys.stderr)
        return 2
    learned, held_back = text.split([len(text) * 9 // 10, len(text) - len(text) * 9 // 10])

    torch.manual_seed(1)  # of the weights, of the stretches, and of what is dropped
    model = Model(len(alphabet))
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    checked = torch.arange(0, len(held_back) - CONTEXT - 1, max(1, len(held_back) // 64))

    def check() -> float:
        model.eval()
        with torch.no_grad():
            return float(bits(model, held_back, checked))

    first = check()
    print(f"{len(text)} characters, {len(alphabet)} different ones\nbefore: {first:.2f} bits for each")
    for step in range(1, STEPS + 1):
        model.train()
        loss = bits(model, learned, torch.randint(len(learned) - CONTEXT, (BATCH,)))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 50 == 0:
            print(f"step {step}: {float(loss.detach()):.2f}, of what was held back {check():.2f}")
    last = check()
    slopes = [slope for layer in model.layers for slope in layer.slopes.tolist()]
    print("slopes of ALiBi, learned:", " ".join(f"{slope:.3f}" for slope in slopes))
    if last > 0.6 * first:
        print(f"the loss fell from {first:.2f} to {last:.2f} only", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
