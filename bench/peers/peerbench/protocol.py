# SPDX-License-Identifier: Apache-2.0
"""
The coordinator's end of a worker process.

A worker is stopped with SIGSTOP whenever it is not its turn. So no library's
idle threads can spin beside another's timed call, whatever its waiting policy
is, and none has to be slowed by being told to sleep at once. What a worker lost
by being stopped (warm caches, awake threads) its untimed call brings back.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path


class WorkerFailed(Exception):
    """The process ended, or took too long, or answered with an error; the text says which."""


class Unsupported(Exception):
    """The contender has no means to do this; the text says why."""


class WorkerProcess:
    """Starts a worker; every call lets it run, waits for its answer, and stops it again."""

    def __init__(self, name, command, environment, log, timeout):
        self.name = name
        self.timeout = timeout
        self.log = Path(log)
        self.idle_cpu = 0.0
        self._cpu_at_stop = 0.0
        with open(self.log, "ab") as errors:
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._buffer = b""
        try:
            self.about = self._answer()
        except (WorkerFailed, Unsupported):
            self.close()
            raise
        self._stop()

    def call(self, do, **fields):
        """The answer to one line."""
        if self.process.poll() is not None:
            raise WorkerFailed(f"its process has ended: {self._why()}")
        self.idle_cpu += max(0.0, self._cpu() - self._cpu_at_stop)
        os.kill(self.process.pid, signal.SIGCONT)
        try:
            self.process.stdin.write((json.dumps({"do": do, **fields}) + "\n").encode())
            self.process.stdin.flush()
            return self._answer()
        except BrokenPipeError as error:
            raise WorkerFailed(f"its process has ended: {self._why()}") from error
        finally:
            if self.process.poll() is None:
                self._stop()

    def _answer(self):
        deadline = time.monotonic() + self.timeout
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, left))
            if not ready:
                self.close()
                raise WorkerFailed(f"no answer for {self.timeout:.0f} seconds")
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                self.process.wait()
                raise WorkerFailed(f"its process ended: {self._why()}")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        reply = json.loads(line)
        if reply.pop("ok"):
            return reply
        if "unsupported" in reply:
            raise Unsupported(reply["unsupported"])
        raise WorkerFailed(reply["error"])

    def _why(self):
        """How the process ended, and what it said last."""
        code = self.process.poll()
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return f"{how}; {lines[-1][:200]}" if lines else how

    def _stop(self):
        os.kill(self.process.pid, signal.SIGSTOP)
        self._cpu_at_stop = self._cpu()

    def _cpu(self):
        """Seconds of processor time of the process so far."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            return self._cpu_at_stop
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        """Ends the process, stopped or not."""
        # The whole group, which start_new_session made: a library may have started processes of its own.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                stream.close()
