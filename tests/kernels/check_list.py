#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every operation of the simd headers and every function of the tables of kernels has a row in check_kernels, and no
row is left of one that is gone.

usage: check_list.py CHECK_KERNELS FOLDER_OF_THE_SOURCES
"""
import pathlib
import re
import subprocess
import sys

program, sources = sys.argv[1], pathlib.Path(sys.argv[2])
OPERATION = re.compile(r"^static inline [a-z0-9_ ]+?[ *](v[fmwqsu]_[a-z0-9_]+)\(", re.MULTILINE)
MEMBER = re.compile(r"^    \w+ \(\*(\w+)\)\(", re.MULTILINE)

listed = [line.split() for line in subprocess.run([program, "--list"], check=True, capture_output=True,
                                                  text=True).stdout.splitlines()]
defined = set()
for header in sorted((sources / "simd").glob("*.h")):
    defined |= {("operations", name) for name in OPERATION.findall(header.read_text(encoding="utf-8"))}
tables = (sources / "kernels" / "kernels.h").read_text(encoding="utf-8")
for table, members in re.findall(r"^struct attn_(\w+_kernels) \{(.*?)^\};", tables, re.MULTILINE | re.DOTALL):
    defined |= {(table, name) for name in MEMBER.findall(members)}

groups = {group for group, _ in defined}
if len(defined) < 80 or groups != {"operations", "score_kernels", "value_kernels", "vector_kernels"}:
    sys.exit(f"{len(defined)} definitions in {sorted(groups)} were found in {sources}; expected more, or other ones")
rows = {(line[0], line[1]) for line in listed if line[0] in groups}
for group, name in sorted(defined - rows):
    print(f"{name} ({group}) has no row in check_kernels")
for group, name in sorted(rows - defined):
    print(f"check_kernels has a row for {name} ({group}), which the sources do not define")
print(f"{len(defined)} definitions, {len(rows)} rows")
sys.exit(defined != rows)
