# SPDX-License-Identifier: Apache-2.0
"""How far a command is: what the line says, and that it is drawn on a terminal alone, late, and leaves nothing."""

import os
import pty
import re
import subprocess
import unittest

from support import COMMAND, CommandTest, normal

NN = bool(os.environ.get("ATTN_NN"))
PROGRAM = os.environ["ATTN_SHOWN_PROGRESS"]


def text(*arguments):
    return subprocess.run([PROGRAM, "text", *map(str, arguments)], check=True, capture_output=True,
                          text=True).stdout.rstrip("\n")


def open_terminal(columns):
    """Our side of a terminal of so many columns, and the program's."""
    ours, theirs = pty.openpty()
    subprocess.run(["stty", "cols", str(columns)], stdin=theirs, check=True)
    return ours, theirs


def read_terminal(ours):
    """All that is written until the other side is closed."""
    seen = b""
    try:
        while piece := os.read(ours, 4096):
            seen += piece
    except OSError:  # Linux says so in place of the end
        pass
    os.close(ours)
    return seen.decode()


class Text(unittest.TestCase):
    def test_counts(self):
        self.assertEqual(text(1234, 5678, "tokens", 4), "1234 of 5678 tokens, 308 tokens/s, 0:14 left")
        self.assertEqual(text(1, 7201, "tasks", 1), "1 of 7201 tasks, 1 tasks/s, 2:00:00 left")
        self.assertEqual(text(1, 3, "steps", 4), "1 of 3 steps, 0.25 steps/s, 0:08 left")

    def test_bytes(self):
        self.assertEqual(text(1500000, 3000000000, "B", 0.5), "1.5 MB of 3.0 GB, 3.0 MB/s, 16:40 left")
        self.assertEqual(text(999, 999999, "B", 1), "999 B of 1.0 MB, 999 B/s, 16:40 left")

    def test_edges(self):
        self.assertEqual(text(0, 10, "tokens", 2), "0 of 10 tokens")
        self.assertEqual(text(12, 0, "tokens", 2), "12 tokens, 6 tokens/s")
        self.assertEqual(text(0, 0, "tokens", 2), "0 tokens, 0 tokens/s")
        self.assertEqual(text(10, 10, "tokens", 5), "10 of 10 tokens, 2 tokens/s, 0:00 left")
        self.assertEqual(text(11, 10, "tokens", 5), "11 of 10 tokens, 2.2 tokens/s, 0:00 left")
        # More than a hundred hours are no longer a time to wait for.
        self.assertTrue(text(1, 2**62, "tokens", 1).endswith(", 99:59:59 left"))


class OfCommands(CommandTest):
    def expect_same(self, *arguments):
        """On a terminal a second thread looks at the run. What is written does not depend on it, and none of it stays."""
        line = [COMMAND, "run", "-q", "q.npy", "-k", "q.npy", "-v", "q.npy", "--threads", "2", *arguments, "-o"]
        subprocess.run([*line, "pipe.npy"], cwd=self.folder, check=True)
        for options in ([], ["--quiet"]):
            ours, theirs = open_terminal(80)
            child = subprocess.Popen([*line, "terminal.npy", *options], cwd=self.folder, stderr=theirs)
            os.close(theirs)
            self.assertRegex(read_terminal(ours), r"\A(\r[^\n]* of \d+ tasks[^\n]*\r +\r)?\Z")
            self.assertEqual(child.wait(), 0)
            content = self.content()
            self.assertEqual(content["pipe.npy"], content["terminal.npy"])

    def test_run(self):
        self.write(q_npy=normal((2, 40, 8), 1))
        self.expect_same()
        self.expect_same("--kind", "linear")
        self.expect_same("--kind", "performer", "--features", "16")

    @unittest.skipUnless(NN, "built without libattn_nn")
    def test_run_of_layers(self):
        self.write(q_npy=normal((1, 40, 8), 1), w_npy=normal((6, 8), 2), s_npy=normal((6,), 3), e_npy=normal((5, 40), 4))
        self.expect_same("--kind", "additive", "--wq", "w.npy", "--wk", "w.npy", "--score-v", "s.npy")
        self.expect_same("--kind", "linformer", "--project-k", "e.npy")

    def test_failures(self):
        """What a call refuses is one sentence on a terminal, too, with the library asked for sizes before."""
        self.write(q_npy=normal((2, 40, 8), 1), k_npy=normal((2, 40, 7), 1))
        for kind in ("softmax", "linear"):
            ours, theirs = open_terminal(80)
            child = subprocess.Popen([COMMAND, "run", "-q", "q.npy", "-k", "k.npy", "-v", "q.npy", "-o", "o.npy",
                                      "--kind", kind], cwd=self.folder, stderr=theirs)
            os.close(theirs)
            self.assertRegex(read_terminal(ours), r"\Aattn: [^\n]*k.npy[^\n]*\r\n\Z|\Aattn: [^\n]*-k[^\n]*\r\n\Z")
            self.assertNotEqual(child.wait(), 0)
            self.assertNotIn("o.npy", self.content())


class Shown(unittest.TestCase):
    def test_shown(self):
        """All at once, as each works for a second."""
        terminals, children = {}, []
        for name, columns, arguments in (("wide", 80, []), ("narrow", 9, []), ("quiet", 80, ["quiet"])):
            terminals[name], theirs = open_terminal(columns)
            children.append(subprocess.Popen([PROGRAM, "work", *arguments], stderr=theirs))
            os.close(theirs)
        pipe = subprocess.run([PROGRAM, "work"], capture_output=True)
        seen = {name: read_terminal(ours) for name, ours in terminals.items()}
        for child in children:
            self.assertEqual(child.wait(), 0)
        line = re.fullmatch(r"\r(5 of 10 tokens, [\d.]+ tokens/s, 0:01 left)\r( +)\rdone\r\n", seen["wide"])
        self.assertIsNotNone(line, seen["wide"])
        self.assertEqual(len(line[1]), len(line[2]))
        self.assertEqual(seen["narrow"], "\r5 of 10 \r        \rdone\r\n")
        self.assertEqual(seen["quiet"], "done\r\n")
        self.assertEqual((pipe.returncode, pipe.stdout, pipe.stderr), (0, b"", b"done\n"))


if __name__ == "__main__":
    unittest.main()
