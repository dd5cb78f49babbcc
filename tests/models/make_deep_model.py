# SPDX-License-Identifier: Apache-2.0
"""Makes a folder with a decoder of many layers, as large a model as takes seconds to open: the configuration and the
tokenizer of another folder, and weights that are zeros in f16, in a file that is one hole and takes no room.

Usage: make_deep_model.py FOLDER_OF_A_DECODER LAYERS FOLDER
"""

import json
import re
import shutil
import struct
import sys
from pathlib import Path


def shapes_of(path):
    """The name and shape of each tensor of a safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


def write_zeros(path, shapes):
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2
        for length in shape:
            size *= length
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # data at multiples of its elements
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


def main():
    if len(sys.argv) != 4:
        print("usage: make_deep_model.py FOLDER_OF_A_DECODER LAYERS FOLDER", file=sys.stderr)
        return 2
    source, layers, folder = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    folder.mkdir(exist_ok=True)
    shapes = {}
    for name, shape in shapes_of(source / "model.safetensors").items():
        found = re.fullmatch(r"(.*\.layers\.)(\d+)(\..*)", name)
        if not found:
            shapes[name] = shape
        elif found[2] == "0":
            shapes.update({f"{found[1]}{layer}{found[3]}": shape for layer in range(layers)})
    write_zeros(folder / "model.safetensors", shapes)
    config = json.loads((source / "config.json").read_text())
    config["num_hidden_layers"] = layers
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, folder / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
