# SPDX-License-Identifier: Apache-2.0
"""Bad files and failing writes: exit code 1, one sentence, no output touched, nothing left behind."""

import os
import resource
import struct
import unittest

from support import SANITIZED, Array, CommandTest, normal, npy, npy_header, safetensors, safetensors_file


def little_memory():
    """A gibibyte of address space: less than any of the sizes that the files below claim."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))


def small_files():
    """A write beyond a few kilobytes fails, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


ENTRY = '{"dtype":"F32","shape":[2],"data_offsets":[%d,%d]}'


class Files(CommandTest):
    def setUp(self):
        super().setUp()
        self.good = normal((2, 3, 4, 5), 1)
        self.write(q_npy=self.good, o_npy=b"old", l_npy=b"old", o_png=b"old", out_safetensors=b"old")

    def run_with(self, says, q="q.npy", k="q.npy", v="q.npy", more=(), code=1, **options):
        """Expects attn run to fail with these operands and options."""
        return self.fails(code, says, "run", "-q", q, "-k", k, "-v", v, "-o", "o.npy", "--lse", "l.npy", "--weights",
                          "out.safetensors:w", *more, **options)

    def bad_npy(self, says, content, **options):
        """The same bad file as each operand, as a mask, and as a picture's weights."""
        self.write(bad_npy=content)
        for operand in "qkv":
            self.run_with(says, **{operand: "bad.npy"}, **options)
        self.run_with(says, more=["--mask", "bad.npy"], **options)
        self.run_with(says, more=["--kv-len", "bad.npy"], **options)
        self.fails(1, says, "heatmap", "bad.npy", "-o", "o.png", **options)

    def test_truncated(self):
        whole = npy(self.good)
        for size in (0, 5, 9, 11, 40, len(whole) - 4 * 60, len(whole) - 1):
            says = "not a .npy file" if size < 6 else "truncated"
            self.bad_npy(says, whole[:size])

    def test_trailing_bytes(self):
        self.bad_npy("3 bytes stand after the data", npy(self.good) + b"abc")

    def test_huge_header(self):
        self.bad_npy("claims 65537 bytes", npy(self.good, version=2, length=65537))
        self.bad_npy("claims 4294967295 bytes", npy(self.good, version=3, length=(1 << 32) - 1))
        self.bad_npy("truncated: its header claims 65535 bytes", npy(self.good, length=65535))

    def test_eighty_bytes_that_ask_for_32_gib(self):
        options = {} if SANITIZED else {"preexec_fn": little_memory}
        content = npy_header("", (), text="{'descr':'<f4','fortran_order':False,'shape':(8,1073741824)}".ljust(70))
        self.assertEqual(len(content), 80)
        self.bad_npy("needs 34359738368 bytes of data, but 0 follow", content, **options)

    def test_shape_that_overflows(self):
        self.bad_npy("overflows", npy_header("<f4", (1 << 32, 1 << 32)))
        self.bad_npy("overflows", npy_header("<f4", (0, 1 << 62, 5)))
        self.bad_npy("63 bits", npy_header("<f4", (1 << 64,)))

    def test_other_types(self):
        self.bad_npy("(2, 3) of float64 needs 48 bytes", npy_header("<f8", (2, 3), fortran=True) + bytes(24))
        self.bad_npy("complex64", npy_header("<c8", (2, 3)) + bytes(48))
        self.bad_npy("float8_e4m3fn", npy_header("<V1", (2, 3)) + bytes(6))
        self.bad_npy("Python objects", npy_header("|O", (2, 3)) + bytes(48))
        self.bad_npy("cannot read the zip archive", b"PK\x03\x04" + bytes(100))
        self.bad_npy("is a GGUF file", b"GGUF" + bytes(100))

    def test_wrong_type_for_the_place(self):
        self.write(i_npy=Array((2, 3, 4, 5), range(120), "<i4"), f_npy=Array((2,), (1.0, 2.0)))
        for operand in "qkv":
            self.run_with("dtype int32; expected float32, float16 or bfloat16", **{operand: "i.npy"})
        self.run_with("dtype int32; expected bool, float32, float16 or bfloat16", more=["--mask", "i.npy"])
        self.run_with("dtype float32; expected int32 or int64", more=["--kv-len", "f.npy"])
        self.run_with("dtype float32; expected int32 or int64", more=["--kv-start", "f.npy"])
        self.fails(1, "expected float32", "heatmap", "i.npy", "-o", "o.png")

    def test_mismatched_shapes(self):
        self.write(r3_npy=normal((3, 4, 5), 2), r1_npy=normal((4,), 2), d_npy=normal((2, 3, 4, 6), 2),
                   b_npy=normal((3, 3, 4, 5), 2), h_npy=normal((2, 2, 4, 5), 2), t_npy=normal((2, 3, 9, 5), 2),
                   r5_npy=normal((1, 2, 3, 4, 5), 2), n_npy=Array((3,), (1, 1, 1), "<i8"),
                   m_npy=Array((3, 4), [True] * 12, "|b1"))
        self.run_with("k has 3 dimensions but q has 4", k="r3.npy")
        self.run_with("v has 3 dimensions but q has 4", v="r3.npy")
        self.run_with("expected 2 to 4 dimensions", q="r1.npy")
        self.run_with("expected 2 to 4 dimensions", v="r5.npy")
        # The library judges these.
        self.run_with("the head size of -k is 6; expected 5", k="d.npy")
        self.run_with("the batch size of -k is 3; expected 2", k="b.npy")
        self.run_with("the number of heads of -q is 3; expected a multiple of the 2 heads of k", k="h.npy", v="h.npy")
        self.run_with("the number of tokens of -v is 9; expected 4", v="t.npy")
        self.run_with("the batch size of -v is 3; expected 2", v="b.npy")
        self.run_with("the number of heads of -v is 2; expected 3", v="h.npy")
        self.write(big_npy=normal((1, 1, 2, 5000), 2))
        self.run_with("the head size of -q is 5000; head sizes go up to 4096", q="big.npy", k="big.npy", v="big.npy")
        self.run_with("does not broadcast to (2, 3, 4, 4)", more=["--mask", "m.npy"])
        self.run_with("expected (2,)", more=["--kv-len", "n.npy"])
        self.fails(1, "expected 2 of 5 as q has", "heatmap", "-q", "q.npy", "-k", "b.npy", "-o", "o.png")
        self.fails(1, "expected q's to be a multiple", "heatmap", "-q", "q.npy", "-k", "h.npy", "-o", "o.png")

    def test_lengths_out_of_range(self):
        for values in ((5, 1), (1, 5), (-1, 1), (1, 1 << 62), (-(1 << 63), 0)):
            self.write(n_npy=Array((2,), values, "<i8"))
            bad = 0 if not 0 <= values[0] <= 4 else 1
            for option in ("--kv-len", "--kv-start"):
                says = f"{option}[{bad}] is {values[bad]}; expected 0 to 4, the "
                self.run_with(says, more=[option, "n.npy"], code=2)
                self.fails(2, says, "heatmap", "-q", "q.npy", "-k", "q.npy", "-o", "o.png", option, "n.npy",
                           "--causal", "bottom-right")

    def test_missing_and_special_files(self):
        self.run_with("none.npy: cannot open: No such file", q="none.npy")
        (self.folder / "sub").mkdir()
        os.mkfifo(self.folder / "fifo.npy")
        self.content = lambda: sorted(os.listdir(self.folder))
        self.run_with("sub is a folder", q="sub")
        self.run_with("/dev/null is not a .npy file", q="/dev/null")
        self.run_with("/dev/zero holds no arrays", q="/dev/zero")
        for target in ("sub/none/o.npy", "q.npy/o.npy"):
            self.fails(1, "cannot be written", "run", "-q", "q.npy", "-k", "q.npy", "-v", "q.npy", "-o", target)
        os.rename(self.folder / "sub", self.folder / "sub.npy")
        for target in ("sub.npy", "fifo.npy"):
            self.fails(1, "not a regular file", "run", "-q", "q.npy", "-k", "q.npy", "-v", "q.npy", "-o", target)

    def bad_safetensors(self, says, content, name="a"):
        self.write(bad_safetensors=content)
        self.run_with(says, q=f"bad.safetensors:{name}")
        self.fails(1, says, "heatmap", f"bad.safetensors:{name}", "-o", "o.png")

    def test_safetensors_headers(self):
        good = safetensors({"a": self.good})
        for size in (0, 7, 8, 30):
            self.bad_safetensors("truncated", good[:size])
        self.bad_safetensors("at most", good[:-1])
        self.bad_safetensors("the last 1 bytes", good + b"x")
        self.bad_safetensors("at most 100000000", struct.pack("<Q", 1 << 62) + good[8:])
        self.bad_safetensors("its header claims 99999999 bytes", struct.pack("<Q", 99999999) + good[8:])
        self.bad_safetensors("not valid JSON", safetensors_file(b'{"a":'))
        self.bad_safetensors("does not begin with '{'", safetensors_file(b"[1]"))
        self.bad_safetensors("not valid JSON", safetensors_file(b'{"\xff":1}'))

    def test_safetensors_entries(self):
        def two(a, b):
            return safetensors_file(('{"a":%s,"b":%s}' % (ENTRY % a, ENTRY % b)).encode(), bytes(24))
        self.bad_safetensors("hole: bytes 8 to 16", two((0, 8), (16, 24)))
        self.bad_safetensors("overlap", two((0, 8), (4, 12)))
        self.bad_safetensors("overlap", two((0, 8), (0, 8)))
        self.bad_safetensors("the last 8 bytes", two((0, 8), (8, 16)))
        self.bad_safetensors("at most 24", two((0, 8), (24, 32)))
        self.bad_safetensors("expected 8", two((0, 12), (12, 24)))
        duplicate = ('{"a":%s,"a":%s}' % (ENTRY % (0, 8), ENTRY % (8, 16))).encode()
        self.bad_safetensors("a name twice", safetensors_file(duplicate, bytes(16)))
        huge = {"a": {"dtype": "F32", "shape": [1 << 32, 1 << 32], "data_offsets": [0, 8]}}
        self.bad_safetensors("overflows", safetensors_file(huge, bytes(8)))

    def test_safetensors_names(self):
        content = safetensors({"a": self.good, "b": self.good}).replace(b'"F32"', b'"U32"', 1)
        self.bad_safetensors("no tensor 'c'; it has 2: 'a', 'b'", content, "c")
        self.bad_safetensors("has dtype U32, which is not read", content, "a")
        # The others in the file are not in the way.
        self.write(x_safetensors=content)
        self.attn("run", "-q", "x.safetensors:b", "-k", "q.npy", "-v", "q.npy", "-o", "fresh.npy")

    def test_control_characters_do_not_reach_the_terminal(self):
        self.run_with("?[31mred?.npy", q="\x1b[31mred\n.npy")
        self.write(x_safetensors={"\x1b[2J\n": self.good})
        self.run_with("it has 1: '?[2J?'", q="x.safetensors:none")

    @unittest.skipIf(SANITIZED, "the sanitizer's own files count too")
    def test_no_room(self):
        # -o fits and --weights does not, so an output that is already complete must not be put in place.
        self.write(q_npy=normal((1, 2, 64, 4), 1))
        arguments = ["run", "-q", "q.npy", "-k", "q.npy", "-v", "q.npy", "-o", "o.npy"]
        self.fails(1, "File too large", *arguments, "--lse", "l.npy", "--weights", "out.safetensors:w",
                   preexec_fn=small_files)
        self.attn(*arguments, "--lse", "l.npy", preexec_fn=small_files)
        self.assertNotEqual(self.content()["o.npy"], b"old")
        self.fails(1, "File too large", "heatmap", "-q", "q.npy", "-k", "q.npy", "-o", "o.png", "--size", "800",
                   preexec_fn=small_files)

    @unittest.skipIf(os.geteuid() == 0, "root may write everywhere")
    def test_no_permission(self):
        (self.folder / "o.npy").chmod(0o444)
        self.run_with("Permission denied")


if __name__ == "__main__":
    unittest.main()
