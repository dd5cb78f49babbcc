# SPDX-License-Identifier: Apache-2.0
"""Trains a small encoder-decoder Transformer that reads written-out English dates and writes ISO dates.

"Tuesday, the third of March, nineteen eighty-seven" becomes "1987-03-03",
character by character. dates.py makes the pairs from Python's calendar. Every
day that a test asks for was kept out of training in every form.

The model is torch.nn.Transformer (Vaswani et al. 2017) with the normalisation
before each sublayer, ReLU, and a last normalisation after each stack; no
dropout. Source and target each have an embedding, scaled by sqrt(d_model), to
which the position is added:

    P[t][2i] = sin(t / 10000^(2i / d_model))    P[t][2i + 1] = cos(the same)

Sequences: the source is the characters alone, without <bos> or <eos>. The
target goes in as <bos> and the characters, and comes out as the characters and
<eos>. In a batch, <pad> follows the shorter sources and is hidden from
attention; a source alone needs no mask but the decoder's causal one.

Greedy search: from <bos>, the likeliest token each time, the lowest id among
equals, until <eos> or max_output_length tokens.

Beam search: a hypothesis is a token sequence and its score, the sum of the
log-probabilities of its tokens in f32, in order, over all of the alphabet; no
length normalisation. At first there is one, <bos>, with score 0. At each step
the candidates are, for every hypothesis in the order of the beam: itself if it
has ended in <eos>, else its continuations by every token, by id, at its score
plus the token's log-probability. The best `beam` candidates, in descending
order of score and the earlier candidate among equals, are the new beam. The
search stops when all of the beam has ended, or after max_output_length steps.
The result is the first of the beam.

Written to the folder:
  translator.safetensors  f32 under PyTorch's names
  alphabet.txt            line n, from 0, is token n; the first three are <pad>,
                          <bos> and <eos>, every other is one ASCII character,
                          as it is (one is the space)
  config.json             the sizes
  train.tsv, test.tsv     the pairs that it trained on, in their order, and those of the tests, a line
                          DATE TAB TEXT for each
  test.txt, expected.txt  inputs and true dates of the tests, one per line
  greedy.txt, beam.txt    what the searches found, without <bos> and <eos>
  reference.safetensors   the same as tokens, with scores, and the layers'
                          outputs for some of the tests; its metadata says what
                          each tensor is

The same machine and packages give the same bytes again. Another --seed gives
other weights and training pairs; the tests stay.
"""

import argparse
import datetime
import importlib.metadata
import math
import random
import time
import warnings
from pathlib import Path

import torch
from torch import nn

import common
import dates

PAD, BOS, EOS = 0, 1, 2
SPECIAL = ["<pad>", "<bos>", "<eos>"]
SEED = 1987
WIDTH, HEADS, LAYERS, INNER = 128, 4, 2, 256
MAX_LENGTH, MAX_OUTPUT = 96, 16
STEPS, BATCH, WARM_UP, RATE = 1300, 64, 100, 3e-3
HELD_OUT, TESTS, DETAILED, BEAM, SEARCHED = 4000, 500, 5, 4, 25
# Below this something is wrong. Other processors round otherwise, and learn a little better or worse for it.
MIN_RIGHT = 0.97
# Batches whose sources are sorted by length together, which saves padding.
SORTED = 16
# The longest source at the start, and the share of the steps after which all lengths have come in.
SHORTEST, GROWTH = 12, 0.4


class Alphabet:
    def __init__(self, texts):
        self.tokens = SPECIAL + sorted(set("".join(texts)))
        self.ids = {token: index for index, token in enumerate(self.tokens)}

    def source(self, texts):
        return pad([[self.ids[c] for c in text] for text in texts])

    def target(self, texts):
        return pad([[BOS, *(self.ids[c] for c in text), EOS] for text in texts])

    def text(self, tokens):
        """The characters between <bos> and <eos>."""
        out = ""
        for token in tokens[1:]:
            if token == EOS:
                break
            out += self.tokens[token]
        return out


def pad(rows):
    out = torch.full((len(rows), max(map(len, rows))), PAD)
    for line, row in zip(out, rows):
        line[: len(row)] = torch.tensor(row)
    return out


def positions():
    angle = torch.arange(MAX_LENGTH, dtype=torch.float64)[:, None] * 10000.0 ** (
        -torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
    return torch.stack((angle.sin(), angle.cos()), -1).reshape(MAX_LENGTH, WIDTH).float()


class Translator(nn.Transformer):
    def __init__(self, tokens):
        super().__init__(WIDTH, HEADS, LAYERS, LAYERS, INNER, dropout=0.0, activation="relu", batch_first=True,
                         norm_first=True)
        self.src_embedding = nn.Embedding(tokens, WIDTH)
        self.tgt_embedding = nn.Embedding(tokens, WIDTH)
        self.generator = nn.Linear(WIDTH, tokens)
        for table in (self.src_embedding, self.tgt_embedding):
            nn.init.normal_(table.weight, std=WIDTH ** -0.5)
        self.register_buffer("positions", positions(), persistent=False)

    def embed(self, table, ids):
        return table(ids) * math.sqrt(WIDTH) + self.positions[: ids.shape[1]]

    def read(self, source):
        """Memory (B, S, width)."""
        return self.encoder(self.embed(self.src_embedding, source), src_key_padding_mask=source == PAD)

    def write(self, target, memory, source):
        """Logits (B, T, tokens) of the token that follows each of the target's."""
        future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        return self.generator(self.decoder(self.embed(self.tgt_embedding, target), memory, tgt_mask=future,
                                           memory_key_padding_mask=source == PAD))


def make_pairs(days, count, rng, longest=MAX_LENGTH):
    """Pairs of a written-out and an ISO date whose written-out one has at most `longest` characters."""
    pairs = []
    while len(pairs) < count:
        date = datetime.date.fromordinal(rng.choice(days))
        text = dates.write_date(date, rng)
        if len(text) <= longest:
            pairs.append((text, date.isoformat()))
    return pairs


def make_batches(days, rng):
    """Short dates first: where to look is learnt from them sooner, and in less time (Platanios et al. 2019)."""
    batches = []
    for start in range(0, STEPS, SORTED):
        longest = min(MAX_LENGTH, SHORTEST + int(MAX_LENGTH * start / (GROWTH * STEPS)))
        count = min(SORTED, STEPS - start)
        part = sorted(make_pairs(days, count * BATCH, rng, longest), key=lambda pair: len(pair[0]))
        group = [part[i : i + BATCH] for i in range(0, len(part), BATCH)]
        rng.shuffle(group)
        batches += group
    return batches


def train(model, alphabet, batches):
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    for step, batch in enumerate(batches):
        progress = max(0, step - WARM_UP) / (STEPS - WARM_UP)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min((step + 1) / WARM_UP, 0.5 + 0.5 * math.cos(math.pi * progress))
        source = alphabet.source([text for text, _ in batch])
        target = alphabet.target([date for _, date in batch])
        logits = model.write(target[:, :-1], model.read(source), source)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 100 == 0:
            common.say(f"step {step + 1} of {STEPS}: loss {loss.item():.4f}")


def greedy_search(model, source):
    """Tokens (B, 1 + max_output_length) from <bos> on, <pad> behind <eos>."""
    memory = model.read(source)
    tokens = torch.full((len(source), 1 + MAX_OUTPUT), PAD)
    tokens[:, 0] = BOS
    ended = torch.zeros(len(source), dtype=torch.bool)
    for end in range(1, 1 + MAX_OUTPUT):
        # argmax gives the first of equals.
        following = model.write(tokens[:, :end], memory, source)[:, -1].argmax(-1)
        tokens[:, end] = following.masked_fill(ended, PAD)
        ended |= following == EOS
        if ended.all():
            break
    return (tokens,)


def beam_search(model, source):
    """Tokens (B, beam, 1 + max_output_length) and scores (B, beam), the best first; and the smallest gap.

    The gap is the least difference between two neighbours among the candidates
    that were kept and the best that was not: a computation whose errors stay
    below half of it takes the same decisions.
    """
    count, size = len(source), BEAM
    known = len(model.generator.bias)
    memory = model.read(source).repeat_interleave(size, 0)
    wide_source = source.repeat_interleave(size, 0)
    tokens = torch.full((count, size, 1 + MAX_OUTPUT), PAD)
    tokens[:, :, 0] = BOS
    # The beam starts with one hypothesis: the others can never be chosen.
    scores = torch.full((count, size), -torch.inf, dtype=memory.dtype)
    scores[:, 0] = 0
    ended = torch.zeros(count, size, dtype=torch.bool)
    gap = torch.full((count,), torch.inf, dtype=memory.dtype)
    itself = torch.full((known,), -torch.inf, dtype=memory.dtype)
    itself[PAD] = 0
    for end in range(1, 1 + MAX_OUTPUT):
        logits = model.write(tokens.view(-1, 1 + MAX_OUTPUT)[:, :end], memory, wide_source)[:, -1]
        following = logits.log_softmax(-1).view(count, size, known)
        following = torch.where(ended[:, :, None], itself, following)
        candidates = (scores[:, :, None] + following).flatten(1)
        # A stable sort keeps the earlier of equals in front.
        best, order = candidates.sort(dim=1, descending=True, stable=True)
        between = best[:, :size] - best[:, 1 : size + 1]
        alive = ~ended.all(1)
        gap = torch.where(alive, torch.minimum(gap, between.nan_to_num(nan=torch.inf).amin(1)), gap)
        scores, parent, token = best[:, :size], order[:, :size] // known, order[:, :size] % known
        tokens = tokens.gather(1, parent[:, :, None].expand_as(tokens)).clone()
        tokens[:, :, end] = token
        ended = ended.gather(1, parent) | (token == EOS)
        if ended.all():
            break
    return tokens, scores, gap


def by_length(search, model, source):
    """The search's results for all sources, computed in batches of like length without more padding than needed."""
    lengths = (source != PAD).sum(1)
    order = lengths.argsort(stable=True)
    parts = [search(model, source[rows, : int(lengths[rows].max())]) for rows in order.split(SEARCHED)]
    return [torch.cat(tensors)[order.argsort()] for tensors in zip(*parts)]


def watch_layers(model, found):
    """Hooks that keep each layer's output under its name."""
    handles = []
    for stack in ("encoder", "decoder"):
        for index, layer in enumerate(getattr(model, stack).layers):
            handles.append(layer.register_forward_hook(
                lambda _, __, out, name=f"{stack}.layers.{index}": found.__setitem__(name, out)))
    return handles


def cross_weights(model, target, memory):
    """The last decoder layer's attention on the source (heads, T, S), of one pair without padding."""
    found = {}
    attention = model.decoder.layers[-1].multihead_attn
    handle = attention.register_forward_pre_hook(lambda _, args: found.__setitem__("query", args[0]))
    model.write(target, memory, torch.full(memory.shape[:2], EOS))
    handle.remove()
    return attention(found["query"], memory, memory, need_weights=True, average_attn_weights=False)[1][0]


def details(model, source, target):
    """Every layer's output for the first tests, 0 where there is padding, and the attention of the first."""
    found = {}
    handles = watch_layers(model, found)
    memory = model.read(source)
    logits = model.write(target, memory, source)
    for handle in handles:
        handle.remove()
    live = (source != PAD)[:, :, None]
    out = {name: value * live if name.startswith("encoder") else value for name, value in found.items()}
    length = int((source[0] != PAD).sum())
    heads = cross_weights(model, target[:1], memory[:1, :length])
    return {**out, "memory": memory * live, "logits": logits, "cross_weights_heads": heads,
            "cross_weights": heads.mean(0)}


def pairs_bytes(pairs):
    return common.lines_bytes([f"{date}\t{text}" for text, date in pairs])


MEANING = {
    "about": "N tests; S the longest source; E detailed tests, the first of the N; T the target's tokens from <bos> "
             "to the last character; f32 as PyTorch computed them",
    "source": "[N, S] tokens of test.txt, <pad> behind",
    "source_lengths": "[N]",
    "greedy.tokens": "[N, 1 + max_output_length] from <bos> to <eos>, <pad> behind",
    "beam.tokens": "[N, beam, 1 + max_output_length], the best hypothesis first",
    "beam.scores": "[N, beam] sums of log-probabilities",
    "beam.gaps": "[N] the least difference between the scores of neighbours among the candidates that were kept and "
                 "the best that was not, over all steps",
    "target": "[E, T] the true target that went in",
    "encoder.layers.n": "[E, S, d_model] output of the layer, 0 at padding; likewise decoder.layers.n [E, T, d_model]",
    "memory": "[E, S, d_model] output of the encoder after its last normalisation, 0 at padding",
    "logits": "[E, T, tokens]",
    "cross_weights_heads": "[n_head, T, S of the first test] attention on the source in the last decoder layer, "
                           "first test; cross_weights is its mean over the heads",
}


def main():
    parser = argparse.ArgumentParser(prog=common.PROGRAM, description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER",
                        help="folder for the weights, texts and references")
    parser.add_argument("--seed", type=int, default=SEED, metavar="N",
                        help=f"of weights, training pairs and their order; the tests stay (default: {SEED})")
    common.add_threads(parser)
    arguments = parser.parse_args()
    common.make_folder(arguments.out)
    common.prepare(arguments.seed, arguments.threads)
    warnings.filterwarnings("ignore", message="enable_nested_tensor is True")

    rng = random.Random(SEED)
    days = list(range(dates.FIRST.toordinal(), dates.LAST.toordinal() + 1))
    rng.shuffle(days)
    tests = make_pairs(days[:HELD_OUT], TESTS, rng)
    if arguments.seed != SEED:
        rng.seed(arguments.seed)
    batches = make_batches(days[HELD_OUT:], rng)
    alphabet = Alphabet([text for batch in [*batches, tests] for pair in batch for text in pair])

    model = Translator(len(alphabet.tokens))
    start = time.monotonic()
    train(model, alphabet, batches)
    seconds = time.monotonic() - start
    model.eval()
    # The fused path would give 0 for padding and other bits; the layers are to be what they say.
    torch.backends.mha.set_fastpath_enabled(False)
    expected = [date for _, date in tests]
    source = alphabet.source([text for text, _ in tests])
    with torch.inference_mode():
        (greedy_tokens,) = by_length(greedy_search, model, source)
        beam_tokens, beam_scores, gaps = by_length(beam_search, model, source)
        target = alphabet.target(expected[:DETAILED])[:, :-1]
        tensors = details(model, source[:DETAILED, : int((source[:DETAILED] != PAD).sum(1).max())], target)
        double = Translator(len(alphabet.tokens)).double().eval()
        double.load_state_dict(model.state_dict())
        double.positions = model.positions.double()
        same = int((by_length(beam_search, double, source)[0] == beam_tokens).all(2).all(1).sum())
    greedy = [alphabet.text(tokens) for tokens in greedy_tokens.tolist()]
    beam = [alphabet.text(tokens[0]) for tokens in beam_tokens.tolist()]
    right = [sum(a == b for a, b in zip(found, expected)) / len(tests) for found in (greedy, beam)]
    common.say(f"{STEPS * BATCH} pairs in {STEPS} steps took {seconds:.1f} s; {TESTS} unseen dates: greedy "
               f"{100 * right[0]:.1f} %, beam {100 * right[1]:.1f} % exact; beams of all {BEAM} hypotheses as in "
               f"double precision: {same}; smallest gap {gaps.min():.1e}")
    if min(right) < MIN_RIGHT:
        common.fail(f"{100 * min(right):.1f} % of the unseen dates came out exactly; expected at least "
                    f"{100 * MIN_RIGHT:.0f} %")

    versions = " ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "numpy"))
    reference = {**tensors, "source": source, "source_lengths": (source != PAD).sum(1), "greedy.tokens": greedy_tokens,
                 "beam.tokens": beam_tokens, "beam.scores": beam_scores, "beam.gaps": gaps, "target": target}
    config = {"model_type": "encoder-decoder", "d_model": WIDTH, "n_head": HEADS, "n_encoder_layers": LAYERS,
              "n_decoder_layers": LAYERS, "d_ff": INNER, "norm_first": True, "final_norm": True, "activation": "relu",
              "layer_norm_eps": model.encoder.norm.eps, "vocab_size": len(alphabet.tokens), "pad": PAD, "bos": BOS,
              "eos": EOS, "embedding_scale": "sqrt(d_model)", "positions": "sinusoidal", "max_length": MAX_LENGTH,
              "max_output_length": MAX_OUTPUT, "beam": BEAM, "tests": TESTS}
    common.write_all(arguments.out, {
        "translator.safetensors": common.safetensors_bytes(model.state_dict(), {
            "model": "encoder-decoder Transformer, written-out English dates to ISO dates", "tools": versions}),
        "alphabet.txt": common.lines_bytes(alphabet.tokens),
        "config.json": common.json_bytes(config),
        "train.tsv": pairs_bytes(pair for batch in batches for pair in batch),
        "test.tsv": pairs_bytes(tests),
        "test.txt": common.lines_bytes([text for text, _ in tests]),
        "expected.txt": common.lines_bytes(expected),
        "greedy.txt": common.lines_bytes(greedy),
        "beam.txt": common.lines_bytes(beam),
        "reference.safetensors": common.safetensors_bytes(reference, {**MEANING, "tools": versions}),
    })


if __name__ == "__main__":
    main()
