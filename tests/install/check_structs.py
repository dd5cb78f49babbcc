#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares tools/attn_structs.py, the structs for ctypes, with the layout that a C compiler gives them.

Usage: check_structs.py TEST_ABI [TEST_NN_ABI]

The programs are those of tests/unit/test_abi.c and tests/nn/test_abi.c, which print their lists with --json. Exit code:
0 all fields lie where C has them, 1 not, 2 wrong usage.
"""

import ctypes
import json
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import attn_structs  # noqa: E402  pylint: disable=wrong-import-position


def differences(name, mirror, expected):
    """Sentences about a struct that lies otherwise in Python."""
    if expected is None:
        return [f"{name} is in attn_structs.py; expected a struct that the program's list has"]
    found = []
    if ctypes.sizeof(mirror) != expected["size"]:
        found.append(f"{name} has {ctypes.sizeof(mirror)} bytes; expected {expected['size']}")
    # A field named "self" is found in the class all the same.
    fields = {field: getattr(mirror, field) for field, _ in mirror._fields_}
    for field, descriptor in fields.items():
        place = expected["fields"].get(field)
        if place is None:
            found.append(f"{name}.{field} is not in C")
        elif [descriptor.offset, descriptor.size] != place:
            found.append(
                f"{name}.{field} has offset {descriptor.offset} and {descriptor.size} bytes; expected {place[0]} "
                f"and {place[1]}"
            )
    found += [f"{name}.{field} is missing" for field in expected["fields"] if field not in fields]
    return found


def main(programs):
    if not 1 <= len(programs) <= 2:
        print(__doc__, file=sys.stderr)
        return 2
    wrong, checked = [], 0
    for program, mirrors in zip(programs, (attn_structs.LIBATTN, attn_structs.LIBATTN_NN)):
        output = subprocess.run([program, "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout
        structs = json.loads(output)
        for name, mirror in mirrors.items():
            wrong += differences(name, mirror, structs.get(name))
            checked += 1
    for sentence in wrong:
        print(f"check_structs: {sentence}", file=sys.stderr)
    if not wrong:
        print(f"check_structs: {checked} structs lie as in C")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
