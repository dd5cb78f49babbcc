# SPDX-License-Identifier: Apache-2.0
"""
The process of one contender: loads its library once, then does what it is told
line by line on standard input, and answers each line with one of JSON.

    {"do": "load", "case": {...}, "folder": "..."}   prepare, choose the way, calibrate
    {"do": "time"}                                   one untimed call, then one timed sample; of the parts, too
    {"do": "output", "rows": [[b, h, i], ...], "file": "..."}  those rows as float32, as the suite counts them
    {"do": "reject", "reason": "..."}                what the chosen way computes is wrong: go on with the next fastest
    {"do": "drop"}                                   forget the case
    {"do": "memory", "case": {...}, "folder": "..."} how far one call raises the resident set

Each library has a process of its own because several of them bring an OpenMP
runtime or a thread pool, and two of those in one process disturb each other.

Usage: python -m peerbench.worker CONTENDER THREADS
"""

import ctypes
import gc
import json
import os
import signal
import sys
import time

import numpy as np

from . import registry, tensors
from .cases import from_json, warm_up_case
from .contenders.base import Unsupported

# A sample is calls in a row for at least this long, so that the clock and the start of threads do not matter.
SAMPLE_SECONDS = 0.02

# Calls with which the ways to compute a case are compared, and seconds after which there are enough.
PROBES = 5
PROBE_SECONDS = 3.0

PR_SET_PDEATHSIG = 1


def die_with_parent():
    """The coordinator stops workers with signals; none may stay behind, stopped, when it is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def take_protocol_channel():
    """Keeps standard output for the protocol alone: whatever a library prints there goes to standard error instead."""
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return channel


def timed(run, calls=1):
    """Seconds for each of `calls` calls in a row, and what the last one returned."""
    start = time.perf_counter()
    for _ in range(calls):
        result = run()
    return (time.perf_counter() - start) / calls, result


def fastest_probe(run, most):
    """Seconds of the fastest of `most` calls, fewer if they take long."""
    seconds, spent = [], 0.0
    while len(seconds) < most and (not seconds or spent < PROBE_SECONDS):
        seconds.append(timed(run)[0])
        spent += seconds[-1]
    return min(seconds)


def status_kib(key):
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(key + ":"):
                return int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {key}")


def reset_peak_resident_set():
    with open("/proc/self/clear_refs", "w", encoding="ascii") as refs:
        refs.write("5")


class Worker:
    """The state between lines: the library, and the case that is loaded."""

    def __init__(self, name, threads):
        self.name, self.threads = name, threads
        home = registry.home(name)
        self.suites = {home: registry.make(name, threads, home)}
        self.way = None
        self.tried, self.refused = [], []  # (seconds, way) of those that work, and what is wrong with the others
        self.result = None
        self.calls = 1

    def hello(self):
        (contender,) = self.suites.values()
        return {"version": contender.version(), "notes": contender.notes(), "pid": os.getpid()}

    def contender(self, case):
        """The part of the contender that computes such cases; made when the first of them comes."""
        if case.suite not in self.suites:
            self.suites[case.suite] = registry.make(self.name, self.threads, case.suite)
        return self.suites[case.suite]

    def load(self, request):
        self.drop({})
        case = from_json(request["case"])
        contender = self.contender(case)
        contender.check(case)
        ways = contender.ways(case, contender.layout(case, tensors.read(request["folder"])))
        self.tried, self.refused = [], []
        for way in ways:
            try:
                way.run()  # the first call compiles, packs or allocates
                seconds = fastest_probe(way.run, PROBES if len(ways) > 1 else 1)
                self.tried.append((seconds, way))
            except Exception as error:  # pylint: disable=broad-except
                self.refused.append(f"{way.label}: {sentence(error)}")
        self.tried.sort(key=lambda pair: pair[0])
        return self.choose()

    def choose(self):
        """What a reply says about the fastest way that is left."""
        if not self.tried:
            raise Unsupported("; ".join(self.refused))
        seconds, self.way = self.tried[0]
        self.result = None
        self.calls = max(1, int(np.ceil(SAMPLE_SECONDS / seconds)))
        return {
            "way": self.way.label,
            "detail": getattr(self.way, "detail", ""),
            "ways": {way.label: s for s, way in self.tried},
            "refused": self.refused,
            "calls": self.calls,
            "seconds": seconds,
        }

    def reject(self, request):
        """Goes on with the next way, because the output of this one is wrong."""
        self.refused.append(f"{self.way.label}: {request['reason']}")
        del self.tried[0]
        return self.choose()

    def time(self, _request):
        if self.way.before is not None:
            self.way.before()
        self.result = self.way.run()  # puts threads and data back where they were before another contender's turn
        cpu = time.process_time()
        seconds, self.result = timed(self.way.run, self.calls)
        cpu = (time.process_time() - cpu) / self.calls
        parts = {}
        for name, run in self.way.parts.items():
            run()
            parts[name] = timed(run, self.calls)[0]
        return {"seconds": seconds, "cpu_seconds": cpu, "parts": parts}

    def output(self, request):
        if self.result is None:
            self.result = self.way.run()
        rows = np.array(request["rows"], np.int64)
        np.save(request["file"], np.asarray(self.way.rows(self.result, rows), np.float32))
        return {}

    def drop(self, _request):
        self.way = self.result = None
        self.tried = []
        gc.collect()
        return {}

    def memory(self, request):
        """
        Peak resident set during everything that a first call of the shape
        does, less the resident set with the inputs loaded. A small case went
        before, which paid for what the library loads once.
        """
        case = from_json(request["case"])
        small, contender = warm_up_case(case), self.contender(case)
        for way in contender.ways(small, contender.layout(small, tensors.make(small)))[:1]:
            way.run()
        del way
        arrays = contender.layout(case, tensors.read(request["folder"]))
        gc.collect()
        reset_peak_resident_set()
        before = status_kib("VmRSS")
        way = contender.ways(case, arrays)[0]
        way.run()
        return {"bytes": 1024 * max(0, status_kib("VmHWM") - before), "way": way.label}


def sentence(error):
    """The first line of what went wrong."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]


def answer(worker, request):
    try:
        reply = getattr(worker, request["do"])(request)
        return {"ok": True, **reply}
    except Unsupported as reason:
        return {"ok": False, "unsupported": str(reason)}
    except Exception as error:  # pylint: disable=broad-except
        return {"ok": False, "error": f"{type(error).__name__}: {sentence(error)}"}


def main():
    die_with_parent()
    channel = take_protocol_channel()
    try:
        worker = Worker(sys.argv[1], int(sys.argv[2]))
        reply = {"ok": True, **worker.hello()}
    except Exception as error:  # pylint: disable=broad-except
        worker, reply = None, {"ok": False, "error": f"{type(error).__name__}: {sentence(error)}"}
    print(json.dumps(reply), file=channel)
    if worker is None:
        return 1
    for line in sys.stdin:
        print(json.dumps(answer(worker, json.loads(line))), file=channel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
