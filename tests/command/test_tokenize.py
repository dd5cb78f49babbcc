# SPDX-License-Identifier: Apache-2.0
"""attn tokenize on a small tokenizer: ids, tokens, pairs and text again, and what is refused. tests/models has real ones."""

import json
import shutil
import unittest

from model_folders import cross_encoder
from support import Array, CommandTest


class TokenizeTest(CommandTest):
    def setUp(self):
        super().setUp()
        cross_encoder(self.folder / "model")
        described = json.loads((self.folder / "model" / "tokenizer.json").read_text(encoding="utf-8"))
        self.ids = described["model"]["vocab"]

    def lines(self, text, *arguments):
        return self.pipe(text.encode(), "tokenize", "model", *arguments).stdout.decode().splitlines()

    def expect(self, tokens):
        return " ".join(str(self.ids[token]) for token in tokens)

    def test_lines(self):
        whole = [["[CLS]", "a", "b", "[SEP]"], ["[CLS]", "[SEP]"], ["[CLS]", "c", "[SEP]"]]
        self.assertEqual(self.lines("a b\n\nc\n"), [self.expect(tokens) for tokens in whole])
        self.assertEqual(self.lines("a b\n\nc", "--tokens"), [" ".join(tokens) for tokens in whole])
        self.assertEqual(self.lines("a b\0c\0", "-0", "--bare"), [self.expect("ab"), self.expect("c")])
        self.assertEqual(self.lines("a b c a\n", "--max-tokens", 4), [self.expect(["[CLS]", "a", "b", "[SEP]"])])
        self.assertEqual(self.lines("", "--bare"), [])
        (self.folder / "texts").write_text("c b\n", encoding="utf-8")
        self.assertEqual(self.lines("not read", "texts", "--bare"), [self.expect("cb")])
        self.assertEqual(self.lines("a\n", "--special-as-text", "--bare"), [self.expect("a")])

    def test_pairs(self):
        line = json.loads(self.lines("a b\tc\n", "--pairs", "--json")[0])
        self.assertEqual(line["tokens"], ["[CLS]", "a", "b", "[SEP]", "c", "[SEP]"])
        self.assertEqual(line["ids"], [self.ids[token] for token in line["tokens"]])
        self.assertEqual(line["types"], [0, 0, 0, 0, 1, 1])
        self.assertFalse(line["truncated"])
        self.assertTrue(json.loads(self.lines("a b c a\tc\n", "--pairs", "--json", "--max-tokens", 5)[0])["truncated"])

    def test_back(self):
        ids = self.expect(["[CLS]", "a", "b", "[SEP]"])
        self.assertEqual(self.lines(f"{ids}\n\n", "--decode"), ["a b", ""])
        self.assertIn("[CLS]", self.lines(f"{ids}\n", "--decode", "--keep-special")[0])

    def test_refusals(self):
        (self.folder / "model" / "tokenizer.json").rename(self.folder / "words.json")
        shutil.rmtree(self.folder / "model")
        self.fails(2, "no tokenizer is given", "tokenize")
        self.fails(1, "attn: nowhere: cannot open: No such file or directory\n", "tokenize", "nowhere")
        self.write(m_gguf=b"GGUF" + bytes(20), w_npy=Array((1,), (1,)), x_json=b"{]")
        self.fails(1, "m.gguf is a GGUF file, which is not read", "tokenize", "m.gguf")
        self.fails(1, "w.npy is a file; expected a model's folder, or a tokenizer.json", "tokenize", "w.npy")
        self.fails(1, "/tokenizer.json: cannot open: No such file or directory", "tokenize", self.folder)
        self.fails(1, "x.json: string or '}' expected near ']' (line 1)", "tokenize", "x.json")
        self.fails(1, "missing: cannot open", "tokenize", "words.json", "missing")
        self.fails(2, "--tokens is given with --json", "tokenize", "words.json", "--tokens", "--json")
        self.fails(2, "--bare is given with --decode", "tokenize", "words.json", "--decode", "--bare")
        self.fails(2, "--keep-special is given without --decode", "tokenize", "words.json", "--keep-special")
        self.fails(2, "--max-tokens is '0'", "tokenize", "words.json", "--max-tokens", 0)
        (self.folder / "bad").write_text("7 x\n", encoding="utf-8")
        self.fails(1, "line 1 has ", "tokenize", "words.json", "bad", "--decode")
        self.fails(1, "line 1 has no tab", "tokenize", "words.json", "bad", "--pairs")
        (self.folder / "bad.json").write_text('{"model": {"type": "Other"}}', encoding="utf-8")
        self.fails(1, "bad.json: model.type is 'Other'; expected WordPiece, BPE, Unigram or WordLevel", "tokenize", "bad.json")


if __name__ == "__main__":
    unittest.main()
