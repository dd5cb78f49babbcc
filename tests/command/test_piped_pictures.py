# SPDX-License-Identifier: Apache-2.0
"""Pictures and pages on standard output: the bytes of the file, in the form that --to names, and what is refused."""

import os
import pty
import subprocess
import unittest

from support import COMMAND, Array, CommandTest

WEIGHTS = Array((2, 3), (0.5, 0.5, 0, 0.25, 0.25, 0.5))


class PipedPictures(CommandTest):
    def setUp(self):
        super().setUp()
        self.write(w_npy=WEIGHTS, w_safetensors={"w": WEIGHTS})

    def on_terminal(self, *arguments):
        """Runs attn with a terminal for its output: the exit code, what stands there, and the sentence."""
        ours, theirs = pty.openpty()
        with subprocess.Popen([COMMAND, *arguments], cwd=self.folder, stdout=theirs, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, text=True) as child:
            os.close(theirs)
            shown = b""
            try:
                while piece := os.read(ours, 4096):
                    shown += piece
            except OSError:  # Linux says so in place of the end
                pass
            sentence = child.stderr.read()
        os.close(ours)
        return child.returncode, shown, sentence

    def test_forms(self):
        commands = {"heatmap": ("heatmap", "w.npy"), "bars": ("heatmap", "w.npy", "--row", "1"),
                    "pattern": ("pattern", "strided", "--tokens", "1000")}
        for name, command in commands.items():
            for form in ("png", "svg", "pdf"):
                self.attn(*command, "-o", f"o.{form}")
                expected = (self.folder / f"o.{form}").read_bytes()
                options = [[], ["--to", form]] if form == "png" else [["--to", form]]
                for option in options:
                    result = self.pipe(b"", *command, "-o", "-", *option)
                    self.assertEqual(result.stdout, expected, (name, form))
                    # What a pattern prints goes out of the way.
                    printed = self.attn(*command).stdout if name == "pattern" else ""
                    self.assertEqual(result.stderr, printed)

    def test_through_pipes(self):
        """Weights in, a picture out; and a page."""
        self.attn("heatmap", "w.npy", "-o", "o.svg", "--title", "w")
        content = self.content()
        piped = self.pipe(content["w.npy"], "heatmap", "-", "-o", "-", "--to", "svg", "--title", "w")
        self.assertEqual((piped.stdout, piped.stderr), (content["o.svg"], ""))
        self.attn("view", "w.safetensors", "-o", "o.html")
        page = self.pipe(b"", "view", "w.safetensors", "--output=-")
        self.assertEqual((page.stdout, page.stderr), ((self.folder / "o.html").read_bytes(), ""))
        self.assertEqual(self.pipe(content["w.safetensors"], "view", "-", "-o", "-").stdout[:15], b"<!doctype html>")
        self.assertEqual(self.content().keys(), {*content, "o.html"})

    def test_terminal(self):
        for command in (("heatmap", "w.npy"), ("pattern", "strided", "--tokens", "64")):
            for form in ("png", "pdf"):
                code, shown, sentence = self.on_terminal(*command, "-o", "-", "--to", form)
                self.assertEqual((code, shown), (2, b""))
                self.assertEqual(sentence, f"attn: -o is '-', but standard output is a terminal, and {form.upper()} is "
                                 "binary; expected a pipe or a file there, or --to svg\n")
            code, shown, _ = self.on_terminal(*command, "-o", "-", "--to", "svg")
            self.assertEqual((code, shown[:5], shown[-8:]), (0, b"<?xml", b"</svg>\r\n"))
        code, shown, _ = self.on_terminal("view", "w.safetensors", "-o", "-")
        self.assertEqual((code, shown[:15]), (0, b"<!doctype html>"))

    def test_refused(self):
        for command in (("heatmap", "w.npy"), ("pattern", "strided", "--tokens", "64")):
            self.fails(2, "--to is 'gif'; expected png, svg or pdf", *command, "-o", "-", "--to", "gif")
            self.fails(2, "option --to has no effect on o.svg, whose name says its form; expected it with -o -", *command,
                       "-o", "o.svg", "--to", "svg")
        self.fails(2, "option --to is for a picture; expected --output beside it", "pattern", "strided", "--tokens", "64",
                   "--to", "svg")

    def test_full(self):
        for command in (("heatmap", "w.npy"), ("view", "w.safetensors")):
            with open("/dev/full", "wb") as full:
                result = subprocess.run([COMMAND, *command, "-o", "-"], cwd=self.folder, stdout=full,
                                        stderr=subprocess.PIPE, text=True)
            self.assertEqual((result.returncode, result.stderr),
                             (1, "attn: standard output: cannot write: No space left on device\n"))


if __name__ == "__main__":
    unittest.main()
