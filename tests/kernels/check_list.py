#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every operation of the simd headers and every function of the tables of kernels has a row in check_kernels, and no
row is left of one that is gone. Sets with matrix registers, and those with the table of exponentials, have rows of their
own for its operations and for the functions whose usual rows leave them out.

usage: check_list.py CHECK_KERNELS FOLDER_OF_THE_SOURCES
"""
import pathlib
import re
import subprocess
import sys

program, sources = sys.argv[1], pathlib.Path(sys.argv[2])
OPERATION = re.compile(r"^static inline [a-z0-9_ ]+?[ *](v[fmwqsu]_[a-z0-9_]+)\(", re.MULTILINE)
MATRIX = re.compile(r"^(?:#define|static (?:inline )?void) (matrix_[a-z0-9_]+)\(", re.MULTILINE)
TABLE = re.compile(r"^static inline \w+ (exp2_table\w*)\(", re.MULTILINE)
STRUCT = re.compile(r"^struct attn_(\w+_kernels) \{(.*?)^\};", re.MULTILINE | re.DOTALL)
MEMBER = re.compile(r"^    \w+ \(\*(\w+)\)\(", re.MULTILINE)

# Groups that are compared as one.
MERGED = {"vector_operations": "operations", "word_operations": "operations", "int4_operations": "operations", "f8_operations": "operations",
          "matrix_operations": "matrix", "matrix_kernels": "matrix", "weights_table": "matrix",
          "states": "state_kernels", "state_products": "state_kernels",
          "state_steps": "state_kernels", "state_columns": "state_kernels"}
AROUND = {"enter", "leave"}  # called before and after each row of a set that has them

listed = [line.split() for line in subprocess.run([program, "--list"], check=True, capture_output=True,
                                                  text=True).stdout.splitlines()]
defined = set()
for header in sorted((sources / "simd").glob("*.h")):
    defined |= {("operations", name) for name in OPERATION.findall(header.read_text(encoding="utf-8"))}
headers = [set(MATRIX.findall(header.read_text(encoding="utf-8")))
           for header in sorted((sources / "simd").glob("matrix_*.h"))]
operations = set.intersection(*headers)  # what only one of them has is its own
for header in sorted((sources / "simd").glob("exp2_table_*.h")):
    operations |= set(TABLE.findall(header.read_text(encoding="utf-8")))
left_out = {line[1] for line in listed if line[2:] == ["(not", "of", "all", "sets)"] and line[0].endswith("_kernels")}
defined |= {("matrix", name) for name in operations | left_out}
for header in sorted((sources / "kernels").glob("*.h")):
    for table, members in STRUCT.findall(header.read_text(encoding="utf-8")):
        defined |= {(table, name) for name in MEMBER.findall(members) if name not in AROUND}

groups = {group for group, _ in defined}
if (len(defined) < 95 or len(operations) < 9 or
        groups != {"operations", "matrix", "score_kernels", "value_kernels", "vector_kernels", "gradient_kernels",
                   "state_kernels"}):
    sys.exit(f"{len(defined)} definitions in {sorted(groups)} were found in {sources}; expected more, or other ones")
rows = {(MERGED.get(line[0], line[0]), line[1]) for line in listed}
tables_of = {name: group for group, name in defined}
rows = {(tables_of.get(name, group) if group in ("few", "gradients", "side_by_side", "stored") else group, name) for group, name in rows}
rows = {row for row in rows if row[0] in groups}
for group, name in sorted(defined - rows):
    print(f"{name} ({group}) has no row in check_kernels")
for group, name in sorted(rows - defined):
    print(f"check_kernels has a row for {name} ({group}), which the sources do not define")
print(f"{len(defined)} definitions, {len(rows)} rows")
sys.exit(defined != rows)
