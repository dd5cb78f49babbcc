# SPDX-License-Identifier: Apache-2.0
"""libattn.torch.attention(): its operators, gradients, compilation, and what it refuses."""
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import libattn
import libattn.torch
from libattn.torch import attention

B, H, TQ, TK, D = 2, 4, 9, 13, 8
OPERATOR = torch.ops.libattn.attention.default


def numbers(*shape, dtype=torch.float32, requires_grad=True):
    return torch.randn(*shape, generator=generator).to(dtype).requires_grad_(requires_grad)


generator = torch.Generator().manual_seed(3)
SINKS, SLOPES, TABLE, SCALES = numbers(H), numbers(H), numbers(H, 7), numbers(H)
BIAS = numbers(B, 1, TQ, TK)
REL_K, REL_Q = numbers(6, D), numbers(H, 6, D)
COS_Q, COS_K = (torch.from_numpy(libattn.rope_table(n, pairs=D // 2)) for n in (TQ, TK))
OFFSETS_Q, OFFSETS_K = torch.tensor([0, 4, 9]), torch.tensor([0, 8, 13])
LABELS_Q, LABELS_K = torch.arange(TQ).expand(B, TQ) // 3, torch.arange(TK).expand(B, TK) // 4
CASES = {
    "plain": {},
    "numbers": {"scale": 0.3, "temperature": 2.0, "softcap": 1.5, "num_threads": 1, "sums": "free", "inputs": "as-given"},
    "tables": {"head_scale": SCALES, "sinks": SINKS, "alibi": SLOPES, "mask": BIAS,
               "relative_bias": libattn.RelativeBias(TABLE, "clipped", 3)},
    "disentangled": {"disentangled": libattn.Disentangled(3, REL_K, REL_Q)},
    "rope": {"rope": libattn.Rope(COS_Q, COS_K)},
    "masks": {"mask": torch.ones(TQ, TK).tril(2).bool(), "causal": "top-left", "prefix": [3, 0], "lengths": [13, 7],
              "starts": [1, 0], "window": libattn.Window(6, 0, 2, [3])},
    "offset": {"causal": True, "query_offset": torch.tensor([4, 1])},
    "bottom-right": {"causal": "bottom-right", "window": 5},
    "segments": {"segments": (LABELS_Q, LABELS_K)},
    "block mask": {"block_mask": libattn.longformer(TQ, TK, size=16, window=0)},
    "tree": {"tree": libattn.Tree(4, torch.full((B, TQ, 1), 13, dtype=torch.uint64))},
    "dropout": {"dropout": libattn.Dropout(0.4, seed=2**63 + 5, offset=1)},
}
TABLES = {id(x) for x in (SINKS, SLOPES, TABLE, SCALES, BIAS, REL_K, REL_Q)}


@pytest.fixture
def qkv():
    return numbers(B, H, TQ, D), numbers(B, 2, TK, D), numbers(B, 2, TK, 6)


def arguments(q, k, v, options, layout="bhtd"):
    """Those of the operator, as attention() makes them."""
    from libattn.torch.call import apart
    from libattn.torch.ops import TENSORS

    tensors, others = apart(q, k, options, layout)
    return (q, k, v, *(tensors.get(name) for name in TENSORS)), others | {"layout": layout}


@pytest.mark.parametrize("case", CASES)
def test_opcheck(qkv, case):
    places, others = arguments(*qkv, CASES[case])
    results = torch.library.opcheck(OPERATOR, places, others)
    assert set(results.values()) == {"SUCCESS"} and len(results) == 4


def test_opcheck_of_ragged_and_tokens_first():
    q, k = numbers(TQ, H, D), numbers(TK, 2, D)
    places, others = arguments(q, k, k, {"cu_seqlens": (OFFSETS_Q, OFFSETS_K), "causal": "bottom-right"}, "bthd")
    assert set(torch.library.opcheck(OPERATOR, places, others).values()) == {"SUCCESS"}


@pytest.mark.parametrize("case", CASES)
def test_opcheck_of_gradients(qkv, case):
    """The operator of the backward pass. It refuses gradients of its own, so its inputs want none."""
    places, others = arguments(*(x.detach() for x in qkv), CASES[case])
    places = [x.detach() if isinstance(x, torch.Tensor) else x for x in places]
    out, lse = OPERATOR(*places, **others)
    wanted = ["q", "k", "v", *(name for name in ("sinks", "bias_table", "rel_k") if name in arguments_of(CASES[case]))]
    places = (*places[:3], out, lse, torch.randn_like(out), None, *places[3:])
    results = torch.library.opcheck(torch.ops.libattn.attention_backward.default, places, others | {"wanted": wanted})
    assert set(results.values()) == {"SUCCESS"} and len(results) == 4


def arguments_of(options):
    q, k = torch.zeros(B, H, TQ, D), torch.zeros(B, 2, TK, D)
    from libattn.torch.call import apart

    return apart(q, k, options, "bhtd")[0]


@pytest.mark.parametrize("ndim, layout", [(n, layout) for n in (1, 2, 3, 4) for layout in ("bhtd", "bthd")])
def test_opcheck_of_fewer_axes(ndim, layout):
    q = numbers(*(1, 1, 1, D)[4 - ndim :])
    assert set(torch.library.opcheck(OPERATOR, (q, q, q), {"layout": layout}).values()) == {"SUCCESS"}


def test_opcheck_of_a_block_table():
    pool = numbers(5, 2, 16, D, requires_grad=False)
    options = {"block_table": torch.tensor([[0, 3], [2, 1]], dtype=torch.int32), "lengths": [20, 32]}
    places, others = arguments(numbers(2, H, 1, D, requires_grad=False), pool, pool, options)
    assert set(torch.library.opcheck(OPERATOR, places, others).values()) == {"SUCCESS"}


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_libattn(qkv, case):
    """The same bits as libattn.attention_backward() gives, whose gradients are tested against differences."""
    options = CASES[case]
    out, lse = attention(*qkv, return_lse=True, **options)
    d_out, d_lse = torch.randn_like(out), torch.randn_like(lse)
    tables = {name: x for name, x in options.items() if id(x) in TABLES}
    wanted = ["q", "k", "v", *tables]
    if "relative_bias" in options:
        tables["relative_bias"] = TABLE
        wanted.append("relative_bias")
    if "disentangled" in options:
        tables |= {"rel_k": REL_K, "rel_q": REL_Q}
        wanted += ["rel_k", "rel_q"]
    got = torch.autograd.grad((out, lse), (*qkv, *tables.values()), (d_out, d_lse))
    with torch.no_grad():
        want_out, want_lse, *_ = libattn.attention(*qkv, return_lse=True, **options)
        want = libattn.attention_backward(*qkv, out, lse, d_out, d_lse=d_lse, wanted=wanted, **options)
        assert torch.equal(attention(*qkv, **options), want_out)
    assert torch.equal(out, want_out) and torch.equal(lse, want_lse)
    for name, gradient in zip(wanted, got):
        assert torch.equal(gradient, getattr(want, name)), name


def eager(q, k, v, bias=0.0, sinks=None):
    """In double precision, by PyTorch's own operators."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + bias
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[None, :, None, None].expand(*scores.shape[:-1], 1)], -1)
    lse = scores.logsumexp(-1)
    return (scores - lse[..., None]).exp()[..., : k.shape[2]] @ v, lse


@pytest.mark.parametrize("dtype, error", [(torch.float32, 1e-5), (torch.float16, 4e-3), (torch.bfloat16, 4e-2)])
def test_gradients_like_eager(qkv, dtype, error):
    inputs = [x.detach().to(dtype).requires_grad_() for x in (*qkv, BIAS, SINKS)]
    q, k, v, bias, sinks = inputs
    causal = torch.ones(TQ, TK, dtype=torch.bool).tril(TK - TQ)
    got = attention(q, k, v, mask=bias, sinks=sinks, causal="bottom-right", return_lse=True)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    want = eager(*wide[:3], wide[3].masked_fill(~causal, -torch.inf), wide[4])
    d_out, d_lse = torch.randn_like(got[0]), torch.randn_like(got[1])
    gradients = torch.autograd.grad(got, inputs, (d_out, d_lse))
    expected = torch.autograd.grad(want, wide, (d_out.double(), d_lse.double()))
    assert got[0].dtype == dtype and got[1].dtype == torch.float32
    torch.testing.assert_close(got[0].double(), want[0], atol=error, rtol=error)
    for x, gradient, wanted in zip(inputs, gradients, expected):
        assert gradient.dtype == dtype and gradient.shape == x.shape
        # Sums over many rows of products: errors are those of the largest.
        torch.testing.assert_close(gradient.double(), wanted, atol=4 * error * max(1, float(wanted.abs().max())), rtol=0)


def test_only_what_is_asked_for(qkv):
    q, k, v = (x.detach() for x in qkv)
    sinks = SINKS.detach().clone().requires_grad_()
    attention(q, k, v, sinks=sinks).sum().backward()
    assert sinks.grad is not None and q.grad is None
    out, lse = attention(q, k, v.requires_grad_(), return_lse=True)
    assert torch.autograd.grad(lse.sum(), v, retain_graph=True)[0].abs().max() == 0
    d_v, = torch.autograd.grad(out.sum(), v)  # a gradient of out of which all numbers are one in memory
    torch.testing.assert_close(d_v.sum(), torch.tensor(float(out.numel())))


def test_views_of_any_strides():
    wide = numbers(B, TQ, 3, H, 2 * D)
    q, k, v = (wide[:, :, n, :, ::2].transpose(1, 2) for n in range(3))
    gradient, = torch.autograd.grad(attention(q, k, v, causal=True).square().sum(), wide)
    packed = [x.detach().contiguous().requires_grad_() for x in (q, k, v)]
    want = torch.autograd.grad(attention(*packed, causal=True).square().sum(), packed)
    for n in range(3):
        assert torch.equal(gradient[:, :, n, :, ::2].transpose(1, 2), want[n])
    one = numbers(1, 1, TK, D)
    for_all = one.expand(B, H, TK, D)
    shared, = torch.autograd.grad(attention(packed[0], for_all, for_all).square().sum(), one)
    copied = for_all.detach().clone().requires_grad_()
    each, = torch.autograd.grad(attention(packed[0], copied, copied).square().sum(), copied)
    torch.testing.assert_close(shared, each.sum((0, 1), keepdim=True))


@pytest.mark.parametrize("shape", [(0, H, TQ, D), (B, H, 0, D)])
def test_empty(shape):
    q = numbers(*shape)
    keys = numbers(shape[0], H, 5, D)
    out = attention(q, keys, keys)
    assert out.shape == q.shape
    d_q, d_k = torch.autograd.grad(out.sum(), (q, keys))
    assert not d_k.any() and d_q.shape == q.shape


def test_no_keys():
    q, k = numbers(B, H, 3, D), numbers(B, H, 0, D)
    out, lse = attention(q, k, k, return_lse=True)
    assert not out.any() and (lse == -torch.inf).all()
    assert not torch.autograd.grad(out.sum(), q)[0].any()


# --------------------------------------------------------------------------------- dropout --

def test_dropout_follows_the_generator(qkv):
    def run(seed):
        torch.manual_seed(seed)
        out = attention(*qkv, dropout=0.5)
        return out, *torch.autograd.grad(out.square().sum(), qkv)

    first, again, other = run(1), run(1), run(2)
    assert all(map(torch.equal, first, again)) and not torch.equal(first[0], other[0])
    state = torch.get_rng_state()
    attention(*qkv, dropout=0.0)
    assert torch.equal(state, torch.get_rng_state())
    assert not torch.equal(attention(*qkv, dropout=0.5), attention(*qkv, dropout=0.5))


def test_gradients_drop_what_was_dropped():
    """With v the identity out has the weights, and the gradient of v is their sum over queries."""
    q, v = numbers(1, 1, 8, D), torch.eye(8)[None, None].requires_grad_()
    out = attention(q, numbers(1, 1, 8, D), v, dropout=0.5)
    assert 0 < (out == 0).sum() < 64
    d_v, = torch.autograd.grad(out, v, torch.eye(8)[None, None])
    torch.testing.assert_close(d_v, out.transpose(-1, -2))


def test_dropout_in_a_checkpoint(qkv):
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(5)
    want = torch.autograd.grad(attention(*qkv, dropout=0.5).square().sum(), qkv)
    torch.manual_seed(5)
    out = checkpoint(lambda *x: attention(*x, dropout=0.5), *qkv, use_reentrant=False)
    assert all(map(torch.equal, want, torch.autograd.grad(out.square().sum(), qkv)))


def test_autocast(qkv):
    with torch.autocast("cpu", dtype=torch.float16):
        out = attention(*qkv)
    assert out.dtype == torch.float16
    d_q, = torch.autograd.grad(out.sum(), qkv[0])
    assert d_q.dtype == torch.float32


def test_meta():
    q = torch.empty(2, H, 5, D, device="meta")
    out, lse = attention(q, q, q, causal=True, return_lse=True)
    assert out.device.type == lse.device.type == "meta" and out.shape == q.shape and lse.shape == q.shape[:-1]


# ------------------------------------------------------------------------- what is refused --

def test_gradients_of_gradients(qkv):
    d_q, = torch.autograd.grad(attention(*qkv).sum(), qkv[0], create_graph=True)
    with pytest.raises(NotImplementedError, match="gradients of gradients.*SDPBackend.MATH"):
        d_q.sum().backward()


def test_causal_in_a_ragged_batch():
    offsets = torch.tensor([0, 3, 7])
    q = torch.randn(1, 2, 7, 16)
    out = attention(q, q, q, causal=True, cu_seqlens=offsets)
    torch.testing.assert_close(out[:, :, 3:], attention(*(q[:, :, 3:],) * 3, causal=True))
    with pytest.raises(ValueError, match="causal is True"):
        attention(q, q, q, causal=True, cu_seqlens=(offsets, offsets.clone()))


def test_forward_mode(qkv):
    x = tuple(x.detach() for x in qkv)
    with pytest.raises(NotImplementedError, match="forward-mode"):
        torch.func.jvp(attention, x, x)
    with pytest.raises(NotImplementedError, match="forward-mode"):
        torch.func.hessian(lambda q: attention(q, *x[1:]).square().sum())(x[0])


def fake(device):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.empty(B, H, TQ, D, device=device)


REFUSED = {
    "function": (NotImplementedError, "score_function.*libattn.attention", {"score_function": lambda tile: None}),
    "weights": (NotImplementedError, "weight_function.*libattn.attention", {"weight_function": lambda tile: None}),
    "no such option": (TypeError, "no option 'casual'", {"casual": True}),
    "an argument of the operator": (TypeError, "no option 'window_left'", {"window_left": 3}),
    "a word as a scale": (ValueError, "scale is 'large'; expected a number", {"scale": "large"}),
    "a number as a word": (ValueError, "isa is 3; expected a word", {"isa": 3}),
    "threads": (ValueError, "num_threads is 1.5; expected a whole number", {"num_threads": 1.5}),
    "causal": (ValueError, "causal is True", {"causal": True}),
    "table": (NotImplementedError, "rope.* requires a gradient.*detach", {"rope": libattn.Rope(
        COS_Q.clone().requires_grad_(), COS_K)}),
    "int8": (NotImplementedError, "scores_of is 'int8'", {"scores_of": "int8"}),
    "pages": (NotImplementedError, "block_table", {"block_table": torch.zeros(2, 1, dtype=torch.int32), "lengths": 3}),
    "scale": (ValueError, "scale is a tensor that requires a gradient", {"scale": torch.tensor(1.0, requires_grad=True)}),
    "dropout": (ValueError, "dropout is 1.0", {"dropout": 1.0}),
    "a word as dropout": (ValueError, "dropout is 'much'; expected a libattn.Dropout, or", {"dropout": "much"}),
    "a word as a window": (ValueError, "window is 'wide'; expected .left, right", {"window": "wide"}),
    "three sides": (ValueError, "window is .1, 2, 3.; expected .left, right", {"window": (1, 2, 3)}),
    "an array as a tree": (ValueError, "tree is a ndarray; expected a libattn.Tree", {"tree": np.zeros(3)}),
    "lengths": (ValueError, "lengths", {"lengths": [99, 1]}),
    "sinks": (ValueError, "sinks has the shape", {"sinks": torch.zeros(3)}),
    "nothing": (ValueError, "neither rel_k nor rel_q", {"disentangled": libattn.Disentangled(3)}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(qkv, case):
    error, sentence, options = REFUSED[case]
    with pytest.raises(error, match=sentence):
        attention(*qkv, **options)


def test_refused_tensors(qkv):
    q, k, v = qkv
    for wrong, error, sentence in (
            ((q.double(), k, v), ValueError, "q has elements of the type torch.float64"),
            ((q, k.int(), v), ValueError, "k has elements of the type torch.int32"),
            ((q.tolist(), k, v), TypeError, "q is a builtins.list"),
            ((q, libattn.quantise(k.detach().numpy(), "int8"), v), TypeError, "k is a Quantised.*libattn.attention"),
            ((q.detach().to_sparse(), k, v), ValueError, "q is of the layout torch.sparse_coo"),
            ((torch.nested.nested_tensor([q[0, 0], q[0, 0, :3]]), k, v), ValueError, "q is nested.*cu_seqlens"),
            ((q, k.to("meta"), v), ValueError, "k on meta.*expected one device"),
            ((q, k[..., :4], v), ValueError, r"k.shape\[3\] is 4"),
            ((q[None], k, v), ValueError, "axes")):
        with pytest.raises(error, match=sentence):
            attention(*wrong)
    with pytest.raises(ValueError, match="q is on another device.*cuda"):
        attention(fake("cuda"), fake("cpu"), fake("cpu"))
    with pytest.raises(ValueError, match="sinks is on another device"):
        attention(fake("cpu"), fake("cpu"), fake("cpu"), sinks=fake("cuda"))


def test_refused_while_compiling(qkv):
    torch._dynamo.reset()
    with pytest.raises(Exception, match="k has 4 channels"):
        torch.compile(lambda q, k, v: attention(q, k[..., :4], v), fullgraph=True, backend="aot_eager")(*qkv)


def test_without_gradients_there_is_no_graph(qkv):
    with torch.no_grad():
        assert not attention(*qkv).requires_grad
    with torch.inference_mode():
        assert torch.equal(attention(*qkv), attention(*(x.detach() for x in qkv)))


def test_options_are_those_of_libattn():
    assert set(libattn.torch.Options.__annotations__) == libattn._core.OPTIONS - {"score_function", "weight_function"}


def test_is_not_imported_unasked():
    code = "import sys, libattn; assert 'torch' not in sys.modules and 'libattn.torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_numbers_of_others_as_options(qkv):
    want = attention(*qkv, scale=2.0, num_threads=1)
    for scale in (2, np.float32(2), np.int64(2), torch.tensor(2.0)):
        assert torch.equal(want, attention(*qkv, scale=scale, num_threads=np.int64(1)))


def test_arrays_of_others_as_options(qkv):
    want = attention(*qkv, sinks=SINKS.detach(), lengths=torch.tensor([5, 9]))
    assert torch.equal(want, attention(*qkv, sinks=SINKS.detach().numpy(), lengths=np.array([5, 9], np.int32)))
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    assert torch.equal(attention(*qkv, sinks=np.ones(H, bfloat16)), attention(*qkv, sinks=[1.0] * H))
