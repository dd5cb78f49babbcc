# SPDX-License-Identifier: Apache-2.0
"""Forms of input and output: pipes, .npz, float64, Fortran order, big-endian; and hostile archives."""

import math
import os
import resource
import signal
import struct
import subprocess
import threading
import unittest
import zipfile

from support import COMMAND, SANITIZED, Array, CommandTest, normal, npy, npy_header, npz, parse_npy, parse_safetensors
from support import read_npy, read_npz, safetensors


def little_memory():
    """Half a gibibyte of address space: less than the sizes that the archives below claim."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))


def fortran(array):
    """The values in Fortran order: the first axis innermost."""
    strides, step = [], 1
    for length in reversed(array.shape):
        strides.insert(0, step)
        step *= length
    indices = [[]]
    for length in reversed(array.shape):
        indices = [[i, *rest] for rest in indices for i in range(length)]
    return [array.values[sum(map(int.__mul__, strides, index))] for index in indices]


class Arrays(CommandTest):
    def setUp(self):
        super().setUp()
        self.q = normal((2, 3, 4, 5), 1)
        self.write(q_npy=self.q)
        self.attn("run", "-q", "q.npy", "-k", "q.npy", "-v", "q.npy", "-o", "want.npy")
        self.want = (self.folder / "want.npy").read_bytes()

    def gives_the_same(self, spec, says=""):
        """The bits of the plain file, and what is said on stderr once though the file is named three times."""
        result = self.attn("run", "-q", spec, "-k", spec, "-v", spec, "-o", "o.npy")
        self.assertEqual((result.stdout, result.stderr), ("", says and f"attn: {spec}: {says}\n"))
        self.assertEqual((self.folder / "o.npy").read_bytes(), self.want)

    def test_conversions(self):
        values = self.q.values
        swapped = struct.pack(f">{len(values)}f", *values)
        wide = struct.pack(f">{len(values)}d", *fortran(self.q))
        self.write(f_npy=npy_header("<f4", self.q.shape, fortran=True) + Array(self.q.shape, fortran(self.q)).raw(),
                   d_npy=Array(self.q.shape, values, "<f8"), b_npy=npy_header(">f4", self.q.shape) + swapped,
                   all_npy=npy_header(">f8", self.q.shape, fortran=True) + wide,
                   s_safetensors={"d": Array(self.q.shape, values, "<f8")})
        self.gives_the_same("f.npy", "converted: Fortran order to C order")
        self.gives_the_same("d.npy", "converted: float64 to float32")
        self.gives_the_same("b.npy", "converted: big-endian to little-endian")
        self.gives_the_same("all.npy",
                            "converted: float64 to float32, big-endian to little-endian, Fortran order to C order")
        self.gives_the_same("s.safetensors:d", "converted: float64 to float32")

    def test_beyond_the_range_of_float32(self):
        values = [1e39, -1e300, math.inf, math.nan, 3.4028235677973366e38, 3.4028235e38, 1e-50, 0.1]
        self.write(d_npy=Array((2, 4), values, "<f8"))
        result = self.attn("convert", "d.npy", "f.npy")
        self.assertEqual(result.stderr,
                         "attn: d.npy: converted: float64 to float32; 3 values beyond its range became infinite\n")
        got = read_npy(self.folder / "f.npy").values
        self.assertEqual(got[:3] + got[4:5], [math.inf, -math.inf, math.inf, math.inf])
        self.assertTrue(math.isnan(got[3]))
        self.assertEqual(got[5:], [*struct.unpack("<f", struct.pack("<f", 3.4028235e38)), 0.0,
                                   *struct.unpack("<f", struct.pack("<f", 0.1))])

    def test_npz(self):
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            self.write(z_npz=npz({"a/q": self.q, "other": Array((2,), (1.0, 2.0)), "README": b"text"}, method),
                       one_npz=npz({"arr_0": self.q, "README": b"text"}, method))
            self.gives_the_same("z.npz:a/q")
            self.gives_the_same("one.npz")
        says = "z.npz names no array; expected z.npz:NAME, one of 2: 'a/q', 'other'"
        self.fails(2, says, "run", "-q", "z.npz", "-k", "q.npy", "-v", "q.npy", "-o", "o.npy")
        self.fails(1, "z.npz has no array 'q'; it has 2: 'a/q', 'other'", "heatmap", "z.npz:q", "-o", "o.png")
        self.write(none_npz=npz({"README": b"text"}))
        self.fails(1, "none.npz holds no arrays", "heatmap", "none.npz", "-o", "o.png")
        self.fails(1, "none.npz has no array 'a'; it has none at all", "heatmap", "none.npz:a", "-o", "o.png")

    def test_npz_out(self):
        self.attn("run", "-q", "q.npy", "-k", "q.npy", "-v", "q.npy", "-o", "r.npz:out", "--lse", "r.npz:lse",
                  "--weights", "w.safetensors:w", "--out-dtype", "f16")
        got = read_npz((self.folder / "r.npz").read_bytes())
        self.assertEqual([(name, a.code, a.shape) for name, a in got.items()],
                         [("out", "<f2", (2, 3, 4, 5)), ("lse", "<f4", (2, 3, 4))])
        self.fails(2, "-o 'o.npz' names no tensor; expected o.npz:NAME", "run", "-q", "q.npy", "-k", "q.npy", "-v",
                   "q.npy", "-o", "o.npz")

    def test_heatmap_and_view_of_npz(self):
        self.attn("run", "-q", "q.npy", "-k", "q.npy", "-v", "q.npy", "-o", "o.npy", "--weights", "w.npz:layer9")
        layers = {f"layer{n}": read_npz((self.folder / "w.npz").read_bytes())["layer9"] for n in (10, 9)}
        self.write(w_npz=npz(layers), w_safetensors=safetensors(layers))
        for name in ("npz", "safetensors"):
            self.attn("heatmap", f"w.{name}:layer*", "--grid", "-o", f"{name}.svg")
            self.attn("view", f"w.{name}", "-o", f"{name}.html", "--title", "t")
        content = self.content()
        self.assertEqual(content["npz.svg"], content["safetensors.svg"])
        self.assertEqual(content["npz.html"], content["safetensors.html"])
        self.attn("heatmap", "w.npz:layer9", "-o", "one.png")
        self.pipe(npz(layers), "heatmap", "-:layer9", "-o", "piped.png")
        self.pipe(npz(layers), "heatmap", "-:layer*", "--grid", "-o", "piped.svg")
        self.pipe(npz(layers), "view", "-", "-o", "piped.html", "--title", "t")
        content = self.content()
        self.assertEqual(content["piped.png"], content["one.png"])
        self.assertEqual(content["piped.svg"], content["npz.svg"])
        self.assertEqual(content["piped.html"], content["npz.html"])

    # ------------------------------------------------------------------- pipes

    def test_standard_input_and_output(self):
        run = ["run", "-q", "-", "-k", "-", "-v", "-", "-o", "-"]
        containers = (safetensors({"q": self.q}), npz({"q": self.q}), npz({"q": self.q}, zipfile.ZIP_DEFLATED))
        for content in (npy(self.q), *containers):
            result = self.pipe(content, *run)
            self.assertEqual((result.stdout, result.stderr), (self.want, ""))
        two = safetensors({"q": self.q, "k": Array(self.q.shape, self.q.values, "<f8")})
        result = self.pipe(two, "run", "-q", "-:q", "-k", "-:k", "-v", "-:q", "-o", "-:out", "--lse", "-:lse")
        self.assertEqual(result.stderr, "attn: -:k: converted: float64 to float32\n")
        got = parse_safetensors(result.stdout)
        self.assertEqual(set(got), {"out", "lse"})
        self.assertEqual(got["out"].values, parse_npy(self.want).values)
        result = self.pipe(two, *run, code=2)
        self.assertIn("standard input names no array; expected -:NAME, one of 2: ", result.stderr)
        result = self.pipe(two, "run", "-q", "-:x", "-k", "q.npy", "-v", "q.npy", "-o", "-", code=1)
        self.assertIn("standard input has no tensor 'x'", result.stderr)
        self.assertEqual(result.stdout, b"")
        for content in (b"", b"x", bytes(1000), npy(self.q)[:-1], two[:-1], npz({"q": self.q})[:-30]):
            result = self.pipe(content, *run, code=1)
            self.assertRegex(result.stderr, r"\Aattn: standard input[^\n]+\n\Z")
            self.assertEqual(result.stdout, b"")
        self.fails(2, "-o and --lse both write standard output", "run", "-q", "q.npy", "-k", "q.npy", "-v", "q.npy",
                   "-o", "-", "--lse", "-")

    def test_a_terminal_gets_no_arrays(self):
        ours, theirs = os.openpty()
        result = subprocess.run([COMMAND, "convert", "q.npy", "-"], cwd=self.folder, stdout=theirs,
                                stderr=subprocess.PIPE, text=True, timeout=60)
        os.close(theirs)
        os.close(ours)
        self.assertEqual(result.returncode, 2)
        self.assertEqual(result.stderr.rstrip("\n"), "attn: the output is '-', but standard output is a terminal; expected "
                                                     "a pipe or a file there")

    def test_a_pipeline(self):
        line = f"'{COMMAND}' convert x=q.npy y=q.npy - | '{COMMAND}' run -q -:x -k -:y -v -:x -o - " \
               f"| '{COMMAND}' convert out=- - --to npz"
        result = subprocess.run(line, shell=True, cwd=self.folder, capture_output=True, timeout=120)
        self.assertEqual(result.stderr, b"")
        self.assertEqual(read_npz(result.stdout)["out"].values, parse_npy(self.want).values)

    def test_other_files_that_are_not_regular(self):
        os.mkfifo(self.folder / "fifo")
        for content, name in ((npy(self.q), "fifo"), (npz({"a": self.q}), "fifo")):
            writer = threading.Thread(target=lambda: (self.folder / "fifo").write_bytes(content))
            writer.start()
            self.attn("run", "-q", name, "-k", "q.npy", "-v", "q.npy", "-o", "o.npy")
            writer.join()
            self.assertEqual((self.folder / "o.npy").read_bytes(), self.want)

    def test_the_reader_goes(self):
        """The end is that of every program whose reader goes, by SIGPIPE; no file is touched, and nothing is said."""
        self.write(large_npy=Array((1, 1, 20000, 8), [0.5] * 160000), k_npy=normal((1, 1, 2, 8), 3), l_npy=b"old")
        line = [COMMAND, "run", "-q", "large.npy", "-k", "k.npy", "-v", "k.npy", "-o", "-", "--lse", "l.npy"]
        before = self.content()
        for ignored, code in ((False, -signal.SIGPIPE), (True, 1)):
            process = subprocess.Popen(line, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       restore_signals=not ignored)
            process.stdout.read(10)
            process.stdout.close()
            said = process.stderr.read().decode()
            process.stderr.close()
            self.assertEqual(process.wait(timeout=60), code)
            self.assertEqual(said, "attn: standard output: cannot write: Broken pipe\n" if ignored else "")
            self.assertEqual(self.content(), before)

    # ---------------------------------------------------------- hostile archives

    def bad_npz(self, says, content, **options):
        self.write(bad_npz=content)
        self.fails(1, says, "run", "-q", "bad.npz:a", "-k", "q.npy", "-v", "q.npy", "-o", "o.npy", **options)

    def test_broken_archives(self):
        good = npz({"a": self.q}, zipfile.ZIP_DEFLATED)
        for size in (0, 3, 4, 30, len(good) // 2, len(good) - 1):
            self.bad_npz("bad.npz", good[:size])
        self.bad_npz("bad.npz:a: 3 bytes stand after the data", npz({"a.npy": npy(self.q) + b"abc"}))
        self.bad_npz("truncated", npz({"a.npy": npy(self.q)[:-1]}))
        self.bad_npz("is not a .npy file", npz({"a.npy": b"text, and not an array"}))
        stored = bytearray(npz({"a": self.q}))
        stored[stored.index(b"NUMPY") + 200] ^= 1
        self.bad_npz("CRC", bytes(stored))
        self.bad_npz("bad.npz: array 'a' is packed by method 12; expected stored (0) or deflated (8), as numpy packs", npz({"a": self.q}, zipfile.ZIP_BZIP2))
        self.bad_npz("packed by method 14", npz({"a": self.q}, zipfile.ZIP_LZMA))
        encrypted = bytearray(npz({"a": self.q}))
        encrypted[encrypted.index(b"PK\1\2") + 8] |= 1
        self.bad_npz("bad.npz: array 'a' is encrypted; expected an archive that is not", bytes(encrypted))
        self.bad_npz("its pickle is code", npz({"a": self.q, "archive/data.pkl": b"\x80\x02."}))

    def test_sizes_that_are_not_what_is_packed(self):
        def claiming(count):
            """An archive that unpacks to as many numbers as q has, and claims another count in both of its headers."""
            header = npy_header("<f4", (1, count))
            content = bytearray(npz({"a.npy": header + self.q.raw()}, zipfile.ZIP_DEFLATED))
            struct.pack_into("<I", content, content.index(b"PK\1\2") + 24, len(header) + 4 * count)
            return bytes(content)
        count = len(self.q.values)
        self.bad_npz("bad.npz: a ends before the size that the archive claims", claiming(count + 1))
        self.bad_npz("bad.npz: a.npy goes on after the size that the archive claims", claiming(count - 1))

    def test_a_name_twice(self):
        content = npz({"a": self.q, "b": self.q}).replace(b"b.npy", b"a.npy")
        self.bad_npz("holds the array 'a' 2 times", content)

    def test_names_are_no_paths(self):
        outside = self.folder.parent / f"{self.folder.name}-outside"
        for name in (f"../{outside.name}", str(outside), "../../etc/passwd"):
            self.write(z_npz=npz({name: self.q}))
            self.gives_the_same(f"z.npz:{name}")
            self.assertFalse(outside.with_suffix(".npy").exists() or outside.exists())

    def test_sizes_are_checked_before_memory_is_asked_for(self):
        options = {} if SANITIZED else {"preexec_fn": little_memory}
        # What 200 bytes are packed from cannot be 3 GiB.
        content = bytearray(npz({"a.npy": npy_header("<f4", (3, 1 << 28)) + bytes(600)}, zipfile.ZIP_DEFLATED))
        entry = content.index(b"PK\1\2")
        struct.pack_into("<I", content, entry + 24, 3 << 30)
        (packed,) = struct.unpack_from("<I", content, entry + 20)
        self.bad_npz(f"bad.npz: array 'a' claims 3221225472 bytes, but the {packed} that it is packed in cannot become so "
                     "many", bytes(content), **options)
        # The size of the archive is right, that of the array is not.
        self.bad_npz("needs 3221225472 bytes of data, but 600 follow",
                     npz({"a.npy": npy_header("<f4", (3, 1 << 28)) + bytes(600)}), **options)

    @unittest.skipIf(SANITIZED, "sanitizers want more memory")
    def test_a_bomb(self):
        """Two megabytes that unpack to more memory than there is: a sentence, not a crash."""
        size = 520 << 20
        with zipfile.ZipFile(self.folder / "bad.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive, \
                archive.open("a.npy", "w") as entry:
            entry.write(npy_header("<f4", (1, size // 4)))
            zeros = bytes(1 << 20)
            for _ in range(size >> 20):
                entry.write(zeros)
        self.fails(1, "out of memory for 545259520 bytes", "run", "-q", "bad.npz:a", "-k", "q.npy", "-v", "q.npy",
                   "-o", "o.npy", preexec_fn=little_memory)

    # -------------------------------------------------- files of other programs

    def test_what_to_do_with_other_files(self):
        self.write(m_gguf=b"GGUF" + bytes(20), m_h5=b"\x89HDF\r\n\x1a\n", m_onnx=b"\x08\x07\x12\x04", q_gz=b"\x1f\x8b\x08\0",
                   pytorch_model_bin=npz({"archive/data.pkl": b"\x80\x02.", "archive/data/0": bytes(4)}),
                   old_pt=b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.")
        (self.folder / "model.safetensors.index.json").write_text(
            '{"metadata": {}, "weight_map": {"b": "model-2.safetensors", "a": "model-1.safetensors"}}')
        for name, says in (("m.gguf", "is a GGUF file, which is not read: its weights are llama.cpp's; expected"),
                           ("m.h5", "is an HDF5 file, which is not read: save the arrays with numpy's save"),
                           ("m.onnx", "is an ONNX model"), ("q.gz", "gunzip -c FILE | attn ... -"),
                           ("pytorch_model.bin", "save the tensors in Python with safetensors.torch.save_file"),
                           ("old.pt", "save the tensors in Python with safetensors.torch.save_file"),
                           ("model.safetensors.index.json",
                            "the index of a model's 2 files and holds no arrays; expected one of these files, such as "
                            "model-1.safetensors:NAME")):
            self.fails(1, says, "run", "-q", name, "-k", "q.npy", "-v", "q.npy", "-o", "o.npy")
            self.fails(1, says, "info", name)
            self.fails(1, says, "convert", name, "o.npz")
            self.fails(1, says, "view", name, "-o", "o.html")
            self.fails(1, says, "heatmap", name, "-o", "o.png")
            # A name behind it is no part of the file's.
            if name != "pytorch_model.bin":
                self.fails(1, says, "run", "-q", f"{name}:q", "-k", "q.npy", "-v", "q.npy", "-o", "o.npy")
                self.fails(1, says, "view", f"{name}:w", "-o", "o.html")
        self.fails(2, "pytorch_model.bin:w: cannot open: No such file or directory; a name may stand behind .npz and "
                   ".safetensors, and pytorch_model.bin ends in neither", "convert", "pytorch_model.bin:w", "o.npy")

    def test_containers_of_other_names(self):
        self.write(a_zip=npz({"w": self.q}), a_st=safetensors({"w": self.q}), a_txt=b"w")
        for name in ("a.zip", "a.st"):
            self.fails(2, f"{name} holds named arrays, but its name ends in neither .npz nor .safetensors", "view", name,
                       "-o", "o.html")
        self.fails(1, "a.txt holds no arrays: it begins as neither .npy, .npz nor safetensors", "view", "a.txt", "-o", "o.html")


if __name__ == "__main__":
    unittest.main()
