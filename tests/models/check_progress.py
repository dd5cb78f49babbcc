# SPDX-License-Identifier: Apache-2.0
"""Looks at what a command shows on a terminal while it works for longer than a second: how much of its work is done,
in one line that is gone before anything else is said, and nothing with --quiet. What it prints is the same either way.

Usage: check_progress.py UNIT COMMAND [ARGUMENT...], where UNIT is what the line counts, such as texts, or MB
"""

import os
import pty
import re
import subprocess
import sys


def run(command):
    """What the command prints, and what it writes to a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs) as child:
        os.close(theirs)
        printed = child.stdout.read()  # the line is too short to fill the terminal in the meantime
        shown = b""
        try:
            while piece := os.read(ours, 4096):
                shown += piece
        except OSError:  # how Linux says that nobody has the other side any more
            pass
    os.close(ours)
    if child.returncode != 0:
        sys.exit(f"{command[0]} ended with {child.returncode}: {shown.decode()}")
    return printed, shown.decode()


def main():
    if len(sys.argv) < 3:
        print("usage: check_progress.py UNIT COMMAND [ARGUMENT...]", file=sys.stderr)
        return 2
    unit, command = sys.argv[1], sys.argv[2:]
    printed, shown = run(command)
    quiet_printed, quiet_shown = run([*command, "--quiet"])
    lines = re.sub(r"(attn: [^\r\n]*\r\n)*$", "", shown, count=1).split("\r")
    line = next((line for line in lines[1:] if not line.startswith("0 of")), "")
    print(f"{len(lines)} lines, such as '{line}'")
    if not re.fullmatch(rf"[\d.]+ ({unit} )?of \d+ {unit}, [\d.]+ {unit}/s, \d+:\d\d left *|"
                        rf"[\d.]+ {unit}, [\d.]+ {unit}/s *", line):
        print(f"expected the number of {unit}, in: {shown!r}")
        return 1
    if lines[-2].strip() or lines[-1]:
        print(f"expected an empty line at the end of: {shown!r}")
        return 1
    if quiet_shown or quiet_printed != printed:
        print(f"expected the same output with --quiet and nothing else, not {quiet_shown!r}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
