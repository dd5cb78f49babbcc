# SPDX-License-Identifier: Apache-2.0
"""Calls of all kinds, most of them wrong somewhere: each gives a result or one sentence, and none a crash."""
import os

import libattn
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

CALLS_OF_AN_EXAMPLE = 10
CALLS = int(os.environ.get("ATTN_FUZZ_CALLS") or "20000")

sizes = st.sampled_from([0, 1, 1, 2, 3, 7, 16, 17, 33])
few = st.sampled_from([0, 1, 1, 2, 3])
types = st.sampled_from(["float32"] * 6 + ["float16", "float64", "int8", "uint8", "bool", "int64", "complex64", "S3", "O"])
whole = st.one_of(st.integers(-3, 40), st.sampled_from([2**31, -(2**31), 2**63 - 1, -(2**63), 2**63, 2**80]))
real = st.one_of(st.floats(-4, 4), st.sampled_from([0.0, float("nan"), float("inf"), -float("inf"), 1e39, 1e-45]))
odd = st.sampled_from([None, True, "text", b"bytes", (), [], {}, 1.5, -1, object(), np.float32(2), np.zeros(3)])


def made(shape, dtype, seed, form):
    """An array, not always a plain one."""
    if dtype == "O":
        return np.full(shape, None)
    x = np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)
    if form == "read-only":
        x.flags.writeable = False
    elif form == "backwards" and x.ndim:
        x = x[..., ::-1]
    elif form == "broadcast" and x.ndim:
        x = np.broadcast_to(x[..., :1], shape)
    elif form == "swapped":
        x = x.astype(x.dtype.newbyteorder(">"))
    elif form == "transposed":
        x = np.asfortranarray(x)
    return x


forms = st.sampled_from(["plain"] * 5 + ["read-only", "backwards", "broadcast", "swapped", "transposed"])
arrays = st.builds(made, st.lists(sizes, max_size=5).map(tuple), types, st.integers(0, 99), forms)
numbers = st.lists(st.integers(-1, 35), max_size=4).map(np.array)


def option_values(n):
    """Strategies for the options, of which most values fit a call of n = (B, H, Tq, Tk)."""
    batch, heads, tq, tk = n
    lengths = st.lists(st.integers(-1, tk + 1), min_size=batch, max_size=batch)
    a_head = st.lists(real, min_size=heads, max_size=heads)
    return {
        "mask": st.builds(made, st.tuples(*(st.sampled_from([1, size]) for size in n)), st.sampled_from(["bool", "float32"]),
                          st.integers(0, 9), forms),
        "causal": st.sampled_from([True, False, "top-left", "bottom-right", "offset"]),
        "scale": real, "temperature": real, "softcap": real, "head_scale": a_head, "sinks": a_head, "alibi": a_head,
        "query_offset": st.one_of(whole, lengths), "lengths": st.one_of(whole, lengths), "starts": lengths, "prefix": lengths,
        "window": st.one_of(st.tuples(whole, whole), st.builds(libattn.Window, whole, whole, whole, numbers)),
        "segments": st.builds(made, st.just((batch, tq)), st.sampled_from(["int32", "int64"]), st.integers(0, 9), forms),
        "tree": st.builds(lambda tokens, words: libattn.Tree(tokens, np.full((batch, tq, words), 5, np.uint64)), whole, few),
        "cu_seqlens": st.one_of(numbers, st.tuples(numbers, numbers), st.just(np.array([0, min(tq, tk)]))),
        "block_table": st.builds(made, st.tuples(st.just(batch), few), st.just("int32"), st.integers(0, 9), forms),
        "dropout": st.builds(libattn.Dropout, real, st.integers(), st.integers()),
        "relative_bias": st.builds(lambda buckets, kind, far: libattn.RelativeBias(np.ones((heads, buckets)), kind, far),
                                   st.integers(0, 9), st.sampled_from(["clipped", "t5", "t5-bidirectional", "none"]), whole),
        "disentangled": st.builds(lambda span, rows: libattn.Disentangled(span, np.ones((rows, 16), np.float32)), whole, sizes),
        "rope": st.builds(lambda q, k: libattn.Rope(np.ones((q, 4), np.float32), np.ones((k, 4), np.float32)),
                          st.sampled_from([tq, tq, 1, 5]), st.sampled_from([tk, tk, 1, 5])),
        "block_mask": st.builds(libattn.BlockMask, whole, whole, whole, numbers, numbers),
        "score_function": st.sampled_from([lambda tile: None, lambda tile: tile.values * 2, lambda tile: 1 / 0]),
        "weight_function": st.sampled_from([lambda tile: None, lambda tile: np.zeros(3)]),
        "scores_of": st.sampled_from(["default", "int8"]), "inputs": st.sampled_from(["as-given", "may-be-bf16"]),
        "sums": st.sampled_from(["ordered", "free"]), "num_threads": st.integers(-1, 4),
        "isa": st.sampled_from([name for name, _ in libattn.instruction_sets()] + ["none", ""]),
    }


def test_values_are_drawn_for_every_option():
    assert set(option_values((1, 1, 1, 1))) == libattn._core.OPTIONS


@st.composite
def a_call(draw):
    n = batch, heads, tq, tk = draw(few), draw(few), draw(sizes), draw(sizes)
    layout = draw(st.sampled_from(["bhtd"] * 6 + ["bthd", "none"]))
    dtype, form = draw(types), draw(forms)

    def tensor(tokens, channels):
        shape = (batch, heads, tokens, channels) if layout != "bthd" else (batch, tokens, heads, channels)
        return made(shape, dtype, draw(st.integers(0, 99)), form)

    values = option_values(n)
    names = draw(st.lists(st.sampled_from(sorted(values)), max_size=3, unique=True))
    call = {"q": tensor(tq, 16), "k": tensor(tk, 16), "v": tensor(tk, 7), "layout": layout,
            **{name: draw(values[name]) for name in names},
            **draw(st.sampled_from([{}, {}, {"return_lse": True}, {"return_weights": True}, {"return_key_sums": True},
                                    {"return_weights": [0]}, {"return_weights": [-1, 99]}, {"return_scores": "masked"},
                                    {"return_scores": "none"}]))}
    if draw(st.booleans()):
        call["out"] = made((batch, heads, tq, 7), dtype, 1, draw(forms))
    if draw(st.integers(0, 3)) == 0:  # anything in the place of something
        call[draw(st.sampled_from(["q", "k", "v", "out", *names]))] = draw(st.one_of(arrays, odd))
    return call


done = {"result": 0, "sentence": 0}


# What fails is shown as it was drawn: to look for a smaller call takes longer than all of them.
@settings(max_examples=CALLS // CALLS_OF_AN_EXAMPLE, deadline=None, derandomize=True, database=None,
          phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False, suppress_health_check=list(HealthCheck))
@given(st.lists(a_call(), min_size=CALLS_OF_AN_EXAMPLE, max_size=CALLS_OF_AN_EXAMPLE))
def fuzz(calls):
    for call in calls:
        out = call.get("out")
        before = out.tobytes() if isinstance(out, np.ndarray) and out.dtype != object else None
        try:
            with np.errstate(all="ignore"):
                libattn.attention(**call)
            done["result"] += 1
        except ZeroDivisionError:
            done["result"] += 1  # the caller's own function
        except (ValueError, NotImplementedError, MemoryError) as error:
            done["sentence"] += 1
            text = str(error)
            assert len(text) > 12 and "\n" not in text, text
            if before is not None and "weight_function" not in call and "score_function" not in call:
                assert out.tobytes() == before, "written before an error"


def test_calls():
    fuzz()
    assert sum(done.values()) >= CALLS
    assert done["result"] > CALLS // 20, done  # and not only refusals


@pytest.mark.parametrize("call, error, sentence", [
    (dict(colour=1), TypeError, "there is no option 'colour'"),
    (dict(scale=0), ValueError, "scale is 0"),
    (dict(causal="left"), ValueError, "causal is 'left'; expected"),
    (dict(lengths=[1, 2, 3]), ValueError, r"lengths has the shape \(3,\); expected \(1,\)"),
    (dict(lengths=[9]), ValueError, r"lengths\[0\] is 9"),
    (dict(lengths=[1.5]), ValueError, "lengths has elements of the type float64; expected whole numbers"),
    (dict(sinks=["a", "b"]), ValueError, "sinks has elements of the type"),
    (dict(isa="mmx"), ValueError, "isa is 'mmx'; expected None or one of"),
    (dict(isa=[]), ValueError, r"isa is \[\]; expected the name of an instruction set"),
    (dict(tree=np.zeros(3)), ValueError, r"tree is array\(\[0., 0., 0.\]\); expected a libattn.Tree"),
    (dict(dropout=0.5), ValueError, "dropout is 0.5; expected a libattn.Dropout"),
    (dict(dropout=libattn.Dropout(0.5, "seed")), ValueError, "dropout.seed is 'seed'; expected a whole number"),
    (dict(window=(1, 2, 3)), ValueError, r"window is \(1, 2, 3\); expected \(left, right\)"),
    (dict(segments=()), ValueError, r"segments is \(\); expected two"),
    (dict(dropout=libattn.Dropout(1.0)), ValueError, "dropout"),
    (dict(window=(-1, 0)), ValueError, "window.left is -1"),
    (dict(layout="tbhd"), ValueError, "layout is 'tbhd'; expected 'bhtd', 'bthd'"),
    (dict(return_scores="all"), ValueError, "return_scores is 'all'"),
    (dict(window=2**70), ValueError, "expected a number of 64 bits"),
])
def test_sentence(call, error, sentence):
    q = np.zeros((1, 2, 4, 8), np.float32)
    with pytest.raises(error, match=sentence):
        libattn.attention(q, q, q, **call)


def test_causal_where_alignments_differ():
    q, k = np.zeros((1, 1, 3, 8), np.float32), np.zeros((1, 1, 5, 8), np.float32)
    with pytest.raises(ValueError, match="causal is True where queries and keys need not be the same tokens"):
        libattn.attention(q, k, k, causal=True)
    for options in (dict(lengths=[2]), dict(cu_seqlens=([0, 3], [0, 3]))):
        with pytest.raises(ValueError, match="causal is True"):
            libattn.attention(q, q, q, causal=True, **options)


def test_causal_where_they_agree():
    q = np.random.default_rng(1).standard_normal((1, 1, 5, 8)).astype(np.float32)
    for options in ({}, dict(cu_seqlens=[0, 2, 5])):
        out = libattn.attention(q, q, q, causal=True, **options)
        for alignment in ("top-left", "bottom-right"):
            assert np.array_equal(libattn.attention(q, q, q, causal=alignment, **options), out)
    assert np.array_equal(libattn.attention(q[:, :, 3:], q, q, causal=True, query_offset=3),
                          libattn.attention(q, q, q, causal=True)[:, :, 3:])


def test_wrong_gradients():
    q, out = np.zeros((2, 1, 2, 4, 8), np.float32)
    lse = np.zeros((1, 2, 4), np.float32)
    for call, sentence in ((dict(wanted=["colour"]), "wanted has 'colour'; expected"),
                           (dict(wanted=["sinks"]), "wanted has 'sinks', and the call has no sinks"),
                           (dict(lse=lse[..., :3]), "lse"), (dict(d_out=out[..., :3]), "d_out")):
        with pytest.raises(ValueError, match=sentence):
            libattn.attention_backward(**dict(q=q, k=q, v=q, out=out, lse=lse, d_out=out) | call)
    with pytest.raises(NotImplementedError):
        libattn.attention_backward(q, q, q, out, lse, out, weight_function=lambda tile: None)
