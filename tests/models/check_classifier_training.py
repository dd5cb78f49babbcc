# SPDX-License-Identifier: Apache-2.0
"""Checks the training of the text classifier in C on the real texts.

One training runs on all threads from beginning to end. Another runs on one
thread, is killed twice at moments that chance chooses, and goes on from its
checkpoints: weights and log must be the same bit for bit. The accuracy on the
test texts must be that of the classifier that PyTorch trained, but for chance.
"""

import argparse
import os
import pty
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import safetensors.numpy

# Of 3132 test texts 0.7 % is one standard deviation of the accuracy.
TOLERANCE = 0.012
PNG = b"\x89PNG\r\n\x1a\n"


def fail(sentence):
    sys.exit(f"{Path(sys.argv[0]).stem}: {sentence}")


def expect_refusal(command, words):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 1 or words not in done.stderr:
        fail(f"{' '.join(map(str, command))} ended with {done.returncode} and said {done.stderr!r}; expected {words!r}")


def run_killed(command, folder, environment):
    """Starts a training, and kills it some time after it has written another checkpoint."""
    checkpoint = folder / "checkpoint.safetensors"
    before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment) as training:
        while not checkpoint.exists() or checkpoint.stat().st_mtime_ns == before:
            if training.poll() is not None:
                fail("the training ended before it could be killed")
            time.sleep(0.01)
        time.sleep(random.uniform(0.1, 1.0))
        training.send_signal(signal.SIGKILL)
    if training.returncode != -signal.SIGKILL:
        fail(f"the training ended with {training.returncode} before it could be killed")


def shown_on_terminal(command):
    """What a program writes to a terminal."""
    master, slave = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=slave) as training:
        os.close(slave)
        shown = b""
        while True:
            try:
                part = os.read(master, 4096)
            except OSError:
                break
            if not part:
                break
            shown += part
    os.close(master)
    if training.returncode:
        fail(f"a training on a terminal ended with {training.returncode}")
    return shown


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train_classify", type=Path)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="as train_classifier.py writes it")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    arguments = parser.parse_args()
    program = [arguments.train_classify, "--data", arguments.data]
    whole, parts, short = (arguments.out / name for name in ("whole", "parts", "short"))
    for folder in (whole, parts, short):
        for name in ("checkpoint.safetensors", "classifier.safetensors"):
            (folder / name).unlink(missing_ok=True)

    told = subprocess.run([*program, "--out", whole], capture_output=True, text=True, check=True).stdout
    print(told, end="")
    alone = dict(os.environ, OMP_NUM_THREADS="1")
    broken = [*program, "--out", parts, "--checkpoint-every", "37"]
    run_killed(broken, parts, alone)
    expect_refusal(broken, "--resume goes on from it")
    expect_refusal([*broken, "--resume", "--seed", "7"], "of a training with another seed")
    run_killed([*broken, "--resume"], parts, alone)
    subprocess.run([*broken, "--resume"], check=True, env=alone, capture_output=True)
    for name in ("classifier.safetensors", "log.csv", "vocab.txt", "classes.txt", "config.json"):
        if (whole / name).read_bytes() != (parts / name).read_bytes():
            fail(f"{name} of a training that was killed and went on differs from that of a whole one")
    print("killed twice and gone on, on one thread: the same bytes")

    rows = (whole / "log.csv").read_text().splitlines()
    accuracy = float(rows[-1].split(",")[-1])
    reference = safetensors.numpy.load_file(arguments.data / "reference.safetensors")
    expected = float((reference["logits"].argmax(1) == reference["labels"]).mean())
    print(f"accuracy {100 * accuracy:.2f} %, PyTorch's {100 * expected:.2f} %, {len(rows) - 1} steps")
    if accuracy < expected - TOLERANCE:
        fail(f"the accuracy is {accuracy:.4f}; expected at least {expected - TOLERANCE:.4f}")
    if not (whole / "curve.png").read_bytes().startswith(PNG):
        fail("curve.png is no PNG")

    shown = shown_on_terminal([*program, "--out", short, "--epochs", "1"])
    if b"[#" not in shown or b" steps/s, " not in shown or b" s left" not in shown:
        fail(f"no progress is shown on a terminal: {shown[:200]!r}")


if __name__ == "__main__":
    main()
