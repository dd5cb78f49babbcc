# SPDX-License-Identifier: Apache-2.0
"""Writes a text file as a C array, for the build: embed_text.py FILE NAME OUTPUT"""

import sys

path, name, output = sys.argv[1:]
data = open(path, "rb").read()
lines = [", ".join(map(str, data[i:i + 24])) for i in range(0, len(data), 24)]
with open(output, "w", encoding="ascii") as file:
    file.write(f"static const unsigned char {name}[] = {{\n    " + ",\n    ".join(lines) + ",\n};\n")
