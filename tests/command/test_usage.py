# SPDX-License-Identifier: Apache-2.0
"""Wrong command lines: exit code 2, one sentence, nothing touched. And help and versions."""

import os
import subprocess
import unittest

from support import COMMAND, VERSION, Array, CommandTest, normal

GOOD = ["run", "-q", "q.npy", "-k", "q.npy", "-v", "q.npy", "-o", "o.npy"]
MODELS = [["embed"], ["rerank"], ["generate"]] if os.environ.get("ATTN_MODELS") else []
MAP = ["heatmap", "-q", "q.npy", "-k", "q.npy", "-o", "o.png"]


class Usage(CommandTest):
    def setUp(self):
        super().setUp()
        self.write(q_npy=normal((2, 3, 4, 5), 1), w_npy=normal((2, 3, 4, 4), 2), o_npy=b"old", o_png=b"old",
                   in_safetensors={"a": normal((2, 3, 4, 5), 3), "b": Array((1,), (1.0,))}, l_txt=b"a\nb\nc\nd\n")

    def test_the_good_lines_are_good(self):
        self.attn(*GOOD)
        self.attn(*MAP)

    def test_commands(self):
        self.fails(2, "no command")
        self.fails(2, "unknown command 'walk'; expected run,", "walk")
        self.fails(2, "unknown command 'heatmpa'; did you mean heatmap? Expected run,", "heatmpa")
        self.fails(2, "unknown command 'patern'; did you mean pattern?", "patern")
        self.fails(2, "unknown command ''; expected run,", "")
        self.fails(2, "unknown command '" + "x" * 60, "x" * 60)
        self.fails(2, "unknown command 'walk'", "help", "walk")
        self.fails(2, "unexpected argument 'info' after help run", "help", "run", "info")
        self.fails(2, "unexpected argument 'x'", "--version", "x")
        self.fails(2, "there is nothing to convert", "convert")
        self.fails(2, "the output is missing", "convert", "x.npy")
        self.fails(2, "unknown option '--all'", "info", "--all")

    def test_missing_options(self):
        for drop, name in ((1, "--query"), (3, "--key"), (5, "--value"), (7, "--output")):
            self.fails(2, f"option {name} FILE is missing", *GOOD[:drop], *GOOD[drop + 2:])
        self.fails(2, "lacks its value", *GOOD[:-1])
        self.fails(2, "lacks its value", *GOOD, "--scale")
        self.fails(2, "nothing to draw", "heatmap", "-o", "o.png")
        self.fails(2, "option --key FILE is missing", "heatmap", "-q", "q.npy", "-o", "o.png")
        self.fails(2, "option --output FILE.png is missing", "heatmap", "w.npy")

    def test_unknown_and_repeated_options(self):
        self.fails(2, "unknown option '--casual'; did you mean --causal? --help lists", *GOOD, "--casual", "none")
        self.fails(2, "unknown option '--zz'; --help lists", *GOOD, "--zz")
        self.fails(2, "unknown option '--" + "x" * 60 + "'; --help lists", *GOOD, "--" + "x" * 60)
        self.fails(2, "unknown option '--caus'", *GOOD, "--caus", "none")
        self.fails(2, "unknown option '-x'", *GOOD, "-x")
        self.fails(2, "unknown option '-qq'", *GOOD, "-qq")
        self.fails(2, "given twice", *GOOD, "-o", "p.npy")
        self.fails(2, "given twice", *GOOD, "--output", "p.npy")
        self.fails(2, "unexpected argument 'more'", *GOOD, "more")
        self.fails(2, "unexpected argument '--scale'", *GOOD, "--", "--scale")
        self.fails(2, "takes no value", "run", "--help=yes")

    def test_bad_numbers(self):
        for value in ("", "x", "1x", "1 ", " 1", "nan", "inf", "-inf", "1e39", "0", "1e-60", "0x", "1,5"):
            self.fails(2, f"--scale is '{value}'", *GOOD, "--scale", value)
            self.fails(2, f"--temperature is '{value}'", *GOOD, "--temperature", value)
        self.fails(2, "above 0", *GOOD, "--temperature", "-1")
        for value in ("", "0", "-1", "1.5", "two", "1025", "99999999999999999999"):
            self.fails(2, f"--threads is '{value}'", *GOOD, "--threads", value)

    def test_bad_choices(self):
        self.fails(2, "--layout is 'thd'; expected bhtd or bthd", *GOOD, "--layout", "thd")
        self.fails(2, "--causal is 'yes'; expected none, top-left, bottom-right or offset", *GOOD, "--causal", "yes")
        self.fails(2, "--qk is 'int4'; expected exact or int8", *GOOD, "--qk", "int4")
        self.fails(2, "--inputs is 'bf16'; expected as-given or may-be-bf16", *GOOD, "--inputs", "bf16")
        self.fails(2, "--isa is 'sse'; expected auto, scalar", *GOOD, "--isa", "sse")
        self.fails(2, "--isa is 'avx2_int8'; expected auto, scalar", *GOOD, "--isa", "avx2_int8")

    def test_output_names(self):
        self.fails(2, "unknown format", *GOOD[:-1], "o.txt")
        self.fails(2, "names no tensor", *GOOD[:-1], "o.safetensors")
        self.fails(2, "empty tensor name", *GOOD[:-1], "o.safetensors:")
        self.fails(2, "reserves", *GOOD[:-1], "o.safetensors:__metadata__")
        self.fails(2, "file name is empty", *GOOD[:-1], "")
        self.fails(2, "unknown format", *MAP[:-1], "o.npy")

    def test_colliding_outputs(self):
        self.fails(2, "-o and --lse both write", *GOOD, "--lse", "o.npy")
        self.fails(2, "-o and --lse both write", *GOOD, "--lse", "./o.npy")
        os.symlink("o.npy", self.folder / "link.npy")
        self.fails(2, "-o and --weights both write", *GOOD, "--weights", "link.npy")
        self.fails(2, "both write the tensor 'x'", *GOOD[:-1], "s.safetensors:x", "--lse", "s.safetensors:x")

    def test_outputs_do_not_replace_inputs(self):
        self.fails(2, "-o would replace q.npy, which -q reads", *GOOD[:-1], "q.npy")
        self.fails(2, "--lse would replace in.safetensors, which -v reads", "run", "-q", "q.npy", "-k", "q.npy", "-v",
                   "in.safetensors:a", "-o", "o.npy", "--lse", "in.safetensors:c")
        os.link(self.folder / "q.npy", self.folder / "same.npy")
        self.fails(2, "-o would replace q.npy", *GOOD[:-1], "same.npy")

    def test_heatmap_options_that_would_be_ignored(self):
        for option in (("--causal", "none"), ("-q", "q.npy"), ("--mask", "q.npy"), ("--threads", "1")):
            self.fails(2, "already holds them", "heatmap", "w.npy", "-o", "o.png", *option)
        self.fails(2, "no effect", *MAP, "--labels", "l.txt", "--row-labels", "l.txt", "--column-labels", "l.txt")
        self.fails(2, "no effect", *MAP, "--row", "0", "--row-labels", "l.txt")
        self.fails(2, "unexpected argument", "heatmap", "w.npy", "w.npy", "-o", "o.png")
        self.fails(2, "--grid is for the tensors of a file", *MAP, "--grid")
        self.fails(2, "option --size is for a picture", "pattern", "strided", "--tokens", "64", "--size", "200")
        self.fails(2, "option --reduce is for a picture", "pattern", "strided", "--tokens", "64", "--reduce", "max")

    def test_heatmap_numbers(self):
        self.fails(2, "--head is 3; expected 0 to 2", *MAP, "--head", "3")
        self.fails(2, "--batch is 2; expected 0 to 1", *MAP, "--batch", "2")
        self.fails(2, "--row is 4; expected 0 to 3", *MAP, "--row", "4")
        self.fails(2, "--head is '-1'", *MAP, "--head", "-1")
        self.fails(2, "--size is '16385'", *MAP, "--size", "16385")
        self.fails(2, "--max is '0'", *MAP, "--max", "0")
        self.fails(2, "--limit-mib is '0'", *MAP, "--limit-mib", "0")

    def test_help_and_version(self):
        for command in ([], ["run"], ["heatmap"], ["pattern"], ["view"], ["bench"], ["info"], *MODELS):
            text = self.attn(*command, "--help").stdout
            self.assertTrue(text.startswith("Usage: attn"), text)
            self.assertEqual(self.attn(*command, "-h").stdout, text)
            self.assertNotIn("\x1b", text)
            self.assertLessEqual(max(map(len, text.splitlines())), 100, text)
            self.assertEqual(self.attn("help", *command).stdout, text)
            self.assertEqual(self.attn(*command, "--version").stdout, f"attn {VERSION}\n")
            self.assertEqual(self.attn(*command, "-V").stdout, f"attn {VERSION}\n")
        self.assertEqual(self.attn("help", "help").stdout, self.attn("--help").stdout)
        text = self.attn("run", "--help").stdout
        for option in ("--query", "--key", "--value", "--output", "--layout", "--causal", "--mask", "--kv-len",
                       "--kv-start", "--scale", "--temperature", "--lse", "--weights", "--out-dtype", "--isa",
                       "--threads"):
            self.assertIn(option, text)

    def test_quiet(self):
        self.write(odd_npy=normal((1, 1, 4, 4), 5))
        line = ["heatmap", "odd.npy", "-o", "odd.png"]
        self.assertIn("not the weights of a softmax", self.attn(*line).stderr)
        self.assertEqual(self.attn(*line, "--quiet").stderr, "")
        self.assertEqual(self.attn(*GOOD, "--quiet").stderr, "")
        # What is wrong is said all the same.
        self.fails(2, "--threads is '0'", *GOOD, "--quiet", "--threads", "0")

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_a_full_standard_output_is_a_failure(self):
        for arguments in (["info"], ["--help"], ["run", "--help"]):
            with open("/dev/full", "w") as full:
                result = subprocess.run([COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(result.returncode, 1, arguments)
            self.assertIn("attn: cannot write to standard output", result.stderr)


if __name__ == "__main__":
    unittest.main()
