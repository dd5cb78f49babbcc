# SPDX-License-Identifier: Apache-2.0
"""What the command-line tests share.

Arrays are written and read here by hand, so that a misreading of a format in
attn is not repeated by the test, and attention is computed in double precision,
one number at a time. Only Python's standard library is used.
"""

import io
import json
import math
import os
import random
import struct
import subprocess
import tempfile
import unittest
import zipfile
from pathlib import Path

COMMAND = os.environ["ATTN_COMMAND"]
OPENMP = bool(os.environ.get("ATTN_OPENMP"))
SANITIZED = bool(os.environ.get("ATTN_SANITIZED"))
DATA = Path(os.environ["ATTN_TEST_DATA"])
VERSION = os.environ["ATTN_VERSION"]

FORMATS = {"<f4": "f", "|b1": "?", "<i4": "i", "<i8": "q", "<f8": "d", "<f2": "e"}
SAFETENSORS = {"<f4": "F32", "|b1": "BOOL", "<i4": "I32", "<i8": "I64", "<f8": "F64", "<f2": "F16", "bf16": "BF16"}

# Half the distance between neighbours, as a share of a number of that type.
ROUNDOFF = {"<f4": 2**-24, "<f2": 2**-11, "bf16": 2**-8}


def pack(values, code):
    """Little-endian bytes; floats are rounded to the nearest, ties to even. bf16 is the upper half of an f32."""
    if code != "bf16":
        return struct.pack(f"<{len(values)}{FORMATS[code]}", *values)
    halves = []
    for (bits,) in struct.iter_unpack("<I", struct.pack(f"<{len(values)}f", *values)):
        nan = bits & 0x7FFFFFFF > 0x7F800000
        halves.append(bits >> 16 | 0x40 if nan else bits + 0x7FFF + (bits >> 16 & 1) >> 16)
    return struct.pack(f"<{len(halves)}H", *halves)


def unpack(data, code):
    if code != "bf16":
        return [value for (value,) in struct.iter_unpack(f"<{FORMATS[code]}", data)]
    wide = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    return unpack(wide, "<f4")


def in_turns(things, turn):
    """All of them, or where the program takes several times as long only the one whose turn it is."""
    return (things[turn % len(things)],) if SANITIZED else things


class Array:
    """A dense array: type code (numpy's, and "bf16"), shape, flat list of values."""

    def __init__(self, shape, values, code="<f4"):
        self.shape, self.values, self.code = tuple(shape), list(values), code
        assert len(self.values) == math.prod(self.shape)

    def raw(self):
        return pack(self.values, self.code)

    def astype(self, code):
        """The same rounded to another type."""
        return Array(self.shape, unpack(pack(self.values, code), code), code)

    def at(self, *index):
        """The value at an index, broadcast as numpy does: leading axes may lack, length 1 repeats."""
        offset = 0
        for axis, length in enumerate(self.shape):
            i = index[len(index) - len(self.shape) + axis]
            offset = offset * length + (0 if length == 1 else i)
        return self.values[offset]


def rounded(values):
    """The nearest f32 values: what the command reads back from a file."""
    return unpack(pack(values, "<f4"), "<f4")


def normal(shape, seed, scale=1.0):
    source = random.Random(seed)
    return Array(shape, rounded([source.gauss(0, scale) for _ in range(math.prod(shape))]))


def permuted(array):
    """(.., A, B, d) as (.., B, A, d): from one layout to the other. 2-D arrays have one layout."""
    if len(array.shape) == 2:
        return array
    *outer, a, b, d = array.shape
    values = []
    for n in range(math.prod(outer)):
        for j in range(b):
            for i in range(a):
                start = ((n * a + i) * b + j) * d
                values += array.values[start:start + d]
    return Array((*outer, b, a, d), values, array.code)


def npy_header(code, shape, fortran=False, text=None, version=1, length=None):
    if text is None:
        code = "<V2" if code == "bf16" else code
        shape = "(" + "".join(f"{n}, " for n in shape).rstrip() + ")" if len(shape) else "()"
        text = f"{{'descr': '{code}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n"
    text = text.encode()
    size = struct.pack("<H" if version == 1 else "<I", len(text) if length is None else length)
    return b"\x93NUMPY" + bytes([version, 0]) + size + text


def npy(array, **changes):
    return npy_header(array.code, array.shape, **changes) + array.raw()


def parse_npy(data):
    assert data[:8] == b"\x93NUMPY\x01\x00", "not a .npy file of version 1.0"
    (length,) = struct.unpack("<H", data[8:10])
    assert (10 + length) % 64 == 0, "the data is not aligned to 64 bytes"
    header = eval(data[10:10 + length], {"__builtins__": {}}, {})
    assert header["fortran_order"] is False
    code = "bf16" if header["descr"] == "<V2" else header["descr"]
    return Array(header["shape"], unpack(data[10 + length:], code), code)


def read_npy(path):
    return parse_npy(Path(path).read_bytes())


def npz(arrays, method=zipfile.ZIP_STORED):
    """Bytes of an archive of arrays, or of bytes under any name, as numpy.savez and savez_compressed write it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in arrays.items():
            member = f"{name}.npy" if isinstance(content, Array) else name
            with archive.open(member, "w", force_zip64=True) as entry:
                entry.write(npy(content) if isinstance(content, Array) else content)
    return file.getvalue()


def read_npz(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name.removesuffix(".npy"): parse_npy(archive.read(name)) for name in archive.namelist()}


def safetensors_file(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def safetensors(arrays):
    header, data = {}, b""
    for name, array in arrays.items():
        raw = array.raw()
        header[name] = {"dtype": SAFETENSORS[array.code], "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    return safetensors_file(header, data)


def read_safetensors(path):
    return parse_safetensors(Path(path).read_bytes())


def parse_safetensors(data):
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    data = data[8 + length:]
    codes = {name: code for code, name in SAFETENSORS.items()}
    arrays = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        code = codes[entry["dtype"]]
        arrays[name] = Array(entry["shape"], unpack(data[begin:end], code), code)
    return arrays


def attention(q, k, v, causal="none", mask=None, kv_len=None, kv_start=None, scale=None, temperature=1.0):
    """Output, LSE and weights of 4-D bhtd arrays, in double precision."""
    batch, heads, tq, d = q.shape
    kv_heads, tk, dv = k.shape[1], k.shape[2], v.shape[3]
    scale = 1 / math.sqrt(d) if scale is None else scale
    out, lse, weights = [], [], []
    for b in range(batch):
        end = tk if kv_len is None else kv_len[b]
        start = 0 if kv_start is None else kv_start[b]
        offset = end - tq if causal == "bottom-right" else 0
        for h in range(heads):
            g = h // (heads // kv_heads)
            for i in range(tq):
                scores = []
                for j in range(tk):
                    score = scale / temperature * sum(q.at(b, h, i, c) * k.at(b, g, j, c) for c in range(d))
                    if mask is not None and mask.code != "|b1":
                        score += mask.at(b, h, i, j)
                    hidden = mask is not None and mask.code == "|b1" and not mask.at(b, h, i, j)
                    if hidden or j < start or j >= end or (causal != "none" and j > i + offset):
                        score = -math.inf
                    scores.append(score)
                top = max(scores, default=-math.inf)
                parts = [math.exp(s - top) if s > -math.inf else 0.0 for s in scores]
                total = sum(parts)
                row = [p / total for p in parts] if total > 0 else [0.0] * tk
                weights += row
                lse.append(top + math.log(total) if total > 0 else -math.inf)
                out += [sum(row[j] * v.at(b, g, j, c) for j in range(tk) if row[j] > 0) for c in range(dv)]
    return (Array((batch, heads, tq, dv), out), Array((batch, heads, tq), lse),
            Array((batch, heads, tq, tk), weights))


class CommandTest(unittest.TestCase):
    """Runs attn in an empty folder and looks at what is left there."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="attn-test-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, **files):
        """Writes name_npy=Array or name_ext=bytes; the last underscore stands for the dot."""
        for name, content in files.items():
            path = self.folder / ".".join(name.rsplit("_", 1))
            if isinstance(content, Array):
                content = npy(content)
            elif isinstance(content, dict):
                content = safetensors(content)
            path.write_bytes(content)

    def attn(self, *arguments, code=0, **options):
        result = subprocess.run([COMMAND, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True,
                                errors="replace", timeout=120, stdin=subprocess.DEVNULL, **options)
        shown = " ".join(map(str, arguments))
        self.assertEqual(result.returncode, code,
                         f"attn {shown}\nexit code {result.returncode}, expected {code}\n{result.stderr}")
        return result

    def pipe(self, content, *arguments, code=0):
        """Runs attn with these bytes on standard input; its output is bytes, and its sentences text."""
        result = subprocess.run([COMMAND, *map(str, arguments)], cwd=self.folder, capture_output=True, input=content,
                                timeout=120)
        result.stderr = result.stderr.decode()
        self.assertEqual(result.returncode, code, f"attn {arguments}: {result.stderr}")
        return result

    def fails(self, code, says, *arguments, **options):
        """Expects one sentence that contains says, and nothing on stdout or changed in the folder."""
        before = self.content()
        result = self.attn(*arguments, code=code, **options)
        shown = "attn " + " ".join(map(str, arguments))
        self.assertRegex(result.stderr, r"\Aattn: [^\n]+\n\Z", f"{shown}: not one sentence")
        self.assertIn(says, result.stderr, shown)
        # A user of the command has never heard of the fields and constants of the library.
        self.assertNotRegex(result.stderr, r"params|config\.|options\.|->|ATTN_|\b[qkv]\.(shape|stride|dtype|data)", shown)
        # Nor are the other names of C, with an underscore between words, those of options; two are those of files.
        self.assertNotRegex(result.stderr, r"(?<![\w./-])(?!data_offsets|ml_dtypes)[a-z]+(_[a-z]+)+\b(?![./])", shown)
        self.assertEqual(result.stdout, "", shown)
        self.assertEqual(self.content(), before, f"{shown}: files changed")
        return result

    def content(self):
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}

    def assertClose(self, got, want, what="", tolerance=5e-6, code="<f4"):
        self.assertEqual(got.shape, want.shape, what)
        self.assertEqual(got.code, code, what)
        for n, (a, b) in enumerate(zip(got.values, want.values)):
            if a != b and not abs(a - b) <= tolerance * (1 + abs(b)):
                self.fail(f"{what}: value {n} of {len(got.values)} is {a!r}, expected {b!r}")
