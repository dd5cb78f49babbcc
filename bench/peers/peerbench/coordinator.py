# SPDX-License-Identifier: Apache-2.0
"""
One run: starts the workers, gives each the tensors of a case, and lets them
take turns, one sample each, round after round. A neighbour on the machine or a
change of clock frequency so meets all of them, and the fastest sample of each
is the best estimate of the undisturbed machine.

Only one worker runs at any time; the others are stopped (protocol.py).
"""

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from . import figures, registry, tensors
from .install import HERE, say
from .protocol import Unsupported, WorkerFailed, WorkerProcess
from .suites import SUITES

# Seconds after which a worker that does not answer is given up.
TIMEOUT = 300.0

# A forward case that is over at once: attn-bench adds its peak rows to any case.
PEAK_FILTER = "^forward/f32/B1/H1/Tq16/Tk16/d64/causal:none/layout:bhtd$|^peak/"


def measure_limits(attn_bench, threads):
    """
    What the machine can do now: {row: GFLOP/s} of its peaks, such as {"f32/avx512": 550.0}, and the GB/s that it reads
    from memory. Without attn-bench empty, and None.
    """
    if attn_bench is None:
        return {}, None
    command = [str(attn_bench), "--filter", PEAK_FILTER, "--format", "json", "-r", "5", "-t", str(threads)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        rows = json.loads(done.stdout)["benchmarks"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return {}, None
    read = [1e-9 * r["bytes_per_second"] for r in rows if r["name"] == "bandwidth/read"]
    peaks = {r["name"][len("peak/") :]: r["gflops"] for r in rows if r["name"].startswith("peak/")}
    return peaks, max(read, default=None)


def best_peak(samples, dtype):
    """
    The highest peak of a type among samples. Types without a peak of their own
    (f16, and bf16 where the processor has no such instructions) are held
    against that of f32.
    """
    for wanted in (dtype, "f32"):
        found = [g for sample in samples for name, g in sample.items() if name.startswith(wanted + "/")]
        if found:
            return max(found)
    return None


class Coordinator:
    """
    `missing` maps contenders to why they cannot take part, `gaps` suites to such a dictionary for them alone; all
    others are started when needed.
    """

    def __init__(self, names, missing, builds, python, out, threads, rounds, gaps=None):
        self.names = names
        self.missing = dict(missing)
        self.gaps = gaps or {}
        self.builds = builds
        self.python = python
        self.out = Path(out)
        self.threads = threads
        self.rounds = rounds
        self.workers = {}
        self.about = {}
        self.peaks, self.reads = [], []
        self.scratch = Path(tempfile.mkdtemp(prefix="libattn-peers-"))
        (self.out / "logs").mkdir(parents=True, exist_ok=True)
        # The default lies in the folder where one happens to be, which may be the source tree.
        (self.out / ".gitignore").write_text("*\n", encoding="ascii")

    def close(self):
        for worker in self.workers.values():
            worker.close()
        self.workers = {}
        shutil.rmtree(self.scratch, ignore_errors=True)

    # ------------------------------------------------------------ workers --

    def _environment(self, row):
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("ATTN_", "OMP_", "KMP_", "GOMP_", "MKL_"))
        }
        threads = str(self.threads)
        environment.update(OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads)
        environment.update(row.environment)
        environment["PYTHONPATH"] = str(HERE)
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        if row.preload:
            environment["LD_PRELOAD"] = str(self.builds.paths[row.preload])
        return environment

    def _start(self, name):
        command = [str(self.python), "-m", "peerbench.worker", name, str(self.threads)]
        return WorkerProcess(
            name, command, self._environment(registry.row(name)), self.out / "logs" / f"{name}.log", TIMEOUT
        )

    def start_all(self):
        for name in self.names:
            if name in self.missing:
                say(f"{name} is missing: {self.missing[name]}")
                continue
            (self.out / "logs" / f"{name}.log").unlink(missing_ok=True)
            try:
                self.workers[name] = self._start(name)
                self.about[name] = self.workers[name].about
                say(f"{name}: {self.about[name]['version']}")
            except (WorkerFailed, Unsupported) as error:
                self.missing[name] = str(error)
                say(f"{name} is missing: {error}")

    def _failed(self, name, error):
        """A process that ended or does not answer is replaced for the next case; an exception ends none."""
        say(f"{name}: {error}")
        if self.workers[name].process.poll() is None:
            return
        self.workers.pop(name).close()
        try:
            self.workers[name] = self._start(name)
        except (WorkerFailed, Unsupported) as again:
            self.missing[name] = f"it failed ({error}) and cannot be started again: {again}"

    # -------------------------------------------------------------- cases --

    def _try(self, name, entries, do, **fields):
        """The worker's answer; on failure None, with the entry saying why."""
        try:
            return self.workers[name].call(do, **fields)
        except Unsupported as reason:
            entries[name] = {"status": "missing", "reason": str(reason)}
        except WorkerFailed as error:
            entries[name] = {"status": "missing", "reason": f"failed: {error}"}
            self._failed(name, error)
        return None

    def run_case(self, case):
        """The summarised result of a case."""
        suite = SUITES[case.suite]
        arrays = suite.make(case)
        folder = self.scratch / "case"
        tensors.write(arrays, folder)
        rows = suite.pick_rows(case)
        expected = suite.expect(case, arrays, rows)
        flops, items = suite.flops(case, arrays), suite.items(case, arrays)
        del arrays

        self._sample_limits()
        names = [name for name in self.names if registry.takes_part(name, case.suite)]
        missing = {**self.gaps.get(case.suite, {}), **self.missing}
        entries = {name: {"status": "missing", "reason": missing[name]} for name in names if name in missing}
        for name in [n for n in names if n in self.workers and n not in entries]:
            loaded = self._try(name, entries, "load", case=case.to_json(), folder=str(folder))
            if loaded is not None:
                entries[name] = {"status": "ok", "samples": [], **loaded}
                self._settle_way(name, entries, case, rows, expected, suite.disagree)
        turns = self._take_turns(entries)
        for name in turns:
            self._compare(name, entries, case, rows, expected, suite.disagree)
        for name in list(self.workers):
            if name in turns:
                self._try(name, {}, "drop")
        shutil.rmtree(folder)

        result = {
            "case": case.name,
            "suite": case.suite,
            "kind": case.kind,
            "dtype": case.dtype,
            "tokens": case.tokens,
            "series": case.series,
            "flops": flops,
            "items": items,
            "bytes": suite.bytes(case),
            "peak_gflops": None,
            "contenders": {name: entries[name] for name in names},
        }
        return figures.summarise(result)

    def _sample_limits(self):
        peaks, read = measure_limits(self.builds.attn_bench, self.threads)
        self.peaks.append(peaks)
        self.reads += [read] if read is not None else []

    def _take_turns(self, entries):
        """Fills in samples; returns the names of those that have any."""
        turns = [name for name in self.names if entries.get(name, {}).get("status") == "ok"]
        for turn in range(self.rounds):
            # The order is turned by one each round, so that nobody always follows the same one.
            shift = turn % len(turns) if turns else 0
            for name in turns[shift:] + turns[:shift]:
                if entries[name]["status"] != "ok":
                    continue
                samples = entries[name]["samples"]
                fastest = min((min(e["samples"]) for e in entries.values() if e.get("samples")), default=0.0)
                if figures.is_settled(name, samples, fastest):
                    continue
                reply = self._try(name, entries, "time")
                if reply is not None:
                    samples.append(reply["seconds"])
                    entries[name].setdefault("cpu_seconds", []).append(reply["cpu_seconds"])
                    for part, seconds in reply["parts"].items():
                        entries[name].setdefault("parts", {}).setdefault(part, []).append(seconds)
        return [name for name in turns if entries[name]["status"] == "ok"]

    def _settle_way(self, name, entries, case, rows, expected, disagree):
        """Passes over ways whose output is wrong, as long as there is another: the fastest right one is measured."""
        while True:
            self._compare(name, entries, case, rows, expected, disagree)
            if entries[name]["status"] != "wrong" or len(entries[name]["ways"]) == 1:
                return
            reply = self._try(name, entries, "reject", reason=entries[name]["reason"])
            if reply is None:
                return
            entries[name] = {"status": "ok", "samples": [], **reply}

    def _compare(self, name, entries, case, rows, expected, disagree):
        file = self.scratch / "rows.npy"
        file.unlink(missing_ok=True)
        if self._try(name, entries, "output", rows=rows.tolist(), file=str(file)) is None:
            return
        worst, wrong = disagree(case, np.load(file), expected, registry.tolerance(name, case.suite, case.dtype))
        entries[name]["difference"] = worst if np.isfinite(worst) else None
        if wrong:
            entries[name].update(status="wrong", reason=wrong)

    # ------------------------------------------------------------- memory --

    def run_memory(self, case):
        """{"case", "tokens", "series", "contenders": {name: bytes or None}}: each in a fresh process."""
        folder = self.scratch / "memory"
        tensors.write(tensors.make(case), folder)
        grown = {}
        for name in self.names:
            grown[name] = None
            if name in self.missing or not registry.takes_part(name, case.suite):
                continue
            try:
                worker = self._start(name)
            except (WorkerFailed, Unsupported):
                continue
            try:
                grown[name] = worker.call("memory", case=case.to_json(), folder=str(folder))["bytes"]
            except (WorkerFailed, Unsupported) as error:
                say(f"{name}: memory of {case.name}: {error}")
            finally:
                worker.close()
        shutil.rmtree(folder)
        return {"case": case.name, "tokens": case.tokens, "series": case.series, "contenders": grown}

    # ---------------------------------------------------------- the whole --

    def run(self, cases, memory=True):
        """Everything that the reports need, as one dictionary."""
        started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self.start_all()
        results, grown = [], []
        for number, case in enumerate(cases, 1):
            say(f"[{number}/{len(cases)}] {case.name}")
            results.append(self.run_case(case))
            say(f"    {short(results[-1])}")
        self._sample_limits()
        # The best of the run: a disturbed peak would make the case beside it look too good.
        for case, result in zip(cases, results, strict=True):
            result["peak_gflops"] = best_peak(self.peaks, result["dtype"])
            if result["bytes"] is not None and case.far:
                result["read_gb_per_second"] = max(self.reads, default=None)
            figures.summarise(result)
        idle = {name: round(worker.idle_cpu, 2) for name, worker in self.workers.items()}
        # Their memory is wanted back before others' is measured.
        for worker in self.workers.values():
            worker.close()
        self.workers = {}
        if memory:
            for case in (c for c in cases if c.memory):
                say(f"memory: {case.name}")
                grown.append(self.run_memory(case))
        return {
            "context": {**self._context(), "date": started, "idle_cpu_seconds": idle},
            "missing": self.missing,
            "results": results,
            "memory": grown,
        }

    def _context(self):
        return {
            "command": shlex.join(["bench/peers/run", *sys.argv[1:]]),
            "cpu": cpu_name(),
            "cores": len(os.sched_getaffinity(0)),
            "threads": self.threads,
            "rounds": self.rounds,
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "peaks": {n: max(p[n] for p in self.peaks if n in p) for n in {n for p in self.peaks for n in p}},
            "read_gb_per_second": max(self.reads, default=None),
            "versions": {name: about["version"] for name, about in self.about.items()},
            "notes": {name: about["notes"] for name, about in self.about.items() if about["notes"]},
        }


def cpu_name():
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def short(result):
    """A case in one line of progress."""
    parts = [f"{n} {figures.shown(result, e)}" for n, e in figures.agreeing(result).items()]
    parts += [f"{n} WRONG" for n, e in result["contenders"].items() if e["status"] == "wrong"]
    return f"{figures.unit(result)}: " + ", ".join(parts) if parts else "nobody has a result"


if __name__ == "__main__":
    sys.exit("this is a module; start bench/peers/run")
