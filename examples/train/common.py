# SPDX-License-Identifier: Apache-2.0
"""What the scripts of this folder share: errors, files that appear whole, safetensors, a fixed start.

A script hands all its files to write_all() as one dictionary. Each is written
under a temporary name first and all are renamed at the end, so that a script
that is stopped leaves no half of a file behind, and hardly ever half of a set.
"""

import argparse
import json
import os
import random
import struct
import sys
from pathlib import Path

import numpy
import safetensors.numpy
import torch

PROGRAM = Path(sys.argv[0]).stem.replace("_", "-")


def fail(sentence):
    sys.exit(f"{PROGRAM}: {sentence}")


def say(sentence):
    print(f"{PROGRAM}: {sentence}", flush=True)


def thread_count(text):
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 99):
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 to 99")
    return int(text)


def add_threads(parser):
    parser.add_argument("--threads", type=thread_count, default=1, metavar="N",
                        help="threads that PyTorch uses; their number changes the last bits (default: 1)")


def make_folder(folder):
    """Before the work rather than after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"the folder {folder} could not be made: {error.strerror}")


def prepare(seed, threads):
    """The same start for every run; an operation whose result is left to chance is an error."""
    random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    # Nothing here reads memory that it has not written.
    torch.utils.deterministic.fill_uninitialized_memory = False


def safetensors_bytes(tensors, metadata):
    """The library's writer leaves the order of the metadata to chance, hence a writer of our own."""
    codes = {"float32": "F32", "int32": "I32", "int64": "I64"}
    header, data = {"__metadata__": metadata}, []
    arrays = {name: numpy.ascontiguousarray(t.detach().numpy() if torch.is_tensor(t) else t)
              for name, t in tensors.items()}
    end = 0
    # The widest type first, then by name, as the format's own writers do: everything stays aligned.
    for name, array in sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0])):
        raw = array.tobytes()
        header[name] = {"dtype": codes[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [end, end + len(raw)]}
        data.append(raw)
        end += len(raw)
    text = json.dumps(header, separators=(",", ":"), sort_keys=True).encode()
    text += b" " * (-len(text) % 8)
    content = struct.pack("<Q", len(text)) + text + b"".join(data)
    for name, array in safetensors.numpy.load(content).items():
        if array.tobytes() != arrays[name].tobytes():
            fail(f"the safetensors library does not read tensor {name} as it was written")
    return content


def lines_bytes(lines):
    """One line each; a line break inside a line would shift all that follow."""
    for line in lines:
        if "\n" in line or "\r" in line:
            fail(f"the line {line!r} holds a line break; expected one line per text")
    return "".join(line + "\n" for line in lines).encode()


def json_bytes(config):
    return (json.dumps(config, indent=2) + "\n").encode()


def write_all(folder, files):
    """files: name to bytes. Whole or not at all; what stood there before is replaced."""
    partial = {}
    make_folder(folder)
    try:
        for name, content in files.items():
            partial[name] = folder / f".{name}.{os.getpid()}.partial"
            partial[name].write_bytes(content)
        for name in files:
            os.replace(partial[name], folder / name)
    except OSError as error:
        for path in partial.values():
            path.unlink(missing_ok=True)
        fail(f"the files could not be written to {folder}: {error.strerror}")
    for name, content in files.items():
        say(f"{folder / name}: {len(content)} bytes")
