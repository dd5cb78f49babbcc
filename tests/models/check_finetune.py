# SPDX-License-Identifier: Apache-2.0
"""Checks that examples/finetune adapts the sentence encoder, on some of the real texts.

The adapted encoder must beat logistic regression on the encoder as it is. A
training on one thread that is killed and goes on from its checkpoint must end
with the same weights and log, bit for bit. PyTorch, with the weights that have
been written, must classify the test texts as well.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from check_classifier_training import expect_refusal, fail, run_killed

TRAIN, TEST = 1500, 800


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("finetune", type=Path)
    parser.add_argument("--model", type=Path, required=True, metavar="FOLDER", help="a sentence encoder")
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="as train_classifier.py writes it")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    arguments = parser.parse_args()
    few, whole, parts = (arguments.out / name for name in ("few", "whole", "parts"))
    few.mkdir(parents=True, exist_ok=True)
    for name, count in (("train.tsv", TRAIN), ("test.tsv", TEST)):
        lines = (arguments.data / name).read_bytes().splitlines(keepends=True)
        (few / name).write_bytes(b"".join(lines[:count]))
    for folder in (whole, parts):
        for name in ("checkpoint.safetensors", "model.safetensors"):
            (folder / name).unlink(missing_ok=True)
    program = [arguments.finetune, "--model", arguments.model, "--data", few, "--epochs", "2"]

    told = subprocess.run([*program, "--out", whole], capture_output=True, text=True, check=True).stdout
    print(told, end="")
    frozen, adapted = (float(share) for share in re.findall(r"texts (\d+\.\d+) %", told))
    if not adapted > frozen:
        fail(f"the adapted encoder has an accuracy of {adapted} %; expected more than {frozen} %, without adaptation")
    alone = dict(os.environ, OMP_NUM_THREADS="1")
    broken = [*program, "--out", parts, "--checkpoint-every", "11"]
    run_killed(broken, parts, alone)
    expect_refusal([*broken, "--resume", "--seed", "7"], "of a training with another seed")
    subprocess.run([*broken, "--resume"], check=True, env=alone, capture_output=True)
    for name in ("model.safetensors", "log.csv", "classes.txt"):
        if (whole / name).read_bytes() != (parts / name).read_bytes():
            fail(f"{name} of a training that was killed and went on differs from that of a whole one")
    print("killed and gone on, on one thread: the same bytes")

    script = Path(__file__).resolve().parents[2] / "examples" / "train" / "finetune_encoder.py"
    shown = subprocess.run([sys.executable, "-B", script, "--model", arguments.model, "--data", few, "--logits",
                            whole / "model.safetensors"], capture_output=True, text=True, check=True).stdout
    difference = abs(float(shown) - adapted / 100)
    print(f"PyTorch with these weights: {100 * float(shown):.2f} %")
    if difference > 1.5 / TEST + 1e-4:
        fail(f"PyTorch classifies {100 * float(shown):.3f} % rightly; expected {adapted} %, one text more or less")


if __name__ == "__main__":
    main()
