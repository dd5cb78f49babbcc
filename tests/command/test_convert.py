# SPDX-License-Identifier: Apache-2.0
"""attn convert: between the forms, names, types, metadata; and what it refuses."""

import json
import os
import unittest
import zipfile

from support import Array, CommandTest, normal, npy, npz, parse_npy, parse_safetensors, read_npy, read_npz
from support import read_safetensors, safetensors, safetensors_file

F32, F16, BF16 = "<f4", "<f2", "bf16"


class Convert(CommandTest):
    def setUp(self):
        super().setUp()
        self.arrays = {"q": normal((2, 3), 1), "layer10": normal((4,), 2).astype(F16),
                       "layer9": normal((2, 1, 2), 3).astype(BF16), "mask": Array((3,), (True, False, True), "|b1"),
                       "n": Array((), (-7,), "<i8"), "i": Array((0, 4), (), "<i4")}
        self.write(q_npy=self.arrays["q"], s_safetensors=self.arrays, z_npz=npz(self.arrays, zipfile.ZIP_DEFLATED))

    def convert(self, *arguments):
        result = self.attn("convert", *arguments)
        self.assertEqual((result.stdout, result.stderr), ("", ""))

    def same(self, got, want):
        self.assertEqual({name: (a.code, a.shape, a.values) for name, a in got.items()},
                         {name: (a.code, a.shape, a.values) for name, a in want.items()})

    def test_every_form_to_every_other(self):
        self.convert("s.safetensors", "a.npz")
        self.same(read_npz((self.folder / "a.npz").read_bytes()), self.arrays)
        self.convert("z.npz", "a.safetensors")
        self.same(read_safetensors(self.folder / "a.safetensors"), self.arrays)
        self.convert("a.npz", "b.npz", "--compress")
        self.assertEqual({entry.compress_type for entry in zipfile.ZipFile(self.folder / "b.npz").infolist()},
                         {zipfile.ZIP_DEFLATED})
        self.same(read_npz((self.folder / "b.npz").read_bytes()), self.arrays)
        for name, array in self.arrays.items():
            self.convert(f"z.npz:{name}", "one.npy")
            self.same({name: read_npy(self.folder / "one.npy")}, {name: array})
            self.convert(f"s.safetensors:{name}", "one.npz:x")
            self.same(read_npz((self.folder / "one.npz").read_bytes()), {"x": array})
        self.convert("q.npy", "one.safetensors:y")
        self.same(read_safetensors(self.folder / "one.safetensors"), {"y": self.arrays["q"]})
        self.convert("s.safetensors", "c.npz")
        self.assertEqual((self.folder / "a.npz").read_bytes(), (self.folder / "c.npz").read_bytes())

    def test_names(self):
        self.convert("q.npy", "k=./q.npy", "z.npz:layer*", "w=s.safetensors:n", "out.npz")
        a = self.arrays
        self.assertEqual(list(read_npz((self.folder / "out.npz").read_bytes())), ["q", "k", "layer9", "layer10", "w"])
        self.same(read_npz((self.folder / "out.npz").read_bytes()),
                  {"q": a["q"], "k": a["q"], "layer9": a["layer9"], "layer10": a["layer10"], "w": a["n"]})
        # A file whose name has an equals sign, an array whose name has one, and one that is a pattern by itself.
        os.rename(self.folder / "q.npy", self.folder / "x=q.npy")
        self.write(e_safetensors={"a=b": a["q"], "[1]": a["n"]})
        self.convert("./x=q.npy", "e.safetensors:a=b", "e.safetensors:[1]", "out.npz")
        self.assertEqual(list(read_npz((self.folder / "out.npz").read_bytes())), ["x=q", "a=b", "[1]"])

    def test_types(self):
        for code, name in ((F32, "f32"), (F16, "f16"), (BF16, "bf16")):
            self.convert("s.safetensors", "t.safetensors", "--dtype", name)
            self.same(read_safetensors(self.folder / "t.safetensors"),
                      {n: a.astype(code) if a.code in (F32, F16, BF16) else a for n, a in self.arrays.items()})
        self.write(large_npy=Array((3,), (1e10, 65504.0, 65520.0)))
        result = self.attn("convert", "large.npy", "h.npy", "--dtype", "f16")
        self.assertEqual(result.stderr, "attn: large.npy: 2 values beyond the range of float16 became infinite\n")
        self.assertEqual(read_npy(self.folder / "h.npy").values, [float("inf"), 65504.0, float("inf")])

    def test_metadata(self):
        entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
        for name, values in (("m1", {"format": "pt", "x": "1"}), ("m2", {"x": "2", "y": "\u00e9"})):
            self.write(**{f"{name}_safetensors": safetensors_file({"__metadata__": values, name: entry}, bytes(4))})

        def metadata(data):
            return json.loads(data[8:8 + int.from_bytes(data[:8], "little")]).get("__metadata__")
        self.convert("m1.safetensors", "q.npy", "m2.safetensors", "o.safetensors")
        want = {"format": "pt", "x": "1", "y": "\u00e9"}
        self.assertEqual(metadata((self.folder / "o.safetensors").read_bytes()), want)
        self.assertEqual(metadata(self.pipe(b"", "convert", "m1.safetensors", "q.npy", "m2.safetensors", "-").stdout), want)
        self.convert("q.npy", "o.safetensors")
        self.assertIsNone(metadata((self.folder / "o.safetensors").read_bytes()))
        for out in ("o.npz", "o.npy"):
            result = self.attn("convert", "m1.safetensors", out)
            self.assertEqual(result.stderr,
                             "attn: m1.safetensors: its metadata is left out; only safetensors files hold any\n")

    def test_standard_streams(self):
        q = self.arrays["q"]
        self.same({"q": parse_npy(self.pipe(npy(q), "convert", "q=-", "-").stdout)}, {"q": q})
        self.same(parse_safetensors(self.pipe(npz(self.arrays), "convert", "-", "-").stdout), self.arrays)
        self.same(parse_safetensors(self.pipe(npz(self.arrays), "convert", "-:q", "-:x").stdout), {"x": q})
        self.same({"n": parse_npy(self.pipe(safetensors(self.arrays), "convert", "-:n", "-").stdout)},
                  {"n": self.arrays["n"]})
        self.same(read_npz(self.pipe(safetensors(self.arrays), "convert", "-", "-", "--to", "npz").stdout), self.arrays)
        self.same(read_npz(self.pipe(npy(q), "convert", "x=-", "-", "--to", "npz", "--compress").stdout), {"x": q})
        self.same(parse_safetensors(self.pipe(npy(q), "convert", "x=-", "-", "--to", "safetensors").stdout), {"x": q})
        self.assertIn("the array of standard input has no name; expected NAME=-",
                      self.pipe(npy(q), "convert", "-", "o.npz", code=2).stderr)

    def test_refusals(self):
        self.write(u_safetensors=safetensors({"q": self.arrays["q"]}).replace(b"F32", b"U32"), o_npz=b"old", o_npy=b"old")
        self.fails(2, "expected [NAME=]IN... OUT", "convert", "q.npy")
        self.fails(2, "q.npy and z.npz both give an array 'q'; expected NAME=IN", "convert", "q.npy", "z.npz", "o.npz")
        self.fails(2, "o.npy holds one array, but there are 6; expected FILE.npz", "convert", "z.npz", "o.npy")
        self.fails(2, "o.npz:x holds one array, but there are 6", "convert", "z.npz", "o.npz:x")
        self.fails(2, "z.npz:layer* holds 2 arrays; expected one for the name 'x'", "convert", "x=z.npz:layer*", "o.npz")
        self.fails(2, "the output 'o.txt' has an unknown format", "convert", "q.npy", "o.txt")
        self.fails(2, "the output would replace z.npz, which the conversion reads", "convert", "z.npz", "z.npz")
        self.fails(2, "--to has no effect on o.npz", "convert", "q.npy", "o.npz", "--to", "npz")
        self.fails(2, "--compress has no effect on o.npy", "convert", "q.npy", "o.npy", "--compress")
        self.fails(2, "--dtype is 'f64'; expected f32, bf16 or f16", "convert", "q.npy", "o.npz", "--dtype", "f64")
        self.fails(2, "--to is 'npy', which has no names", "convert", "q.npy", "-:x", "--to", "npy")
        self.fails(2, "reserves the name __metadata__", "convert", "__metadata__=q.npy", "o.safetensors")
        self.fails(1, "z.npz holds no tensor whose name matches 'x*'", "convert", "z.npz:x*", "o.npz")
        self.fails(1, "has dtype U32, which is not read", "convert", "q.npy", "u.safetensors", "o.npz")
        self.fails(1, "none.npy: cannot open", "convert", "q.npy", "none.npy", "o.npz")

    def test_info(self):
        info = self.attn("info", "q.npy", "z.npz").stdout
        self.assertIn("q.npy: npy, 95 bytes, 1 array\n  float32 (2, 3), 24 bytes\n", info)
        self.assertIn("  layer9   bfloat16 (2, 1, 2), 8 bytes\n", info)
        document = json.loads(self.attn("info", "--json", "z.npz", "s.safetensors", "q.npy").stdout)["files"]
        for file, path in zip(document, ("z.npz", "s.safetensors")):
            self.assertEqual((file["path"], file["form"], file["metadata"]), (path, path[2:], None))
            self.assertEqual({a["name"]: (tuple(a["shape"]), a["bytes"]) for a in file["arrays"]},
                             {n: (a.shape, len(a.raw())) for n, a in self.arrays.items()})
        self.assertEqual(document[2]["arrays"], [{"name": None, "dtype": "float32", "shape": [2, 3], "bytes": 24,
                                                  "fortran_order": False, "big_endian": False}])
        self.write(u_safetensors=safetensors({"\x1b[2J": self.arrays["q"]}).replace(b"F32", b"U32"),
                   f_npy=npy(Array((2, 3), [0.0] * 6, "<f8"), fortran=True))
        self.assertIn("  ?[2J  U32 (2, 3), 24 bytes\n", self.attn("info", "u.safetensors").stdout)
        self.assertIn("  float64 (2, 3), 48 bytes, Fortran order\n", self.attn("info", "f.npy").stdout)
        self.assertIn("-: npy, 95 bytes", self.pipe(npy(self.arrays["q"]), "info", "-").stdout.decode())
        self.fails(1, "none.npy: cannot open", "info", "--json", "q.npy", "none.npy")


if __name__ == "__main__":
    unittest.main()
