# SPDX-License-Identifier: Apache-2.0
"""The example program smollm on a model of a few numbers: its options, what it takes from a model's folder, and what it
refuses.

That the tokens are right is shown elsewhere, on the trained model; here they are compared with each other, and the text
with the tokens.
"""

import json
import os
import re
import subprocess
import unittest

from support import CommandTest, normal, read_npy, safetensors

SMOLLM = os.environ["ATTN_EXAMPLE"]
WIDTH, HEADS, KV_HEADS, FF, POSITIONS = 12, 3, 1, 16, 40
SPECIAL = ["<|im_start|>", "<|im_end|>"]
# The bytes of é, 🙂 and a line break are tokens of their own.
VOCABULARY = [*"abcdehilmnoprstuwxyNSTHFLgkv,.", "Ġ", "Ċ", "Ã", "©", "ð", "Ł", "Ļ", "Ĥ", "ab", "Ġa"]
TOKENS = len(VOCABULARY) + len(SPECIAL)
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": WIDTH,
    "intermediate_size": FF, "num_hidden_layers": 2, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": POSITIONS, "vocab_size": TOKENS, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "rope_scaling": None, "attention_bias": False, "tie_word_embeddings": True, "eos_token_id": TOKENS - 1}
TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
TOKENIZER = {
    "added_tokens": [{"id": len(VOCABULARY) + i, "content": name, "special": True} for i, name in enumerate(SPECIAL)],
    "normalizer": None, "post_processor": None, "decoder": BYTES,
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTES]},
    "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(VOCABULARY)},
              "merges": [["a", "b"], ["Ġ", "a"]]}}


def tensors():
    shapes = {"model.embed_tokens.weight": (TOKENS, WIDTH), "model.norm.weight": (WIDTH,)}
    for layer in range(CONFIG["num_hidden_layers"]):
        kv = WIDTH // HEADS * KV_HEADS
        for name, shape in (("input_layernorm", (WIDTH,)), ("post_attention_layernorm", (WIDTH,)),
                            ("self_attn.q_proj", (WIDTH, WIDTH)), ("self_attn.k_proj", (kv, WIDTH)),
                            ("self_attn.v_proj", (kv, WIDTH)), ("self_attn.o_proj", (WIDTH, WIDTH)),
                            ("mlp.gate_proj", (FF, WIDTH)), ("mlp.up_proj", (FF, WIDTH)), ("mlp.down_proj", (WIDTH, FF))):
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    return {name: normal(shape, seed) for seed, (name, shape) in enumerate(shapes.items())}


class SmolLMTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "model"
        self.model.mkdir()
        self.put("config.json", CONFIG)
        self.put("tokenizer.json", TOKENIZER)
        (self.model / "model.safetensors").write_bytes(safetensors(tensors()))

    def put(self, name, content):
        (self.model / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")

    def put_template(self, template=TEMPLATE):
        self.put("tokenizer_config.json", {"chat_template": template})

    def start(self, *arguments):
        return subprocess.run([SMOLLM, "--model", str(self.model), *arguments], check=False, timeout=120,
                              capture_output=True)

    def run_well(self, *arguments):
        run = self.start(*arguments)
        self.assertEqual(run.returncode, 0, run.stderr.decode())
        return run.stdout, run.stderr.decode()

    def ids(self, *arguments):
        """Tokens of the prompt, and those that were made."""
        lines = self.run_well("--ids", *arguments)[0].decode().split("\n")
        self.assertEqual(len(lines), 3)
        return tuple([int(token) for token in line.split()] for line in lines[:2])

    def refuses(self, code, *words, arguments=("--raw", "ab")):
        run = self.start(*arguments)
        sentence = run.stderr.decode()
        self.assertEqual((run.returncode, run.stdout), (code, b""), sentence)
        self.assertEqual(sentence.count("\n"), 1, sentence)
        for word in words:
            self.assertIn(word, sentence)

    # -------------------------------------------------------------- generating --

    def test_text_is_that_of_the_tokens(self):
        characters = {"Ġ": b" ", "Ċ": b"\n", "Ã": b"\xc3", "©": b"\xa9", "ð": b"\xf0", "Ł": b"\x9f", "Ļ": b"\x99",
                      "Ĥ": b"\x82"}
        for seed in range(6):
            drawing = ("--raw", "-t", "3", "--seed", str(seed), "-n", "20", "ab a")
            before, made = self.ids(*drawing)
            self.assertEqual(before, [VOCABULARY.index("ab"), VOCABULARY.index("Ġa")])
            spelled = b"".join(characters.get(c, c.encode()) for i in made if i < len(VOCABULARY) for c in VOCABULARY[i])
            out, said = self.run_well(*drawing)
            self.assertEqual(out.decode(), spelled.decode(errors="replace") + "\n")
            self.assertRegex(said, rf"^smollm: prefill: 2 tokens, [0-9.]+ tokens/s; decoding: [0-9]+ tokens, [0-9.]+ "
                                   rf"tokens/s; seed {seed}\n$")

    def test_stops(self):
        _, made = self.ids("--raw", "-n", "12", "ab")
        self.assertLessEqual(len(made), 12)
        # Whatever comes third is made the end of a turn: the same tokens, up to its first place.
        end = made[2]
        self.put("config.json", CONFIG | {"eos_token_id": end})
        self.assertEqual(self.ids("--raw", "-n", "12", "ab")[1], made[:made.index(end) + 1])
        self.assertEqual(self.ids("--raw", "-n", "1", "ab")[1], made[:1])
        said = self.run_well("--raw", "-n", "1", "ab")[1]
        self.assertRegex(said, r"^smollm: prefill: 1 tokens, [0-9.]+ tokens/s\n$")

    def test_drafts(self):
        """With drafts the tokens are those without, however many of the drafts come true; and what is said of them adds up."""
        accepted = drafted = 0
        for prompt in ("ab ab ab a", "the lab, the lab, the", "ab"):
            for how in ((), ("-t", "0.3", "--seed", "5"), ("--page", "16"), ("--cache", "int8"), ("--activations", "bf16")):
                plain = self.ids("--raw", "-n", "24", *how, prompt)
                for most in ("1", "4", "12"):
                    with self.subTest(prompt=prompt, how=how, drafts=most):
                        drawing = ("--raw", "-n", "24", *how, "--drafts", most, "--threads", "1", prompt)
                        self.assertEqual(self.ids(*drawing), plain)
                        said = re.search(r"drafts: (\d+) in (\d+) calls; accepted((?: \d+: \d+x)*)", self.run_well(*drawing)[1])
                        if said is None:
                            continue
                        counts = {int(n): int(times) for n, times in re.findall(r"(\d+): (\d+)x", said[3])}
                        self.assertEqual(sum(counts.values()), int(said[2]))
                        self.assertLessEqual(max(counts), int(most))
                        accepted += sum(n * times for n, times in counts.items())
                        drafted += int(said[1])
        self.assertGreater(accepted, 0)
        self.assertLess(accepted, drafted)  # some were rejected, too

    def test_positions_end(self):
        self.put("config.json", CONFIG | {"eos_token_id": 0})
        for seed in range(50):
            run = ("--raw", "-t", "50", "--seed", str(seed), "-n", "100", "b" * 36)
            before, made = self.ids(*run)
            if made[-1] != 0:
                break
        self.assertEqual((len(before), len(made)), (36, 4))
        self.assertIn("positions end, after 40 tokens", self.run_well(*run)[1])
        self.refuses(1, "has 40 tokens", "expected 1 to 39", arguments=("--raw", "b" * 40))
        self.refuses(1, "has 0 tokens", arguments=("--raw", "z"))

    def test_logits(self):
        for name in ("logits.npy", "logits.safetensors"):
            path = self.folder / name
            spec = str(path) + (":logits" if name.endswith("safetensors") else "")
            _, made = self.ids("--raw", "-n", "5", "--logits", spec, "ab")
            if name.endswith("npy"):
                array = read_npy(path)
                self.assertEqual(array.shape, (len(made), TOKENS))
                rows = [array.values[i * TOKENS:(i + 1) * TOKENS] for i in range(len(made))]
                self.assertEqual([row.index(max(row)) for row in rows], made)
            self.assertTrue(path.exists())

    def test_threads_change_nothing(self):
        outs = {str(self.ids("--raw", "-t", "2", "--top-p", "0.9", "--seed", "3", "--threads", n, "ab a b"))
                for n in ("1", "2", "5")}
        self.assertEqual(len(outs), 1)

    def test_sampling(self):
        greedy = self.ids("--raw", "ab")
        self.assertEqual(self.ids("--raw", "-t", "0", "ab"), greedy)
        self.assertEqual(self.ids("--raw", "-t", "2", "--top-p", "1e-6", "ab"), greedy)
        drawn = {str(self.ids("--raw", "-t", "2", "--seed", str(seed), "ab")) for seed in (0, 1, 2, 3)}
        self.assertGreater(len(drawn), 1)
        self.assertEqual(self.ids("--raw", "-t", "2", "ab"), self.ids("--raw", "-t", "2", "--seed", "0", "ab"))

    def test_precisions(self):
        path = self.folder / "l.npy"
        seen = []
        for options in ((), ("-w", "f32"), ("-w", "bf16"), ("-w", "int8"), ("-w", "int4"), ("-w", "int8", "--group", "32"),
                        ("-w", "int8", "--multiply", "int8"), ("-w", "bf16", "--multiply", "bf16"), ("-a", "bf16"),
                        ("-a", "f16")):
            self.run_well("--raw", "-n", "1", "--logits", str(path), *options, "ab a b")
            seen.append(tuple(read_npy(path).values))
        self.assertEqual(seen[0], seen[1])
        # Each of the others rounds something else; 12 inputs are one group, but its scale is rounded.
        self.assertEqual(len(set(seen[1:])), len(seen) - 1)
        # int4 leaves little of so small a model.
        for row in seen[:4] + seen[5:]:
            self.assertLess(max(abs(a - b) for a, b in zip(row, seen[0])), 0.25 * max(map(abs, seen[0])))

    # -------------------------------------------------------------------- chat --

    def test_chat(self):
        self.refuses(1, "chat template", "--raw", arguments=("ab",))
        self.put("tokenizer_config.json", {"chat_template": None})
        self.refuses(1, "chat template", "--raw", arguments=("ab",))
        self.put("config.json", CONFIG | {"max_position_embeddings": 400})
        self.put_template()
        start, end = (len(VOCABULARY) + i for i in range(2))
        plain, line = self.ids("--raw", "a")[0], [VOCABULARY.index("Ċ")]

        def text(content):
            return self.ids("--raw", "-n", "1", content)[0]

        def chat(system, prompt):
            return ([start, *text(f"system\n{system}"), end, *line, start, *text(f"user\n{prompt}"), end, *line, start,
                     *text("assistant\n")])

        named = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
        self.assertEqual(self.ids("-n", "1", "a b")[0], chat(named, "a b"))
        self.assertEqual(self.ids("-n", "1", "--system", "be nice", "a b")[0], chat("be nice", "a b"))
        self.assertEqual(self.ids("--raw", "-n", "1", "a")[0], plain)
        # A prompt cannot end its turn.
        self.assertEqual(self.ids("-n", "1", "a<|im_end|>")[0].count(end), 2)
        self.put_template(TEMPLATE.replace("system", "sys"))
        self.refuses(1, "tokenizer_config.json", "chat_template")

    # --------------------------------------------------------------- bad input --

    def test_usage(self):
        for arguments, words in (
                ((), ["no prompt is given"]), (("a", "b"), ["'b'"]), (("--wrong", "a"), ["--wrong"]),
                (("-n", "0", "a"), ["--tokens", "'0'"]), (("-n", "x", "a"), ["--tokens", "'x'"]),
                (("-t", "-1", "a"), ["--temperature", "'-1'"]), (("-t", "nan", "a"), ["--temperature", "'nan'"]),
                (("-t", "1", "--top-p", "0", "a"), ["--top-p", "'0'"]),
                (("-t", "1", "--top-p", "1.5", "a"), ["--top-p", "'1.5'"]),
                (("--top-p", "0.5", "a"), ["--top-p", "--temperature"]), (("--seed", "1", "a"), ["--seed", "--temperature"]),
                (("-t", "1", "--seed", "-1", "a"), ["--seed", "'-1'"]), (("--threads", "x", "a"), ["--threads", "'x'"]),
                (("-w", "int3", "a"), ["--weights", "'int3'", "int4"]), (("--multiply", "f16", "a"), ["--multiply", "'f16'"]),
                (("-a", "int8", "a"), ["--activations", "'int8'"]), (("--group", "-1", "a"), ["--group", "'-1'"]),
                (("--logits", "logits.txt", "a"), ["--logits", "logits.txt"]),
                (("--raw", "--system", "x", "a"), ["--system", "--raw"])):
            self.refuses(2, *words, arguments=arguments)
        run = subprocess.run([SMOLLM, "a"], check=False, capture_output=True)
        self.assertEqual((run.returncode, run.stdout), (2, b""))
        self.assertIn(b"--model", run.stderr)
        run = subprocess.run([SMOLLM, "--help"], check=False, capture_output=True)
        self.assertEqual((run.returncode, run.stderr), (0, b""))
        for name in (b"--model", b"--system", b"--tokens", b"--temperature", b"--weights", b"Exit codes"):
            self.assertIn(name, run.stdout)

    def test_what_the_library_refuses(self):
        self.refuses(1, "group", arguments=("--raw", "-w", "int8", "--group", "7", "a"))
        self.refuses(1, "multiply", arguments=("--raw", "--multiply", "int8", "a"))
        self.refuses(1, "byte 1 of the text is 0xff", arguments=("--raw", os.fsdecode(b"a\xff")))

    def test_other_models(self):
        for changes, words in (
                ({"model_type": "qwen3"}, ["model_type", "'qwen3'", "expected llama"]),
                ({"hidden_act": "gelu"}, ["hidden_act", "'gelu'", "expected silu"]),
                ({"rope_scaling": {"factor": 2}}, ["rope_scaling"]), ({"attention_bias": True}, ["attention_bias"]),
                ({"mlp_bias": True}, ["mlp_bias"]), ({"rope_theta": "much"}, ["rope_theta"]),
                ({"num_hidden_layers": 0}, ["num_hidden_layers"]), ({"eos_token_id": TOKENS}, [f"token {TOKENS}"]),
                ({"vocab_size": TOKENS + 1}, [f"{TOKENS} tokens", f"expected {TOKENS + 1}"]),
                ({"tie_word_embeddings": False}, ["lm_head.weight"]), ({"num_hidden_layers": 1}, ["model.layers.1"])):
            self.put("config.json", CONFIG | changes)
            self.refuses(1, *words)
        self.put("config.json", {name: value for name, value in CONFIG.items() if name != "rms_norm_eps"})
        self.refuses(1, "rms_norm_eps")

    def test_broken_files(self):
        self.put_template()
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
            content = (self.model / name).read_bytes()
            for wrong in ("{", '"text"', ""):
                self.put(name, wrong)
                self.refuses(1, name)
            (self.model / name).write_bytes(content)
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            content = (self.model / name).read_bytes()
            (self.model / name).unlink()
            self.refuses(1, name)
            (self.model / name).write_bytes(content)
        self.put("tokenizer.json", TOKENIZER | {"added_tokens": [
            TOKENIZER["added_tokens"][0] | {"content": "<|other|>"}, TOKENIZER["added_tokens"][1]]})
        self.refuses(1, "<|im_start|>")

    def test_full_disk(self):
        with open("/dev/full", "wb") as full:
            run = subprocess.run([SMOLLM, "--model", str(self.model), "--raw", "ab"], check=False, stdout=full,
                                 stderr=subprocess.PIPE)
        self.assertEqual(run.returncode, 1)
        self.assertIn(b"standard output", run.stderr)


if __name__ == "__main__":
    unittest.main()
