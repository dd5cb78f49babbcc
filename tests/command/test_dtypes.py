# SPDX-License-Identifier: Apache-2.0
"""float16 and bfloat16 in and out of attn: round trips, roundings, mixtures, refusals, and a real sample."""

import itertools
import math
import os
import unittest

from support import DATA, ROUNDOFF, Array, CommandTest, attention, normal, npy_header, read_npy, read_safetensors
from support import safetensors_file

F32, F16, BF16 = "<f4", "<f2", "bf16"
NAMES = {F32: "f32", F16: "f16", BF16: "bf16"}
CODES = (F32, F16, BF16)
INF = math.inf


class Dtypes(CommandTest):
    def setUp(self):
        super().setUp()
        self.q, self.k, self.v = normal((2, 4, 9, 6), 1), normal((2, 2, 11, 6), 2), normal((2, 2, 11, 3), 3)
        self.sets = self.attn("info").stdout.split("instruction sets", 1)[1].split("\n", 1)[0].split()
        self.dot = [name for name in self.sets if name.endswith("_bf16")]

    def compute(self, q, k, v, *options):
        """Runs on tensors of any type; out, lse and weights as the command wrote them."""
        self.write(in_safetensors={"q": q, "k": k, "v": v})
        result = self.attn("run", "-q", "in.safetensors:q", "-k", "in.safetensors:k", "-v", "in.safetensors:v", "-o",
                           "out.safetensors:o", "--lse", "out.safetensors:l", "--weights", "out.safetensors:w",
                           *options)
        self.assertEqual(result.stdout + result.stderr, "")
        got = read_safetensors(self.folder / "out.safetensors")
        return got["o"], got["l"], got["w"]

    def halved(self, code):
        return self.q.astype(code), self.k.astype(code), self.v.astype(code)

    def tolerance(self, types, out):
        """Where pairs of bf16 are multiplied the weights are rounded too, and their sum is of the rounded ones."""
        weights = 2 * ROUNDOFF[BF16] if self.dot and set(types) == {BF16} else 0.0
        return 5e-6 + weights + (ROUNDOFF[out] if out != F32 else 0.0)

    def test_every_mixture(self):
        for types in itertools.product(CODES, repeat=3):
            q, k, v = (array.astype(code) for array, code in zip((self.q, self.k, self.v), types))
            wanted = attention(q, k, v)
            got = self.compute(q, k, v)
            self.assertClose(got[0], wanted[0], f"out of {types}", self.tolerance(types, types[0]), types[0])
            self.assertClose(got[1], wanted[1], f"lse of {types}", self.tolerance(types, F32))
            self.assertClose(got[2], wanted[2], f"weights of {types}", self.tolerance(types, F32))

    def test_the_output_is_rounded_once(self):
        for code in CODES:
            tensors = self.halved(code)
            for isa in ["auto", *self.sets]:
                wide = self.compute(*tensors, "--out-dtype", "f32", "--isa", isa)
                self.assertEqual(wide[0].code, F32)
                for out in CODES:
                    got = self.compute(*tensors, "--out-dtype", NAMES[out], "--isa", isa)
                    self.assertEqual(got[0].code, out)
                    self.assertEqual(got[0].raw(), wide[0].astype(out).raw(), f"{code} to {out} on {isa}")
                    for i in (1, 2):
                        self.assertEqual((got[i].code, got[i].raw()), (F32, wide[i].raw()), f"{code} to {out}")

    def test_inputs_are_widened_exactly(self):
        for code in (F16, BF16):
            tensors = self.halved(code)
            for isa in self.sets:
                if code == BF16 and isa.endswith("_bf16"):
                    continue
                narrow = self.compute(*tensors, "--out-dtype", "f32", "--isa", isa)
                wide = self.compute(*(array.astype(F32) for array in tensors), "--isa", isa)
                for name, a, b in zip("olw", narrow, wide):
                    self.assertEqual(a.raw(), b.raw(), f"{name} of {code} on {isa}")

    def test_npy_in_and_out(self):
        q, k, v = self.halved(F16)
        self.write(q_npy=q, k_npy=k, v_npy=v)
        run = ["run", "-q", "q.npy", "-k", "k.npy", "-v", "v.npy", "-o", "o.npy", "--lse", "l.npy"]
        out, lse, _ = attention(q, k, v)
        self.attn(*run)
        self.assertClose(read_npy(self.folder / "o.npy"), out, tolerance=self.tolerance((F16,), F16), code=F16)
        self.assertClose(read_npy(self.folder / "l.npy"), lse)
        self.attn(*run, "--out-dtype", "f32")
        self.assertClose(read_npy(self.folder / "o.npy"), out)

    def test_layouts_and_ranks(self):
        q, k, v = normal((9, 2, 4), 1).astype(F16), normal((11, 2, 4), 2).astype(F16), normal((11, 2, 4), 3).astype(F16)
        got = self.compute(q, k, v, "--layout", "bthd", "--causal", "bottom-right")
        wide = self.compute(*(a.astype(F32) for a in (q, k, v)), "--layout", "bthd", "--causal", "bottom-right")
        self.assertEqual((got[0].shape, got[0].code), ((9, 2, 4), F16))
        self.assertEqual(got[0].raw(), wide[0].astype(F16).raw())

    def test_numbers_at_the_edges(self):
        # One key has the weight 1, so the output is the value: largest, smallest normal, denormals, infinity.
        q, k = normal((1, 4), 1).astype(F16), normal((1, 4), 2).astype(F16)
        for code, values in ((F16, (65504, -(2**-14), 2**-24, 1023 * 2**-24, INF, 0.0)),
                             (BF16, (255 * 2.0**120, -(2**-126), 2**-133, 127 * 2**-133, -INF, 0.0))):
            value = Array((1, len(values)), values, code)
            got = self.compute(q, k, value, "--out-dtype", NAMES[code], "--isa", "scalar")
            self.assertEqual(got[0].values, [float(x) for x in values], code)
        # Beyond the range of the output's type there is infinity, and halfway cases go to the even neighbour.
        value = Array((1, 6), (1e6, -65520.0, 65519.0, 1 + 2**-11, 1 + 3 * 2**-11, math.nan))
        got = self.compute(q, k, value, "--out-dtype", "f16")[0].values
        self.assertEqual(got[:5], [INF, -INF, 65504.0, 1.0, 1 + 2**-9])
        self.assertTrue(math.isnan(got[5]))

    def test_masks(self):
        mask = Array((9, 11), [(-INF, 0.5, -1.25, 0.0, 0.333)[i * 7 % 5] for i in range(99)])
        for code in (F16, BF16):
            narrow = mask.astype(code)
            self.write(m_safetensors={"m": narrow, "w": narrow.astype(F32)})
            tensors = self.halved(code)
            got = self.compute(*tensors, "--mask", "m.safetensors:m")
            wide = self.compute(*tensors, "--mask", "m.safetensors:w")
            self.assertEqual([a.raw() for a in got], [a.raw() for a in wide], code)
            self.assertClose(got[0], attention(*tensors, mask=narrow)[0], code, self.tolerance((code,), code), code)

    def test_bf16_in_npy(self):
        """As ml_dtypes has it written, in and out: the bits of the same call on safetensors."""
        q = self.q.astype(BF16)
        self.write(in_safetensors={"q": q, "w": q.astype(F32)}, q_npy=q, v_npy=npy_header("|V2", q.shape) + q.raw())
        for name, options in (("q", ()), ("w", ("--out-dtype", "bf16")), ("q", ("--out-dtype", "bf16"))):
            run = ["run", "-q", f"in.safetensors:{name}", "-k", "in.safetensors:q", "-v", "in.safetensors:q", *options]
            self.attn(*run, "-o", "o.npy")
            self.attn(*run, "-o", "fine.safetensors:o")
            want = read_safetensors(self.folder / "fine.safetensors")["o"]
            self.assertEqual((want.code, want.values), (BF16, read_npy(self.folder / "o.npy").values))
        self.assertIn(b"'descr': '<V2'", (self.folder / "o.npy").read_bytes())
        self.attn("run", "-q", "q.npy", "-k", "q.npy", "-v", "v.npy", "-o", "again.npy")
        self.assertEqual((self.folder / "again.npy").read_bytes(), (self.folder / "o.npy").read_bytes())
        self.fails(2, "--out-dtype is 'f64'; expected f32, bf16 or f16", *run[:7], "--out-dtype", "f64", "-o", "x.npy")
        self.fails(2, "--out-dtype is 'float16'", *run[:7], "--out-dtype", "float16", "-o", "x.npy")

    def test_files_of_the_wrong_size(self):
        self.write(q_npy=self.q)
        for content, says in ((npy_header("<f2", (2, 3, 4)) + bytes(47), "(2, 3, 4) of float16 needs 48 bytes"),
                              (npy_header("<f2", (2, 3, 4)) + bytes(96), "48 bytes stand after the data"),
                              (npy_header("<f2", (1 << 62, 4)), "overflows")):
            self.write(bad_npy=content)
            self.fails(1, says, "run", "-q", "bad.npy", "-k", "q.npy", "-v", "q.npy", "-o", "o.npy")
            self.fails(1, says, "heatmap", "bad.npy", "-o", "o.png")
        for dtype, size, says in (("BF16", 47, "takes 47 bytes; expected 48"), ("F16", 96, "takes 96 bytes; expected"),
                                  ("BF16", 96, "takes 96 bytes; expected 48 for its shape and dtype BF16")):
            header = {"a": {"dtype": dtype, "shape": [2, 3, 4], "data_offsets": [0, size]}}
            self.write(bad_safetensors=safetensors_file(header, bytes(size)))
            self.fails(1, says, "run", "-q", "q.npy", "-k", "bad.safetensors:a", "-v", "q.npy", "-o", "o.npy")

    def test_instruction_sets(self):
        tensors = self.halved(BF16)
        names = self.fails(2, "'nothing'; expected auto", "run", "-q", "in.safetensors:q", "-k", "in.safetensors:k",
                           "-v", "in.safetensors:v", "-o", "o.safetensors:o", "--isa", "nothing").stderr
        names = names.split("expected")[-1].replace(",", "").split()
        for isa in ("scalar", "avx2", "avx512", "avx512_bf16", "neon", "neon_bf16", "neon_bf16mm"):
            if isa in self.sets:
                self.compute(*tensors, "--isa", isa)
                self.compute(self.q, self.k, self.v, "--isa", isa)
            else:
                # Sets of another architecture, or that the build leaves out, have no name here.
                self.assertFalse(isa in names and isa.startswith("neon") != ("neon" in self.sets))
                self.fails(1 if isa in names else 2, isa, "run", "-q", "in.safetensors:q", "-k", "in.safetensors:k",
                           "-v", "in.safetensors:v", "-o", "o.safetensors:o", "--isa", isa)
        # The cap leaves pairs of bf16 out; the bits are then those of the set that is named.
        if self.dot:
            base = self.dot[0].removesuffix("_bf16")
            named = self.compute(*tensors, "--isa", base)
            capped = self.attn("run", "-q", "in.safetensors:q", "-k", "in.safetensors:k", "-v", "in.safetensors:v",
                               "-o", "c.safetensors:o", env={**os.environ, "ATTN_MAX_CPU_ISA": base})
            self.assertEqual(capped.stderr, "")
            self.assertEqual(read_safetensors(self.folder / "c.safetensors")["o"].raw(), named[0].raw())

    def test_inputs_that_may_be_bf16(self):
        narrow = [a.astype(BF16) for a in (self.q, self.k, self.v)]
        for isa in self.dot:
            rounded = self.compute(*(a.astype(F32) for a in narrow), "--isa", isa, "--inputs", "may-be-bf16")
            given = self.compute(*narrow, "--isa", isa)
            self.assertEqual([a.raw() for a in rounded[1:]], [a.raw() for a in given[1:]])

    def test_real_sample(self):
        sample = read_safetensors(DATA / "minilm.safetensors")
        lengths = f"{DATA / 'minilm.safetensors'}:kv_len"
        lse = sample["layer0.lse"]
        for code in (F16, BF16):
            tensors = [sample[f"layer0.{name}"].astype(code) for name in "qkv"]
            out, lse_got, weights = self.compute(*tensors, "--kv-len", lengths)
            wide = self.compute(*(a.astype(F32) for a in tensors), "--kv-len", lengths)
            # Against f32 on the same rounded inputs: the rounding of the type.
            near = self.tolerance((code,), code)
            self.assertClose(out, wide[0], f"out in {code}", near, code)
            self.assertClose(lse_got, wide[1], f"lse in {code}", self.tolerance((code,), F32))
            self.assertClose(weights, wide[2], f"weights in {code}", self.tolerance((code,), F32))
            # Against the sample: its scores go up to about 20, and each input is off by a roundoff.
            rough = 40 * ROUNDOFF[code]
            self.assertClose(out, sample["layer0.out"], f"{code} against the sample", rough, code)
            self.assertClose(lse_got, Array(lse.shape[:3], lse.values), f"lse against the sample, {code}", rough)


class Heatmaps(CommandTest):
    def same(self, first, second):
        for name, options in (("1.png", first), ("2.png", second)):
            self.attn("heatmap", *options, "-o", name)
        one, two = ((self.folder / name).read_bytes() for name in ("1.png", "2.png"))
        self.assertTrue(one == two, f"{first} and {second} differ")

    def test_weights_in_16_bits(self):
        values = [abs(x) for x in normal((3, 20, 30), 4).values]
        values[:4] = [math.nan, 2**-24, 0.0, 2**-15]
        for code in (F16, BF16):
            weights = Array((3, 20, 30), values).astype(code)
            self.write(w_safetensors={"n": weights, "w": weights.astype(F32)})
            for options in ((), ("--head", "1"), ("--head", "2", "--row", "19")):
                self.same(("w.safetensors:n", *options), ("w.safetensors:w", *options))

    def test_from_queries_and_keys(self):
        q, k = normal((2, 4, 23, 16), 1, 2.0), normal((2, 2, 19, 16), 2, 2.0)
        mask = Array((23, 19), [(-INF, 0.5, -1.25)[i * 7 % 3] for i in range(23 * 19)])
        for code, causal in ((F16, "none"), (BF16, "bottom-right"), (BF16, "none")):
            self.write(s_safetensors={"q": q.astype(code), "k": k.astype(code), "m": mask.astype(code)})
            common = ("-q", "s.safetensors:q", "-k", "s.safetensors:k", "--causal", causal, "--mask", "s.safetensors:m")
            self.attn("run", *common, "-v", "s.safetensors:k", "-o", "o.safetensors:o", "--weights", "w.npy")
            self.assertEqual(read_npy(self.folder / "w.npy").code, F32)
            for select in (("--batch", "1"), ("--head", "3"), ("--head", "2", "--row", "22")):
                self.same(("w.npy", *select), (*common, *select))


if __name__ == "__main__":
    unittest.main()
