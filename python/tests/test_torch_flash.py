# SPDX-License-Identifier: Apache-2.0
"""Entry points in the manner of flash-attn, against their formulas in double precision."""
import pytest

torch = pytest.importorskip("torch")

import libattn
from libattn.torch import flash_attn_func, flash_attn_varlen_func

B, TQ, TK, HQ, HKV, D = 2, 6, 9, 4, 2, 16
generator = torch.Generator().manual_seed(6)


def numbers(*shape):
    return torch.randn(*shape, generator=generator).requires_grad_()


SLOPES = torch.from_numpy(libattn.alibi_slopes(HQ)).requires_grad_()
SLOPES_OF_BATCHES = (torch.rand(B, HQ, generator=generator)).requires_grad_()


def formula(q, k, v, scale=None, causal=False, window=(-1, -1), softcap=0.0, slopes=None):
    """(out, lse) of (B, T, H, d). slopes: (B, H, 1, 1) or (H, 1, 1)."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    distance = torch.arange(k.shape[2]) - torch.arange(q.shape[2])[:, None] - (k.shape[2] - q.shape[2])
    if slopes is not None:
        scores = scores - slopes.double() * distance.abs()
    hidden = torch.zeros_like(distance, dtype=torch.bool)
    if causal:
        hidden |= distance > 0
    if window[0] >= 0:
        hidden |= distance < -window[0]
    if window[1] >= 0:
        hidden |= distance > window[1]
    scores = scores.masked_fill(hidden, -torch.inf)
    lse = scores.logsumexp(-1)
    weights = torch.nan_to_num((scores - lse[..., None]).exp()) * ~hidden
    return (weights @ v).transpose(1, 2), lse


CASES = {
    "plain": {},
    "scale": {"softmax_scale": 0.4},
    "causal": {"causal": True},
    "window": {"window_size": (3, 1)},
    "left window": {"window_size": (2, -1)},
    "right window": {"window_size": (-1, 0)},
    "causal window": {"causal": True, "window_size": (2, 2)},
    "softcap": {"softcap": 0.8, "causal": True},
    "alibi": {"alibi_slopes": SLOPES},
    "causal alibi": {"alibi_slopes": SLOPES, "causal": True},
    "deterministic": {"deterministic": True},
}


def told(options):
    names = {"softmax_scale": "scale", "window_size": "window", "alibi_slopes": "slopes"}
    said = {names.get(name, name): value for name, value in options.items() if name != "deterministic"}
    if "slopes" in said:
        said["slopes"] = said["slopes"][..., None, None]
    return said


def close(got, want):
    torch.testing.assert_close(got.double(), want, atol=3e-5, rtol=3e-5)


def compare(got, want, inputs):
    for x, y in zip(got, want):
        close(x, y)
    d_out = torch.randn_like(got[0])
    gradients = torch.autograd.grad(got[0], inputs, d_out)
    for x, y in zip(gradients, torch.autograd.grad(want[0], inputs, d_out.double())):
        torch.testing.assert_close(x, y, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("queries, keys", [(TQ, TK), (TK, TK)])
@pytest.mark.parametrize("case", CASES)
def test_func(case, queries, keys):
    options = CASES[case]
    q, k, v = numbers(B, queries, HQ, D), numbers(B, keys, HKV, D), numbers(B, keys, HKV, D)
    out, lse, nothing = flash_attn_func(q, k, v, **options, return_attn_probs=True)
    assert nothing is None and out.shape == q.shape and lse.shape == (B, HQ, queries)
    inputs = (q, k, v, *([SLOPES] if "alibi_slopes" in options else []))
    compare((out, lse), formula(q, k, v, **told(options)), inputs)
    assert torch.equal(flash_attn_func(q, k, v, **options), out)


@pytest.mark.parametrize("causal", [False, True])
def test_slopes_of_batches(causal):
    q, k, v = numbers(B, TQ, HQ, D), numbers(B, TK, HKV, D), numbers(B, TK, HKV, D)
    got = flash_attn_func(q, k, v, causal=causal, alibi_slopes=SLOPES_OF_BATCHES, return_attn_probs=True)
    want = formula(q, k, v, causal=causal, slopes=SLOPES_OF_BATCHES[..., None, None])
    compare(got[:2], want, (q, k, v, SLOPES_OF_BATCHES))


def test_queries_before_all_keys():
    """More queries than keys: with bottom-right alignment the first ones see nothing."""
    q, k = numbers(1, 5, HQ, D), numbers(1, 3, HKV, D)
    out, lse, _ = flash_attn_func(q, k, k, causal=True, return_attn_probs=True)
    assert not out[:, :2].any() and (lse[..., :2] == -torch.inf).all() and lse[..., 2:].isfinite().all()
    close(out, formula(q, k, k, causal=True)[0])


LENGTHS_Q, LENGTHS_K = (3, 0, 6, 1), (5, 2, 6, 0)
OFFSETS_Q, OFFSETS_K = (torch.tensor([0, *x], dtype=torch.int32).cumsum(0).int() for x in (LENGTHS_Q, LENGTHS_K))


@pytest.mark.parametrize("case", CASES)
def test_varlen(case):
    options = CASES[case]
    q, k, v = numbers(10, HQ, D), numbers(13, HKV, D), numbers(13, HKV, D)
    out, lse, _ = flash_attn_varlen_func(q, k, v, OFFSETS_Q, OFFSETS_K, 6, 6, **options, return_attn_probs=True)
    assert out.shape == q.shape and lse.shape == (HQ, 10)
    parts = [formula(q[None, a:b], k[None, c:d], v[None, c:d], **told(options))
             for a, b, c, d in zip(OFFSETS_Q, OFFSETS_Q[1:], OFFSETS_K, OFFSETS_K[1:])]
    want = torch.cat([out[0] for out, _ in parts]), torch.cat([lse[0] for _, lse in parts], 1)
    compare((out, lse), want, (q, k, v, *([SLOPES] if "alibi_slopes" in options else [])))


@pytest.mark.parametrize("options", [{"causal": True}, {"window_size": (3, 0)}])
def test_varlen_of_pages(options):
    pool_k, pool_v = numbers(6, 16, HKV, D).detach(), numbers(6, 16, HKV, D).detach()
    table = torch.tensor([[4, 1], [0, 5]], dtype=torch.int32)
    offsets_q, offsets_k = torch.tensor([0, 3, 4], dtype=torch.int32), torch.tensor([0, 20, 37], dtype=torch.int32)
    q = numbers(4, HQ, D).detach()
    got = flash_attn_varlen_func(q, pool_k, pool_v, offsets_q, offsets_k, 3, 20, block_table=table, **options)
    for s, length in enumerate((20, 17)):
        k, v = (pool[table[s].long()].flatten(0, 1)[None, :length] for pool in (pool_k, pool_v))
        rows = slice(*offsets_q[s : s + 2].tolist())
        close(got[rows], formula(q[None, rows], k, v, **told(options))[0][0])
    with pytest.raises(NotImplementedError, match="block_table"):
        flash_attn_varlen_func(q.requires_grad_(), pool_k, pool_v, offsets_q, offsets_k, block_table=table)


def test_dropout():
    q, v = numbers(1, 32, 1, D), torch.eye(32)[None, :, None]
    weights = flash_attn_func(q, q, v)
    torch.manual_seed(0)
    dropped = flash_attn_func(q, q, v, dropout_p=0.25)
    torch.manual_seed(0)
    offsets = torch.tensor([0, 32])
    assert torch.equal(dropped[0], flash_attn_varlen_func(q[0], q[0], v[0], offsets, offsets, dropout_p=0.25))
    kept = dropped != 0
    assert 0.65 < kept.float().mean() < 0.85
    close(dropped.double(), (weights * kept / 0.75).double())


def test_compile():
    """One graph for all lengths; those of ragged batches are data."""
    torch._dynamo.reset()
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    varlen = torch.compile(lambda q, k, a, b: flash_attn_varlen_func(q, k, k, a, b, causal=True, window_size=(4, 0)),
                           fullgraph=True, dynamic=True, backend=backend)
    q, k = numbers(10, HQ, D), numbers(13, HKV, D)
    for a, b in ((OFFSETS_Q, OFFSETS_K), (torch.tensor([0, 10]), torch.tensor([0, 13]))):
        assert torch.equal(varlen(q, k, a.long(), b.long()),
                           flash_attn_varlen_func(q, k, k, a, b, causal=True, window_size=(4, 0)))
    dense = torch.compile(lambda q, k: flash_attn_func(q, k, k, window_size=(4, 0)), fullgraph=True, dynamic=True,
                          backend=backend)
    for queries, keys in ((5, 9), (6, 13)):
        q, k = numbers(B, queries, HQ, D), numbers(B, keys, HKV, D)
        assert torch.equal(dense(q, k), flash_attn_func(q, k, k, window_size=(4, 0)))
    assert len(graphs) <= 3


def test_refused():
    q = numbers(10, HQ, D)
    offsets = torch.tensor([0, 4, 10])
    for error, sentence, options in (
            (NotImplementedError, r"alibi_slopes has the shape \(2, 4\)", {"alibi_slopes": SLOPES_OF_BATCHES}),
            (ValueError, r"window_size is \(-2, 0\)", {"window_size": (-2, 0)})):
        with pytest.raises(error, match=sentence):
            flash_attn_varlen_func(q, q, q, offsets, offsets, **options)
    with pytest.raises(ValueError, match="cu_seqlens_q and cu_seqlens_k have the shapes"):
        flash_attn_varlen_func(q, q, q, offsets, offsets[:2])
    with pytest.raises(ValueError, match="cu_seqlens"):
        flash_attn_varlen_func(q, q, q, torch.tensor([0, 12]), torch.tensor([0, 10]))
    with pytest.raises(ValueError, match=r"alibi_slopes has the shape \(4, 2\)"):
        flash_attn_func(q[None], q[None], q[None], alibi_slopes=SLOPES_OF_BATCHES.t())
