#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapts the sentence encoder to classes of texts with PyTorch, as examples/finetune does with libattn.

Usage: finetune_encoder.py --model FOLDER --data FOLDER [--seed N] [--epochs N] [--threads N]

The same texts, layers, dropout, rates and sizes of batches, whose texts have like lengths; padded, as PyTorch's layers
take them. Prints the accuracy of logistic regression on what the encoder pools as it is, that after training, and the
seconds of a step. --logits FILE instead computes those of the test texts with a model that finetune has written.
"""
import argparse
import json
import time
from pathlib import Path

import numpy
import safetensors.torch
import torch
from sklearn.linear_model import LogisticRegression
from tokenizers import Tokenizer
from torch import nn

BATCH, RATE, WEIGHT_DECAY, WARMUP, DROPOUT, MAX_NORM = 32, 1e-4, 0.01, 0.1, 0.1, 1.0


class Encoder(nn.Module):
    """BERT with the mean of its states and a linear layer."""

    def __init__(self, config, classes):
        super().__init__()
        d = config["hidden_size"]
        self.words = nn.Embedding(config["vocab_size"], d)
        self.positions = nn.Embedding(config["max_position_embeddings"], d)
        self.types = nn.Embedding(config["type_vocab_size"], d)
        self.norm = nn.LayerNorm(d, eps=config["layer_norm_eps"])
        self.drop = nn.Dropout(DROPOUT)
        layer = nn.TransformerEncoderLayer(d, config["num_attention_heads"], config["intermediate_size"], DROPOUT,
                                           "gelu", config["layer_norm_eps"], batch_first=True)
        self.layers = nn.TransformerEncoder(layer, config["num_hidden_layers"], enable_nested_tensor=False)
        for layer in self.layers.layers:
            layer.dropout = nn.Identity()  # BERT has none inside its network
        self.classifier = nn.Linear(d, classes)

    def load(self, tensors, prefix=""):
        t = {name[len(prefix):]: value for name, value in tensors.items() if name.startswith(prefix)}
        pairs = {"words": "word_embeddings", "positions": "position_embeddings", "types": "token_type_embeddings"}
        state = {f"{mine}.weight": t[f"embeddings.{theirs}.weight"] for mine, theirs in pairs.items()}
        for kind in ("weight", "bias"):
            state[f"norm.{kind}"] = t[f"embeddings.LayerNorm.{kind}"]
            for i in range(len(self.layers.layers)):
                mine, theirs = f"layers.layers.{i}", f"encoder.layer.{i}"
                parts = [t[f"{theirs}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
                state[f"{mine}.self_attn.in_proj_{kind}"] = torch.cat(parts)
                for a, b in (("self_attn.out_proj", "attention.output.dense"), ("norm1", "attention.output.LayerNorm"),
                             ("linear1", "intermediate.dense"), ("linear2", "output.dense"),
                             ("norm2", "output.LayerNorm")):
                    state[f"{mine}.{a}.{kind}"] = t[f"{theirs}.{b}.{kind}"]
            if f"classifier.{kind}" in tensors:
                state[f"classifier.{kind}"] = tensors[f"classifier.{kind}"]
        self.load_state_dict(state, strict=False)

    def pool(self, ids, padding):
        positions = torch.arange(ids.shape[1])
        x = self.words(ids) + self.positions(positions) + self.types(torch.zeros_like(ids))
        x = self.layers(self.drop(self.norm(x)), src_key_padding_mask=padding)
        live = (~padding).float()[:, :, None]
        return (x * live).sum(1) / live.sum(1)

    def forward(self, ids, padding):
        return self.classifier(self.drop(self.pool(ids, padding)))


def read(path, tokenizer, classes):
    labels, tokens = [], []
    for line in path.read_bytes().decode("utf-8", "replace").splitlines():
        name, text = line.split("\t", 1)
        labels.append(classes.setdefault(name, len(classes)))
        tokens.append(tokenizer.encode(text).ids)
    return labels, tokens


def batches(tokens, chance=None):
    order = numpy.arange(len(tokens)) if chance is None else chance.permutation(len(tokens))
    order = sorted(order, key=lambda i: len(tokens[i]) // 4)
    groups = [order[i:i + BATCH] for i in range(0, len(order), BATCH)]
    if chance is not None:
        chance.shuffle(groups)
    for group in groups:
        longest = max(len(tokens[i]) for i in group)
        ids = torch.tensor([tokens[i] + [0] * (longest - len(tokens[i])) for i in group])
        yield group, ids, torch.tensor([[t >= len(tokens[i]) for t in range(longest)] for i in group])


@torch.no_grad()
def over(function, tokens):
    """What function gives for each text, in their order."""
    rows = [None] * len(tokens)
    for group, ids, padding in batches(tokens):
        for i, row in zip(group, function(ids, padding)):
            rows[i] = row
    return torch.stack(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=2014)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--logits", type=Path, help="a model of finetune: print its accuracy on the test texts")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(json.loads((args.model / "sentence_bert_config.json").read_text())["max_seq_length"])
    classes = {}
    labels, tokens = read(args.data / "train.tsv", tokenizer, classes)
    classes = {name: i for i, name in enumerate(sorted(classes))}
    labels, tokens = read(args.data / "train.tsv", tokenizer, classes)
    test_labels, test_tokens = read(args.data / "test.tsv", tokenizer, classes)
    model = Encoder(json.loads((args.model / "config.json").read_text()), len(classes))

    def accuracy():
        model.eval()
        return float((over(model, test_tokens).argmax(1) == torch.tensor(test_labels)).float().mean())

    if args.logits:
        model.load(safetensors.torch.load_file(args.logits), "bert.")
        print(f"{accuracy():.6f}")
        return
    model.load(safetensors.torch.load_file(args.model / "model.safetensors"))
    model.eval()
    regression = LogisticRegression(max_iter=2000).fit(over(model.pool, tokens).numpy(), labels)
    frozen = regression.score(over(model.pool, test_tokens).numpy(), test_labels)
    print(f"the encoder as it is, with logistic regression: {100 * frozen:.2f} %", flush=True)
    plain = [p for p in model.parameters() if p.dim() == 1]
    optimiser = torch.optim.AdamW([{"params": [p for p in model.parameters() if p.dim() > 1]},
                                   {"params": plain, "weight_decay": 0.0}], lr=RATE, weight_decay=WEIGHT_DECAY)
    steps = args.epochs * -(-len(tokens) // BATCH)
    warm = int(WARMUP * steps)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda n: min((n + 1) / max(warm, 1), (steps - n) / max(steps - warm, 1)))
    chance, seconds = numpy.random.default_rng(args.seed), 0.0
    for epoch in range(args.epochs):
        model.train()
        for group, ids, padding in batches(tokens, chance):
            wanted = torch.tensor([labels[i] for i in group])
            start = time.perf_counter()
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(ids, padding), wanted).backward()
            nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
            optimiser.step()
            schedule.step()
            seconds += time.perf_counter() - start
        print(f"epoch {epoch + 1}: {100 * accuracy():.2f} %, {1000 * seconds / steps * args.epochs / (epoch + 1):.1f} ms a "
              "step", flush=True)


if __name__ == "__main__":
    main()
