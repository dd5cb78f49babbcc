# SPDX-License-Identifier: Apache-2.0
"""Signals that end attn, at every call that writes and at many moments: all outputs or none, no temporary file."""

import os
import signal
import subprocess
import time
import unittest

from support import COMMAND, SANITIZED, CommandTest, normal

SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
OUTPUTS = ("o.npy", "l.npy", "w.safetensors")


def defaults():
    """What a terminal gives; a test may run in the background, where some are ignored. And no core files."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def ignore_hangup():
    defaults()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


class Signals(CommandTest):
    def setUp(self):
        super().setUp()
        self.write(q_npy=normal((1, 8, 64, 8), 1))
        self.run_line = ["run", "-q", "q.npy", "-k", "q.npy", "-v", "q.npy", "-o", "o.npy", "--lse", "l.npy",
                         "--weights", "w.safetensors:w", "--threads", "4"]
        self.attn(*self.run_line)
        self.new = {name: (self.folder / name).read_bytes() for name in OUTPUTS}
        self.attn("heatmap", "w.safetensors:w", "-o", "p.png")
        self.picture = (self.folder / "p.png").read_bytes()
        self.reset()

    def reset(self):
        for path in self.folder.iterdir():
            if path.name != "q.npy":
                path.unlink()
        # One of the outputs does not exist before.
        self.write(o_npy=b"old", l_npy=b"old", p_png=b"old")

    def outcome(self, what):
        """True if all outputs are new, False if all are old; anything else fails."""
        content = self.content()
        for name in ("q.npy", "p.png"):
            del content[name]
        if content == self.new:
            return True
        self.assertEqual(content, {"o.npy": b"old", "l.npy": b"old"}, f"{what}: some outputs, or a temporary file")
        return False

    def at(self, call, number, sent, line, preexec=defaults):
        preload = {**os.environ, "LD_PRELOAD": os.environ["ATTN_SIGNAL_AT"],
                   "ATTN_TEST_SIGNAL_AT": f"{call}:{number}:{int(sent)}", "ATTN_TEST_CALLS": ""}
        return subprocess.run([COMMAND, *line], cwd=self.folder, capture_output=True, env=preload, preexec_fn=preexec,
                              timeout=120).returncode

    def calls(self, line):
        report = self.folder / "calls"
        self.attn(*line, env={**os.environ, "LD_PRELOAD": os.environ["ATTN_SIGNAL_AT"],
                              "ATTN_TEST_CALLS": str(report)})
        made = {name: int(number) for name, number in map(str.split, report.read_text().splitlines())}
        report.unlink()
        self.reset()
        return made

    @unittest.skipIf(SANITIZED, "a sanitizer wants to be loaded first")
    def test_every_call_that_writes(self):
        made = self.calls(self.run_line)
        # Three files; the folder is synced for each.
        self.assertEqual((made["fsync"], made["rename"], made["unlink"]), (6, 3, 0))
        self.assertGreaterEqual(made["write"], 6)
        for sent in (signal.SIGINT, signal.SIGTERM):
            for call in ("write", "fsync", "rename"):
                for number in range(1, made[call] + 1):
                    what = f"{sent.name} at {call} {number}"
                    self.assertEqual(self.at(call, number, sent, self.run_line), -sent, what)
                    committed = call == "rename" or call == "fsync" and number > 3
                    self.assertEqual(self.outcome(what), committed, what)
                    self.reset()
        for sent in SIGNALS:
            self.assertEqual(self.at("rename", 2, sent, self.run_line), -sent)
            self.assertTrue(self.outcome(sent.name))
            self.reset()

    @unittest.skipIf(SANITIZED, "a sanitizer wants to be loaded first")
    def test_a_picture(self):
        line = ["heatmap", "-q", "q.npy", "-k", "q.npy", "-o", "p.png", "--threads", "4"]
        for call, number in (("write", 1), ("fsync", 1), ("rename", 1)):
            self.assertEqual(self.at(call, number, signal.SIGINT, line), -signal.SIGINT)
            self.assertEqual(sorted(self.content()), ["l.npy", "o.npy", "p.png", "q.npy"])
            drawn = (self.folder / "p.png").read_bytes()
            self.assertEqual(drawn == b"old", call != "rename", call)
            self.reset()

    @unittest.skipIf(SANITIZED, "a sanitizer wants to be loaded first")
    def test_an_ignored_signal_stays_ignored(self):
        for call, number in (("write", 1), ("rename", 2)):
            self.assertEqual(self.at(call, number, signal.SIGHUP, self.run_line, ignore_hangup), 0)
            self.assertTrue(self.outcome(call))
            self.reset()

    def test_many_moments(self):
        begun = time.monotonic()
        self.attn(*self.run_line)
        whole = time.monotonic() - begun
        self.reset()
        ended = 0
        for step in range(40):
            sent = (signal.SIGINT, signal.SIGTERM)[step % 2]
            with subprocess.Popen([COMMAND, *self.run_line], cwd=self.folder, stderr=subprocess.DEVNULL,
                                  preexec_fn=defaults) as process:
                time.sleep(1.2 * whole * step / 40)
                process.send_signal(sent)
                code = process.wait(timeout=120)
            self.assertIn(code, (0, -sent))
            done = self.outcome(f"{sent.name} after {step} of 40 steps")
            if code == 0:
                self.assertTrue(done)
            ended += code != 0
            self.reset()
        # The first is sent while the program is being loaded.
        self.assertGreater(ended, 0)


if __name__ == "__main__":
    unittest.main()
