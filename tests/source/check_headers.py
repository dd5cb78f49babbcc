# SPDX-License-Identifier: Apache-2.0
"""Compiles every header of include and src by itself, twice, with the build's own flags.

A header that works only after another one hides what it needs, and makes the order of includes part of the design.

Which instruction sets a header is compiled for follows from its name: of its words (simd_avx2, scores_bf16) those that
are in names of sets choose the sets that have them all; the word mm is in names that end in it (neon_bf16mm). Without
such a word templates are compiled for every set that extends no other, and the rest for the scalar one. The macros of a
set come from src/isa/SET.c, or src/nn/isa/SET.c for headers of src/nn, and the compiler's flags from the build's
compile_commands.json. Headers of another processor's sets are skipped. Templates that some sets name (ATTN_VALUES and so
on) are compiled for these. What else is about matrix registers, or the table of exponentials that their tiles take, is
compiled for the sets that have such registers.

The compiler's header of intrinsics takes it longer to read than everything else together. Headers that name an intrinsic
have to include it themselves; for the others it is precompiled, once for each set.

With --other-sets, for a second processor, nothing is compiled for the scalar set, which is the same on all.

Usage: check_headers.py SOURCE_FOLDER BUILD_FOLDER [--other-sets]
"""

import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path


def sets_of(folder, source, commands):
    """Sets that this build compiles in that folder: name -> (lines that define macros, command without its files)."""
    found = {}
    for path in sorted((source / folder).glob("*.c")):
        if path.resolve() in commands:
            lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#include")]
            found[path.stem] = ("\n".join(lines) + "\n", commands[path.resolve()])
    return found


def words_of(isa):
    """The words in the name of a set."""
    return {*isa.split("_")} | ({"mm"} if isa.endswith("mm") else set())


def without_files(words):
    """A compiler's command without what is read and written."""
    kept = []
    words = iter(words)
    for word in words:
        if word in ("-o", "-c", "-MF", "-MQ", "-MT"):
            next(words)
        elif word not in ("-MD", "-MMD"):
            kept.append(word)
    return kept


class Intrinsics:
    """The compiler's header of intrinsics, precompiled for each command of a compiler that it is asked for."""

    def __init__(self, folder, build):
        self.folder, self.build, self.options = Path(folder), build, {}

    def options_for(self, command):
        """Options that include it; none where the compiler lacks it."""
        key = tuple(command)
        if key not in self.options:
            header = self.folder / f"intrinsics{len(self.options)}.h"
            header.write_text("#include <immintrin.h>\n", encoding="utf-8")
            run = subprocess.run([*command, "-x", "c-header", header, "-o", f"{header}.gch"],
                                 cwd=self.build, capture_output=True, check=False)
            self.options[key] = [] if run.returncode else ["-include", str(header)]
        return self.options[key]


def main():
    other_sets = sys.argv[3:] == ["--other-sets"]
    if len(sys.argv) != 3 + other_sets:
        print("usage: check_headers.py SOURCE_FOLDER BUILD_FOLDER [--other-sets]", file=sys.stderr)
        return 2
    source, build = (Path(argument).resolve() for argument in sys.argv[1:3])
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        commands[(build / entry["file"]).resolve()] = without_files(shlex.split(entry["command"]))
    core = sets_of("src/isa", source, commands)
    layers = sets_of("src/nn/isa", source, commands)
    stubs = {folder: {path.stem: path.read_text(encoding="utf-8") for path in (source / folder).glob("*.c")}
             for folder in ("src/isa", "src/nn/isa")}
    names = {word for path in (source / "src/isa").glob("*.c") for word in words_of(path.stem)}

    with tempfile.TemporaryDirectory() as folder:
        return check(source, build, core, layers, commands.get(source / "src/mpi/mpi.c"), stubs, names,
                     Intrinsics(folder, build), other_sets)


def check(source, build, core, layers, of_messages, stubs, names, intrinsics, other_sets):
    """Compiles the headers of a build with these sets, and libattn_mpi's by a command; 1 where one does not compile."""
    compiled = skipped = failed = 0
    for header in sorted([*source.glob("include/**/*.h"), *source.glob("src/**/*.h")]):
        name = header.relative_to(source).as_posix()
        of_nn, of_mpi = name.startswith("src/nn/"), name.startswith("src/mpi/") or header.name == "mpi.h"
        if (of_nn and not layers) or (of_mpi and not of_messages):
            continue  # the build is without that library
        sets = layers if of_nn else {"scalar": ("", of_messages)} if of_mpi else core
        words = set(re.split(r"[_.]", header.name))
        wanted = words & names
        include = re.sub(r"^(include|src)/", "", name)
        naming = {s for s, text in stubs["src/nn/isa" if of_nn else "src/isa"].items()
                  if f'"{include}"' in text and header.parent.name == "kernels"}
        if naming and not (of_nn and wanted):
            sets = {s: of for s, of in sets.items() if s in naming}
        elif header.parent.name in ("simd", "kernels") and words & {"matrix", "table"}:
            sets = {s: of for s, of in sets.items() if "ATTN_MATRIX" in of[0]}
        elif wanted:
            sets = {s: of for s, of in sets.items() if wanted <= words_of(s)}
        elif header.parent.name in ("isa", "kernels"):
            sets = {s: of for s, of in sets.items() if "_" not in s}
        else:
            sets = {"scalar": sets["scalar"]}
        if other_sets:
            sets = {s: of for s, of in sets.items() if s != "scalar"}
        skipped += not sets
        names_intrinsics = re.search(r"\b(_mm|__m\d|_tile|immintrin)", header.read_text(encoding="utf-8"))
        for isa, (macros, command) in sets.items():
            known = [] if names_intrinsics else intrinsics.options_for(command)
            run = subprocess.run(
                [*command, *known, "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-fdiagnostics-color=never", "-fsyntax-only", "-x", "c", "-"],
                input=f'{macros}#include "{include}"\n#include "{include}"\n',
                cwd=build, capture_output=True, text=True, check=False)
            compiled += 1
            if run.returncode:
                failed += 1
                print(f"{name} does not compile by itself ({isa}):\n{run.stderr}")
    print(f"{compiled} compiled, {failed} failed; {skipped} headers are for other processors")
    return 1 if failed or not compiled else 0


if __name__ == "__main__":
    sys.exit(main())
