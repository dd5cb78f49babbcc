# SPDX-License-Identifier: Apache-2.0
"""Checks the training of the translator in C, by a short training on the real pairs.

One training runs on all threads, for so long that it finds most dates; PyTorch,
with the weights that have been written, must translate the tests like the program.
A short one runs on all threads from beginning to end. Another of that length runs on
one thread, is killed twice at moments that chance chooses, and goes on from its
checkpoints: weights and log must be the same bit for bit. A
training on one pair, of which all batches are the same, is stopped somewhere:
the loss and the norm of the gradients of its next step must be PyTorch's.
"""

import argparse
import os
import subprocess
import sys
import warnings
from pathlib import Path

import safetensors.numpy
import torch

from check_classifier_training import expect_refusal, fail, run_killed, shown_on_terminal

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "train"))
import train_translator

# Four epochs find 74 % of the dates; other processors round otherwise.
EPOCHS, LEAST = "4", 0.5
SHORT = "1"
# Of a loss and a norm in f32, relative; and what a loss near 0 may add.
TOLERANCE, SMALLEST = 1e-4, 1e-6
PNG = b"\x89PNG\r\n\x1a\n"


def pairs_of(path):
    """(text, date) of each line."""
    return [tuple(reversed(line.split("\t"))) for line in path.read_text().splitlines()]


def alphabet_of(folder):
    tokens = (folder / "alphabet.txt").read_text().split("\n")[:-1]
    alphabet = train_translator.Alphabet(tokens[len(train_translator.SPECIAL):])
    if alphabet.tokens != tokens:
        fail(f"the alphabet is {tokens}; expected {alphabet.tokens}")
    return alphabet


def model_with(tensors, alphabet):
    """PyTorch's model; a name or a shape that is another one is an error."""
    model = train_translator.Translator(len(alphabet.tokens))
    model.load_state_dict({name: torch.from_numpy(tensor.copy()) for name, tensor in tensors.items()})
    return model


def loss_of(model, alphabet, pairs):
    source = alphabet.source([text for text, _ in pairs])
    target = alphabet.target([date for _, date in pairs])
    logits = model.write(target[:, :-1], model.read(source), source)
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())


def check_step(program, data, folder):
    """The step after a checkpoint, by PyTorch from the checkpoint's weights and by the program that goes on."""
    command = [*program, "--data", data, "--out", folder, "--epochs", "3"]
    run_killed([*command, "--checkpoint-every", "1"], folder, dict(os.environ))
    state = safetensors.numpy.load_file(folder / "checkpoint.safetensors")
    done = len(state["log.losses"])
    shown = shown_on_terminal([*command, "--resume"])
    if b"[" not in shown or b" s left" not in shown:
        fail(f"no progress is shown on a terminal: {shown[:200]!r}")
    if (shown := shown_on_terminal([*command, "--resume", "--quiet"])) != b"":
        fail(f"a quiet training shows {shown[:200]!r}")
    alphabet = alphabet_of(folder)
    model = model_with({name: tensor for name, tensor in state.items()
                        if not name.startswith(("mean.", "square.", "log.", "training."))}, alphabet)
    loss = loss_of(model, alphabet, pairs_of(data / "train.tsv"))
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), torch.inf).item()
    row = (folder / "log.csv").read_text().splitlines()[1 + done].split(",")
    for what, found, expected in (("gradient norm", float(row[3]), norm), ("loss", float(row[4]), loss.item())):
        print(f"{what} of step {done + 1}: {found:.7f}, PyTorch's {expected:.7f}")
        if not abs(found - expected) <= TOLERANCE * expected + SMALLEST:
            fail(f"the {what} of step {done + 1} is {found}; expected {expected}")


def check_translations(translate, folder, tests, accuracy):
    alphabet = alphabet_of(folder)
    model = model_with(safetensors.numpy.load_file(folder / "translator.safetensors"), alphabet).eval()
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.inference_mode():
        (tokens,) = train_translator.by_length(train_translator.greedy_search, model,
                                               alphabet.source([text for text, _ in tests]))
    found = [alphabet.text(row) for row in tokens.tolist()]
    right = sum(a == date for a, (_, date) in zip(found, tests)) / len(tests)
    print(f"exact: {100 * accuracy:.2f} %, PyTorch with these weights {100 * right:.2f} %")
    if accuracy < LEAST or abs(right - accuracy) > SMALLEST:
        fail(f"{accuracy:.4f} of the tests came out exactly; expected at least {LEAST}, and PyTorch's {right:.4f}")
    (folder / "greedy.txt").write_text("".join(line + "\n" for line in found))
    subprocess.run([translate, "--model", folder, "--beams", "1", "--check", folder / "test.txt", "--expected",
                    folder / "greedy.txt"], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train_translate", type=Path)
    parser.add_argument("translate", type=Path)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="as train_translator.py writes it")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="enable_nested_tensor is True")
    long, whole, parts, one, wrong = (arguments.out / name for name in ("long", "whole", "parts", "one", "wrong"))
    for folder in (long, whole, parts, one, wrong):
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("checkpoint.safetensors", "translator.safetensors"):
            (folder / name).unlink(missing_ok=True)
    program = [arguments.train_translate]
    on_all = [*program, "--data", arguments.data]

    print(subprocess.run([*on_all, "--epochs", EPOCHS, "--out", long], capture_output=True, text=True, check=True).stdout,
          end="")
    on_all += ["--epochs", SHORT]
    subprocess.run([*on_all, "--out", whole], check=True, capture_output=True)
    alone = dict(os.environ, OMP_NUM_THREADS="1")
    broken = [*on_all, "--out", parts, "--checkpoint-every", "37"]
    run_killed(broken, parts, alone)
    expect_refusal(broken, "--resume goes on from it")
    expect_refusal([*broken, "--resume", "--seed", "7"], "of a training with another seed")
    run_killed([*broken, "--resume"], parts, alone)
    subprocess.run([*broken, "--resume"], check=True, env=alone, capture_output=True)
    for name in ("translator.safetensors", "log.csv", "alphabet.txt", "config.json", "test.txt", "expected.txt"):
        if (whole / name).read_bytes() != (parts / name).read_bytes():
            fail(f"{name} of a training that was killed and went on differs from that of a whole one")
    print("killed twice and gone on, on one thread: the same bytes")
    if not (long / "curve.png").read_bytes().startswith(PNG):
        fail("curve.png is no PNG")

    tests = pairs_of(arguments.data / "test.tsv")
    rows = (long / "log.csv").read_text().splitlines()
    check_translations(arguments.translate, long, tests, float(rows[-1].split(",")[-1]))

    for name, pairs in (("train.tsv", tests[:1]), ("test.tsv", tests[:1])):
        (one / name).write_text("".join(f"{date}\t{text}\n" for text, date in pairs))
    check_step(program, one, one)
    (wrong / "test.tsv").write_bytes((one / "test.tsv").read_bytes())
    (wrong / "train.tsv").write_bytes(2 * (one / "train.tsv").read_bytes())
    expect_refusal([*program, "--data", wrong, "--out", one, "--epochs", "3", "--resume"],
                   "of a training with another set of training pairs")
    (wrong / "train.tsv").write_text("1987-03-03 without a tab\n")
    expect_refusal([*program, "--data", wrong, "--out", wrong], "line 1 has no tab; expected DATE TAB TEXT")
    expect_refusal([*program, "--data", wrong / "none", "--out", wrong], "train.tsv: cannot open")
    if (wrong / "log.csv").exists():
        fail("log.csv was written although there is nothing to train with")


if __name__ == "__main__":
    main()
