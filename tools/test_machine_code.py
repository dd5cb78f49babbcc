# SPDX-License-Identifier: Apache-2.0
"""Tests tools/check-machine-code, on loops made up here."""

import contextlib
import importlib.machinery
import importlib.util
import io
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOADER = importlib.machinery.SourceFileLoader("check_machine_code", str(HERE / "check-machine-code"))
check = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_machine_code", LOADER))
LOADER.exec_module(check)


def loop_of(*body, jump):
    """Instructions at addresses 0x10, 0x14, ..., the last of which jumps to the first."""
    return [(0x10 + 4 * i, text) for i, text in enumerate((*body, jump))]


def judged(name, instructions):
    """What check_tiles() returns for score_tile, and what it says."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        return check.check_tiles(name, {"score_tile": instructions}), said.getvalue()


X86 = "jne    10 <score_tile+0x10>"
ARM = "b.ne\t10 <score_tile+0x10>  // b.any"
FMA = ["vfmadd231ps %ymm1,%ymm2,%ymm3"] * check.TILE
FMLA = ["fmla\tv1.4s, v2.4s, v3.s[0]"] * check.TILE


class Tiles(unittest.TestCase):
    def test_sums_in_registers(self):
        self.assertEqual(judged("avx2", loop_of(*FMA, jump=X86)), ((1, 0), ""))
        self.assertEqual(judged("neon", loop_of(*FMLA, jump=ARM)), ((1, 0), ""))

    def test_a_sum_on_the_stack(self):
        x86 = ["vfmadd213ps 0x68(%rsp),%ymm0,%ymm4", "vmovaps %ymm4,0x68(%rsp)"]
        arm = ["ldp\tq9, q6, [sp, #176]", "str\tq6, [sp, #192]"]
        for name, loop in ("avx2", loop_of(*FMA, *x86, jump=X86)), ("neon", loop_of(*FMLA, *arm, jump=ARM)):
            counts, said = judged(name, loop)
            self.assertEqual(counts, (1, 1))
            self.assertIn("carries 1 vectors on the stack", said)

    def test_what_no_turn_hands_to_the_next(self):
        within = ["vmovaps %ymm4,0x68(%rsp)", "vaddps 0x68(%rsp),%ymm0,%ymm4"]
        constant = ["vmulps 0x20(%rsp),%ymm0,%ymm4"]
        integer = ["add    0x8(%rsp),%rax", "mov    %rax,0x8(%rsp)"]
        self.assertEqual(judged("avx2", loop_of(*FMA, *within, *constant, *integer, jump=X86)), ((1, 0), ""))

    def test_a_tile_that_is_not_found(self):
        counts, said = judged("avx2", loop_of(*FMA[1:], jump=X86))
        self.assertEqual(counts, (0, 1))
        self.assertIn("has no loop of 12 multiply-adds", said)


class Loops(unittest.TestCase):
    def test_only_the_innermost(self):
        code = [(0, "nop"), (4, "nop"), (8, "jne    4 <f+0x4>"), (12, "jmp    0 <f>"), (16, "jmp    20 <f+0x20>")]
        self.assertEqual(list(check.innermost_loops(code)), [code[1:3]])


class Requests(unittest.TestCase):
    def test_missing_ones(self):
        said = io.StringIO()
        functions = {"score_few": [(0, "prefetcht1 0x40(%rdx)")], "value_few": [(0, "ret")]}
        with contextlib.redirect_stderr(said):
            self.assertEqual(check.check_requests("avx2", functions), 1)
        self.assertIn("value_few asks for no memory", said.getvalue())

    def test_each_type_of_rows(self):
        said = io.StringIO()
        functions = {
            "score_few": [(0, "jmp    20 <score_few_i4>")],
            "score_few_i4": [(0, "prefetcht1 0x40(%rdx)")],
            "score_few_bf16": [(0, "ret")],
        }
        with contextlib.redirect_stderr(said):
            self.assertEqual(check.check_requests("avx2", functions), 1)
        self.assertIn("score_few_bf16 asks for no memory", said.getvalue())


if __name__ == "__main__":
    unittest.main()
