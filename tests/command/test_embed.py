# SPDX-License-Identifier: Apache-2.0
"""The example program embed on a model of a few numbers: what it takes from a
model's folder, what it refuses, and what it says when it cuts a text.

That the numbers are right is shown elsewhere, on a trained model; here texts
that must have one embedding are compared with each other.
"""

import itertools
import json
import math
import os
import subprocess
import unittest

from support import Array, CommandTest, normal, npy, read_npy, safetensors

EMBED = os.environ["ATTN_EXAMPLE"]
WIDTH, HEADS, FF, POSITIONS = 8, 2, 12, 10
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "A", "e", "é"]
CONFIG = {
    "architectures": ["BertModel"], "model_type": "bert", "hidden_act": "gelu", "hidden_size": WIDTH,
    "intermediate_size": FF, "layer_norm_eps": 1e-12, "max_position_embeddings": POSITIONS, "num_attention_heads": HEADS,
    "num_hidden_layers": 1, "position_embedding_type": "absolute", "type_vocab_size": 2, "vocab_size": len(VOCABULARY)}
MEAN = {
    "word_embedding_dimension": WIDTH, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True,
    "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False}


def module(kind, path):
    return {"idx": 0, "name": "0", "path": path, "type": f"sentence_transformers.models.{kind}"}


MODULES = [module("Transformer", ""), module("Pooling", "1_Pooling"), module("Normalize", "2_Normalize")]


def tensors():
    shapes = {"embeddings.word_embeddings.weight": (len(VOCABULARY), WIDTH),
              "embeddings.position_embeddings.weight": (POSITIONS, WIDTH),
              "embeddings.token_type_embeddings.weight": (2, WIDTH), "embeddings.LayerNorm.weight": (WIDTH,),
              "embeddings.LayerNorm.bias": (WIDTH,), "pooler.dense.weight": (WIDTH, WIDTH),
              "pooler.dense.bias": (WIDTH,)}
    for name, rows, columns in (("attention.self.query", WIDTH, WIDTH), ("attention.self.key", WIDTH, WIDTH),
                                ("attention.self.value", WIDTH, WIDTH), ("attention.output.dense", WIDTH, WIDTH),
                                ("attention.output.LayerNorm", WIDTH, None), ("intermediate.dense", FF, WIDTH),
                                ("output.dense", WIDTH, FF), ("output.LayerNorm", WIDTH, None)):
        shapes[f"encoder.layer.0.{name}.weight"] = (rows, columns) if columns else (rows,)
        shapes[f"encoder.layer.0.{name}.bias"] = (rows,)
    made = {name: normal(shape, seed) for seed, (name, shape) in enumerate(shapes.items())}
    made["embeddings.position_ids"] = Array((1, POSITIONS), range(POSITIONS), "<i8")
    return made


def similarities(rows):
    return [sum(a * b for a, b in zip(x, y)) / (math.hypot(*x) * math.hypot(*y))
            for i, x in enumerate(rows) for y in rows[:i]]


def spearman(a, b):
    """Of two lists of numbers, with the mean rank for equal ones."""
    def ranks(values):
        return [sum(x < value for x in values) + sum(x == value for x in values) / 2 - len(values) / 2
                for value in values]
    a, b = ranks(a), ranks(b)
    return sum(x * y for x, y in zip(a, b)) / math.hypot(*a) / math.hypot(*b)


class EmbedTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "model"
        self.model.mkdir()
        self.put("config.json", CONFIG)
        self.put_vocabulary(VOCABULARY)
        (self.model / "model.safetensors").write_bytes(safetensors(tensors()))

    def put(self, name, content):
        path = self.model / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")

    def put_vocabulary(self, tokens):
        self.put("vocab.txt", "".join(token + "\n" for token in tokens))

    def start(self, texts, *arguments):
        return subprocess.run([EMBED, "--model", str(self.model), *arguments], check=False, timeout=120,
                              input="".join(text + "\n" for text in texts).encode(), capture_output=True)

    def run_embed(self, *texts, precision="f32"):
        out = self.folder / "out.npy"
        out.unlink(missing_ok=True)
        return self.start(texts, "--precision", precision, "--output", str(out)), out

    def embed(self, *texts, says=(), precision="f32"):
        """One embedding for each text; standard error has exactly these lines."""
        run, out = self.run_embed(*texts, precision=precision)
        self.assertEqual((run.returncode, run.stderr.decode().splitlines()), (0, list(says)))
        rows = read_npy(out)
        self.assertEqual(rows.shape, (len(texts), WIDTH))
        return [rows.values[i * WIDTH:(i + 1) * WIDTH] for i in range(len(texts))]

    def refuses(self, *words):
        run, out = self.run_embed("a b")
        sentence = run.stderr.decode()
        self.assertEqual(run.returncode, 1, sentence)
        self.assertEqual(sentence.count("\n"), 1, sentence)
        for word in words:
            self.assertIn(word, sentence)
        self.assertFalse(out.exists())

    # ------------------------------------------------------------ the model --

    def test_plain_folder(self):
        one, same, other = self.embed("a b c", "a  b c ", "c b a")
        self.assertEqual(one, same)
        self.assertNotEqual(one, other)
        self.assertAlmostEqual(math.hypot(*one), 1, places=6)

    def test_other_models(self):
        for kind in ("roberta", "xlm-roberta", "distilbert", "mpnet", "nomic_bert"):
            self.put("config.json", CONFIG | {"model_type": kind})
            self.refuses("config.json", "model_type", f"'{kind}'", "expected bert")
        self.put("config.json", {name: value for name, value in CONFIG.items() if name != "model_type"})
        self.refuses("config.json", "model_type")
        self.put("config.json", CONFIG | {"is_decoder": True})
        self.refuses("is_decoder")
        self.put("config.json", CONFIG | {"position_embedding_type": "relative_key"})
        self.refuses("position_embedding_type", "relative_key", "absolute")
        self.put("config.json", CONFIG | {"hidden_act": "silu"})
        self.refuses("hidden_act", "silu")
        self.put("config.json", CONFIG | {"type_vocab_size": 1})
        self.refuses("embeddings.token_type_embeddings.weight")
        self.put("config.json", CONFIG | {"is_decoder": False})
        self.embed("a")

    def test_unread_tensors(self):
        more = tensors() | {"encoder.layer.0.attention.self.q_norm.weight": normal((WIDTH,), 99)}
        (self.model / "model.safetensors").write_bytes(safetensors(more))
        self.refuses("model.safetensors", "encoder.layer.0.attention.self.q_norm.weight")

    def test_broken_files(self):
        for name in ("config.json", "modules.json", "1_Pooling/config.json", "sentence_bert_config.json",
                     "tokenizer_config.json"):
            for content in ("{", '"text"', ""):
                self.put(name, content)
                self.refuses(name)
            if name == "config.json":
                self.put(name, CONFIG)
            else:
                (self.model / name).unlink()
        (self.model / "config.json").unlink()
        self.refuses("config.json")

    # ----------------------------------------------------------- vocabulary --

    def test_vocabulary_length(self):
        for tokens in (VOCABULARY[:-1], VOCABULARY + ["more"]):
            self.put_vocabulary(tokens)
            self.refuses("vocab.txt", f"{len(tokens)} tokens", f"expected {len(VOCABULARY)}", "vocab_size")

    def test_case(self):
        small, capital, accent, plain = self.embed("a", "A", "é", "e")
        self.assertEqual(small, capital)
        self.assertEqual(accent, plain)
        self.put("tokenizer_config.json", {"do_lower_case": True, "strip_accents": None})
        self.assertEqual(self.embed("a", "A", "é", "e"), [small, capital, accent, plain])
        self.put("tokenizer_config.json", {"do_lower_case": False, "strip_accents": None})
        cased = self.embed("a", "A", "é", "e")
        self.assertEqual((cased[0], cased[3]), (small, plain))
        self.assertEqual(len({tuple(row) for row in cased}), 4)
        self.put("sentence_bert_config.json", {"do_lower_case": True})
        self.refuses("tokenizer_config.json", "do_lower_case")
        (self.model / "sentence_bert_config.json").unlink()
        for wrong in ({"do_lower_case": "no"}, {"do_lower_case": False, "strip_accents": True},
                      {"strip_accents": False}, {"tokenize_chinese_chars": False}):
            self.put("tokenizer_config.json", wrong)
            self.refuses("tokenizer_config.json", list(wrong)[-1])

    # -------------------------------------------------------------- pooling --

    def test_pooling(self):
        plain = self.embed("a b")
        self.put("1_Pooling/config.json", MEAN)
        self.assertEqual(self.embed("a b"), plain)
        self.put("modules.json", MODULES)
        self.assertEqual(self.embed("a b"), plain)
        self.put("1_Pooling/config.json", {"pooling_mode": "mean"})
        self.assertEqual(self.embed("a b"), plain)
        for name in ("cls_token", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"):
            for mean in (True, False):
                self.put("1_Pooling/config.json",
                         MEAN | {"pooling_mode_mean_tokens": mean, f"pooling_mode_{name}": True})
                self.refuses("1_Pooling/config.json", f"'pooling_mode_{name}'", "expected mean pooling")
        for wrong, word in (({"pooling_mode": "cls"}, "'cls'"), ({}, "pooling_mode_mean_tokens"),
                            (MEAN | {"word_embedding_dimension": 9}, "is 9; expected 8")):
            self.put("1_Pooling/config.json", wrong)
            self.refuses("1_Pooling/config.json", word)

    def test_pooling_folder(self):
        self.put("modules.json", [module("Transformer", ""), module("Pooling", "pool"), module("Normalize", "n")])
        self.refuses("pool", "config.json")
        self.put("pool/config.json", MEAN | {"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True})
        self.refuses("pool/config.json", "pooling_mode_max_tokens")
        self.put("pool/config.json", MEAN)
        self.embed("a")

    def test_steps(self):
        (normalised,) = self.embed("a b")
        self.put("1_Pooling/config.json", MEAN)
        self.put("modules.json", MODULES[:2])
        (plain,) = self.embed("a b")
        length = math.hypot(*plain)
        self.assertGreater(abs(length - 1), 1e-3)
        for a, b in zip(plain, normalised):
            self.assertAlmostEqual(a / length, b, places=6)
        for wrong, word in ((MODULES + [module("Dense", "2_Dense")], "Dense"), (MODULES[:1], "Pooling"),
                            ([module("CLIPModel", "")], "CLIPModel"), (MODULES + MODULES[1:2], "Pooling"),
                            ([module("Transformer", "0_BERT")] + MODULES[1:], "0_BERT"),
                            ([{"type": "x.Transformer"}], "path"), ([3], "path")):
            self.put("modules.json", wrong)
            self.refuses("modules.json", word)

    # ------------------------------------------------------------ precision --

    TEXTS = [" ".join(letters) for letters in itertools.product("abc", repeat=3)]

    def test_precisions(self):
        exact = self.embed(*self.TEXTS)
        for precision, most in (("bf16", 0.02), ("int8", 0.05)):
            got = self.embed(*self.TEXTS, precision=precision)
            difference = max(abs(a - b) for row, want in zip(got, exact) for a, b in zip(row, want))
            self.assertTrue(0 < difference < most, (precision, difference))
            # The bits of a sentence by itself are those that it has among others.
            self.assertEqual(self.embed(self.TEXTS[5], precision=precision), [got[5]])
        run = self.start(["a"], "--precision", "f16")
        self.assertEqual((run.returncode, run.stderr.decode()),
                         (2, "embed: --precision is 'f16'; expected f32, bf16 or int8\n"))

    def compare(self, texts, rows, precision="f32"):
        reference = self.folder / "reference.npy"
        reference.write_bytes(npy(Array((len(rows), WIDTH), [x for row in rows for x in row])))
        run = self.start(texts, "--precision", precision, "--compare", str(reference))
        return run.returncode, run.stdout.decode(), run.stderr.decode()

    def test_comparison(self):
        rows = self.embed(*self.TEXTS)
        pairs = len(rows) * (len(rows) - 1) // 2
        self.assertEqual(self.compare(self.TEXTS, rows), (
            0, f"lowest cosine of {len(rows)} sentences: 1.000000000\n"
               f"rank correlation of {pairs} similarities: 1.000000000\n", ""))
        # Turned by up to 0.004 a cosine is at least 0.99999, but near similarities change places.
        shifts = normal((len(rows), WIDTH), 77).values
        turned = []
        for i, row in enumerate(rows):
            shift = shifts[i * WIDTH:(i + 1) * WIDTH]
            along = sum(a * b for a, b in zip(row, shift))
            shift = [b - along * a for a, b in zip(row, shift)]
            length = math.hypot(*shift)
            turned.append(list(Array((WIDTH,), [a + 0.004 * b / length for a, b in zip(row, shift)]).values))
        code, out, error = self.compare(self.TEXTS, turned)
        found = float(out.split()[-1])
        self.assertAlmostEqual(found, spearman(similarities(rows), similarities(turned)), places=6)
        self.assertLess(found, 0.99999)
        self.assertEqual((code, error), (1, f"embed: the rank correlation of similarities is {found:.9f}; expected "
                                            "0.99999 or more\n"))
        # One that is far off, and one that is no number.
        far = rows[:3] + [[-x for x in rows[3]]] + rows[4:]
        code, out, error = self.compare(self.TEXTS, far, precision="bf16")
        self.assertEqual(code, 1)
        self.assertIn("the lowest cosine is -0.99", error)
        self.assertIn("expected 0.9995 or more", error)
        code, _, error = self.compare(self.TEXTS, rows[:3] + [[math.nan] * WIDTH] + rows[4:])
        self.assertEqual(code, 1)
        self.assertIn("the lowest cosine is nan", error.replace("-nan", "nan"))
        # Two sentences have one similarity and no order.
        self.assertEqual(self.compare(self.TEXTS[:2], rows[:2])[:2], (0, "lowest cosine of 2 sentences: 1.000000000\n"))
        self.assertIn("expected float32 of shape (2, 8)", self.compare(self.TEXTS[:2], rows[:3])[2])

    # --------------------------------------------------------------- length --

    def test_cut(self):
        line = "embed: sentence {}, counted from 0, has more than {} tokens; the rest is left off"
        text, fits, short = "a b c a b c a b c", "a b c a b c a b", "a"
        whole = self.embed(short, fits)
        # Without the file the positions of the model are the limit.
        self.assertEqual(self.embed(short, text, fits, text, says=[line.format(1, 10), line.format(3, 10)]),
                         [whole[0], whole[1], whole[1], whole[1]])
        self.put("sentence_bert_config.json", {"max_seq_length": 5, "do_lower_case": False})
        three, cut = self.embed("a b c", "a b c a", says=[line.format(1, 5)])
        self.assertEqual(three, cut)
        self.assertEqual(self.embed("a b c ")[0], three)
        self.put("sentence_bert_config.json", {"max_seq_length": None})
        self.assertEqual(self.embed(fits)[0], whole[1])
        for wrong in (11, 1, -3, 2.5, "5"):
            self.put("sentence_bert_config.json", {"max_seq_length": wrong})
            self.refuses("sentence_bert_config.json", "max_seq_length")


if __name__ == "__main__":
    unittest.main()
