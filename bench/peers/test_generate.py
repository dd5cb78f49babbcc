# SPDX-License-Identifier: Apache-2.0
"""
Tests of the suite of text by a language model: its cases, the float64 model and what is compared. They need no peer,
no model and no network, and time nothing; those that need NumPy are skipped without it.

    python3 -m unittest discover -s bench/peers
"""

import sys
import unittest
import unittest.mock
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

from peerbench import cases, command_line, figures, registry, report_markdown  # noqa: E402

try:
    import numpy as np

    from peerbench import generate
except ImportError:
    np = None

SIZES = {
    "hidden_size": 12,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000.0,
    "vocab_size": 31,
}


class Cases(unittest.TestCase):
    def test_a_prompt_and_tokens_behind_it_in_each_precision(self):
        every = cases.all_cases("generate", cases.PRECISIONS)
        for dtype in cases.PRECISIONS:
            mine = [(c.batch, c.prompt, c.new, c.kind) for c in every if c.dtype == dtype]
            self.assertEqual(mine, [(1, 512, 0, "prompt"), (1, 512, 128, "generate"), (8, 512, 128, "generate")])
        self.assertEqual({c.new for c in every if c.new}, {128})

    def test_who_takes_part(self):
        mine = [n for n in registry.NAMES if registry.takes_part(n, "generate")]
        self.assertEqual(mine, ["attn", "torch", "torch-mkl", "llama.cpp"])
        self.assertEqual(registry.home("llama.cpp"), "generate")
        # Without the model there are no cases; without Transformers only PyTorch is missing.
        reason = command_line.without_inputs(("generate",), {"smollm": "no wheel"})
        self.assertEqual(reason, "generate: no wheel")
        gaps = command_line.find_gaps(mine, ("generate",), {"transformers": "no wheel"}, {})
        self.assertEqual(gaps, {"generate": {"torch": "no wheel", "torch-mkl": "no wheel"}})

    def test_speed_is_tokens(self):
        entries = {"attn": {"status": "ok", "samples": [0.5]}, "torch": {"status": "ok", "samples": [1.0]}}
        result = figures.summarise(
            {
                "case": "f32/generate/x", "suite": "generate", "kind": "generate", "dtype": "f32", "flops": 1e9,
                "items": 128, "peak_gflops": 10.0, "contenders": entries,
            }
        )  # fmt: skip
        text = "\n".join(report_markdown.case_table([result], ["attn", "torch"]))
        self.assertIn("| `f32/generate/x` | **256** | 128 | 2.00 | 0.20 |", text)
        self.assertEqual(figures.unit(result), "tokens/s")


@unittest.skipIf(np is None, "NumPy is not installed")
class Model(unittest.TestCase):
    def setUp(self):
        rng = np.random.default_rng(5)
        c, kv, ff = 12, 4, 20
        shapes = {"self_attn.q_proj": (c, c), "self_attn.k_proj": (kv, c), "self_attn.v_proj": (kv, c),
                  "self_attn.o_proj": (c, c), "mlp.gate_proj": (ff, c), "mlp.up_proj": (ff, c),
                  "mlp.down_proj": (c, ff), "input_layernorm": (c,), "post_attention_layernorm": (c,)}  # fmt: skip
        self.weights = {"model.embed_tokens.weight": rng.standard_normal((31, c)), "model.norm.weight": np.ones(c)}
        for layer in range(2):
            for name, shape in shapes.items():
                self.weights[f"model.layers.{layer}.{name}.weight"] = rng.standard_normal(shape)
        self.ids = rng.integers(0, 31, 9).astype(np.int32)

    def token_by_token(self):
        """The same model with a cache, a token and a head at a time, rotations as complex numbers."""
        w, keys, values = self.weights, [[], []], [[], []]

        def norm(x, name):
            return x / np.sqrt(np.mean(x**2) + 1e-5) * w[name + ".weight"]

        def turned(x, place):
            z = x[:1] + 1j * x[1:]  # heads of two channels: one pair
            z = z * np.exp(1j * place)
            return np.concatenate([z.real, z.imag])

        for place, token in enumerate(self.ids):
            x = w["model.embed_tokens.weight"][token]
            for n in range(2):
                layer = f"model.layers.{n}."
                h = norm(x, layer + "input_layernorm")
                q, k, v = (w[f"{layer}self_attn.{p}_proj.weight"] @ h for p in "qkv")
                keys[n].append([turned(k[2 * g : 2 * g + 2], place) for g in range(2)])
                values[n].append([v[2 * g : 2 * g + 2] for g in range(2)])
                heads = []
                for head in range(6):
                    query, g = turned(q[2 * head : 2 * head + 2], place), head // 3
                    weights = np.exp([query @ key[g] / np.sqrt(2) for key in keys[n]])
                    heads.append(sum(a * value[g] for a, value in zip(weights, values[n], strict=True)) / weights.sum())
                x = x + w[layer + "self_attn.o_proj.weight"] @ np.concatenate(heads)
                h = norm(x, layer + "post_attention_layernorm")
                gate = w[layer + "mlp.gate_proj.weight"] @ h
                up = w[layer + "mlp.up_proj.weight"] @ h
                x = x + w[layer + "mlp.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * up)
            logits = w["model.embed_tokens.weight"] @ norm(x, "model.norm")
        return logits

    def test_the_model_is_that_of_its_definition(self):
        found = generate.forward(self.weights.__getitem__, SIZES, self.ids, [4, -1])
        np.testing.assert_allclose(found[1], self.token_by_token(), rtol=1e-9, atol=1e-9)
        # What follows a position does not change its logits.
        shorter = generate.forward(self.weights.__getitem__, SIZES, self.ids[:5], [-1])
        np.testing.assert_allclose(found[0], shorter[0], rtol=1e-9, atol=1e-9)

    def test_other_logits_are_told_apart(self):
        right = np.random.default_rng(6).standard_normal((2, 1000)) * 3 + 10
        noise = np.random.default_rng(7).standard_normal(right.shape) * 3
        for dtype, good, bad in (("f32", 5e-4, 5e-3), ("bf16", 0.05, 0.2), ("int8", 0.1, 0.4)):
            case = cases.GenerateCase(2, 4, 4, dtype=dtype)
            self.assertIsNone(generate.disagreement(case, right + good * noise, right)[1])
            for wrong in (right + bad * noise, right[::-1], right[:1], np.nan * right, 2 * right):
                self.assertIsNotNone(generate.disagreement(case, wrong, right)[1])

    def test_texts_are_stretches_of_one(self):
        found = generate.stretches(list(range(100)), 3, 10)
        self.assertEqual(found[:, 0].tolist(), [0, 45, 90])
        self.assertEqual(found[2].tolist(), list(range(90, 100)))
        self.assertEqual(generate.stretches([1, 2], 1, 2).tolist(), [[1, 2]])
        self.assertRaisesRegex(ValueError, "has 3 tokens; expected 4", generate.stretches, [1, 2, 3], 1, 4)

    def test_work_and_items(self):
        with unittest.mock.patch.object(generate, "config", lambda: SIZES):
            prompt, behind = cases.GenerateCase(2, 5), cases.GenerateCase(2, 5, 3)
            weights = 2 * (2 * 12 * 12 + 2 * 12 * 4 + 3 * 12 * 20)
            head, pair = 2 * 31 * 12, 4 * 12 * 2
            self.assertEqual(generate.flops(prompt, {}), 2 * (2 * weights * 5 + head + pair * 15))
            # Tokens 6, 7 and 8 see 6, 7 and 8.
            self.assertEqual(generate.flops(behind, {}), 2 * (2 * weights * 3 + 3 * head + pair * 21))
        self.assertEqual((generate.items(prompt, {}), generate.items(behind, {})), (10, 6))


if __name__ == "__main__":
    unittest.main()
