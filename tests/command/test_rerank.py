# SPDX-License-Identifier: Apache-2.0
"""attn rerank on a cross-encoder of a few numbers: order and form of its scores, what they depend on, what is refused."""

import json
import math
import os
import subprocess
import unittest

from model_folders import POSITIONS, WIDTH, bert_tensors, cross_encoder, decoder, sentence_encoder
from support import COMMAND, Array, CommandTest, safetensors

TEXTS = ["a b", "c", "b a", "", "c a a b", "a", "e e"]


class RerankTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.model = cross_encoder(self.folder / "model")

    def start(self, texts, *arguments, query="b c", folder="model"):
        return subprocess.run([COMMAND, "rerank", folder, "--query", query, *map(str, arguments)], check=False,
                              timeout=120, input="".join(text + "\n" for text in texts).encode(), capture_output=True,
                              cwd=self.folder)

    def scores(self, texts, *arguments, query="b c"):
        """(score, line from 1 on, text) of each, in the order that is printed."""
        run = self.start(texts, "--json", *arguments, query=query)
        self.assertEqual(run.returncode, 0, run.stderr.decode())
        self.assertRegex(run.stderr.decode().splitlines()[-1], r"^attn: \d+ texts, \d+ tokens in [0-9.]+ s: ")
        found = [json.loads(line) for line in run.stdout.decode().splitlines()]
        self.assertTrue(all(list(entry) == ["score", "line", "text"] for entry in found))
        return [(entry["score"], entry["line"], entry["text"]) for entry in found]

    def refuses(self, *words, code=1, texts=("a",), options=(), folder="model"):
        run = self.start(texts, *options, folder=folder)
        self.assertEqual((run.returncode, run.stdout), (code, b""), run.stderr)
        self.assertRegex(run.stderr.decode(), r"\Aattn: [^\n]+\n\Z")
        for word in words:
            self.assertIn(word, run.stderr.decode())

    def test_order(self):
        found = self.scores(TEXTS)
        self.assertEqual([score for score, _, _ in found], sorted((s for s, _, _ in found), reverse=True))
        self.assertEqual(sorted(line for _, line, _ in found), list(range(1, len(TEXTS) + 1)))
        self.assertEqual(len({score for score, _, _ in found}), len(TEXTS))
        for _, line, text in found:
            self.assertEqual(text, TEXTS[line - 1])
        lines = self.start(TEXTS).stdout.decode().splitlines()
        self.assertEqual(lines, [f"{score:.6f}  {text}" for score, _, text in found])
        self.assertEqual(self.start(TEXTS, "--top", "2").stdout.decode().splitlines(), lines[:2])
        self.assertEqual(self.start(TEXTS, "--top", "99").stdout.decode().splitlines(), lines)
        for (logit, line, _), (score, same, _) in zip(found, self.scores(TEXTS, "--sigmoid")):
            self.assertEqual(line, same)
            self.assertAlmostEqual(score, 1 / (1 + math.exp(-logit)), places=12)
        # Lines that are alike stay in their order.
        self.assertEqual([line for _, line, _ in self.scores(["a", "a", "a"])], [1, 2, 3])

    def test_a_score_is_that_of_the_pair_alone(self):
        whole = {line: score for score, line, _ in self.scores(TEXTS)}
        for options in (("--batch", 1), ("--batch", 20), ("--threads", 1), ("--threads", 3)):
            self.assertEqual({line: score for score, line, _ in self.scores(TEXTS, *options)}, whole)
        self.assertEqual(self.scores(TEXTS[4:5])[0][0], whole[5])
        self.assertNotEqual(self.scores(TEXTS[4:5], query="c b")[0][0], whole[5])
        self.assertNotEqual(self.scores(["b c"], query=TEXTS[4])[0][0], whole[5])

    def test_the_second_text_has_its_type(self):
        before = self.scores(["a b"])[0][0]
        tensors = bert_tensors(1)
        name = "bert.embeddings.token_type_embeddings.weight"
        table = tensors[name].values
        self.model.put("model.safetensors", safetensors(tensors | {name: Array((2, WIDTH), table[:WIDTH] * 2)}))
        self.assertNotEqual(self.scores(["a b"])[0][0], before)

    def test_long_pairs_are_cut(self):
        long = " ".join("abcabcabcabc")
        run = self.start([long, long[:2 * (POSITIONS - 5) - 1]])
        self.assertIn(f"attn: line 1 has more than {POSITIONS} tokens; the rest is left off", run.stderr.decode())
        first, second = (line.split()[0] for line in run.stdout.decode().splitlines())
        self.assertEqual(first, second)

    def test_other_models(self):
        sentence_encoder(self.folder / "encoder")
        self.refuses("encoder is BertModel", "...ForSequenceClassification with one label", folder="encoder")
        cross_encoder(self.folder / "classes", labels=3)
        self.refuses("classes has 3 labels", "one label", folder="classes")
        decoder(self.folder / "decoder")
        self.refuses("decoder has a decoder (llama)", folder="decoder")
        self.model.drop("tokenizer.json")
        self.refuses("tokenizer.json")

    def test_precisions(self):
        exact = self.scores(TEXTS)
        for precision in ("bf16", "int8", "int4"):
            rounded = self.scores(TEXTS, "--precision", precision)
            self.assertNotEqual(rounded, exact)
            self.assertEqual(sorted(line for _, line, _ in rounded), sorted(line for _, line, _ in exact))

    def test_usage(self):
        self.refuses("standard input has no lines", texts=())
        run = self.start(["a"], query=os.fsdecode(b"b\xff"))
        self.assertEqual((run.returncode, run.stderr), (2, b"attn: --query is not UTF-8; expected text\n"))
        for options, word in ((("--top", 0), "--top is '0'"), (("--precision", "f16"), "--precision"), (("a", "b"), "'b'"),
                              (("--max-tokens", 0), "--max-tokens")):
            self.refuses(word, code=2, options=options)
        for arguments, words in (((), "no model is given"), (("model",), "option --query TEXT is missing")):
            run = subprocess.run([COMMAND, "rerank", *arguments], capture_output=True, cwd=self.folder)
            self.assertEqual(run.returncode, 2)
            self.assertIn(words, run.stderr.decode())


if __name__ == "__main__":
    unittest.main()
