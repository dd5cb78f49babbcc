# SPDX-License-Identifier: Apache-2.0
"""scaled_dot_product_attention() beside PyTorch's own, and in its place."""
import threading

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import libattn.torch
from libattn.torch import scaled_dot_product_attention, sdpa_replaced

PYTORCH = F.scaled_dot_product_attention


def numbers(*shape, dtype=torch.float32, requires_grad=False):
    return torch.randn(*shape, generator=generator).to(dtype).requires_grad_(requires_grad)


generator = torch.Generator().manual_seed(4)


def compare(query, key, value, *args, gradients=True, **options):
    """Numbers and gradients of both; PyTorch's in double precision."""
    mask = options.get("attn_mask")
    if mask is None and args:
        mask, options["attn_mask"] = args[0], args[0]
    inputs = [query, key, value] + ([mask] if mask is not None and mask.is_floating_point() else [])
    ours = [x.detach().requires_grad_(gradients) for x in inputs]
    wide = [x.detach().double().requires_grad_(gradients) for x in inputs]
    mine, theirs = dict(options), dict(options)
    if len(inputs) == 4:
        mine["attn_mask"], theirs["attn_mask"] = ours[3], wide[3]
    got = scaled_dot_product_attention(*ours[:3], **mine)
    with sdpa_kernel(SDPBackend.MATH):
        want = PYTORCH(*wide[:3], **theirs)
    assert got.shape == want.shape and got.dtype == query.dtype
    error = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}[query.dtype]
    torch.testing.assert_close(got.double(), want, atol=error, rtol=error)
    if gradients:
        d_out = torch.randn_like(got)
        for x, y, z in zip(ours, torch.autograd.grad(got, ours, d_out), torch.autograd.grad(want, wide, d_out.double())):
            assert y.shape == x.shape and y.dtype == x.dtype
            top = max(1.0, float(z.abs().max())) if z.numel() else 1.0
            torch.testing.assert_close(y.double(), z, atol=4 * error * top, rtol=0)


def samples(dtype):
    internal = pytest.importorskip("torch.testing._internal.common_methods_invocations")
    info, = (info for info in internal.op_db if info.name == "nn.functional.scaled_dot_product_attention")
    return list(info.sample_inputs("cpu", dtype, requires_grad=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_samples_of_pytorch(dtype):
    """Those of OpInfo. PyTorch drops other weights, so samples with dropout are compared without, and run with it."""
    seen = dropped = 0
    for sample in samples(dtype):
        options = dict(sample.kwargs)
        if options.get("dropout_p"):
            torch.manual_seed(0)
            out = scaled_dot_product_attention(sample.input, *sample.args, **options)
            torch.manual_seed(0)
            assert torch.equal(out, scaled_dot_product_attention(sample.input, *sample.args, **options))
            out.sum().backward()
            options["dropout_p"] = 0.0
            dropped += 1
            assert not torch.equal(out, scaled_dot_product_attention(sample.input, *sample.args, **options))
        compare(sample.input, *sample.args, **options)
        seen += 1
    assert seen > 20 and dropped > 8


def test_samples_of_pytorch_compiled():
    """The samples in float32, compiled without a break of the graph, with the same bits."""
    for sample in samples(torch.float32)[:4] + samples(torch.float32)[-1:]:
        torch._dynamo.reset()
        compiled = torch.compile(scaled_dot_product_attention, fullgraph=True, backend="aot_eager")
        options = dict(sample.kwargs) | {"dropout_p": 0.0}
        got = compiled(sample.input, *sample.args, **options)
        assert torch.equal(got, scaled_dot_product_attention(sample.input, *sample.args, **options))


Q, K, V = numbers(2, 6, 5, 8), numbers(2, 6, 7, 8), numbers(2, 6, 7, 4)
MASK = torch.rand(2, 6, 5, 7, generator=generator) < 0.7
CASES = {
    "two axes": (Q[0, 0], K[0, 0], V[0, 0]),
    "three axes": (Q[0], K[0], V[0]),
    "five axes": (numbers(2, 3, 2, 5, 8), numbers(2, 3, 2, 7, 8), numbers(2, 3, 2, 7, 8)),
    "six axes": (numbers(2, 1, 3, 2, 5, 8), numbers(1, 2, 3, 2, 7, 8), numbers(3, 2, 7, 8)),
    "one head of keys": (Q, K[:, :1], V[:, :1]),
    "one value": (Q, K, V[:1, :1]),
    "keys of all batches": (Q, K[0], V[0]),
    "queries of all batches": (Q[0], K, V),
    "keys of two axes": (Q, K[0, 0], V[0, 0]),
    "no keys": (Q, K[:, :, :0], V[:, :, :0]),
    "no queries": (Q[:, :, :0], K, V),
    "no batch": (Q[:0], K[:0], V[:0]),
    "no channels": (Q[..., :0], K[..., :0], V),
    "no values": (Q, K, V[..., :0]),
    "not contiguous": (numbers(2, 5, 6, 16)[..., ::2].transpose(1, 2), numbers(2, 6, 8, 7).transpose(2, 3), V.flip(2)),
    "expanded": (Q[:, :1].expand(2, 6, 5, 8), K[:1].expand(2, 6, 7, 8), V),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_shapes(case, causal):
    compare(*CASES[case], is_causal=causal, gradients=case not in ("no channels", "no batch"))


MASKS = {
    "bool": MASK, "one batch": MASK[:1], "one head": MASK[:, :1], "three axes": MASK[0], "two axes": MASK[0, 0],
    "one query": MASK[:, :, :1], "one key": MASK[..., :1] | True, "float": numbers(2, 6, 5, 7), "float of two": numbers(5, 7),
    "float of one query": numbers(6, 1, 7), "-inf": torch.zeros(5, 7).masked_fill(~MASK[0, 0], -torch.inf),
    "transposed": numbers(7, 5).t(),
}


@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask):
    compare(Q, K, V, attn_mask=MASKS[mask])
    compare(Q[0], K[0], V[0], attn_mask=MASKS[mask][0] if MASKS[mask].dim() == 4 else MASKS[mask])


@pytest.mark.parametrize("shape", [(2, 3, 2, 5, 7), (2, 1, 1, 5, 7), (1, 1, 2, 5, 7), (3, 1, 5, 7), (5, 7)])
def test_masks_of_five_axes(shape):
    q, k, v = CASES["five axes"]
    compare(q, k, v, attn_mask=numbers(*shape))


def test_mask_and_causal():
    """PyTorch's documentation forbids it, as does its general path; its kernel for CPUs counts both."""
    got = scaled_dot_product_attention(Q, K, K, MASK, is_causal=True)
    torch.testing.assert_close(got, scaled_dot_product_attention(Q, K, K, MASK & torch.ones(5, 7).tril().bool()))
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        torch.testing.assert_close(got, PYTORCH(Q, K, K, MASK, is_causal=True))


@pytest.mark.parametrize("of_floats", [False, True])
def test_rows_that_see_no_key(of_floats):
    """0, as PyTorch has them, and no NaN in gradients."""
    hidden = torch.zeros(5, 7, dtype=torch.bool)
    hidden[2] = True
    mask = torch.zeros(5, 7).masked_fill(hidden, -torch.inf) if of_floats else ~hidden
    q = Q.clone().requires_grad_()
    out = scaled_dot_product_attention(q, K, V, mask)
    torch.testing.assert_close(out, PYTORCH(Q, K, V, mask))
    assert not out[:, :, 2].any() and out[:, :, 1].any()
    out.square().sum().backward()
    assert q.grad.isfinite().all() and not q.grad[:, :, 2].any()


@pytest.mark.parametrize("scale", [None, 0.3, -1.0, 0.0])
def test_scale(scale):
    compare(Q, K, V, scale=scale)


@pytest.mark.parametrize("heads", [(6, 3, 3), (6, 1, 1), (12, 4, 2), (6, 6, 6)])
def test_grouped_queries(heads):
    q, k, v = (numbers(2, n, 5, 8) for n in heads)
    compare(q, k, v, enable_gqa=True, is_causal=True)
    compare(q[0], k[0], v[0], enable_gqa=True)
    compare(q, k[:1], v[:1], enable_gqa=True)


def test_causal_is_top_left():
    out = scaled_dot_product_attention(Q, K, V, is_causal=True)
    torch.testing.assert_close(out[:, :, 0], V[:, :, 0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_types(dtype):
    compare(Q.to(dtype), K.to(dtype), V.to(dtype))
    compare(Q.to(dtype), K.to(dtype), V.to(dtype), attn_mask=numbers(5, 7))


def test_autocast():
    q, mask = Q.clone().requires_grad_(), torch.zeros(5, 7)
    mask[0, 1:] = torch.finfo(torch.float32).min
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = scaled_dot_product_attention(q, K.bfloat16(), V, mask)
        want = PYTORCH(q, K.bfloat16(), V, mask)
    assert out.dtype == want.dtype == torch.bfloat16
    torch.testing.assert_close(out, want, atol=3e-2, rtol=3e-2)
    out.sum().backward()
    assert q.grad.dtype == torch.float32


def test_dropout():
    """Seen through an identity of values: weights are 0 or twice what they were, about half of them each."""
    q, k = numbers(4, 8, 32, 16), numbers(4, 8, 32, 16)
    eye = torch.eye(32).expand(4, 8, 32, 32)
    weights, dropped = scaled_dot_product_attention(q, k, eye), scaled_dot_product_attention(q, k, eye, dropout_p=0.5)
    kept = dropped != 0
    assert 0.48 < kept.float().mean() < 0.52
    torch.testing.assert_close(dropped, 2 * weights * kept)


@pytest.mark.parametrize("function", [scaled_dot_product_attention, PYTORCH], ids=["libattn", "pytorch"])
def test_order_in_memory(function):
    """That of query, so what follows a projection of (batch, tokens, heads, channels) copies nothing."""
    assert function(Q, K, K).is_contiguous()
    assert function(numbers(2, 5, 6, 8).transpose(1, 2), K, K).transpose(1, 2).is_contiguous()


WRONG = {
    "one axis": ((Q[0, 0, 0], K, V), {}, "query has 1 axes"),
    "double": ((Q.double(), K.double(), V.double()), {}, "query has elements of the type torch.float64"),
    "numbers": ((Q.int(), K.int(), V.int()), {}, "torch.int32"),
    "mixed": ((Q, K.half(), V), {}, "expected one type"),
    "mask of numbers": ((Q, K, V, torch.ones(5, 7).int()), {}, "attn_mask has elements of the type torch.int32.*or bool"),
    "mask of double": ((Q, K, V, torch.ones(5, 7).double()), {}, "attn_mask has elements of the type torch.float64"),
    "short mask": ((Q, K, V, MASK[..., :6]), {}, r"attn_mask has the shape \(2, 6, 5, 6\); expected.*\(2, 6, 5, 7\)"),
    "large mask": ((Q[0], K[0], V[0], MASK), {}, "attn_mask has the shape"),
    "keys and values": ((Q, K, V[:, :, :3]), {}, "value has 3 tokens; expected 7"),
    "channels": ((Q, K[..., :3], V), {}, "key has 3 channels; expected 8"),
    "heads": ((Q, K[:, :3], V[:, :3]), {}, "do not go together"),
    "groups": ((Q, K[:, :4], V[:, :4]), {"enable_gqa": True}, "4 and 4 heads; expected divisors of query's 6"),
    "groups without heads": ((Q[0, 0], K[0, 0], V[0, 0]), {"enable_gqa": True}, "enable_gqa expects heads"),
    "all dropped": ((Q, K, V), {"dropout_p": 1.0}, "dropout_p is 1.0"),
    "dropout": ((Q, K, V), {"dropout_p": -0.1}, "dropout_p is -0.1"),
    "a list": ((Q.tolist(), K, V), {}, "query is a builtins.list"),
    "sparse": ((Q.to_sparse(), K, V), {}, "not strided"),
}


@pytest.mark.parametrize("case", WRONG)
def test_refused(case):
    args, options, sentence = WRONG[case]
    with pytest.raises((ValueError, NotImplementedError), match=sentence):
        scaled_dot_product_attention(*args, **options)
    with sdpa_replaced(fallback=False), pytest.raises((ValueError, NotImplementedError), match=sentence):
        F.scaled_dot_product_attention(*args, **options)


def test_another_device():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q = torch.empty(2, 6, 5, 8, device="cuda")
    with pytest.raises(NotImplementedError, match="query is on another device"):
        scaled_dot_product_attention(q, q, q)
    with pytest.raises(ValueError, match="expected one device"):
        scaled_dot_product_attention(Q, K.to("meta"), V)
    with pytest.raises(NotImplementedError, match="nested"):
        nested = torch.nested.nested_tensor([Q[0, :, :3], Q[0]])
        scaled_dot_product_attention(nested, nested, nested)


# ---------------------------------------------------------------------- in PyTorch's place --

@pytest.fixture
def calls(monkeypatch):
    """Counts calls of libattn's operator, and those that go to PyTorch's own function."""
    count = {"libattn": 0, "pytorch": 0}
    from libattn.torch import functional

    def ours(*args, **options):
        result = attention(*args, **options)
        count["libattn"] += 1
        return result

    def theirs(*args, **options):
        count["pytorch"] += 1
        return PYTORCH(*args, **options)

    attention = functional.attention
    monkeypatch.setattr(functional, "attention", ours)
    monkeypatch.setattr(F, "scaled_dot_product_attention", theirs)
    return count


def test_replaced(calls):
    want = PYTORCH(Q, K, V)
    with sdpa_replaced():
        got = F.scaled_dot_product_attention(Q, K, V)
        assert calls == {"libattn": 1, "pytorch": 0}
        torch.testing.assert_close(got, want)
        with sdpa_replaced():
            torch.nn.functional.scaled_dot_product_attention(Q, K, V)
        F.scaled_dot_product_attention(Q, K, value=V, is_causal=True)
        assert calls == {"libattn": 3, "pytorch": 0}
    F.scaled_dot_product_attention(Q, K, V)
    assert calls == {"libattn": 3, "pytorch": 1}


@pytest.mark.parametrize("case", ["double", "all dropped"])
def test_what_is_left_to_pytorch(calls, case):
    """What libattn refuses and PyTorch computes."""
    args, options, _ = WRONG[case]
    with sdpa_replaced():
        got = F.scaled_dot_product_attention(*args, **options)
    assert torch.equal(got, PYTORCH(*args, **options)) and calls == {"libattn": 0, "pytorch": 1}


@pytest.mark.parametrize("case", ["one axis", "numbers", "mixed", "short mask", "channels", "heads", "groups",
                                  "keys and values"])
def test_what_both_refuse(calls, case):
    args, options, _ = WRONG[case]
    with sdpa_replaced(), pytest.raises((RuntimeError, IndexError)):
        F.scaled_dot_product_attention(*args, **options)
    assert calls["libattn"] == 0


def test_exceptions_and_order_of_leaving():
    with pytest.raises(KeyError), sdpa_replaced():
        assert F.scaled_dot_product_attention is not PYTORCH
        raise KeyError
    assert F.scaled_dot_product_attention is PYTORCH
    inner, done = threading.Event(), threading.Event()

    def other():
        with sdpa_replaced():
            inner.set()
            done.wait(30)

    thread = threading.Thread(target=other)
    with sdpa_replaced():
        thread.start()
        assert inner.wait(30)
    assert F.scaled_dot_product_attention is not PYTORCH
    done.set()
    thread.join()
    assert F.scaled_dot_product_attention is PYTORCH


def test_the_strictest_counts(calls):
    """Of several who have asked, in whatever order they leave."""
    args = WRONG["double"][0]
    lenient, strict = sdpa_replaced(), sdpa_replaced(fallback=False)
    strict.__enter__()
    lenient.__enter__()
    with pytest.raises(NotImplementedError, match="float64"):
        F.scaled_dot_product_attention(*args)
    strict.__exit__(None, None, None)
    F.scaled_dot_product_attention(*args)
    lenient.__exit__(None, None, None)
    F.scaled_dot_product_attention(*args)
    assert calls == {"libattn": 0, "pytorch": 2}


def test_modules(calls):
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(24, 4, 48, batch_first=True, dropout=0.0)
    x = numbers(2, 7, 24)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(7)
    padding = torch.zeros(2, 7).masked_fill(torch.arange(7) >= 5, -torch.inf)
    want = layer(x, src_mask=mask, src_key_padding_mask=padding)
    want_gradients = torch.autograd.grad(want.square().sum(), layer.parameters())
    calls.update(libattn=0, pytorch=0)
    with sdpa_replaced(fallback=False):
        got = layer(x, src_mask=mask, src_key_padding_mask=padding)
        gradients = torch.autograd.grad(got.square().sum(), layer.parameters())
    assert calls == {"libattn": 1, "pytorch": 0}
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(gradients, want_gradients, atol=1e-4, rtol=1e-3)


def test_compiled_within():
    torch._dynamo.reset()
    graphs = []

    def backend(graph, inputs):
        graphs.append(str(graph.code))
        return graph

    compiled = torch.compile(lambda *x: F.scaled_dot_product_attention(*x, is_causal=True), fullgraph=True, backend=backend)
    with sdpa_replaced():
        got = compiled(Q, K, V)
    assert len(graphs) == 1 and "libattn.attention" in graphs[0]
    torch.testing.assert_close(got, PYTORCH(Q, K, V, is_causal=True))
    with sdpa_replaced():  # what is left to PyTorch breaks no graph either
        assert compiled(Q.double(), K.double(), V.double()).dtype == torch.float64
    assert len(graphs) == 2 and "libattn" not in graphs[1]
