# SPDX-License-Identifier: Apache-2.0
"""
The virtual environment: made once, filled group by group from
requirements.txt. A group that cannot be installed leaves a reason behind and
the run goes on without the peers that need it.

Runs on the Python that starts the benchmark, with the standard library only.
"""

import hashlib
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
REQUIREMENTS = HERE / "requirements.txt"

# Headings that every run needs.
ALWAYS = ("base", "build")

# What pip is told besides: llama.cpp is compiled for this machine, and nothing but the library.
ENVIRONMENT = {
    "llama": {"CMAKE_ARGS": "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_CURL=OFF"},
}


def cache_folder():
    """Where the environment and the builds live, outside of the source tree."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "libattn-peers"


def parse_groups(text):
    """{heading: [requirement, ...]} of a requirements file whose groups begin with `# [heading]`."""
    groups, current = {}, None
    for line in text.splitlines():
        heading = re.fullmatch(r"#\s*\[([^\]]+)\]", line.strip())
        if heading:
            current = groups.setdefault(heading.group(1), [])
        elif heading is None and current is not None and line.strip():
            # Sources are fetched, not installed: they are comments for pip and entries for us.
            requirement = line.strip().lstrip("# ")
            if not line.startswith("#") or "==" in requirement and " " not in requirement:
                current.append(requirement)
    return groups


def source_of(name):
    """The pinned requirement of a source package."""
    return parse_groups(REQUIREMENTS.read_text())[f"source: {name}"][0]


def say(text):
    print(f"peers: {text}", file=sys.stderr, flush=True)


def last_line(text):
    """What a failed program said last, or the last line that calls itself an error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(error|.*\berror:)", line, re.IGNORECASE)]
    return (errors or lines or ["it said nothing"])[-1][:300]


def run_logged(command, log, **options):
    """Runs a program with its output in `log`; raises RuntimeError with the reason when it fails."""
    with open(log, "a", encoding="utf-8", errors="replace") as file:
        start = file.tell()
        file.write(f"$ {' '.join(map(str, command))}\n")
        file.flush()
        try:
            code = subprocess.run(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
                **options,
            ).returncode
        except OSError as error:
            raise RuntimeError(f"{command[0]}: {error.strerror}") from error
    if code != 0:
        with open(log, encoding="utf-8", errors="replace") as file:
            file.seek(start)
            raise RuntimeError(f"{Path(str(command[0])).name} failed: {last_line(file.read())}")


class Environment:
    """The virtual environment, and which groups it has."""

    def __init__(self, folder):
        self.folder = Path(folder) / "venv"
        self.log = Path(folder) / "install.log"
        self.python = self.folder / "bin" / "python"
        self.groups = parse_groups(REQUIREMENTS.read_text())

    def make(self):
        if not self.python.exists():
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            say("making the virtual environment")
            try:
                venv.create(self.folder, with_pip=True)
            except subprocess.CalledProcessError as error:
                raise RuntimeError(
                    "the virtual environment cannot be made; is Python's venv module complete?"
                ) from error

    def install(self, name):
        """None, or why the group is not there. A group that was installed with the same pins is left alone."""
        wanted = self.groups[name]
        stamp = self.folder / f"{name}.installed"
        digest = hashlib.sha256("\n".join(wanted).encode()).hexdigest()
        if stamp.exists() and stamp.read_text().strip() == digest:
            return None
        say(f"installing {', '.join(wanted)}")
        try:
            pip = [self.python, "-m", "pip", "install", "--disable-pip-version-check"]
            run_logged([*pip, *wanted], self.log, env={**os.environ, **ENVIRONMENT.get(name, {})})
        except RuntimeError as error:
            return str(error)
        stamp.write_text(digest + "\n")
        return None

    def install_all(self, names):
        """{group: reason} of those among `names` that could not be installed."""
        return {name: reason for name in names if (reason := self.install(name)) is not None}
