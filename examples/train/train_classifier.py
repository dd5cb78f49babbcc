# SPDX-License-Identifier: Apache-2.0
"""Trains a small text classifier on sentences that people have rated.

The data are the four sets of Hutto & Gilbert's VADER paper (ICWSM 2014), which
the source package vaderSentiment 3.3.2 (MIT licence) ships; vader.py reads
them. A text whose mean rating lies between -1 and 1 is left out as not clearly
one or the other; the classes are the signs of the others. Of texts with the
same words one is kept. Every fifth, after a shuffle, is for testing.

The model: embedding, one bidirectional LSTM, attention pooling, linear head.

    h_t     = [forward LSTM ; backward LSTM] at word t
    score_t = v . tanh(W h_t + b)
    weight  = softmax of the scores over the words of the text
    logits  = C (sum_t weight_t h_t) + c

Words: a word is a longest run of ASCII letters, ASCII digits, apostrophes and
bytes from 0x80 on, with A-Z lowered; every other byte only separates. A word
that the vocabulary does not have is <unk>, and a text without a word is the
one word <unk>.

Written to the folder:
  classifier.safetensors  f32 under PyTorch's names; attention.weight (W),
                          attention.bias (b) and attention.score (v)
  vocab.txt, classes.txt  line n, from 0, is word n or class n
  config.json             the sizes; max_length is the longest test in words
  train.tsv, test.tsv     the texts of both splits with their classes, a line CLASS TAB TEXT for each
  test.txt                the texts of the test split, one per line
  reference.safetensors   logits [N, classes] and labels [N] of all of them;
                          weights [20, T] of the first 20, 0 behind the last
                          word, with ids [20, T] and lengths [20]

The same machine and packages give the same bytes again.
"""

import argparse
import collections
import importlib.metadata
import random
import re
import time
from pathlib import Path

import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import common
import vader

CLEAR = 1.0
CLASSES = ("negative", "positive")

PAD, UNK = 0, 1
SEED = 2014
MIN_COUNT = 2
EMBEDDING, HIDDEN, ATTENTION = 64, 64, 64
EPOCHS, BATCH, RATE, WEIGHT_DECAY = 6, 64, 5e-3, 0.05
# Of the embedding's output and the head's input, and the share of words shown as <unk>. Both were chosen on a part of
# the training split that was kept out of training.
DROPOUT, HIDE = 0.65, 0.1
# Below this something is wrong.
MIN_ACCURACY = 0.8
DETAILED = 20


def words(text):
    """A word is a longest run of ASCII letters, digits, apostrophes and bytes from 0x80 on, with A-Z lowered."""
    # bytes.lower() touches ASCII only.
    return [word.decode() for word in re.findall(rb"[a-z0-9'\x80-\xff]+", text.encode().lower())]


def split(rated):
    """Training and test pairs of text and class."""
    seen, clear = set(), []
    for text, rating in rated:
        key = tuple(words(text))
        if abs(rating) >= CLEAR and key not in seen:
            seen.add(key)
            clear.append((text, int(rating > 0)))
    random.Random(SEED).shuffle(clear)
    test = clear[::5]
    train = [pair for index, pair in enumerate(clear) if index % 5]
    return train, test


class Attention(nn.Module):
    """Scores every word's state; the pooled state is the weighted sum."""

    def __init__(self, width, inner):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inner, width))
        self.bias = nn.Parameter(torch.zeros(inner))
        self.score = nn.Parameter(torch.empty(inner))
        nn.init.xavier_uniform_(self.weight)
        nn.init.normal_(self.score, std=inner ** -0.5)

    def forward(self, states, live):
        score = torch.tanh(nn.functional.linear(states, self.weight, self.bias)) @ self.score
        weights = score.masked_fill(~live, -torch.inf).softmax(1)
        return (weights[:, None] @ states).squeeze(1), weights


class Classifier(nn.Module):
    def __init__(self, words_known):
        super().__init__()
        self.embedding = nn.Embedding(words_known, EMBEDDING, padding_idx=PAD)
        self.lstm = nn.LSTM(EMBEDDING, HIDDEN, batch_first=True, bidirectional=True)
        self.attention = Attention(2 * HIDDEN, ATTENTION)
        self.classifier = nn.Linear(2 * HIDDEN, len(CLASSES))
        self.dropout = nn.Dropout(DROPOUT)
        # Starts small, so that what a word has learnt soon outweighs what chance gave it.
        nn.init.normal_(self.embedding.weight, std=0.1)
        with torch.no_grad():
            self.embedding.weight[PAD] = 0

    def forward(self, ids, lengths):
        """Logits [B, classes] and weights [B, T]; texts may stand in any order."""
        packed = pack_padded_sequence(self.dropout(self.embedding(ids)), lengths, batch_first=True,
                                      enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        live = torch.arange(ids.shape[1]) < lengths[:, None]
        pooled, weights = self.attention(states, live)
        return self.classifier(self.dropout(pooled)), weights


def pad(rows):
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), int(lengths.max())), PAD)
    for line, row in zip(ids, rows):
        line[: len(row)] = torch.tensor(row)
    return ids, lengths


def train_model(rows, labels, words_known, seed):
    """Adam on batches of texts of like length; a word of the batch is hidden now and then, so that <unk> is learnt."""
    model = Classifier(words_known)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=WEIGHT_DECAY, fused=True)
    rng = random.Random(seed)
    steps = EPOCHS * -(-len(rows) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.1)
    model.train()
    for epoch in range(EPOCHS):
        # Neighbours in length share a batch, which saves padding; chance decides between equals and on the order.
        order = sorted(range(len(rows)), key=lambda index: (len(rows[index]) // 4, rng.random()))
        batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        rng.shuffle(batches)
        total = 0.0
        for batch in batches:
            ids, lengths = pad([rows[index] for index in batch])
            ids = torch.where((torch.rand(ids.shape) < HIDE) & (ids != PAD), UNK, ids)
            loss = nn.functional.cross_entropy(model(ids, lengths)[0], labels[batch])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item()
        common.say(f"epoch {epoch + 1} of {EPOCHS}: mean loss {total / len(batches):.4f}")
    return model.eval()


def baselines(train, test):
    """Test accuracy of the most frequent class, and of logistic regression on tf-idf of the same words."""
    common_class = collections.Counter(label for _, label in train).most_common(1)[0][0]
    majority = sum(label == common_class for _, label in test) / len(test)
    vectorizer = TfidfVectorizer(analyzer=words, sublinear_tf=True)
    features = vectorizer.fit_transform([text for text, _ in train])
    regression = LogisticRegression(C=3.0, max_iter=1000).fit(features, [label for _, label in train])
    return majority, regression.score(vectorizer.transform([text for text, _ in test]), [label for _, label in test])


def make_vocabulary(texts):
    """The words of the training split that occur often enough, the most frequent first."""
    counts = collections.Counter(word for text in texts for word in words(text))
    known = [word for word in counts if counts[word] >= MIN_COUNT]
    return ["<pad>", "<unk>"] + sorted(known, key=lambda word: (-counts[word], word))


MEANING = {
    "about": "N texts of test.txt; D = min(20, N) detailed, the first; T the words of the longest of these; f32 as "
             "PyTorch computed them, every text in a batch of its own",
    "labels": "[N] true classes",
    "logits": "[N, classes]",
    "ids": "[D, T] words, 0 behind the last",
    "lengths": "[D] words",
    "weights": "[D, T] attention weights, 0 behind the last word",
}


def main():
    parser = argparse.ArgumentParser(prog=common.PROGRAM, description=__doc__.splitlines()[0])
    vader.add_argument(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER",
                        help="folder for the weights, texts and references")
    parser.add_argument("--seed", type=int, default=SEED, metavar="N",
                        help=f"of weights, order and dropout; the split stays (default: {SEED})")
    common.add_threads(parser)
    arguments = parser.parse_args()
    common.make_folder(arguments.out)
    common.prepare(arguments.seed, arguments.threads)

    pairs, test = split(vader.read_texts(arguments.data))
    vocabulary = make_vocabulary([text for text, _ in pairs])
    index = {word: number for number, word in enumerate(vocabulary)}

    def encode(text):
        return [index.get(word, UNK) for word in words(text)] or [UNK]

    majority, regression = baselines(pairs, test)
    start = time.monotonic()
    model = train_model([encode(text) for text, _ in pairs], torch.tensor([label for _, label in pairs]),
                        len(vocabulary), arguments.seed)
    seconds = time.monotonic() - start

    rows = [encode(text) for text, _ in test]
    labels = torch.tensor([label for _, label in test])
    ids, lengths = pad(rows[:DETAILED])
    weights = torch.zeros(ids.shape)
    logits = []
    with torch.inference_mode():
        for number, row in enumerate(rows):
            one, attended = model(*pad([row]))
            logits.append(one[0])
            if number < DETAILED:
                weights[number, : len(row)] = attended[0]
    logits = torch.stack(logits)
    accuracy = float((logits.argmax(1) == labels).float().mean())
    common.say(f"{len(pairs)} texts, {EPOCHS} epochs, took {seconds:.1f} s; accuracy on {len(test)} test texts: "
               f"{100 * accuracy:.1f} %, tf-idf with logistic regression {100 * regression:.1f} %, most frequent "
               f"class {100 * majority:.1f} %")
    if accuracy < MIN_ACCURACY:
        common.fail(f"the accuracy is {100 * accuracy:.1f} %; expected at least {100 * MIN_ACCURACY:.0f} %")

    versions = " ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "numpy"))
    config = {"model_type": "lstm-attention-classifier", "vocab_size": len(vocabulary), "embedding_size": EMBEDDING,
              "hidden_size": HIDDEN, "n_layers": 1, "bidirectional": True, "attention_size": ATTENTION,
              "classes": len(CLASSES), "pad": PAD, "unk": UNK, "max_length": max(map(len, rows)), "tests": len(test)}
    reference = {"labels": labels, "logits": logits, "ids": ids, "lengths": lengths, "weights": weights}
    common.write_all(arguments.out, {
        "classifier.safetensors": common.safetensors_bytes(model.state_dict(), {
            "model": "sentiment of a text: embedding, bidirectional LSTM, attention pooling, linear head",
            "text_source": f"{vader.PACKAGE} (MIT), {vader.ARCHIVE}", "tools": versions}),
        "vocab.txt": common.lines_bytes(vocabulary),
        "classes.txt": common.lines_bytes(CLASSES),
        "config.json": common.json_bytes(config),
        "train.tsv": common.lines_bytes([f"{CLASSES[label]}\t{text}" for text, label in pairs]),
        "test.tsv": common.lines_bytes([f"{CLASSES[label]}\t{text}" for text, label in test]),
        "test.txt": common.lines_bytes([text for text, _ in test]),
        "reference.safetensors": common.safetensors_bytes(reference, {**MEANING, "tools": versions}),
    })


if __name__ == "__main__":
    main()
