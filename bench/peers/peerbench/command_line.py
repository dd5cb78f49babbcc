# SPDX-License-Identifier: Apache-2.0
"""
The command line of bench/peers/run. The first half runs on the Python that was at hand and needs
nothing installed: it reads the arguments, makes the virtual environment and
starts itself again on that. The second half measures and writes.
"""

import argparse
import json
import os
import re
import signal
import sys
from pathlib import Path

from . import registry
from .cases import ALL_TYPES, PRECISIONS, SUITES, all_cases
from .install import ALWAYS, HERE, Environment, cache_folder, say

OK, FAILURE, USAGE = 0, 1, 2

# Set for the second half: the environment is there, and what is missing and why.
MISSING_GROUPS = "LIBATTN_PEERS_MISSING"

DESCRIPTION = """\
Measures libattn beside other libraries on the same tensors, with the same number of
threads, in turns within one run, and checks that their outputs agree. The first run makes a
virtual environment and builds what has to be built; that takes some minutes.

The Markdown report goes to standard output, progress to standard error; the folder --out
gets results.json, report.md, the plots, and the peers' own messages in logs/."""

EPILOG = """\
Contenders: {names}.
The virtual environment and the builds live in $XDG_CACHE_HOME/libattn-peers, or in
~/.cache/libattn-peers.

Exit codes: 0 done, 1 failure or a bar not met with --check, 2 wrong usage."""


def count(text):
    value = int(text) if re.fullmatch(r"\d{1,4}", text) else 0
    if not 1 <= value <= 1024:
        raise argparse.ArgumentTypeError(f"it is '{text}'; expected a number from 1 to 1024")
    return value


def expression(text):
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"it is '{text}'; expected a regular expression: {error}") from error


def contenders(text):
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in registry.NAMES]
    if unknown or not names:
        raise argparse.ArgumentTypeError(f"it is '{text}'; expected names among {', '.join(registry.NAMES)}")
    # libattn always takes part: without it there is nothing to compare.
    return tuple(n for n in registry.NAMES if n in names or registry.row(n).own)


def parser():
    raw = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(
        prog="run", description=DESCRIPTION, epilog=EPILOG.format(names=", ".join(registry.NAMES)), formatter_class=raw
    )
    p.add_argument(
        "-t", "--threads", type=count, default=2, metavar="N", help="threads of every contender (default: 2)"
    )
    p.add_argument("-f", "--filter", type=expression, metavar="REGEX", help="only cases whose name matches")
    p.add_argument(
        "-r", "--rounds", type=count, metavar="R", help="samples of each contender (default: 7, with --quick 3)"
    )
    p.add_argument(
        "-o", "--out", type=Path, default=Path("peers-results"), metavar="DIR", help="default: ./peers-results"
    )
    p.add_argument(
        "-s",
        "--suite",
        choices=(*SUITES, "all"),
        default="attention",
        help="bare attention (default), decode: a token against long caches, backward: gradients,"
        " linear-attention: attention with a state, linear: one linear"
        " layer, mha: layers with projections, embed: sentences through a real encoder, generate: text by a real"
        " language model, transformers: models in Transformers, or all",
    )
    p.add_argument(
        "--precision",
        choices=(*PRECISIONS, "all"),
        help="for linear, mha, embed and generate: what is multiplied (default: f32), or all of them",
    )
    p.add_argument(
        "--sentences",
        type=Path,
        metavar="FILE",
        help="for embed, generate and transformers: one in each line, instead of its own 200",
    )
    p.add_argument("--peers", type=contenders, default=registry.NAMES, metavar="A,B", help="only these, and libattn")
    p.add_argument("--quick", action="store_true", help="some typical cases, fewer rounds")
    p.add_argument(
        "--check", action="store_true", help="prints every bar with its figure; exit code 1 if one is not met"
    )
    p.add_argument("--no-memory", action="store_true", help="does not measure memory")
    p.add_argument(
        "--attn-build", type=Path, metavar="DIR", help="a Meson build folder of libattn, instead of an own build"
    )
    p.add_argument("--report-only", action="store_true", help="writes the reports again from DIR/results.json")
    p.add_argument("-l", "--list", action="store_true", help="prints the names of the cases and stops")
    return p


def select(arguments):
    precisions = PRECISIONS if arguments.precision == "all" else (arguments.precision or "f32",)
    cases = [c for c in all_cases(arguments.suite, precisions) if c.quick or not arguments.quick]
    return [c for c in cases if arguments.filter is None or arguments.filter.search(c.name)]


def main(argv):
    p = parser()
    arguments = p.parse_args(argv)
    if arguments.precision is not None and arguments.suite in ALL_TYPES:
        p.error(
            f"--precision is given with --suite {arguments.suite}; expected --suite linear, mha, embed, generate or all"
        )
    cases = select(arguments)
    if not cases:
        p.error("--filter leaves no case; see --list for the names")
    if arguments.attn_build is not None and not arguments.attn_build.is_dir():
        p.error(f"--attn-build is '{arguments.attn_build}'; expected a folder")
    if arguments.sentences is not None and not arguments.sentences.is_file():
        p.error(f"--sentences is '{arguments.sentences}'; expected a file")
    if arguments.report_only and not (arguments.out / "results.json").is_file():
        p.error(f"--report-only found no {arguments.out / 'results.json'}")
    if arguments.list:
        print("\n".join(c.name for c in cases))
        return OK
    if sys.version_info < (3, 10):
        say(f"Python is {sys.version.split()[0]}; expected 3.10 or newer")
        return FAILURE
    arguments.peers = participants(arguments.peers, suites_of(cases))
    try:
        if MISSING_GROUPS not in os.environ:
            start_again(arguments, cases, argv)
        return measure(arguments, cases)
    except (RuntimeError, OSError) as error:
        say(str(error))
        return FAILURE
    except KeyboardInterrupt:
        say("interrupted")
        return FAILURE


def suites_of(cases):
    """The suites of the cases that were chosen, each once."""
    return tuple(dict.fromkeys(c.suite for c in cases))


def participants(names, suites):
    """Who has anything to do: nobody else is installed, built or started."""
    return tuple(n for n in names if any(registry.takes_part(n, suite) for suite in suites))


def all_extras(table, names, suites):
    """What a table of the registry asks for, for these contenders in these suites."""
    return [x for suite in suites for name in names for x in registry.extras(table, name, suite)]


def start_again(arguments, cases, argv):
    """Makes the environment and runs the second half on its Python."""
    environment = Environment(cache_folder())
    environment.make()
    groups = [g for name in arguments.peers for g in registry.row(name).groups]
    groups += all_extras(registry.SUITE_GROUPS, arguments.peers, suites_of(cases))
    if any(c.dtype == "int8" and c.suite not in ALL_TYPES for c in cases):
        groups += [g for name in arguments.peers for g in registry.OPTIONAL_GROUPS.get(name, ())]
    missing = environment.install_all(dict.fromkeys((*ALWAYS, *groups)))
    if "base" in missing:
        raise RuntimeError(f"NumPy and Matplotlib cannot be installed: {missing['base']}")
    variables = {**os.environ, MISSING_GROUPS: json.dumps(missing), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.stdout.flush()
    sys.stderr.flush()
    # The same process goes on, so that a signal to it reaches the half that has workers to end.
    os.execve(environment.python, [str(environment.python), str(HERE / "run"), *argv], variables)


def find_missing(names, groups, native):
    """{contender: why} from what could not be installed or built."""
    missing = {}
    for name in names:
        row = registry.row(name)
        reasons = [groups[g] for g in row.groups if g in groups] + [native[n] for n in row.native if n in native]
        if reasons:
            missing[name] = reasons[0]
    return missing


def find_gaps(names, suites, groups, native):
    """{suite: {contender: why}} from what a suite needs besides and could not be installed or built."""
    gaps = {suite: {} for suite in suites}
    for suite in suites:
        for name in names:
            reasons = [groups[g] for g in registry.extras(registry.SUITE_GROUPS, name, suite) if g in groups]
            reasons += [native[n] for n in registry.extras(registry.SUITE_NATIVE, name, suite) if n in native]
            if reasons:
                gaps[suite][name] = reasons[0]
    return gaps


def without_inputs(suites, gaps):
    """Why the cases of a suite cannot even be made, when what everybody needs for it is missing; None if all can."""
    for suite in suites:
        for table in (registry.SUITE_GROUPS, registry.SUITE_NATIVE):
            for need in table.get(suite, {}).get("", ()):
                if need in gaps:
                    return f"{suite}: {gaps[need]}"
    return None


def measure(arguments, cases):
    """The second half, on the environment's Python."""
    from .build_native import Builds  # pylint: disable=import-outside-toplevel
    from .coordinator import Coordinator  # pylint: disable=import-outside-toplevel

    groups = json.loads(os.environ.pop(MISSING_GROUPS))
    if not arguments.report_only:
        suites = suites_of(cases)
        builds = Builds(cache_folder(), Path(sys.executable).parent, arguments.attn_build, arguments.sentences)
        # In the order of need: what is linked with something comes after it.
        needed = [n for name in arguments.peers for n in registry.row(name).native]
        needed += all_extras(registry.SUITE_NATIVE, arguments.peers, suites)
        unmade = builds.make_all(dict.fromkeys(needed))
        missing = find_missing(arguments.peers, groups, unmade)
        gaps = find_gaps(arguments.peers, suites, groups, unmade)
        if reason := without_inputs(suites, {**groups, **unmade}):
            raise RuntimeError(f"its cases cannot be made: {reason}")
        for name, path in builds.paths.items():
            os.environ[f"PEERS_{name.upper()}"] = str(path)
        rounds = arguments.rounds or (3 if arguments.quick else 7)
        coordinator = Coordinator(
            arguments.peers, missing, builds, sys.executable, arguments.out, arguments.threads, rounds, gaps
        )
        # A polite request to end is an ordinary end: the workers and the scratch folder go, too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(FAILURE))
        try:
            run = coordinator.run(cases, memory=not arguments.no_memory and not arguments.quick)
        finally:
            coordinator.close()
        write_atomically(arguments.out / "results.json", json.dumps(run, indent=1) + "\n")
    return report(arguments)


def write_atomically(path, text):
    """The file appears when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def report(arguments):
    """Writes the plots and the Markdown from results.json, and checks the bars."""
    from . import bars, figures, report_markdown, report_plots  # pylint: disable=import-outside-toplevel

    run = json.loads((arguments.out / "results.json").read_text(encoding="utf-8"))
    plots = report_plots.draw(run, arguments.out)
    text = report_markdown.render(run, plots)
    write_atomically(arguments.out / "report.md", text + "\n")
    print(text)
    say(f"results.json, report.md and {len(plots)} plots are in {arguments.out}")
    for name in figures.OWN:
        if name in run["missing"]:
            say(f"libattn itself is missing: {name}: {run['missing'][name]}")
            return FAILURE
    if arguments.check:
        lines, met = bars.lines(
            bars.check(run["results"], machine=bars.machine_of(run["context"])), run["context"]["threads"]
        )
        print("\n".join(lines))
        return OK if met else FAILURE
    return OK
