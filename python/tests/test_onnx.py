# SPDX-License-Identifier: Apache-2.0
"""ONNX's operators: the onnx package's own cases, its reference implementations, and NumPy in double precision."""
import re
import subprocess
import sys

import libattn
import numpy as np
import pytest

onnx = pytest.importorskip("onnx", minversion="1.23")
import libattn.onnx  # noqa: E402
from libattn.onnx import report  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

PREVIEW = "ai.onnx.preview"
CASES = report.cases()
REFUSED = {"test_flexattention_double": "Q has elements of the type float64"}
random = np.random.default_rng(11)


def numbers(*shape, dtype=np.float32):
    return random.standard_normal(shape).astype(dtype)


def model(op, inputs, outputs=("Y",), opset=None, **attributes):
    """A model of one node. Types and shapes are not declared: the evaluator takes them as they come."""
    domain = PREVIEW if op == "FlexAttention" else ""
    node = helper.make_node(op, list(inputs), list(outputs), domain=domain, **attributes)
    named = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in inputs if name]
    results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs if name]
    opset = opset or (27 if op == "LinearAttention" else 25)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(PREVIEW, 1)]
    return helper.make_model(helper.make_graph([node], "g", named, results), opset_imports=imports)


def run(op, inputs, outputs=("Y",), opset=None, ours=True, **attributes):
    m = model(op, inputs, outputs, opset, **attributes)
    given = {name: x for name, x in inputs.items() if name}
    return ReferenceEvaluator(m, new_ops=libattn.onnx.ops if ours else None).run(None, given)


def graph(nodes, constants=(), source="x", result="y", dtype=TensorProto.FLOAT):
    value = [helper.make_tensor_value_info(name, dtype, None) for name in (source, result)]
    return helper.make_graph(nodes, "mod", value[:1], value[1:], list(constants))


# --------------------------------------------------------------------- the package's own cases --

@pytest.mark.parametrize("case", [c for c in CASES if not c.expanded], ids=lambda c: c.name)
def test_case(case):
    outcome = report.check(case)
    if case.name in REFUSED:
        assert outcome.status == "not run" and outcome.reason.startswith(REFUSED[case.name])
    else:
        assert outcome.status == "passed", outcome.reason


def test_cases_are_all_there():
    assert {case.operator for case in CASES} == {op.__name__ for op in libattn.onnx.ops}
    assert sum(not case.expanded for case in CASES) >= 126
    # By name, too, nothing is left out.
    from onnx.backend.test.loader import load_model_tests

    like = re.compile("test_(linear_|flex)?attention|test_rotary_embedding")
    assert {case.name for case in CASES} == {test.name for test in load_model_tests(kind="node") if like.match(test.name)}


def test_report_command():
    done = subprocess.run([sys.executable, "-m", "libattn.onnx", "report"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *rows, last = done.stdout.splitlines()
    counts = re.fullmatch(r"onnx \S+: (\d+) cases, (\d+) passed, 0 failed, (\d+) not run, (\d+) of them .*", last)
    total, passed, not_run, expanded = map(int, counts.groups())
    assert len(rows) == total == passed + not_run and not_run == expanded + len(REFUSED)
    assert all(re.search(r"not run  \S", row) for row in rows if " passed" not in row)


def test_report_sees_wrong_numbers(monkeypatch, capsys):
    rope = libattn.rope

    def wrong(*args, out, **options):
        rope(*args, out=out, **options)
        out += 1e-2
    monkeypatch.setattr(libattn, "rope", wrong)
    monkeypatch.setattr(report, "cases", lambda: [case for case in CASES if case.operator == "RotaryEmbedding"])
    assert report.report() == 8
    assert re.search("test_rotary_embedding .* failed .* differs in", capsys.readouterr().out)
    from libattn.onnx import __main__ as command

    monkeypatch.setattr(sys, "argv", ["libattn.onnx", "report"])
    assert command.main() == 1


def test_sixteen_bits_are_judged_in_float64(monkeypatch):
    case = next(case for case in CASES if case.name == "test_attention_4d_fp16")
    inputs, (expected,) = case.test.data_sets[0]
    # As if the case's own numbers were wrong, and as if libattn's were.
    monkeypatch.setattr(case.test, "data_sets", [(inputs, (expected * np.float16(1.01),))])
    outcome = report.check(case)
    assert outcome.status == "passed" and "agrees with the operator in float64" in outcome.reason
    attention = libattn.attention

    def wrong(*args, out, **options):
        attention(*args, out=out, **options)
        out *= np.float16(1.01)
    monkeypatch.setattr(libattn, "attention", wrong)
    monkeypatch.setattr(case.test, "data_sets", [(inputs, (expected,))])
    assert report.check(case).status == "failed"


def test_import_does_not_need_onnx():
    code = "import libattn, sys; sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -------------------------------------------------------------------------- that it is libattn --

def test_bits_of_attention():
    q, k, v = numbers(2, 4, 9, 16), numbers(2, 2, 11, 16), numbers(2, 2, 11, 8)
    lengths = np.array([9, 11])
    got, = run("Attention", {"Q": q, "K": k, "V": v, "m": None, "pk": None, "pv": None, "n": lengths}, is_causal=1,
               left_window_size=5, softcap=3.0)
    want = libattn.attention(q, k, v, causal="offset", query_offset=lengths - 9, lengths=lengths, window=(5, None),
                             softcap=3.0)
    np.testing.assert_array_equal(got, want)


def test_bits_of_linear_attention():
    q, k, v, decay = numbers(2, 7, 24), numbers(2, 7, 12), numbers(2, 7, 10), -abs(numbers(2, 7, 2))
    got, state = run("LinearAttention", {"q": q, "k": k, "v": v, "": None, "d": decay}, ("Y", "S"), q_num_heads=4,
                     kv_num_heads=2, update_rule="gated")
    want = libattn.linear_attention(q.reshape(2, 7, 4, 6), k.reshape(2, 7, 2, 6), v.reshape(2, 7, 2, 5), layout="bthd",
                                    decay=decay[..., None], return_state=True)
    np.testing.assert_array_equal(got, want[0].reshape(2, 7, -1))
    np.testing.assert_array_equal(state, want[1])


def test_bits_of_rotation():
    x, table = numbers(2, 3, 5, 8), libattn.rope_table(20, pairs=3)
    positions = random.integers(0, 20, (2, 5))
    got, = run("RotaryEmbedding", {"X": x, "c": table[:, :3], "s": table[:, 3:], "p": positions}, rotary_embedding_dim=6)
    np.testing.assert_array_equal(got, libattn.rope(x, table[positions][:, None]))


@pytest.mark.parametrize("op, name", [("Attention", "attention"), ("FlexAttention", "attention")])
def test_is_called(monkeypatch, op, name):
    called = []
    real = getattr(libattn, name)
    monkeypatch.setattr(libattn, name, lambda *args, **options: called.append(1) or real(*args, **options))
    run(op, {x: numbers(1, 2, 3, 4) for x in "QKV"})
    assert called == [1]


# ---------------------------------------------------------------- against the reference, widely --

SHAPES = [(1, 1, 1, 1), (2, 4, 3, 17), (1, 6, 70, 70), (3, 2, 5, 130), (2, 2, 20, 6)]


@pytest.mark.parametrize("batch, heads, tokens, keys", SHAPES)
def test_attention_with_symbolic_shapes(batch, heads, tokens, keys):
    """One model, declared with symbols for its sizes, at several sizes."""
    def value(name, *shape, dtype=TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, dtype, shape)
    node = helper.make_node("Attention", ["Q", "K", "V", "M"], ["Y", "PK", "PV", "QK"], q_num_heads=heads, kv_num_heads=heads,
                            is_causal=1, qk_matmul_output_mode=2)
    m = helper.make_model(helper.make_graph(
        [node], "g", [value("Q", "b", "t", "w"), value("K", "b", "s", "w"), value("V", "b", "s", "u"), value("M", "t", "s")],
        [value("Y", "b", "t", "u"), value("PK", "b", "h", "s", "d"), value("PV", "b", "h", "s", "e"),
         value("QK", "b", "h", "t", "s")]), opset_imports=[helper.make_opsetid("", 24)])
    onnx.checker.check_model(m, full_check=True)
    given = {"Q": numbers(batch, tokens, heads * 8), "K": numbers(batch, keys, heads * 8),
             "V": numbers(batch, keys, heads * 5), "M": numbers(tokens, keys)}
    got = ReferenceEvaluator(m, new_ops=libattn.onnx.ops, check_shape_annotations=True).run(None, given)
    for mine, theirs in zip(got, ReferenceEvaluator(m).run(None, given), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


ATTENTION = [
    {"is_causal": 1}, {"scale": 0.3, "softcap": 1.5}, {"left_window_size": 2}, {"right_window_size": 0},
    {"left_window_size": 1, "right_window_size": 3, "is_causal": 1}, {"softmax_precision": int(TensorProto.DOUBLE)},
    {"softmax_precision": int(TensorProto.DOUBLE), "is_causal": 1, "left_window_size": 2}]


@pytest.mark.parametrize("attributes", ATTENTION, ids=lambda a: " ".join(a))
@pytest.mark.parametrize("extra", ["nothing", "past", "lengths", "bool mask", "short mask", "mask and past"])
@pytest.mark.parametrize("mode", [1, 2, 3])
def test_attention_is_the_reference(attributes, extra, mode):
    q, k, v = numbers(2, 4, 6, 8), numbers(2, 2, 9, 8), numbers(2, 2, 9, 5)
    given = {"Q": q, "K": k, "V": v}
    mask = pk = pv = n = None
    if "past" in extra:
        pk, pv = numbers(2, 2, 3, 8), numbers(2, 2, 3, 5)
    if extra == "lengths":
        n = np.array([4, 9])
    if "mask" in extra:
        mask = numbers(4, 6, 12) if "past" in extra else random.random((2, 1, 6, 9 if extra == "bool mask" else 7)) < 0.7
    for name, x in (("M", mask), ("PK", pk), ("PV", pv), ("N", n)):
        given[name if x is not None else ""] = x
    names = ["Q", "K", "V", *(name if x is not None else "" for name, x in
                              (("M", mask), ("PK", pk), ("PV", pv), ("N", n)))]
    m = model("Attention", names, ("Y", "K2", "V2", "QK"), qk_matmul_output_mode=mode, **attributes)
    feeds = {name: x for name, x in given.items() if name}
    got = ReferenceEvaluator(m, new_ops=libattn.onnx.ops).run(None, feeds)
    with np.errstate(invalid="ignore"):
        want = ReferenceEvaluator(m).run(None, feeds)
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("lengths", [None, [5, 2]])
def test_products_are_those_before_the_cap(lengths):
    """Mode 0, where the package's reference gives capped products; the text says that they are not. Padding has them, too."""
    q, k, v = numbers(2, 2, 4, 8), numbers(2, 2, 5, 8), numbers(2, 2, 5, 8)
    n = None if lengths is None else np.array(lengths)
    names = {"Q": q, "K": k, "V": v} if n is None else {"Q": q, "K": k, "V": v, "": None, "N": n}
    inputs = list(names) if n is None else ["Q", "K", "V", "", "", "", "N"]
    m = model("Attention", inputs, ("Y", "", "", "QK"), softcap=0.5, scale=0.7, is_causal=1)
    _, products = ReferenceEvaluator(m, new_ops=libattn.onnx.ops).run(None, {a: x for a, x in names.items() if a})
    np.testing.assert_allclose(products, 0.7 * q @ k.swapaxes(2, 3), rtol=1e-5, atol=1e-6)


def test_double_softmax_is_one():
    """Of the scores in float32 that the softmax gets, the weights are those of float64, rounded once."""
    given = {x: numbers(1, 2, 7, 8) * 4 for x in "QKV"}
    outputs = ("Y", "", "", "QK")
    precision = {"softmax_precision": int(TensorProto.DOUBLE)}
    _, scores = run("Attention", given, outputs, qk_matmul_output_mode=2, **precision)
    out, weights = run("Attention", given, outputs, qk_matmul_output_mode=3, **precision)
    exact = np.exp(scores.astype(np.float64) - scores.max(-1, keepdims=True))
    exact /= exact.sum(-1, keepdims=True)
    np.testing.assert_allclose(weights, exact.astype(np.float32), rtol=1.3e-7)
    np.testing.assert_allclose(out, exact @ given["V"], rtol=1e-5, atol=1e-6)


def test_types_may_differ():
    given = {"Q": numbers(1, 2, 3, 8), "K": numbers(1, 2, 4, 8), "V": numbers(1, 2, 4, 6, dtype=np.float16)}
    got, = run("Attention", given)
    assert got.dtype == np.float32
    want, = run("Attention", given, ours=False)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_channels_apart():
    """What comes out of a Transpose has no rows side by side."""
    x = {name: numbers(1, 2, 8, 6).swapaxes(2, 3) for name in "QKV"}
    plain = {name: np.ascontiguousarray(array) for name, array in x.items()}
    for op in ("Attention", "FlexAttention"):
        np.testing.assert_array_equal(run(op, x)[0], run(op, plain)[0])
    packed = {name: numbers(2, 8, 6).swapaxes(1, 2) for name in ("q", "k", "v")}
    attributes = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"}
    for mine, theirs in zip(run("LinearAttention", packed, ("Y", "S"), **attributes),
                            run("LinearAttention", {n: np.ascontiguousarray(a) for n, a in packed.items()}, ("Y", "S"),
                                **attributes), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    caches = {"c": np.cos(numbers(1, 6, 4)), "s": np.sin(numbers(1, 6, 4))}
    np.testing.assert_array_equal(run("RotaryEmbedding", {"X": x["Q"], **caches})[0],
                                  run("RotaryEmbedding", {"X": plain["Q"], **caches})[0])


def test_masks_of_one_column():
    """Version 23 repeats it, as its function does; later ones take it as short, and hide all keys but the first."""
    given = {x: numbers(1, 1, 3, 4) for x in "QKV"}
    given["M"] = np.zeros((3, 1), np.float32)
    whole, = run("Attention", {x: given[x] for x in "QKV"})
    np.testing.assert_array_equal(run("Attention", given, opset=23)[0], whole)
    first = np.broadcast_to(given["V"][:, :, :1], whole.shape)
    np.testing.assert_allclose(run("Attention", given, opset=24)[0], first, rtol=1e-6)
    given["M"] = np.ones((3, 1), bool)
    np.testing.assert_allclose(run("Attention", given, opset=25)[0], first, rtol=1e-6)


def test_no_tokens_and_no_keys():
    q, k = numbers(1, 2, 3, 4), numbers(1, 2, 0, 4)
    out, products = run("Attention", {"Q": q, "K": k, "V": k}, ("Y", "", "", "QK"), softmax_precision=11)
    assert (out == 0).all() and products.shape == (1, 2, 3, 0)
    state = numbers(1, 1, 4, 4)
    out, new = run("LinearAttention", {"q": numbers(1, 0, 8), "k": numbers(1, 0, 4), "v": numbers(1, 0, 4), "p": state},
                   ("Y", "S"), q_num_heads=2, kv_num_heads=1, update_rule="linear")
    assert out.shape == (1, 0, 8)
    np.testing.assert_array_equal(new, state)


def test_attributes_of_a_function():
    """A node inside a function, with an attribute of the function's."""
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"])
    node.attribute.append(onnx.AttributeProto(name="scale", ref_attr_name="s", type=onnx.AttributeProto.FLOAT))
    body = helper.make_function("own", "F", ["q", "k", "v"], ["y"], [node], [helper.make_opsetid("", 25)], ["s"])
    values = [helper.make_tensor_value_info(x, TensorProto.FLOAT, None) for x in "QKVY"]
    m = helper.make_model(
        helper.make_graph([helper.make_node("F", ["Q", "K", "V"], ["Y"], domain="own", s=0.25)], "g", values[:3], values[3:]),
        functions=[body], opset_imports=[helper.make_opsetid("", 25), helper.make_opsetid("own", 1)])
    given = {x: numbers(1, 2, 5, 8) for x in "QKV"}
    np.testing.assert_allclose(ReferenceEvaluator(m, new_ops=libattn.onnx.ops).run(None, given)[0],
                               run("Attention", given, scale=0.25)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("batch, tokens, shared, dtype", [(1, 1, False, "float32"), (2, 40, True, "float32"),
                                                          (3, 7, False, "float16"), (2, 9, True, "bfloat16")])
def test_linear_attention_is_the_reference(rule, batch, tokens, shared, dtype):
    dtype = np.dtype(dtype) if dtype != "bfloat16" else np.dtype(__import__("ml_dtypes").bfloat16)
    k = numbers(batch, tokens, 2, 6)
    given = {"q": numbers(batch, tokens, 24), "k": (k / np.linalg.norm(k, axis=-1, keepdims=True)).reshape(batch, tokens, 12),
             "v": numbers(batch, tokens, 10), "p": numbers(batch, 2, 6, 5)}
    if "gated" in rule:
        given["d"] = -abs(numbers(batch, tokens, 2 if shared else 12))
    if "delta" in rule:
        given["b"] = random.random((batch, tokens, 1 if shared else 2))
    given = {name: x.astype(dtype) for name, x in given.items()}
    inputs = ["q", "k", "v", "p", *(name if name in given else "" for name in "db")]
    m = model("LinearAttention", inputs, ("Y", "S"), 27, q_num_heads=4, kv_num_heads=2, update_rule=rule)
    got = ReferenceEvaluator(m, new_ops=libattn.onnx.ops).run(None, given)
    for mine, theirs in zip(got, ReferenceEvaluator(m).run(None, given), strict=True):
        assert mine.dtype == theirs.dtype == dtype
        units = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}[dtype.name]
        np.testing.assert_allclose(mine.astype(np.float32), theirs.astype(np.float32), rtol=units, atol=units)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("part", [0, 4])
def test_rotation_is_the_reference(packed, interleaved, part):
    for batch, tokens in ((1, 1), (2, 19)):
        x = numbers(batch, tokens, 3 * 8) if packed else numbers(batch, 3, tokens, 8)
        angles = numbers(30, (part or 8) // 2)
        given = {"X": x, "c": np.cos(angles), "s": np.sin(angles), "p": random.integers(0, 30, (batch, tokens))}
        attributes = {"num_heads": 3} if packed else {}
        got, want = (run("RotaryEmbedding", given, ours=ours, interleaved=interleaved, rotary_embedding_dim=part,
                         **attributes)[0] for ours in (True, False))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------------ flexible scores --

def flex(given, ours=True, **graphs):
    precision = {name: graphs.pop(name) for name in ("softmax_precision", "scale") if name in graphs}
    return run("FlexAttention", given, ours=ours, **precision, **graphs)[0]


@pytest.mark.parametrize("heads, keys", [(4, 9), (2, 130), (1, 1)])
def test_score_and_weight_graphs(heads, keys):
    """Softmax along the queries and a cumulative sum along the keys need the whole tensor, not tiles of it."""
    given = {"Q": numbers(2, 4, 33, 8), "K": numbers(2, heads, keys, 8), "V": numbers(2, heads, keys, 5)}
    score = graph([helper.make_node("Softmax", ["x"], ["z"], axis=2), helper.make_node("Mul", ["z", "three"], ["y"])],
                  [helper.make_tensor("three", TensorProto.FLOAT, [], [3.0])])
    weight = graph([helper.make_node("CumSum", ["x", "axis"], ["y"])],
                   [helper.make_tensor("axis", TensorProto.INT64, [], [3])])
    for graphs in ({"score_mod": score}, {"prob_mod": weight}, {"score_mod": score, "prob_mod": weight, "scale": 0.2}):
        np.testing.assert_allclose(flex(given, **graphs), flex(given, ours=False, **graphs), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("precision, dtype", [(10, "float16"), (11, "float64"), (16, "bfloat16"), (1, "float32")])
def test_graphs_get_the_type_that_softmax_precision_names(precision, dtype):
    given = {x: numbers(1, 2, 5, 8) for x in "QKV"}
    seen = []
    add = libattn.onnx.FlexAttention._modified

    def record(self, name, scores, context, others):
        seen.append(scores.dtype.name)
        return add(self, name, scores, context, others)
    square = graph([helper.make_node("Mul", ["x", "x"], ["y"])], dtype=precision)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(libattn.onnx.FlexAttention, "_modified", record)
        got = flex(given, score_mod=square, prob_mod=square, softmax_precision=precision)
    assert seen == [dtype, dtype] and got.dtype == np.float32
    want = flex({name: x.astype(np.float64) for name, x in given.items()}, ours=False, score_mod=square, prob_mod=square)
    np.testing.assert_allclose(got, want, **{10: {"rtol": 1e-2, "atol": 2e-3}, 16: {"rtol": 5e-2, "atol": 2e-2}}.get(
        precision, {"rtol": 1e-5, "atol": 1e-6}))


def test_graph_uses_values_around_it():
    """A bias that the outer graph computes; the graph's own constant has the name of an outer value."""
    names = ["Q", "K", "V", "bias"]
    own = graph([helper.make_node("Add", ["x", "bias2"], ["z"]), helper.make_node("Mul", ["z", "Q"], ["y"])],
                [helper.make_tensor("Q", TensorProto.FLOAT, [], [2.0])])
    nodes = [helper.make_node("Neg", ["bias"], ["bias2"]),
             helper.make_node("FlexAttention", ["Q", "K", "V"], ["Y"], domain=PREVIEW, score_mod=own)]
    values = [helper.make_tensor_value_info(x, TensorProto.FLOAT, None) for x in [*names, "Y"]]
    m = helper.make_model(helper.make_graph(nodes, "g", values[:4], values[4:]),
                          opset_imports=[helper.make_opsetid("", 26), helper.make_opsetid(PREVIEW, 1)])
    q, k, v, bias = (*(numbers(1, 2, 4, 8) for _ in range(3)), numbers(4, 4))
    got, = ReferenceEvaluator(m, new_ops=libattn.onnx.ops).run(None, {"Q": q, "K": k, "V": v, "bias": bias})
    want, = run("Attention", {"Q": q, "K": k, "V": v, "M": -2 * bias}, scale=2 * 8**-0.5)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_hidden_rows_and_values():
    """A row that score_mod hides wholly is 0, and what stands in a hidden value does not matter."""
    given = {x: numbers(1, 1, 3, 4) for x in "QKV"}
    given["V"][0, 0, 2] = np.nan
    hiding = np.array([[0, 0, -np.inf], [-np.inf] * 3, [0, -np.inf, -np.inf]], np.float32)
    hide = graph([helper.make_node("Add", ["x", "m"], ["y"])], [onnx.numpy_helper.from_array(hiding, "m")])
    keep = graph([helper.make_node("Mul", ["x", "x"], ["y"])])
    for graphs in ({"score_mod": hide}, {"score_mod": hide, "prob_mod": keep}):
        got = flex(given, **graphs)[0, 0]
        assert np.isfinite(got).all() and (got[1] == 0).all()
        np.testing.assert_allclose(got[2], given["V"][0, 0, 0], rtol=1e-6)


# ------------------------------------------------------------------------------------ refusals --

QKV = {x: np.zeros((2, 4, 3, 8), np.float32) for x in "QKV"}
PACKED = {x: np.zeros((2, 3, 32), np.float32) for x in "QKV"}
LINEAR = {x: np.zeros((2, 3, 8), np.float32) for x in "qkv"}
HEADS = {"q_num_heads": 2, "kv_num_heads": 2}
ROTARY = {"X": np.zeros((2, 4, 3, 8), np.float32), "c": np.zeros((5, 4), np.float32), "s": np.zeros((5, 4), np.float32),
          "p": np.zeros((2, 3), np.int64)}


def with_(given, **changed):
    return {**given, **changed}


@pytest.mark.parametrize("op, inputs, attributes, error, sentence", [
    ("Attention", with_(QKV, Q=QKV["Q"].astype(np.float64)), {}, NotImplementedError, "Q has elements of the type float64"),
    ("Attention", with_(QKV, V=QKV["V"].astype(np.float64)), {}, NotImplementedError, "V has elements of the type float64"),
    ("Attention", with_(QKV, M=np.zeros((3, 3), np.float64)), {}, NotImplementedError, "attn_mask has elements of the type f"),
    ("Attention", with_(QKV, M=np.zeros((3, 3), np.int8)), {}, NotImplementedError, "attn_mask has elements of the type int8"),
    ("Attention", with_(QKV, M=np.zeros((3, 4), bool)), {}, ValueError, "attn_mask has 4 columns; expected 0 to 3"),
    ("Attention", with_(QKV, M=np.zeros((3, 2), bool)), {"opset": 23}, ValueError, "attn_mask has 2 columns; expected 3,"),
    ("Attention", with_(QKV, M=np.zeros((3, 3, 3), bool)), {}, ValueError, "mask.shape"),
    ("Attention", with_(QKV, K=QKV["K"][0]), {}, ValueError, "K has 3 axes; expected 4, as Q has"),
    ("Attention", with_(QKV, Q=QKV["Q"][0, 0]), {}, ValueError, "Q has 2 axes; expected 3 or 4"),
    ("Attention", with_(QKV, K=QKV["K"][:, :3], V=QKV["V"][:, :3]), {}, ValueError, "expected a multiple of the 3 heads"),
    ("Attention", PACKED, {}, ValueError, "q_num_heads is missing"),
    ("Attention", PACKED, {"q_num_heads": 5, "kv_num_heads": 4}, ValueError, "Q has rows of 32 numbers"),
    ("Attention", QKV, {"q_num_heads": 3}, ValueError, "q_num_heads is 3; Q has 4 heads"),
    ("Attention", QKV, {"qk_matmul_output_mode": 4}, ValueError, "qk_matmul_output_mode is 4; expected 0 to 3"),
    ("Attention", QKV, {"left_window_size": -2}, ValueError, "left_window_size is -2"),
    ("Attention", QKV, {"left_window_size": 2, "opset": 24}, ValueError, "version 24 has no attribute left_window_size"),
    ("Attention", QKV, {"softmax_precision": 7}, ValueError, "softmax_precision is 7"),
    ("Attention", QKV, {"scale": 0.0}, ValueError, "scale is 0; expected any other number"),
    ("Attention", QKV, {"softcap": -1.0}, ValueError, "softcap is -1"),
    ("Attention", QKV, {"opset": 22}, ValueError, "opset 22 of the domain '' has no operator Attention"),
    ("FlexAttention", with_(QKV, Q=QKV["Q"][0]), {}, ValueError, "Q has 3 axes; expected 4"),
    ("FlexAttention", with_(QKV, K=QKV["K"][..., :4]), {}, ValueError, "expected"),
    ("FlexAttention", QKV, {"score_mod": graph([helper.make_node("ReduceSum", ["x"], ["y"])])}, ValueError,
     "score_mod gives float32 of the shape"),
    ("FlexAttention", QKV, {"prob_mod": graph([helper.make_node("Cast", ["x"], ["y"], to=11)])}, ValueError,
     "prob_mod gives float64"),
    ("LinearAttention", LINEAR, HEADS, ValueError, "decay is missing; the rule 'gated_delta' has decay and beta"),
    ("LinearAttention", LINEAR, {**HEADS, "update_rule": "other"}, ValueError, "update_rule is 'other'"),
    ("LinearAttention", LINEAR, {"q_num_heads": 2, "kv_num_heads": 4, "update_rule": "linear"}, ValueError, "a multiple of kv"),
    ("LinearAttention", with_(LINEAR, p=np.zeros((2, 2, 4, 3), np.float32)), {**HEADS, "update_rule": "linear"}, ValueError,
     "state"),
    ("RotaryEmbedding", with_(ROTARY, p=np.full((2, 3), 5)), {}, ValueError, "position_ids has numbers from 5 to 5"),
    ("RotaryEmbedding", with_(ROTARY, p=np.full((2, 3), -1)), {}, ValueError, "position_ids has numbers from -1"),
    ("RotaryEmbedding", ROTARY, {"rotary_embedding_dim": 6}, ValueError, "cos_cache has rows of 4 numbers; expected 3"),
    ("RotaryEmbedding", ROTARY, {"rotary_embedding_dim": 3}, ValueError, "rotary_embedding_dim is 3; expected an even"),
    ("RotaryEmbedding", with_(ROTARY, X=np.zeros((2, 3, 32), np.float32)), {}, ValueError, "num_heads is missing"),
    ("RotaryEmbedding", with_(ROTARY, X=ROTARY["X"].astype(np.float64)), {}, NotImplementedError, "X has elements of the type"),
])
def test_refused(op, inputs, attributes, error, sentence):
    with pytest.raises(error, match=re.escape(sentence)):
        run(op, inputs, ("Y", "S") if op == "LinearAttention" else ("Y",), **attributes)


@pytest.mark.parametrize("names, changed, error, sentence", [
    ("d", {"d": np.ones((2, 3, 2), np.float32)}, NotImplementedError, "decay has a 1.0, with which the state grows"),
    ("d", {"d": np.zeros((2, 3, 3), np.float32)}, ValueError, "decay has the shape (2, 3, 3)"),
    ("db", {"d": np.zeros((2, 3, 2), np.float32), "b": np.zeros((2, 3, 4), np.float32)}, ValueError, "beta has the shape"),
])
def test_refused_gates(names, changed, error, sentence):
    m = model("LinearAttention", ["q", "k", "v", "", *names], ("Y", "S"), 27, **HEADS,
              update_rule="gated_delta" if "b" in names else "gated")
    with pytest.raises(error, match=re.escape(sentence)):
        ReferenceEvaluator(m, new_ops=libattn.onnx.ops).run(None, {**LINEAR, **changed})


@pytest.mark.parametrize("changed, sentence", [
    ({"PK": np.zeros((2, 4, 2, 8), np.float32)}, "one of past_key and past_value is missing"),
    ({"PK": np.zeros((2, 4, 2, 7), np.float32), "PV": np.zeros((2, 4, 2, 8), np.float32)}, "past_key has the shape"),
    ({"PK": np.zeros((2, 4, 2, 8), np.float16), "PV": np.zeros((2, 4, 2, 8), np.float32)}, "past_key has elements of the type"),
    ({"PK": np.zeros((2, 4, 2, 8), np.float32), "PV": np.zeros((2, 4, 2, 8), np.float32), "N": np.array([1, 1])},
     "nonpad_kv_seqlen is given, and so is past_key"),
    ({"N": np.array([1, 4])}, "nonpad_kv_seqlen has a 4; expected 0 to 3"),
    ({"N": np.array([1])}, "nonpad_kv_seqlen has the shape (1,); expected (2,)"),
    ({"N": np.array([1, 3]), "M": np.zeros((3, 2), bool)}, "attn_mask has 2 columns; expected 3 to 3"),
])
def test_refused_caches(changed, sentence):
    names = ["Q", "K", "V", *(name if name in changed else "" for name in ("M", "PK", "PV", "N"))]
    with pytest.raises(ValueError, match=re.escape(sentence)):
        ReferenceEvaluator(model("Attention", names), new_ops=libattn.onnx.ops).run(None, {**QKV, **changed})


def test_version_23_has_no_lengths():
    names = ["Q", "K", "V", "", "", "", "N"]
    with pytest.raises(ValueError, match="Attention has 7 inputs; version 23 takes 6 at most"):
        ReferenceEvaluator(model("Attention", names, opset=23), new_ops=libattn.onnx.ops)
