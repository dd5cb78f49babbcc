# SPDX-License-Identifier: Apache-2.0
"""Conformance: the onnx package's own cases of the operators, run with libattn."""
from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from . import ops

Status = Literal["passed", "failed", "not run"]
NAMES = {(op.op_domain, op.__name__) for op in ops}
EXPANDED = "_expanded"
HALVES = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Case:
    """A case of the onnx package. operator, domain, opset: of the first of libattn's operators in it; for an expanded
    case, of the one that it spells out."""

    name: str
    operator: str
    domain: str
    opset: int
    expanded: bool
    test: Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """status, and why it is that where there is something to say."""

    status: Status
    reason: str = ""


def cases() -> list[Case]:
    """All node tests that contain the operators, and those that spell one of these out as other operators.

    The package makes them once in a process.
    """
    from onnx.backend.test.loader import load_model_tests

    state = np.random.get_state()
    try:
        np.random.seed(0)  # the package draws most inputs from here, and each report is to have the same
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # all of its cases are made, and some of others warn
            tests = load_model_tests(kind="node")
    finally:
        np.random.set_state(state)
    found: dict[str, Case] = {}
    for test in tests:
        if test.model is None:
            continue
        opsets = {entry.domain: entry.version for entry in test.model.opset_import}
        for node in _nodes(test.model):
            if (node.domain, node.op_type) in NAMES:
                found[test.name] = Case(test.name, node.op_type, node.domain, opsets[node.domain], False, test)
                break
    for test in tests:
        base = found.get(test.name.split(EXPANDED)[0])
        if base is not None and test.name not in found:
            found[test.name] = Case(test.name, base.operator, base.domain, base.opset, True, test)
    return list(found.values())


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """All nodes of a model, those of functions and of graphs inside nodes included."""
    waiting = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while waiting:
        node = waiting.pop(0)
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                waiting.extend(graph.node)


def check(case: Case) -> Outcome:
    """Runs a case. What libattn refuses is not run, and its sentence is the reason.

    What is expected in 16 bits has been computed in 16 bits, step by step. libattn rounds once, so where the two differ
    the operator in float64 decides, with the same tolerance.
    """
    if case.expanded:
        return Outcome("not run", "spells the operator out as others: none of libattn's is in it")
    note = ""
    try:
        evaluator = ReferenceEvaluator(case.test.model, new_ops=ops)
        for inputs, expected in case.test.data_sets:
            feeds = dict(zip(evaluator.input_names, inputs, strict=True))
            got = evaluator.run(None, feeds)
            for n, (name, mine, theirs) in enumerate(zip(evaluator.output_names, got, expected, strict=True)):
                difference = _difference(mine, theirs, case.test.rtol, case.test.atol)
                if not difference:
                    continue
                if mine.dtype.name not in HALVES or mine.dtype != theirs.dtype:
                    return Outcome("failed", f"{name} {difference}")
                wide = {key: x.astype(np.float64) if x.dtype.name in HALVES else x for key, x in feeds.items()}
                results: Any = ReferenceEvaluator(case.test.model).run(None, wide)
                further = _difference(mine, results[n].astype(mine.dtype), case.test.rtol, case.test.atol)
                if further:
                    return Outcome("failed", f"{name} {difference}; from float64, it {further}")
                note = f"{name} agrees with the operator in float64; from the case's own numbers it {difference}"
    except NotImplementedError as error:
        return Outcome("not run", str(error))
    except Exception as error:  # a report goes on with the next case
        return Outcome("failed", f"{type(error).__name__}: {error}")
    return Outcome("passed", note)


def _difference(mine: Any, theirs: Any, rtol: float, atol: float) -> str:
    """What differs by more than the package's own runner allows; nothing if they agree."""
    if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
        return f"is {mine.dtype} {mine.shape}; expected {theirs.dtype} {theirs.shape}"
    if mine.dtype.name == "bfloat16":
        rtol = max(rtol, 2**-6)  # that runner gives two units of the last place
    a, b = (x.astype(np.float64) for x in (mine, theirs))
    wrong = ~np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
    if not wrong.any():
        return ""
    at = tuple(int(index) for index in np.argwhere(wrong)[0])
    return f"differs in {wrong.sum()} of {wrong.size} numbers, the first at {at}: {a[at]:.9g}; expected {b[at]:.9g}"


def report() -> int:
    """Prints a line for each case, and how many there are. Returns how many failed; 1 if none passed."""
    rows = [(case, check(case)) for case in cases()]
    width = max((len(case.name) for case, _ in rows), default=0)
    for case, outcome in rows:
        opset = f"{case.domain} {case.opset}".strip()
        print(f"{case.name:<{width}}  {case.operator:<15}  {opset:<17}  {outcome.status:<7}  {outcome.reason}".rstrip())
    count = Counter(outcome.status for _, outcome in rows)
    expanded = sum(case.expanded for case, _ in rows)
    print(f"onnx {onnx.__version__}: {len(rows)} cases, {count['passed']} passed, {count['failed']} failed, "
          f"{count['not run']} not run, {expanded} of them because they are expanded")
    return count["failed"] or int(not count["passed"])
