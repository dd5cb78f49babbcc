# SPDX-License-Identifier: Apache-2.0
"""python -m libattn info: what there is and what is used."""
import argparse
import os

from . import _core


def info() -> None:
    """Prints the version, the instruction sets and the threads."""
    print(f"libattn {_core.version()}")
    for name, supported in _core.instruction_sets():
        used = ", used" if name == _core.active_set() else ""
        print(f"  {name:<16} {'yes' if supported else 'no'}{used}")
    print(f"caches: {', '.join(f'L{level} {_core.cache_size(level) // 1024} KiB' for level in (1, 2, 3))}")
    runtime = _core.runtime()
    owner = f"of {os.path.basename(runtime)}" if runtime else "of libattn's own"
    print(f"threads: {_core.num_threads()}, {owner}")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m libattn", description="Attention on CPUs")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="version, instruction sets, caches and threads")
    parser.parse_args()
    info()


if __name__ == "__main__":
    main()
