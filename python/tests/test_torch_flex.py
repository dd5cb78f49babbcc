# SPDX-License-Identifier: Apache-2.0
"""flex_attention() of libattn beside PyTorch's, with the same functions."""
import pytest

torch = pytest.importorskip("torch")
pytorch = pytest.importorskip("torch.nn.attention.flex_attention")

import libattn
from libattn.torch import flex, flex_attention

B, HQ, HKV, TQ, TK, D = 2, 4, 2, 20, 37, 16
generator = torch.Generator().manual_seed(7)


def numbers(*shape):
    return torch.randn(*shape, generator=generator).requires_grad_()


Q, K, V = numbers(B, HQ, TQ, D), numbers(B, HKV, TK, D), numbers(B, HKV, TK, 8)
SLOPES = torch.from_numpy(libattn.alibi_slopes(HQ)).requires_grad_()
TABLE, T5_TABLE, BIAS = numbers(HQ, 11), numbers(HQ, 8), numbers(B, HQ, TQ, TK)
LABELS_Q, LABELS_K = torch.arange(TQ) // 6, torch.arange(TK) // 9
OFFSETS = torch.tensor([TK - TQ, 3])

SCORES = {
    "nothing": (None, ()),
    "softcap": (flex.softcap(0.9), ()),
    "alibi": (flex.alibi(SLOPES), (SLOPES,)),
    "alibi with an offset": (flex.alibi(SLOPES, offset=TK - TQ), (SLOPES,)),
    "alibi with offsets": (flex.alibi(SLOPES, OFFSETS), (SLOPES,)),
    "relative": (flex.relative_bias(TABLE), (TABLE,)),
    "relative with an offset": (flex.relative_bias(TABLE, 5), (TABLE,)),
    "t5": (flex.t5_bias(T5_TABLE, max_distance=24, bidirectional=False), (T5_TABLE,)),
    "t5 of encoders": (flex.t5_bias(T5_TABLE, max_distance=24, bidirectional=True), (T5_TABLE,)),
    "additive": (flex.additive(BIAS), (BIAS,)),
    "all": (flex.compose(flex.softcap(2.0), flex.alibi(SLOPES), flex.compose(flex.relative_bias(TABLE), flex.additive(BIAS))),
            (SLOPES, TABLE, BIAS)),
}
MASKS = {
    "causal": flex.causal(),
    "causal with an offset": flex.causal(TK - TQ),
    "causal with offsets": flex.causal(OFFSETS),
    "prefix": flex.prefix_lm(7),
    "prefixes": flex.prefix_lm(torch.tensor([0, 12])),
    "window": flex.sliding_window(4, 2),
    "left window": flex.sliding_window(4),
    "window and first tokens": flex.sliding_window(2, 0, first_tokens=3),
    "documents": flex.documents(LABELS_Q, LABELS_K),
    "documents of batches": flex.documents(torch.stack([LABELS_Q, LABELS_Q + 1]), torch.stack([LABELS_K, LABELS_K])),
    "lengths": flex.key_lengths(torch.tensor([37, 11])),
    "all": flex.and_masks(flex.causal(17), flex.sliding_window(9, first_tokens=2, offset=17),
                          flex.documents(LABELS_Q, LABELS_K), flex.key_lengths(torch.tensor([37, 30]))),
    "prefix and window": flex.and_masks(flex.prefix_lm(5), flex.sliding_window(8)),
    "prefix and causal": flex.and_masks(flex.prefix_lm(5), flex.and_masks(flex.causal())),
    "none": flex.and_masks(),
}


def formula(score_mod, mask, scale):
    """Out and lse in double precision, of the functions of all indices at once."""
    q, k, v = (x.double().repeat_interleave(HQ // x.shape[1], 1) for x in (Q, K, V))
    at = (torch.arange(B)[:, None, None, None], torch.arange(HQ)[:, None, None], torch.arange(TQ)[:, None], torch.arange(TK))
    scores = q @ k.transpose(-1, -2) * (D**-0.5 if scale is None else scale)
    if score_mod is not None:
        scores = score_mod(scores, *at)
    seen = torch.ones(TQ, TK, dtype=torch.bool) if mask is None else mask(*at)
    scores = scores.masked_fill(~seen, -torch.inf)
    lse = scores.logsumexp(-1)
    return torch.where(seen, (scores - lse[..., None]).exp(), 0.0).nan_to_num() @ v, lse


def compare(score_mod, tables, mask, scale=None):
    """PyTorch's flex_attention takes the same objects, on CPUs without gradients."""
    inputs = (Q, K, V, *tables)
    blocks = None if mask is None else pytorch.create_block_mask(mask, B, HQ, TQ, TK, device="cpu", BLOCK_SIZE=16)
    out, lse = flex_attention(Q, K, V, score_mod, mask, scale=scale, enable_gqa=True, return_lse=True)
    with torch.no_grad():
        theirs = pytorch.flex_attention(Q.double(), K.double(), V.double(), score_mod, blocks, scale=scale, enable_gqa=True)
    want, want_lse = formula(score_mod, mask, scale)
    torch.testing.assert_close(theirs, want)
    torch.testing.assert_close(out.double(), want, atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(lse.double(), want_lse, atol=2e-5, rtol=2e-5)
    d_out = torch.randn_like(out)
    for x, y in zip(torch.autograd.grad(out, inputs, d_out), torch.autograd.grad(want, inputs, d_out.double())):
        torch.testing.assert_close(x, y, atol=2e-4, rtol=2e-4)
    if blocks is not None:
        assert torch.equal(flex_attention(Q, K, V, score_mod, blocks, scale=scale, enable_gqa=True), out)


@pytest.mark.parametrize("case", SCORES)
def test_scores(case):
    score_mod, tables = SCORES[case]
    compare(score_mod, tables, None)


@pytest.mark.parametrize("case", MASKS)
def test_masks(case):
    compare(None, (), MASKS[case])


def test_scores_and_masks():
    compare(SCORES["all"][0], SCORES["all"][1], MASKS["prefix and window"], scale=0.4)
    compare(flex.alibi(SLOPES, OFFSETS), (SLOPES,), flex.causal(OFFSETS))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("buckets, most", [(32, 128), (8, 24), (6, 100), (32, 1000)])
def test_buckets_of_t5(buckets, most, bidirectional):
    """Every distance up to 1100 has the bucket of the library."""
    length = 1100
    table = torch.arange(buckets, dtype=torch.float32)[None]
    mod = flex.t5_bias(table, max_distance=most, bidirectional=bidirectional)
    zero = torch.zeros(1, 1, 2, 8)
    for offset in (0, length - 1):
        told = libattn.attention(zero.numpy(), torch.zeros(1, 1, length, 8).numpy(), torch.zeros(1, 1, length, 8).numpy(),
                                 query_offset=offset, return_scores="masked", return_weights=[0],
                                 relative_bias=libattn.RelativeBias(table.numpy(), mod.options(1)["relative_bias"].kind, most))
        keys = torch.arange(length)
        mine = flex.t5_bias(table, max_distance=most, bidirectional=bidirectional, offset=offset)(
            torch.zeros(length), torch.tensor(0), torch.tensor(0), torch.zeros(length, dtype=torch.long), keys)
        torch.testing.assert_close(torch.from_numpy(told.scores)[0, 0, 0], mine, atol=1e-3, rtol=0)


def test_keys_of_all_batches():
    got = flex_attention(Q, K[:1], V[:1], block_mask=flex.causal(), enable_gqa=True)
    torch.testing.assert_close(got, flex_attention(Q, K[:1].repeat(B, 1, 1, 1), V[:1].repeat(B, 1, 1, 1),
                                                   block_mask=flex.causal(), enable_gqa=True))


def test_rows_without_keys():
    labels = torch.zeros(TQ, dtype=torch.long)
    labels[3] = 5
    out, lse = flex_attention(Q, K, V, block_mask=flex.documents(labels, LABELS_K * 0), enable_gqa=True, return_lse=True)
    assert not out[:, :, 3].any() and (lse[:, :, 3] == -torch.inf).all() and lse[:, :, 2].isfinite().all()


def test_compile():
    torch._dynamo.reset()

    def function(q, k, v, slopes, labels):
        mask = flex.and_masks(flex.causal(TK - TQ), flex.documents(labels, LABELS_K))
        return flex_attention(q, k, v, flex.alibi(slopes, TK - TQ), mask, enable_gqa=True)

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    got, want = compiled(Q, K, V, SLOPES, LABELS_Q), function(Q, K, V, SLOPES, LABELS_Q)
    assert torch.equal(got, want)
    assert torch.equal(*(torch.autograd.grad(x.square().sum(), SLOPES)[0] for x in (got, want)))


def hides_odd_keys(b, h, q_idx, kv_idx):
    return kv_idx % 2 == 0


REFUSED = {
    "score function": (NotImplementedError, "score_mod is .*lambda.*libattn.attention takes any score_function",
                       {"score_mod": lambda score, b, h, q, k: score * 2}),
    "mask function": (NotImplementedError, "block_mask is .*hides_odd_keys.*option mask", {"block_mask": hides_odd_keys}),
    "mask as a score": (NotImplementedError, "score_mod is .*causal", {"score_mod": flex.causal()}),
    "offsets": (ValueError, "offsets 0 and 3", {"score_mod": flex.alibi(SLOPES), "block_mask": flex.causal(3)}),
    "two tables": (ValueError, "two parts stand for the option relative_bias",
                   {"score_mod": flex.compose(flex.relative_bias(TABLE), flex.relative_bias(TABLE))}),
    "late softcap": (ValueError, "softcap comes after", {"score_mod": flex.compose(flex.alibi(SLOPES), flex.softcap(2.0))}),
    "slopes": (ValueError, "alibi has the shape", {"score_mod": flex.alibi(torch.zeros(3))}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    error, sentence, options = REFUSED[case]
    with pytest.raises(error, match=sentence):
        flex_attention(Q, K, V, **options, enable_gqa=True)


def test_refused_arguments():
    with pytest.raises(ValueError, match="key has 2 heads; expected 4.*enable_gqa"):
        flex_attention(Q, K, V)
    with pytest.raises(ValueError, match="query has 3 axes"):
        flex_attention(Q[0], K, V)
    with pytest.raises(ValueError, match=r"table has the shape \(4, 8\)"):
        flex.relative_bias(T5_TABLE)
    with pytest.raises(NotImplementedError, match=r"argument of and_masks\(\).*hides_odd_keys"):
        flex.and_masks(flex.causal(), hides_odd_keys)


def test_block_masks_that_say_something_else():
    blocks = pytorch.create_block_mask(hides_odd_keys, None, None, TQ, TK, device="cpu", BLOCK_SIZE=16)
    with pytest.raises(NotImplementedError, match="block_mask.mask_mod is .*hides_odd_keys"):
        flex_attention(Q, K, V, block_mask=blocks, enable_gqa=True)
    blocks = pytorch.create_block_mask(flex.causal(), None, None, TQ, TK + 1, device="cpu", BLOCK_SIZE=16)
    with pytest.raises(ValueError, match=r"block_mask is of \(20, 38\)"):
        flex_attention(Q, K, V, block_mask=blocks, enable_gqa=True)
    first = torch.zeros(1, 1, 2, 3, dtype=torch.int32)
    some = pytorch.BlockMask.from_kv_blocks(torch.ones(1, 1, 2, dtype=torch.int32), first, BLOCK_SIZE=16,
                                            mask_mod=flex.causal(TK - TQ), seq_lengths=(TQ, TK))
    with pytest.raises(NotImplementedError, match="other blocks than its mask_mod"):
        flex_attention(Q, K, V, block_mask=some, enable_gqa=True)
    whole = pytorch.BlockMask.from_kv_blocks(torch.zeros(1, 1, 2, dtype=torch.int32), first,
                                             torch.full((1, 1, 2), 3, dtype=torch.int32),
                                             torch.arange(3, dtype=torch.int32).expand(1, 1, 2, 3).contiguous(),
                                             BLOCK_SIZE=16, mask_mod=flex.causal(), seq_lengths=(TQ, TK))
    with pytest.raises(NotImplementedError, match="other blocks than its mask_mod"):
        flex_attention(Q, K, V, block_mask=whole, enable_gqa=True)


def test_block_mask_of_one_batch_for_masks_of_each():
    mask = flex.documents(torch.stack([LABELS_Q, LABELS_Q * 0 + 3]), LABELS_K)
    blocks = pytorch.create_block_mask(mask, 1, None, TQ, TK, device="cpu", BLOCK_SIZE=16)
    with pytest.raises(NotImplementedError, match="other blocks"):
        flex_attention(Q, K, V, block_mask=blocks, enable_gqa=True)


def test_block_mask_while_compiling():
    torch._dynamo.reset()
    blocks = pytorch.create_block_mask(flex.causal(), None, None, TQ, TK, device="cpu", BLOCK_SIZE=16)
    with pytest.raises(Exception, match="give the mask itself"):
        torch.compile(lambda q: flex_attention(q, K, V, block_mask=blocks, enable_gqa=True), fullgraph=True,
                      backend="aot_eager")(Q)
