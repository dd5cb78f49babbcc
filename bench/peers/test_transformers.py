# SPDX-License-Identifier: Apache-2.0
"""
Tests of the suite of models in Transformers: its cases, texts, and what is compared. They need no peer, no model and no
network, and time nothing; those that need NumPy are skipped without it.

    python3 -m unittest discover -s bench/peers
"""

import sys
import unittest
import unittest.mock
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

from peerbench import bars, cases, command_line, figures, registry, report_markdown  # noqa: E402

try:
    import numpy as np

    from peerbench import embedding, generate, transformer_models
except ImportError:
    np = None

CONFIG = {
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 6,
    "num_attention_heads": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
}


class Cases(unittest.TestCase):
    def test_a_prompt_in_two_types_and_training_with_and_without_dropout(self):
        every = cases.all_cases("transformers")
        found = [(c.task, c.dtype, c.batch, c.t, c.dropout) for c in every]
        self.assertEqual(
            found,
            [("prefill", "f32", 1, 2048, False), ("prefill", "bf16", 1, 2048, False), ("train", "f32", 32, 128, False),
             ("train", "f32", 32, 128, True), ("train", "f32", 8, 512, False), ("train", "f32", 8, 512, True)],
        )  # fmt: skip
        self.assertEqual(len({c.name for c in every}), len(every))
        for case in every:
            self.assertEqual(cases.from_json(case.to_json()), case)
            self.assertIn(case.kind, [kind for kind, _ in report_markdown.KINDS])

    def test_who_takes_part(self):
        mine = [n for n in registry.NAMES if registry.takes_part(n, "transformers")]
        self.assertEqual(mine, ["attn-python", "torch-sdpa", "torch-eager"])
        # In no other suite do they.
        for name in mine:
            self.assertEqual([s for s in cases.SUITES if registry.takes_part(name, s)], ["transformers"])
            self.assertEqual(registry.home(name), "transformers")
        self.assertIn("attn-python", figures.OWN)
        gaps = command_line.find_gaps(mine, ("transformers",), {}, {"libattn_python": "no compiler"})
        self.assertEqual(gaps, {"transformers": {"attn-python": "no compiler"}})

    def test_promises(self):
        def result(kind, dtype, own):
            entries = {name: {"status": "ok", "samples": [seconds]} for name, seconds in
                       (("torch-sdpa", 1.2), ("torch-eager", 2.0), ("attn-python", own))}  # fmt: skip
            return figures.summarise(
                {"case": kind, "suite": "transformers", "kind": kind, "dtype": dtype, "flops": 1e9, "items": 2400,
                 "peak_gflops": 10.0, "contenders": entries}
            )  # fmt: skip

        for kind, seconds, met in (("prefill", 1.04, True), ("prefill", 1.05, False), ("train", 0.99, True),
                                   ("train", 1.01, False)):  # fmt: skip
            verdicts = bars.check([result(f"transformers-{kind}", "f32", seconds)])
            self.assertEqual([v["met"] for v in verdicts], [met])
        self.assertEqual(bars.check([result("transformers-prefill", "bf16", 1.0)]), [])
        text = "\n".join(report_markdown.case_table([result("transformers-train", "f32", 1.0)],
                                                    ["torch-sdpa", "attn-python", "torch-eager"]))  # fmt: skip
        self.assertIn("| `transformers-train` | 2000 | **2400** | 1200 | 1.20 |", text)


@unittest.skipIf(np is None, "NumPy is not installed")
class Training(unittest.TestCase):
    def setUp(self):
        rng = np.random.default_rng(3)
        c, ff = CONFIG["hidden_size"], CONFIG["intermediate_size"]
        embeddings = {"word": 20, "position": 16, "token_type": 2}
        self.weights = {f"embeddings.{n}_embeddings.weight": rng.standard_normal((k, c)) for n, k in embeddings.items()}
        products = {"attention.self.query": (c, c), "attention.self.key": (c, c), "attention.self.value": (c, c),
                    "attention.output.dense": (c, c), "intermediate.dense": (ff, c), "output.dense": (c, ff)}  # fmt: skip
        norms = ["embeddings.LayerNorm"]
        for n in range(CONFIG["num_hidden_layers"]):
            layer = f"encoder.layer.{n}."
            norms += [layer + "attention.output.LayerNorm", layer + "output.LayerNorm"]
            for name, shape in products.items():
                self.weights[f"{layer}{name}.weight"] = rng.standard_normal(shape)
                self.weights[f"{layer}{name}.bias"] = rng.standard_normal(shape[0])
        for name in norms:
            self.weights[name + ".weight"], self.weights[name + ".bias"] = np.ones(c), np.zeros(c)
        patch = unittest.mock.patch.multiple(embedding, config=lambda: CONFIG, weights_of_model=lambda: self.weights)
        patch.start()
        self.addCleanup(patch.stop)
        transformer_models.loss_and_slopes.cache_clear()
        self.arrays = transformer_models.pack([[5, 6, 7], [8, 9, 10, 11, 12], [3], [4, 4]], 9, [1, 2])
        self.arrays["targets"] = np.float32(self.arrays["targets"][:, :c])
        self.case = cases.TransformersCase("train", 4, 9)
        self.expected = transformer_models.reference_rows(self.case, self.arrays, np.array([0]))

    def loss(self, weights):
        """Text by text."""
        total = 0.0
        for ids, mask, target in zip(self.arrays["ids"], self.arrays["mask"], self.arrays["targets"], strict=True):
            text = ids[mask.astype(bool)]
            total += 1 - embedding.forward(weights, text, np.array([0, len(text)]))[0] @ target.astype(np.float64)
        return total / len(self.arrays["ids"])

    def test_the_reference_is_the_loss_and_its_slopes(self):
        self.assertEqual(self.expected.shape, (1, 1 + len(transformer_models.MATRICES) * transformer_models.DIRECTIONS))
        self.assertAlmostEqual(self.expected[0, 0], self.loss(self.weights), places=12)
        # Smaller steps, whose error is another.
        values = []
        for name in transformer_models.MATRICES:
            matrix = self.weights[name]
            for d in transformer_models.directions(name, matrix.shape):
                above, below = (self.loss({**self.weights, name: matrix + sign * 1e-5 * d}) for sign in (1, -1))
                values.append((above - below) / 2e-5)
        np.testing.assert_allclose(self.expected[0, 1:], values, rtol=1e-4, atol=1e-7)

    def test_other_gradients_are_told_apart(self):
        def verdict(output):
            return transformer_models.disagreement(self.case, np.array([output]), self.expected)

        right = self.expected[0]
        self.assertIsNone(verdict(right * (1 + 1e-5))[1])
        self.assertRegex(verdict(right * np.r_[1.01, np.ones(len(right) - 1)])[1], "the loss differs by 0.01")
        self.assertRegex(verdict(np.r_[right[:-1], 0.9 * right[-1]])[1], "slope in encoder.layer.5.attention.self.value")
        self.assertRegex(verdict(np.nan * right)[1], "NaN")
        self.assertRegex(verdict(right[:3])[1], "shape")

    def test_texts_are_sentences_as_long_as_they_fit(self):
        sentences = [[1] * 4, [2] * 3, [3] * 5, [4] * 20]
        found = transformer_models.texts(sentences, 4, 8)
        self.assertEqual(found, [[1] * 4 + [2] * 3, [3] * 5, [4] * 8, [1] * 4 + [2] * 3])
        self.assertEqual([len(s) for s in sentences], [4, 3, 5, 20])

    def test_padding_is_behind_and_counts_nothing(self):
        ids, mask = self.arrays["ids"], self.arrays["mask"]
        self.assertEqual(ids[0].tolist(), [1, 5, 6, 7, 2, 0, 0, 0, 0])
        self.assertEqual(mask.sum(axis=1).tolist(), [5, 7, 3, 4])
        self.assertEqual(transformer_models.items(self.case, self.arrays), 19)
        alone = {**self.arrays, "mask": mask[:1]}
        weights = 8 * (4 * 8 + 2 * 12)
        self.assertEqual(transformer_models.flops(self.case, alone), 3 * 6 * (2 * weights * 5 + 4 * 8 * 25))

    def test_a_prompt_is_compared_at_its_end(self):
        case, ids = cases.TransformersCase("prefill", 1, 6), np.arange(6, dtype=np.int32)[None]
        with unittest.mock.patch.object(generate, "logits_of", lambda *a: np.array([[a[1]], [a[1] + a[2]]])):
            found = transformer_models.reference_rows(case, {"ids": ids}, np.array([0]))
        self.assertEqual(found.tolist(), [[6]])
        self.assertEqual(transformer_models.items(case, {}), 6)


if __name__ == "__main__":
    unittest.main()
