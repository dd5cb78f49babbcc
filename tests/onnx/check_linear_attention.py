#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the test cases of ONNX's operator LinearAttention through libattn, on every instruction set of the processor.

Usage: check_linear_attention.py LIBATTN

LIBATTN is libattn.so. Inputs and results come with the onnx package, and so does the tolerance, which is that of the
package's own runner. No tensor is copied but states of f16, which are f32 in libattn: heads are strided views. Exit
code: 0 all cases passed, 1 some failed, 2 wrong usage, 77 without the package.
"""

import ctypes
import sys
import warnings
from ctypes import byref, c_char_p, c_int, c_void_p
from pathlib import Path

try:
    import numpy
    import onnx
    from onnx.backend.test.case.node import collect_testcases
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from attn_structs import LinearAttentionParams, Tensor  # noqa: E402  pylint: disable=wrong-import-position

DTYPES = {"float32": 0, "float16": 2}
RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}
# Cases whose graph is the operator itself; the others spell its function out.
EXPECTED_CASES = 14


class Failure(Exception):
    pass


def heads_of(x, heads):
    """A view (B, heads, T, channels) of (B, T, heads * channels)."""
    batch, tokens, width = x.shape
    return x.reshape(batch, tokens, heads, width // heads).transpose(0, 2, 1, 3)


def tensor(x):
    """What libattn sees of an array of four axes, which must be kept."""
    t = Tensor(data=x.ctypes.data_as(c_void_p), dtype=DTYPES[x.dtype.name])
    for axis in range(4):
        t.shape[axis], t.stride[axis] = x.shape[axis], x.strides[axis] // x.itemsize
    return t


def address(t):
    return None if t is None else ctypes.cast(ctypes.pointer(t), c_void_p)


def attributes_of(node):
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def compute(library, isa, node, given):
    """Output and present state of a node, by the names of its inputs."""
    attributes = attributes_of(node)
    heads, states = attributes["q_num_heads"], attributes["kv_num_heads"]
    inputs = dict(zip(("query", "key", "value", "past_state", "decay", "beta"), [given.get(name) for name in node.input]))
    q, k, v = (heads_of(inputs[name], n) for name, n in (("query", heads), ("key", states), ("value", states)))
    batch, _, tokens, dk = q.shape
    dv = v.shape[3]
    decay = beta = None
    if inputs.get("decay") is not None:
        decay = heads_of(inputs["decay"], states)
        if not (decay <= 0).all():
            raise Failure(f"a decay is {decay.max()}; libattn takes numbers up to 0")
    if inputs.get("beta") is not None:
        beta = heads_of(inputs["beta"], inputs["beta"].shape[2])
    wants = RULES[attributes.get("update_rule", b"gated_delta").decode()]
    if wants != (decay is not None, beta is not None):
        raise Failure(f"inputs {list(node.input)} are not those of the rule {attributes.get('update_rule')}")
    past = inputs.get("past_state")
    state_in = None if past is None else numpy.ascontiguousarray(past.astype(numpy.float32))
    output = numpy.full((batch, tokens, heads * dv), numpy.nan, q.dtype)
    state = numpy.full((batch, states, dk, dv), numpy.nan, numpy.float32)
    tq, tk, tv, tout = tensor(q), tensor(k), tensor(v), tensor(heads_of(output, heads))
    options = [None if x is None else tensor(x) for x in (decay, beta, state_in, state)]
    params = LinearAttentionParams(scale=attributes.get("scale", 0.0), isa=isa)
    for name, t in zip(("decay", "beta", "state_in", "state_out"), options):
        setattr(params, name, address(t))
    if library.attn_linear_attention(byref(tq), byref(tk), byref(tv), byref(tout), byref(params)) != 0:
        raise Failure(library.attn_last_error().decode())
    return output, state.astype(q.dtype if past is None else past.dtype)


def check(library, isa, case):
    node = case.model.graph.node[0]
    names = [i.name for i in case.model.graph.input]
    for inputs, expected in case.data_sets:
        got = compute(library, isa, node, dict(zip(names, inputs)))
        for name, mine, theirs in zip(node.output, got, expected, strict=True):
            if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
                raise Failure(f"{name} is {mine.dtype} {mine.shape}, expected {theirs.dtype} {theirs.shape}")
            try:
                numpy.testing.assert_allclose(mine, theirs, rtol=case.rtol, atol=case.atol)
            except AssertionError as error:
                raise Failure(f"{name}: {error}") from error


def main(arguments):
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__)
        return 0 if arguments == ["--help"] else 2
    library = ctypes.CDLL(arguments[0])
    library.attn_last_error.restype = library.attn_isa_name.restype = c_char_p
    sets = []
    while (name := library.attn_isa_name(c_int(len(sets)))) is not None:
        sets.append(name)
    supported = [name for name in sets if library.attn_isa_supported(name)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other operators' cases, which are all made
        cases = [c for c in collect_testcases("LinearAttention") if c.model.graph.node[0].op_type == "LinearAttention"]
    failed = 0
    if len(cases) < EXPECTED_CASES:
        print(f"FAILED: onnx {onnx.__version__} has {len(cases)} cases of the operator, expected {EXPECTED_CASES}")
        failed += 1
    for case in cases:
        for isa in supported:
            try:
                check(library, isa, case)
            except Failure as failure:
                failed += 1
                print(f"FAILED {case.name} on {isa.decode()}: {failure}")
    print(f"onnx {onnx.__version__}: {len(cases)} cases on {' '.join(s.decode() for s in supported)}, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
