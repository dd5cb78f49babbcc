# SPDX-License-Identifier: Apache-2.0
"""attn embed on a model of a few numbers: what it takes from a folder, what it refuses, what it prints and writes.

That the numbers are right is shown elsewhere, on a trained model; here texts that must have one embedding are compared
with each other.
"""

import itertools
import math
import os
import subprocess
import unittest

from model_folders import BERT, MEAN, MODULES, POSITIONS, WIDTH, WORD_PIECES, WORDS, decoder, module, sentence_encoder
from support import COMMAND, CommandTest, read_npy, read_safetensors, rounded

EXAMPLE = os.environ.get("ATTN_EXAMPLE")
RATE = r"attn: \d+ texts, \d+ tokens in [0-9.]+ s: [0-9.]+ texts/s, \d+ tokens/s"


class EmbedTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.model = sentence_encoder(self.folder / "model")

    def start(self, texts, *arguments, data=None):
        data = "".join(text + "\n" for text in texts).encode() if data is None else data
        return subprocess.run([COMMAND, "embed", str(self.model.path), *map(str, arguments)], check=False, timeout=120,
                              input=data, capture_output=True, cwd=self.folder)

    def rows(self, run, count):
        self.assertEqual(run.returncode, 0, run.stderr.decode())
        rows = [[float(number) for number in line.split()] for line in run.stdout.decode().splitlines()]
        self.assertEqual([len(row) for row in rows], [WIDTH] * count)
        return rows

    def embed(self, *texts, says=(), options=()):
        """One embedding for each text; standard error has exactly these lines, and the speed."""
        run = self.start(texts, *options)
        rows = self.rows(run, len(texts))
        said = run.stderr.decode().splitlines()
        self.assertEqual(said[:-1], list(says))
        self.assertRegex(said[-1], RATE)
        return rows

    def refuses(self, *words, code=1, texts=("a b",), options=(), data=None):
        run = self.start(texts, *options, data=data)
        sentence = run.stderr.decode(errors="replace")
        self.assertEqual((run.returncode, run.stdout), (code, b""), sentence)
        self.assertRegex(sentence, r"\Aattn: [^\n]+\n\Z")
        for word in words:
            self.assertIn(word, sentence)

    # ------------------------------------------------------------- the model --

    def test_plain_folder(self):
        one, same, other, small, accent, plain = self.embed("a b c", "a  b c ", "c b a", "A B C", "é", "e")
        self.assertEqual(one, same)
        self.assertEqual(one, small)
        self.assertEqual(accent, plain)
        self.assertNotEqual(one, other)
        self.assertAlmostEqual(math.hypot(*one), 1, places=6)

    def test_other_models(self):
        decoder(self.folder / "decoder")
        run = subprocess.run([COMMAND, "embed", "decoder"], cwd=self.folder, input=b"a\n", capture_output=True)
        self.assertEqual((run.returncode, run.stdout), (1, b""))
        self.assertIn(b"decoder has a decoder (llama), which attn generate runs", run.stderr)
        self.model.put("config.json", BERT | {"model_type": "mpnet"})
        self.refuses("config.json", "model_type", "'mpnet'")

    def test_files_that_are_missing_or_wrong(self):
        for name in ("config.json", "tokenizer.json", "model.safetensors", "modules.json", "1_Pooling/config.json"):
            content = self.model.content(name)
            for wrong in ("{", '"text"', ""):
                self.model.put(name, wrong)
                self.refuses(name)
            self.model.drop(name)
            self.refuses(*name.split("/"))
            self.model.put(name, content)
        self.model.put("config.json", BERT | {"vocab_size": len(WORDS) - 1})
        self.refuses("model.safetensors")
        vocabulary = WORD_PIECES["model"]["vocab"] | {"more": len(WORDS)}
        self.model.put("config.json", BERT)
        self.model.put("tokenizer.json", WORD_PIECES | {"model": WORD_PIECES["model"] | {"vocab": vocabulary}})
        self.refuses("tokenizer.json", f"{len(WORDS) + 1} tokens", f"at most {len(WORDS)}")
        run = subprocess.run([COMMAND, "embed", "nowhere"], cwd=self.folder, input=b"a\n", capture_output=True)
        self.assertEqual(run.returncode, 1)
        self.assertIn(b"nowhere", run.stderr)

    # --------------------------------------------------------------- pooling --

    def test_pooling(self):
        (mean,) = self.embed("a b")
        self.assertEqual(self.embed("a b", options=("--pooling", "mean", "--normalize")), [mean])
        (longer,) = self.embed("a b", options=("--pooling", "mean"))
        self.assertNotAlmostEqual(math.hypot(*longer), 1, places=3)
        for a, b in zip(longer, mean):
            self.assertAlmostEqual(a / math.hypot(*longer), b, places=6)
        others = {str(self.embed("a b", options=("--pooling", how))) for how in ("mean", "first", "last", "max")}
        self.assertEqual(len(others), 4)
        self.model.put("modules.json", MODULES[:2])
        self.assertEqual(self.embed("a b"), [longer])
        self.model.put("1_Pooling/config.json", MEAN | {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False})
        self.assertEqual(self.embed("a b"), self.embed("a b", options=("--pooling", "first")))
        self.model.drop("modules.json")
        self.refuses("modules.json", "--pooling")
        self.assertEqual(self.embed("a b", options=("--pooling", "mean")), [longer])
        self.model.put("modules.json", MODULES + [module("Dense", "2_Dense")])
        self.refuses("modules.json", "Dense")

    # ----------------------------------------------------------------- texts --

    TEXTS = [" ".join(letters) for letters in itertools.product("abc", repeat=3)] + ["", "a", "c b a c b"]

    def test_batches_change_nothing(self):
        whole = self.embed(*self.TEXTS)
        for options in (("--batch", 1), ("--batch", 17), ("--threads", 1), ("--threads", 3)):
            self.assertEqual(self.embed(*self.TEXTS, options=options), whole)
        self.assertEqual(self.embed(self.TEXTS[5]), [whole[5]])
        self.assertEqual(self.rows(self.start(self.TEXTS, "-"), len(self.TEXTS)), whole)
        self.write(lines_txt="".join(text + "\n" for text in self.TEXTS).encode())
        self.assertEqual(self.rows(self.start((), "lines.txt"), len(self.TEXTS)), whole)
        # No line break behind the last line, and those of another system.
        self.assertEqual(self.rows(self.start((), data=b"a b c\r\nc b a"), 2), self.embed("a b c", "c b a"))

    def test_precisions(self):
        exact = self.embed(*self.TEXTS)
        self.assertEqual(self.embed(*self.TEXTS, options=("--precision", "f32")), exact)
        for precision, most in (("bf16", 0.05), ("int8", 0.1), ("int4", 1)):
            got = self.embed(*self.TEXTS, options=("--precision", precision))
            difference = max(abs(a - b) for row, want in zip(got, exact) for a, b in zip(row, want))
            self.assertTrue(0 < difference < most, (precision, difference))
            self.assertEqual(self.embed(self.TEXTS[5], options=("--precision", precision)), [got[5]])

    def test_no_text_and_bad_text(self):
        self.refuses("standard input has no lines", texts=())
        self.write(empty_txt=b"")
        self.refuses("empty.txt has no lines", options=("empty.txt",))
        self.refuses("missing.txt", options=("missing.txt",))
        self.refuses("line 2 is not UTF-8", data=b"a\nb\xff\n")

    def test_cut(self):
        fits = " ".join("abcabcabca"[:POSITIONS - 2])
        (whole,) = self.embed(fits)
        line = f"attn: line 2 has more than {POSITIONS} tokens; the rest is left off"
        self.assertEqual(self.embed("a", fits + " b", says=[line])[1], whole)
        several = f"attn: 2 lines have more than {POSITIONS} tokens, line 1 the first of them; the rest of each is left off"
        self.assertEqual(self.embed(fits + " b", "a", fits + " c", says=[several])[::2], [whole, whole])
        three, cut = self.embed("a b c", "a b c a", options=("--max-tokens", 5),
                                says=["attn: line 2 has more than 5 tokens; the rest is left off"])
        self.assertEqual(three, cut)
        self.model.put("sentence_bert_config.json", {"max_seq_length": 5})
        self.assertEqual(self.embed("a b c a", says=["attn: line 1 has more than 5 tokens; the rest is left off"]), [cut])
        self.refuses("--max-tokens is 13; expected at most 12", options=("--max-tokens", 13), code=2)

    # --------------------------------------------------------------- outputs --

    def test_out(self):
        printed = self.embed("a b", "c")
        for spec, read in (("e.npy", read_npy), ("e.safetensors:rows", lambda path: read_safetensors(path)["rows"])):
            run = self.start(("a b", "c"), "-o", spec)
            self.assertEqual((run.returncode, run.stdout), (0, b""), run.stderr)
            array = read(self.folder / spec.split(":")[0])
            self.assertEqual(array.shape, (2, WIDTH))
            self.assertEqual(array.values, rounded([x for row in printed for x in row]))

    def test_nearest(self):
        texts = ("a b c", "c c c", "A b c ", "b")
        rows = self.embed(*texts)
        run = self.start(texts, "--nearest", "2")
        lines = run.stdout.decode().splitlines()
        self.assertEqual(len(lines), 12)
        self.assertEqual(lines[1], "    1.000  A b c ")
        for i, text in enumerate(texts):
            cosines = sorted((sum(a * b for a, b in zip(rows[i], rows[j])) for j in range(4) if j != i), reverse=True)
            self.assertEqual(lines[3 * i], text)
            self.assertEqual([float(line.split()[0]) for line in lines[3 * i + 1:3 * i + 3]],
                             [round(c, 3) for c in cosines[:2]])
        self.assertEqual(self.start(("a",), "--nearest", "5").stdout, b"a\n")

    @unittest.skipUnless(EXAMPLE, "without examples")
    def test_example(self):
        texts = "".join(text + "\n" for text in self.TEXTS if text).encode()
        run = subprocess.run([EXAMPLE, str(self.model.path)], input=texts, capture_output=True, timeout=120)
        self.assertEqual((run.returncode, run.stderr), (0, b""))
        self.assertEqual(run.stdout, self.start((), "--nearest", 1, data=texts).stdout)
        self.model.drop("tokenizer.json")
        run = subprocess.run([EXAMPLE, str(self.model.path)], input=texts, capture_output=True, timeout=120)
        self.assertEqual((run.returncode, run.stdout), (1, b""))
        self.assertIn(b"tokenizer.json", run.stderr)

    def test_weights(self):
        run = self.start(("b", "A b c"), "--weights", "w.safetensors", "--labels", "l.txt", "--line", "2")
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, b"", b""))
        layers = read_safetensors(self.folder / "w.safetensors")
        self.assertEqual(sorted(layers), ["layer0", "layer1"])
        for array in layers.values():
            self.assertEqual(tuple(array.shape), (2, 5, 5))
            for i in range(0, len(array.values), 5):
                self.assertAlmostEqual(sum(array.values[i:i + 5]), 1, places=5)
        self.assertEqual((self.folder / "l.txt").read_text(), "[CLS]\na\nb\nc\n[SEP]\n")
        self.attn("heatmap", "w.safetensors:layer1", "--labels", "l.txt", "--head", "1", "-o", "p.png")
        self.refuses("--line is 3; expected 1 to 2", texts=("a", "b"), options=("--weights", "w.safetensors", "--line", 3),
                     code=2)

    def test_usage(self):
        for options, words in (
                (("--weights", "w.safetensors", "-o", "x.npy"), ["--output", "--weights"]),
                (("--nearest", 1, "-o", "x.npy"), ["--output", "--nearest"]), (("--line", 1), ["--line", "--weights"]),
                (("--labels", "l"), ["--labels", "--weights"]), (("--weights", "w.npy:x"), ["--weights", "w.npy"]),
                (("-o", "x.txt"), ["--output", "x.txt"]), (("--precision", "f16"), ["--precision", "'f16'", "int4"]),
                (("--pooling", "cls"), ["--pooling", "'cls'"]), (("--normalize",), ["--normalize", "--pooling"]),
                (("--batch", 0), ["--batch", "'0'"]), (("--nearest", 0), ["--nearest", "'0'"]),
                (("one", "two"), ["'two'"]), (("--threads", -1), ["--threads"])):
            with self.subTest(options=options):
                self.refuses(*words, code=2, options=options)
        run = subprocess.run([COMMAND, "embed"], capture_output=True)
        self.assertEqual((run.returncode, run.stderr), (2, b"attn: no model is given; expected attn embed FOLDER [FILE]\n"))


if __name__ == "__main__":
    unittest.main()
