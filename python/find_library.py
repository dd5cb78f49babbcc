# SPDX-License-Identifier: Apache-2.0
"""Prints where the linker finds a shared library, and its SONAME, a line each.

Usage: find_library.py NAME COMPILER...
"""

import os
import re
import subprocess
import sys

_, name, *compiler = sys.argv
path = subprocess.run([*compiler, f"-print-file-name=lib{name}.so"], capture_output=True, text=True, check=True).stdout.strip()
if not os.path.isabs(path):
    # Not among the compiler's own folders: pkg-config's.
    folder = subprocess.run(["pkg-config", "--variable=libdir", name], capture_output=True, text=True, check=True).stdout
    path = os.path.join(folder.strip(), f"lib{name}.so")
path = os.path.realpath(path)
headers = subprocess.run(["readelf", "--dynamic", path], capture_output=True, text=True, check=True).stdout
print(path)
print(re.search(r"SONAME.*\[(.*)\]", headers)[1])
