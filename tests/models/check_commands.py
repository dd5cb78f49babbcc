#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares attn embed, rerank and generate with Transformers, from text to what is printed, on small models of chance.

Usage: check_commands.py ATTN SENTENCES [--seed N]

ATTN is the command, SENTENCES a text file that tokenizers are trained on and that gives the texts. Transformers saves
each folder, with a tokenizer of the package tokenizers, and runs it in float64, one text at a time. Embeddings and
scores are within 1e-4 of the largest number; generated texts are those of greedy generate(), unless its two likeliest
tokens are nearer to each other than that somewhere. Exit code: 0 all passed, 1 some failed, 77 without transformers.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

try:
    import numpy
    import tokenizers
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

TOLERANCE = 1e-4
NEW_TOKENS = 12
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZES = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}


def word_pieces(texts):
    tokenizer = tokenizers.BertWordPieceTokenizer()
    tokenizer.train_from_iterator(texts, vocab_size=400, special_tokens=SPECIAL, show_progress=False)
    return transformers.BertTokenizerFast(tokenizer_object=tokenizer._tokenizer)  # pylint: disable=protected-access


def byte_pairs(texts):
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(texts, vocab_size=500, special_tokens=["<end>", "<pad>"], show_progress=False)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer,  # pylint: disable=protected-access
                                                eos_token="<end>", pad_token="<pad>")


def save(folder, model, tokenizer):
    """In float32; what comes back is the same weights in float64."""
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.copy_(torch.randn_like(p) * (1.3 / p.shape[1] ** 0.5 if p.shape[0] < 300 else 0.7))
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model.double()


class Check:
    def __init__(self, attn, texts):
        self.attn, self.texts, self.failed = attn, texts, 0

    def run(self, *arguments):
        run = subprocess.run([self.attn, *map(str, arguments)], input="".join(text + "\n" for text in self.texts).encode(),
                             capture_output=True, check=False)
        if run.returncode != 0:
            sys.exit(f"check_commands: attn {' '.join(map(str, arguments))} ended with {run.returncode}: {run.stderr}")
        return run.stdout.decode()

    def say(self, good, name, text):
        print(f"{'ok    ' if good else 'FAILED'} {name}: {text}")
        self.failed += not good

    def compare(self, name, found, exact):
        off = numpy.abs(numpy.array(found) - exact).max() / numpy.abs(exact).max()
        self.say(off <= TOLERANCE, name, f"off by {off:.2g} of the largest number (allowed: {TOLERANCE})")

    def embed(self, folder, tokenizer):
        model = save(folder, transformers.BertModel(transformers.BertConfig(vocab_size=len(tokenizer), **SIZES)), tokenizer)
        with torch.no_grad():
            exact = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0).numpy() for text in self.texts]
        rows = self.run("embed", folder, "--pooling", "mean").splitlines()
        self.compare("embed", [[float(number) for number in row.split()] for row in rows], numpy.array(exact))

    def rerank(self, folder, tokenizer):
        config = transformers.BertConfig(vocab_size=len(tokenizer), num_labels=1, **SIZES)
        model = save(folder, transformers.BertForSequenceClassification(config), tokenizer)
        query = self.texts[0]
        with torch.no_grad():
            exact = [model(**tokenizer(query, text, return_tensors="pt")).logits.item() for text in self.texts]
        found = [json.loads(line) for line in self.run("rerank", folder, "--query", query, "--json").splitlines()]
        lines = [entry["line"] for entry in found]
        self.compare("rerank", [entry["score"] for entry in found], numpy.array(exact)[[line - 1 for line in lines]])
        self.say(sorted(lines) == list(range(1, len(exact) + 1)) and [entry["text"] for entry in found] ==
                 [self.texts[line - 1] for line in lines], "rerank", "every line once, with its text")

    def generate(self, name, folder, model, tokenizer):
        model = save(folder, model, tokenizer)
        model.generation_config.pad_token_id = tokenizer.pad_token_id
        entries = [json.loads(line) for line in self.run("generate", folder, "-", "--json", "-n", NEW_TOKENS).splitlines()]
        texts = {entry["prompt_number"]: (entry["prompt_ids"], entry["ids"], entry["text"]) for entry in entries}
        same = near = 0
        for number, text in enumerate(self.texts):
            inputs = {"input_ids": tokenizer(text, return_tensors="pt").input_ids}
            with torch.no_grad():
                out = model.generate(**inputs, do_sample=False, max_new_tokens=NEW_TOKENS, output_scores=True,
                                     return_dict_in_generate=True)
            made = out.sequences[0, -len(out.scores):].tolist()
            two = torch.stack(out.scores)[:, 0].topk(2).values
            decoded = tokenizer.decode(made, skip_special_tokens=True)
            same += texts[number + 1] == (inputs["input_ids"][0].tolist(), made, decoded)
            near += bool((two[:, 0] - two[:, 1]).min() < TOLERANCE)
        self.say(same + near >= len(self.texts), name,
                 f"{same} of {len(self.texts)} texts are the same (allowed: {len(self.texts) - near})")


def main():
    parser = argparse.ArgumentParser(description="Compares the commands for models with Transformers.")
    parser.add_argument("attn", help="the command")
    parser.add_argument("sentences", type=Path, help="text file, one sentence a line")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    lines = options.sentences.read_text(encoding="utf-8").splitlines()
    pieces, pairs = word_pieces(lines), byte_pairs(lines)
    check = Check(options.attn, [line[:200] for line in lines[:40]])
    size = len(pairs)
    ends = {"eos_token_id": pairs.eos_token_id, "pad_token_id": pairs.pad_token_id, "bos_token_id": pairs.eos_token_id}
    with tempfile.TemporaryDirectory() as folder:
        check.embed(f"{folder}/bert", pieces)
        check.rerank(f"{folder}/reranker", pieces)
        check.generate("llama", f"{folder}/llama", transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=size, num_key_value_heads=2, **SIZES, **ends)), pairs)
        check.generate("gpt2", f"{folder}/gpt2", transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=size, n_embd=48, n_layer=2, n_head=4, **ends)), pairs)
        check.generate("t5", f"{folder}/t5", transformers.T5ForConditionalGeneration(transformers.T5Config(
            vocab_size=size, d_model=48, d_kv=12, d_ff=96, num_layers=2, num_heads=4,
            decoder_start_token_id=pairs.pad_token_id, **ends)), pairs)
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
