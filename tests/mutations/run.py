#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks the sources in one small way after the other, and sees that the tests notice each.

A mutation is a text of a source file and what takes its place; the lists are the .txt files beside this script, whose form
lists.py describes. A copy of the sources is built once, with the kernels for scalar code and AVX2 and little optimisation. Then
each mutation is put into it, the tests that its list names for it are built and run, with few random cases and, if all of
them pass, with more, and the text is put back. The checkout itself is never changed.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import lists

ROOT = pathlib.Path(__file__).resolve().parents[2]
SETS = ["scalar", "avx2"]
OPTIONS = ["-Dbuildtype=debugoptimized", "-Doptimization=1", "-Ddebug=false", "-Dc_args=-DATTN_SMALL_CODE", "-Dbench=false",
           "-Dexamples=false", "-Ddefault_library=shared", "-Dmpi=true"]
FEW_CASES, MANY_CASES = "300", "5000"
SEED = "956914990"  # that of tools/test
LONGEST = 240  # seconds of a test; a mutation may be a loop without an end
MESON = ["meson"]


class Refused(Exception):
    """The run cannot go on; the text says why."""


class NoBuild(Exception):
    """A mutation does not compile."""


def replaced_once(path, old, new):
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise Refused(f"{path} has {text.count(old)} times {old!r}, which is to be changed in the copy; expected 1")
    path.write_text(text.replace(old, new), encoding="utf-8")


class Copy:
    """A copy of the sources and its build."""

    def __init__(self, folder, jobs):
        self.sources, self.build = folder / "sources", folder / "build"
        self.jobs = jobs
        self.log = folder / "build.log"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        names = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], check=True, capture_output=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                (self.sources / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.sources / name)
        self.leave_out_sets()
        result = subprocess.run([*MESON, "setup", self.build, self.sources, *OPTIONS], capture_output=True, text=True)
        if result.returncode:
            raise Refused(f"meson setup failed:\n{result.stdout}{result.stderr}")
        listed = subprocess.run([*MESON, "introspect", "--tests", self.build], check=True, capture_output=True, text=True)
        self.tests = {}
        for test in json.loads(listed.stdout):
            # What is built may be behind the program that runs it.
            programs = [os.path.relpath(self.build / word, self.build) for word in test["cmd"] if os.sep in word]
            programs = [program for program in programs if not program.startswith("..")]
            if programs:
                self.tests.setdefault(test["name"], (programs[0], test))

    def leave_out_sets(self):
        """Keeps the kernels of SETS; what the tests have on top for other sets of the processor goes, too."""
        wanted = ", ".join(f"'{name}'" for name in SETS)
        replaced_once(self.sources / "src/meson.build", "isa_flags = {}\n",
                      f"kept = []\nforeach row : isa_rows\n  if row[0] in [{wanted}]\n    kept += [row]\n  endif\nendforeach\n"
                      "isa_rows = kept\nisa_flags = {}\n")
        for name in "unit", "kernels":
            path = self.sources / "tests" / name / "meson.build"
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace("if host_machine.cpu_family() == 'x86_64'", "if false"), encoding="utf-8")

    def compile(self, names):
        programs = sorted({self.tests[name][0] for name in names})
        with open(self.log, "w", encoding="utf-8") as log:
            return subprocess.run(["ninja", "-C", self.build, "-j", str(self.jobs), *programs], stdout=log,
                                  stderr=subprocess.STDOUT).returncode == 0

    def passes(self, name, cases):
        """True, False, or None for a test that does not run here."""
        test = self.tests[name][1]
        environment = {"OMP_WAIT_POLICY": "passive", **os.environ, **test["env"], "ATTN_CHECK_SEED": SEED,
                       "ATTN_CHECK_CASES": cases}
        with subprocess.Popen(test["cmd"], env=environment, cwd=test["workdir"] or self.build, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as process:
            try:
                code = process.wait(LONGEST)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGTERM)  # mpirun then ends its ranks
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                return False
        return None if code == 77 else code == 0


def noticed_by(copy, tests):
    """The first test that fails, or None. Raises NoBuild."""
    for cases in FEW_CASES, MANY_CASES:
        for name in tests:
            if not copy.compile([name]):
                raise NoBuild
            if copy.passes(name, cases) is False:
                return name
    return None


def try_mutation(copy, mutation):
    """What came of it, and a word about that."""
    path = copy.sources / mutation.file
    before = path.read_text(encoding="utf-8")
    path.write_text(before.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        name = noticed_by(copy, mutation.tests)
    except NoBuild:
        shutil.copy(copy.log, copy.log.with_name(f"no_build_{mutation.number}.log"))
        return "no build", copy.log.with_name(f"no_build_{mutation.number}.log").name
    finally:
        path.write_text(before, encoding="utf-8")
    if name:
        return ("not equivalent" if mutation.proof else "noticed"), name
    return ("equivalent", mutation.proof) if mutation.proof else ("survived", ", ".join(mutation.tests))


def run(mutations, folder, jobs):
    copy = Copy(folder, jobs)
    names = sorted({name for mutation in mutations for name in mutation.tests})
    unknown = [name for name in names if name not in copy.tests]
    if unknown:
        raise Refused(f"the lists name tests that there are not: {', '.join(unknown)}")
    if not copy.compile(names):
        raise Refused(f"the sources do not compile as they are; see {copy.log}")
    runs = 0
    for name in names:
        verdict = copy.passes(name, FEW_CASES)
        runs += verdict is not None
        if verdict is False:
            raise Refused(f"'{name}' fails without a mutation")
        if verdict is None and any(set(mutation.tests) == {name} for mutation in mutations):
            raise Refused(f"'{name}' is skipped here, and some mutations have no other test")
    print(f"{len(names)} tests pass without a mutation", flush=True)
    counts = {}
    for number, mutation in enumerate(mutations, 1):
        start = time.monotonic()
        verdict, word = try_mutation(copy, mutation)
        counts[verdict] = counts.get(verdict, 0) + 1
        seconds = time.monotonic() - start
        print(f"{number}/{len(mutations)} {verdict}: {mutation.place()}: {mutation.what} [{word}; {seconds:.0f} s]", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())), f"of {len(mutations)} mutations")
    return not set(counts) - {"noticed", "equivalent"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0],
                                     epilog="Exit code: 0 all noticed or equivalent, 1 not so, 2 wrong usage, 77 no git work "
                                     "tree or a processor without AVX2.")
    parser.add_argument("--check", action="store_true", help="only see that each text is in its file exactly once")
    parser.add_argument("--list", action="store_true", help="print the mutations and stop")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="those whose list, file or description contains one of them")
    parser.add_argument("--sample", type=int, metavar="N", help="a random N of them")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of --sample (default: 1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="of the build (default: all cores)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build-test" / "mutations", metavar="FOLDER",
                        help="where to work (default: build-test/mutations); what is there is removed")
    arguments = parser.parse_args()
    try:
        mutations = lists.read_all(ROOT)
        if arguments.only:
            mutations = [m for m in mutations if any(text in f"{m.list} {m.file} {m.what}" for text in arguments.only)]
        if arguments.sample is not None and arguments.sample < len(mutations):
            mutations = sorted(random.Random(arguments.seed).sample(mutations, arguments.sample), key=lambda m: m.number)
        if not mutations:
            raise Refused(f"no mutation contains {' or '.join(arguments.only)}" if arguments.only else "no mutations")
        if arguments.list or arguments.check:
            for mutation in mutations if arguments.list else []:
                print(f"{mutation.place()}: {mutation.what}")
            print(f"{len(mutations)} mutations, {sum(bool(m.proof) for m in mutations)} of them equivalent")
            return 0
        if subprocess.run(["git", "-C", ROOT, "rev-parse"], capture_output=True).returncode:
            print(f"{ROOT} is no git work tree, of which a copy is made")
            return 77
        cpu = pathlib.Path("/proc/cpuinfo")
        if not cpu.is_file() or " avx2 " not in cpu.read_text(encoding="utf-8"):
            print("the processor has no AVX2, of whose kernels many mutations are")
            return 77
        return 0 if run(mutations, arguments.out.resolve(), arguments.jobs) else 1
    except (Refused, lists.Wrong) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
