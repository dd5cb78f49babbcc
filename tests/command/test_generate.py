# SPDX-License-Identifier: Apache-2.0
"""attn generate on a decoder of a few numbers: one prompt and several, texts and their ends, drafts, precisions, chat,
and what is refused.

That the tokens are right is shown elsewhere, on a trained model; here they are compared with each other, and the text
with the tokens.
"""

import json
import os
import re
import resource
import subprocess
import unittest

from model_folders import (BYTE_PAIRS, LLAMA, PIECES, PLACES, TOKENS, TURNS, decoder, encoder_decoder, sentence_encoder,
                           special_token, spelled)
from support import COMMAND, SANITIZED, CommandTest, read_npy, read_safetensors

EXAMPLE = os.environ.get("ATTN_EXAMPLE")
RATE = r"[0-9.]+ tokens/s"
# Whatever is drawn, no token ends these.
ENDLESS = LLAMA | {"eos_token_id": None}


class GenerateTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.model = decoder(self.folder / "model")

    def start(self, *arguments, data=b"", folder="model"):
        return subprocess.run([COMMAND, "generate", folder, *map(str, arguments)], check=False, timeout=120, input=data,
                              capture_output=True, cwd=self.folder)

    def run_well(self, *arguments, data=b""):
        run = self.start(*arguments, data=data)
        self.assertEqual(run.returncode, 0, run.stderr.decode())
        return run.stdout, run.stderr.decode()

    def objects(self, *arguments, data=b""):
        """Those of --json, in the order of the prompts."""
        found = [json.loads(line) for line in self.run_well("--json", *arguments, data=data)[0].decode().splitlines()]
        found.sort(key=lambda entry: entry["prompt_number"])
        self.assertEqual([entry["prompt_number"] for entry in found], list(range(1, len(found) + 1)))
        return found

    def ids(self, *arguments):
        """Tokens of one prompt, and those that were made."""
        (found,) = self.objects(*arguments)
        return found["prompt_ids"], found["ids"]

    def refuses(self, code, *words, arguments=("-p", "ab"), data=b"", folder="model"):
        run = self.start(*arguments, data=data, folder=folder)
        sentence = run.stderr.decode(errors="replace")
        self.assertEqual((run.returncode, run.stdout), (code, b""), sentence)
        self.assertRegex(sentence, r"\Aattn: [^\n]+\n\Z")
        for word in words:
            self.assertIn(word, sentence)

    # ------------------------------------------------------------ one prompt --

    def test_text_is_that_of_the_tokens(self):
        for seed in range(6):
            drawing = ("-t", 3, "--seed", seed, "-n", 20, "-p", "ab a")
            (found,) = self.objects(*drawing)
            self.assertEqual(found["prompt_ids"], [PIECES.index("ab"), PIECES.index("Ġa")])
            text = spelled(found["ids"]).decode(errors="replace")
            self.assertEqual((found["prompt"], found["text"]), ("ab a", text))
            out, said = self.run_well(*drawing)
            self.assertEqual(out.decode(), text + "\n")
            self.assertRegex(said, rf"^attn: prompts: 2 tokens, {RATE}; generated behind them: \d+ tokens, {RATE}\n$")

    def test_ends(self):
        (found,) = self.objects("-n", 12, "-p", "ab")
        made = found["ids"]
        self.assertLessEqual(len(made), 12)
        # Whatever comes third is made the end of a text: the same tokens, up to its first place.
        end = made[2]
        self.model.put("config.json", LLAMA | {"eos_token_id": [end, TOKENS - 1]})
        (found,) = self.objects("-n", 12, "-p", "ab")
        self.assertEqual((found["ids"], found["ended_by"]), (made[:made.index(end) + 1], "eos"))
        self.assertEqual(found["text"].encode(), spelled(made[:made.index(end)]))
        self.model.put("config.json", ENDLESS)
        (found,) = self.objects("-n", 1, "-p", "ab")
        self.assertEqual((found["ids"], found["ended_by"]), (made[:1], "length"))
        self.assertRegex(self.run_well("-n", 1, "-p", "ab")[1], rf"^attn: prompts: 1 tokens, {RATE}\n$")

    def test_positions_end(self):
        self.model.put("config.json", ENDLESS)
        (found,) = self.objects("-n", 100, "-p", "b" * (PLACES - 4))
        self.assertEqual((len(found["ids"]), found["ended_by"]), (4, "positions"))
        self.assertIn(f"positions end, after {PLACES} tokens", self.run_well("-n", 100, "-p", "b" * (PLACES - 4))[1])
        self.assertEqual(self.ids("-n", 100, "-d", 8, "-p", "b" * (PLACES - 4))[1], found["ids"])
        self.refuses(1, "the prompt: it has 40 tokens; expected 1 to 39", arguments=("-p", "b" * PLACES))
        self.refuses(1, "the prompt: it has no tokens", arguments=("-p", ""))
        self.refuses(1, "prompt 2: it has no tokens", arguments=("-",), data=b"a\n\nb\n")

    def test_stop_texts(self):
        self.model.put("config.json", ENDLESS)
        drawing = ("-t", 3, "--seed", 4, "-n", 30, "-p", "ab a")
        (whole,) = self.objects(*drawing)
        text = whole["text"]
        for begin in range(0, len(text) - 3, 4):
            for size in (1, 2, 4):
                stop = text[begin:begin + size]
                out = self.run_well(*drawing, "--stop", stop)[0].decode()
                self.assertEqual(out, text[:text.index(stop)] + "\n", stop)
            # The first of several; the longer one only begins there.
            (found,) = self.objects(*drawing, "--stop", "zzz", "--stop", stop + "q", "--stop", stop)
            self.assertEqual((found["text"] + "\n", found["ended_by"]), (out, "stop"))
            self.assertEqual(whole["ids"][:len(found["ids"])], found["ids"])
        self.assertEqual(self.run_well(*drawing, "--stop", "never here")[0].decode(), text + "\n")
        self.refuses(2, "--stop is ''", arguments=("-p", "a", "--stop", ""))

    def test_streams(self):
        """The beginning of a text is there before its end is made."""
        self.model.put("config.json", ENDLESS | {"max_position_embeddings": 1000000})
        with subprocess.Popen([COMMAND, "generate", str(self.model.path), "-t", "3", "-n", "900000", "-p", "ab"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            self.assertEqual(len(os.read(process.stdout.fileno(), 1)), 1)
            self.assertIsNone(process.poll())
            process.kill()

    @unittest.skipUnless(EXAMPLE, "without examples")
    def test_example(self):
        for prompt in self.PROMPTS[:3]:
            run = subprocess.run([EXAMPLE, str(self.model.path), prompt, "14"], capture_output=True, timeout=120)
            self.assertEqual((run.returncode, run.stderr), (0, b""))
            self.assertEqual(run.stdout, self.run_well("-n", 14, "-p", prompt)[0])
        run = subprocess.run([EXAMPLE, str(self.folder), "a"], capture_output=True, timeout=120)
        self.assertEqual((run.returncode, run.stdout), (1, b""))

    def test_logits(self):
        for name in ("logits.npy", "logits.safetensors"):
            spec = name + (":logits" if name.endswith("safetensors") else "")
            _, made = self.ids("-n", 5, "--logits", spec, "-p", "ab")
            array = read_npy(self.folder / name) if name.endswith("npy") else read_safetensors(self.folder / name)["logits"]
            self.assertEqual(tuple(array.shape), (len(made), TOKENS))
            rows = [array.values[i * TOKENS:(i + 1) * TOKENS] for i in range(len(made))]
            self.assertEqual([row.index(max(row)) for row in rows], made)
        self.refuses(2, "--logits is given with 2 prompts", arguments=("-p", "a", "-p", "b", "--logits", "l.npy"))

    # --------------------------------------------------------------- several --

    PROMPTS = ["ab a", "b", "the lab, the lab, the", "a" * 24, "e", "ab ab ab a", "T"]

    def test_several_prompts(self):
        """Each text is that of its prompt alone, however many are made at once and in which chunks."""
        self.model.put("config.json", ENDLESS)
        prompts = [argument for text in self.PROMPTS for argument in ("-p", text)]
        for how in (("-n", 14), ("-n", 9, "-t", 2, "--top-p", 0.9, "--cache", "int8")):
            seeds = [("--seed", i) if "-t" in how else () for i in range(len(self.PROMPTS))]
            alone = [self.ids(*how, *seed, "-p", text) for seed, text in zip(seeds, self.PROMPTS)]
            for options in ((), ("--parallel", 1), ("--parallel", 3, "--page", 16), ("--chunk", 1),
                            ("--chunk", 7, "--parallel", 2, "--page", 0), ("--threads", 1), ("-d", 12, "--parallel", 3)):
                with self.subTest(how=how, options=options):
                    found = self.objects(*how, *options, *prompts)
                    self.assertEqual([(entry["prompt_ids"], entry["ids"]) for entry in found], alone)

    def test_lines(self):
        self.model.put("config.json", ENDLESS)
        drawing = ("-n", 12, "-t", 3, "--seed", 2)
        texts = [found["text"] for found in self.objects(*drawing, *[a for t in self.PROMPTS for a in ("-p", t)])]
        self.assertTrue(any("\n" in text for text in texts))
        lines = [text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r") for text in texts]
        data = "".join(text + "\n" for text in self.PROMPTS).encode()
        self.write(prompts_txt=data)
        for arguments in (("-",), ("prompts.txt",), ("--parallel", 2, "-"), ("-p", self.PROMPTS[0], "rest.txt")):
            self.write(rest_txt=data.split(b"\n", 1)[1])
            out, said = self.run_well(*drawing, *arguments, data=data)
            self.assertEqual(out.decode().split("\n"), lines + [""])
            self.assertIn(f"generated behind them: {11 * len(lines)} tokens", said)
        # A file with one line is one prompt.
        self.assertEqual(self.run_well(*drawing, "-", data=b"ab a")[0].decode(), texts[0] + "\n")

    def test_drafts(self):
        """With drafts the tokens are those without, however many come true; and what is said of them adds up."""
        accepted = drafted = 0
        for prompt in ("ab ab ab a", "the lab, the lab, the"):
            for how in ((), ("-t", 0.3, "--seed", 5), ("--cache", "int8", "--page", 16), ("--activations", "bf16")):
                plain = self.ids("-n", 24, *how, "-p", prompt)
                for most in (1, 12):
                    with self.subTest(prompt=prompt, how=how, drafts=most):
                        out, said = self.run_well("--json", "-n", 24, *how, "--drafts", most, "--threads", 1, "-p", prompt)
                        found = json.loads(out)
                        self.assertEqual((found["prompt_ids"], found["ids"]), plain)
                        found = re.search(r"drafts: (\d+) in (\d+) trees; accepted((?: \d+: \d+x)*)", said)
                        if found is None:
                            continue
                        counts = {int(n): int(times) for n, times in re.findall(r"(\d+): (\d+)x", found[3])}
                        self.assertEqual(sum(counts.values()), int(found[2]))
                        self.assertLessEqual(max(counts), most)
                        accepted += sum(n * times for n, times in counts.items())
                        drafted += int(found[1])
        self.assertGreater(accepted, 0)
        self.assertLess(accepted, drafted)  # some were rejected, too

    def test_encoder_decoder(self):
        """Sources of several lengths at once: each text is that of its source alone; the source is no part of it."""
        encoder_decoder(self.folder / "t5")
        prompts = [argument for text in self.PROMPTS for argument in ("-p", text)]

        def objects(*arguments):
            run = self.start("--json", "-n", 12, *arguments, folder="t5")
            self.assertEqual(run.returncode, 0, run.stderr.decode())
            found = [json.loads(line) for line in run.stdout.splitlines()]
            return sorted(found, key=lambda entry: entry["prompt_number"])

        alone = [objects("-p", text)[0] | {"prompt_number": i + 1} for i, text in enumerate(self.PROMPTS)]
        self.assertGreater(len({str(entry["ids"]) for entry in alone}), 3)
        for options in ((), ("--parallel", 1), ("--parallel", 3, "--page", 16)):
            self.assertEqual(objects(*options, *prompts), alone)
        for entry in alone:
            self.assertEqual(entry["prompt_ids"], self.ids("-n", 1, "-p", entry["prompt"])[0])
            self.assertEqual(entry["text"], spelled(entry["ids"]).decode(errors="replace"))
        run = self.start("-n", 12, "-p", self.PROMPTS[0], folder="t5")
        self.assertEqual(run.stdout.decode(), alone[0]["text"] + "\n")
        self.refuses(1, "--drafts", "encoder-decoder", arguments=("-p", "a", "--drafts", 3), folder="t5")

    # -------------------------------------------------------------- sampling --

    def test_sampling(self):
        greedy = self.ids("-p", "ab")
        self.assertEqual(self.ids("-t", 0, "-p", "ab"), greedy)
        self.assertEqual(self.ids("-t", 2, "--top-p", 1e-6, "-p", "ab"), greedy)
        self.assertEqual(self.ids("-t", 2, "--top-k", 1, "-p", "ab"), greedy)
        drawn = {str(self.ids("-t", 2, "--seed", seed, "-p", "ab")) for seed in range(4)}
        self.assertGreater(len(drawn), 1)
        self.assertEqual(self.ids("-t", 2, "-p", "ab"), self.ids("-t", 2, "--seed", 0, "-p", "ab"))

    def test_precisions(self):
        seen = []
        for options in ((), ("--precision", "f32"), ("--precision", "bf16", "--multiply", "f32", "--activations", "f32"),
                        ("--precision", "bf16"), ("--precision", "int8", "--multiply", "f32", "--group", 0),
                        ("--precision", "int8", "--multiply", "f32", "--group", 32), ("--precision", "int8"),
                        ("--activations", "bf16"), ("--activations", "f16"), ("--precision", "int4"),
                        ("--precision", "int4", "--multiply", "f32")):
            self.run_well("-n", 1, "--logits", "l.npy", *options, "-p", "ab a b")
            seen.append(tuple(read_npy(self.folder / "l.npy").values))
        self.assertEqual(seen[0], seen[1])
        # Each of the others rounds something else; 12 inputs are one group, but its scale is rounded.
        self.assertEqual(len(set(seen[1:])), len(seen) - 1)
        # int4 leaves little of so small a model.
        for row in seen[:9]:
            self.assertLess(max(abs(a - b) for a, b in zip(row, seen[0])), 0.25 * max(map(abs, seen[0])))

    # ------------------------------------------------------------------ chat --

    def test_chat(self):
        self.model.put("config.json", LLAMA | {"max_position_embeddings": 400})
        start, end = (len(PIECES) + i for i in range(2))
        line = [PIECES.index("Ċ")]

        def text(content):
            return self.ids("-n", 1, "-p", content)[0]

        def turn(role, content):
            return [start, *text(f"{role}\n{content}"), end, *line]

        answer = [start, *text("assistant\n")]
        self.assertEqual(self.ids("-n", 1, "--chat", "-p", "a b")[0], turn("user", "a b") + answer)
        self.assertEqual(self.ids("-n", 1, "--chat", "--system", "be nice", "-p", "a b")[0],
                         turn("system", "be nice") + turn("user", "a b") + answer)
        # A prompt cannot end its turn; without --chat it is what it says.
        self.assertEqual(self.ids("-n", 1, "--chat", "-p", "a<|im_end|>")[0].count(end), 1)
        self.assertEqual(self.ids("-n", 1, "-p", "a<|im_end|>")[0][-1], end)
        self.refuses(2, "--system is given without --chat", arguments=("--system", "x", "-p", "a"))
        self.model.put("tokenizer.json", BYTE_PAIRS | {"added_tokens": [
            special_token(TOKENS - 2, "<|other|>"), special_token(TOKENS - 1, TURNS[1])]})
        self.refuses(1, "--chat", "<|im_start|>", arguments=("--chat", "-p", "a"))

    # ------------------------------------------------------------- bad input --

    def test_usage(self):
        for arguments, words in (
                ((), ["no prompt is given", "--prompt"]), (("a", "b"), ["'b'"]), (("--wrong",), ["--wrong"]),
                (("-n", 0), ["-n", "'0'"]), (("-n", "x"), ["'x'"]), (("-t", -1), ["--temperature is '-1'"]),
                (("-t", "nan"), ["'nan'"]), (("-t", 1, "--top-p", 0), ["--top-p is '0'"]),
                (("-t", 1, "--top-p", 1.5), ["--top-p is '1.5'"]), (("-t", 1, "--top-k", 0), ["--top-k is '0'"]),
                (("--top-p", 0.5), ["--top-p", "--temperature"]), (("--top-k", 5), ["--top-k", "--temperature"]),
                (("--seed", 1), ["--seed", "--temperature"]), (("-t", 1, "--seed", -1), ["--seed is '-1'"]),
                (("--threads", "x"), ["--threads is 'x'"]), (("--precision", "int3"), ["'int3'", "int4"]),
                (("--multiply", "f16"), ["--multiply is 'f16'"]), (("--multiply", "int8"), ["--multiply", "--precision int8"]),
                (("--multiply", "bf16"), ["--multiply", "--precision bf16"]),
                (("--precision", "int8", "--multiply", "bf16"), ["--precision bf16"]),
                (("--group", 32), ["--group", "--precision int8"]), (("--precision", "int8", "--group", 7), ["--group is '7'"]),
                (("--activations", "int8"), ["--activations is 'int8'"]), (("--cache", "int3"), ["--cache is 'int3'"]),
                (("--drafts", 64), ["--drafts is '64'"]), (("--parallel", 0), ["--parallel is '0'"]),
                (("--chunk", 0), ["--chunk is '0'"]), (("--page", -1), ["--page is '-1'"]),
                (("--logits", "logits.txt"), ["--logits 'logits.txt'"])):
            with self.subTest(arguments=arguments):
                self.refuses(2, *words, arguments=arguments if not arguments or arguments[0] == "a" else
                             (*arguments, "-p", "a"))
        run = subprocess.run([COMMAND, "generate"], capture_output=True)
        self.assertEqual((run.returncode, run.stderr), (2, b"attn: no model is given; expected attn generate FOLDER\n"))

    def test_files(self):
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            content = self.model.content(name)
            for wrong in ("{", '"text"', ""):
                self.model.put(name, wrong)
                self.refuses(1, name)
            self.model.drop(name)
            self.refuses(1, name)
            self.model.put(name, content)
        self.refuses(1, "nowhere", folder="nowhere")
        self.write(empty_txt=b"")
        self.refuses(1, "empty.txt has no lines", arguments=("empty.txt",))
        self.refuses(1, "missing.txt", arguments=("missing.txt",))
        sentence_encoder(self.folder / "encoder")
        self.refuses(1, "encoder is an encoder (bert), which attn embed", folder="encoder")

    def test_bytes_that_are_no_text(self):
        for bad in (b"a\xff", b"\xc3", b"\xed\xa0\x80"):
            self.refuses(1, "prompt 1 is not UTF-8", arguments=("-p", os.fsdecode(bad)))
            self.refuses(1, "prompt 2 is not UTF-8", arguments=("-",), data=b"a\n" + bad + b"\n")

    @unittest.skipIf(SANITIZED, "sanitizers take more room than there is")
    def test_little_memory(self):
        self.model.put("config.json", ENDLESS | {"max_position_embeddings": 10**9})
        run = subprocess.run([COMMAND, "generate", str(self.model.path), "-", "-n", "1000000", "--parallel", "64"],
                             input=b"a\n" * 64, capture_output=True, timeout=120,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)))
        self.assertEqual((run.returncode, run.stdout), (1, b""), run.stderr)
        self.assertRegex(run.stderr.decode(), r"\Aattn: [^\n]*memory[^\n]*\n\Z")

    def test_full_disk(self):
        with open("/dev/full", "wb") as full:
            for more in ((), ("-p", "b"), ("--json",)):
                run = subprocess.run([COMMAND, "generate", str(self.model.path), "-p", "ab", *more], check=False,
                                     stdout=full, stderr=subprocess.PIPE)
                self.assertEqual(run.returncode, 1)
                self.assertIn(b"standard output", run.stderr)


if __name__ == "__main__":
    unittest.main()
