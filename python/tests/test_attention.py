# SPDX-License-Identifier: Apache-2.0
"""Every option of attention() against its formula."""
import libattn
import numpy as np
import pytest

import reference

B, H, TQ, TK, D = 2, 4, 19, 35, 24
random = np.random.default_rng(1)


def numbers(*shape):
    return random.standard_normal(shape).astype(np.float32)


@pytest.fixture
def qkv():
    return numbers(B, H, TQ, D), numbers(B, 2, TK, D), numbers(B, 2, TK, 12)


QUERIES, KEYS = np.arange(TQ)[:, None], np.arange(TK)
LENGTHS, STARTS = np.array([TK, 20]), np.array([3, 0])
SLOPES = libattn.alibi_slopes(H)
LABELS_Q, LABELS_K = random.integers(0, 3, (B, TQ)), random.integers(0, 3, (B, TK))
MASK = random.random((B, 1, TQ, TK)) < 0.7
BIAS = numbers(1, H, TQ, TK)
TABLE = numbers(H, 2 * 5 + 1)
TREE = random.integers(0, 2**60, (B, TQ, 1), np.uint64)
DROPPED = libattn.Dropout(0.3, seed=7, offset=5)


def position(batch, of_b):
    return np.asarray(of_b)[:, None, None, None] if batch else of_b


CASES = {
    "plain": ({}, {}),
    "scale": ({"scale": 0.3}, {"scale": 0.3}),
    "temperature": ({"temperature": 2.0}, {"temperature": 2.0}),
    "head_scale": ({"head_scale": [1, 2, 0.5, -1]}, {"head_scale": [1, 2, 0.5, -1]}),
    "softcap": ({"softcap": 0.7}, {"softcap": 0.7}),
    "sinks": ({"sinks": [0, 1, -1, -np.inf]}, {"sinks": [0, 1, -1, -np.inf]}),
    "alibi": ({"alibi": SLOPES}, {"bias": -SLOPES[:, None, None] * abs(QUERIES - KEYS)}),
    "mask": ({"mask": MASK}, {"hidden": ~MASK}),
    "short mask": ({"mask": MASK[..., :30]}, {"hidden": ~MASK | (KEYS >= 30)}),
    "bias": ({"mask": BIAS}, {"bias": BIAS}),
    "top-left": ({"causal": "top-left"}, {"hidden": KEYS > QUERIES}),
    "bottom-right": ({"causal": "bottom-right"}, {"hidden": KEYS > QUERIES + TK - TQ}),
    "bottom-right of lengths": ({"causal": "bottom-right", "lengths": LENGTHS},
                                {"hidden": (KEYS > QUERIES + position(1, LENGTHS) - TQ) | (KEYS >= position(1, LENGTHS))}),
    "offset": ({"causal": True, "query_offset": [4, -2]}, {"hidden": KEYS > QUERIES + position(1, [4, -2])}),
    "lengths": ({"lengths": LENGTHS, "starts": STARTS},
                {"hidden": (KEYS >= position(1, LENGTHS)) | (KEYS < position(1, STARTS))}),
    "one length": ({"lengths": 9}, {"hidden": KEYS >= 9}),
    "prefix": ({"causal": "top-left", "prefix": [0, 10]},
               {"hidden": (KEYS > QUERIES) & (KEYS >= position(1, [0, 10]))}),
    "window": ({"window": (5, 2)}, {"hidden": (KEYS < QUERIES - 5) | (KEYS > QUERIES + 2)}),
    "half a window": ({"window": (None, 2)}, {"hidden": KEYS > QUERIES + 2}),
    "symmetric window": ({"window": 3}, {"hidden": abs(KEYS - QUERIES) > 3}),
    "first tokens": ({"window": libattn.Window(2, 0, first_tokens=4)},
                     {"hidden": ((KEYS < QUERIES - 2) | (KEYS > QUERIES)) & (KEYS >= 4)}),
    "global tokens": ({"window": libattn.Window(1, 1, global_tokens=[2, 7])},
                      {"hidden": (abs(KEYS - QUERIES) > 1) & ~np.isin(KEYS, [2, 7]) & ~np.isin(QUERIES, [2, 7])}),
    "segments": ({"segments": (LABELS_Q, LABELS_K)}, {"hidden": (LABELS_Q[:, :, None] != LABELS_K[:, None])[:, None]}),
    "tree": ({"tree": libattn.Tree(20, TREE)},
             {"hidden": (KEYS >= TK - 20) & ((TREE >> (np.clip(KEYS - TK + 20, 0, 63)).astype(np.uint64)) & 1 == 0)[:, None]}),
    "relative bias": ({"relative_bias": libattn.RelativeBias(TABLE, "clipped", 5)},
                      {"bias": TABLE[:, np.clip(KEYS - QUERIES, -5, 5) + 5]}),
    "block mask": ({"block_mask": libattn.longformer(TQ, TK, size=16, window=0, global_blocks=0)},
                   {"hidden": KEYS // 16 != QUERIES // 16}),
    "score function": ({"score_function": lambda tile: np.where(tile.keys > tile.queries + tile.head, -np.inf, 2 * tile.values)},
                       {"scale": 2 * D**-0.5, "hidden": KEYS > QUERIES + np.arange(H)[:, None, None]}),
    "threads": ({"num_threads": 2}, {}),
    "one thread": ({"num_threads": 1}, {}),
    "isa": ({"isa": "scalar"}, {}),
    "sums": ({"sums": "free"}, {}),
    "inputs": ({"inputs": "as-given"}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_option(qkv, case):
    options, told = CASES[case]
    want = reference.attention(*qkv, **told)
    out, lse, weights, sums, scores = libattn.attention(*qkv, return_lse=True, return_weights=True, return_key_sums=True,
                                                        return_scores="masked", **options)
    np.testing.assert_allclose(out, want[0], atol=2e-5)
    np.testing.assert_allclose(lse, want[1], atol=2e-5)
    np.testing.assert_allclose(weights, want[2], atol=1e-5)
    np.testing.assert_allclose(sums, want[2].sum(-2), atol=5e-5)
    np.testing.assert_allclose(scores, want[3], atol=1e-4)
    assert np.array_equal(libattn.attention(*qkv, **options), out)


def test_every_option_is_tested():
    elsewhere = {"disentangled", "rope", "weight_function", "cu_seqlens", "block_table", "dropout", "scores_of"}
    assert {name for options, _ in CASES.values() for name in options} | elsewhere == libattn._core.OPTIONS


def test_rows_of_weights(qkv):
    want = reference.attention(*qkv)
    got = libattn.attention(*qkv, return_weights=[3, 18, 0], return_scores="raw")
    np.testing.assert_allclose(got.weights, want[2][:, :, [3, 18, 0]], atol=1e-5)
    np.testing.assert_allclose(got.scores, want[3][:, :, [3, 18, 0]] * D**0.5, atol=1e-4)
    assert got.lse is None and got.key_sums is None


def test_dropout(qkv):
    keep = np.array([[[[libattn.dropout_keeps(DROPPED, b, h, i, j) for j in range(TK)] for i in range(TQ)]
                      for h in range(H)] for b in range(B)])
    assert 0.6 < keep.mean() < 0.8
    want = reference.attention(*qkv, keep=keep / 0.7)[0]
    np.testing.assert_allclose(libattn.attention(*qkv, dropout=DROPPED), want, atol=5e-5)


def test_weight_function(qkv):
    def halve_late_keys(tile):
        tile.values[:, tile.keys >= 10] /= 2

    keep = np.where(KEYS >= 10, 0.5, 1)
    np.testing.assert_allclose(libattn.attention(*qkv, weight_function=halve_late_keys),
                               reference.attention(*qkv, keep=keep)[0], atol=2e-5)


def test_exception_of_a_function(qkv):
    def fail(tile):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        libattn.attention(*qkv, score_function=fail)


def test_disentangled(qkv):
    q, k, v = qkv
    span = 6
    rel_k, rel_q = numbers(2 * span, D), numbers(2 * span, D)
    row = np.clip(QUERIES - KEYS + span, 0, 2 * span - 1)
    scale = (3 * D) ** -0.5
    wide = np.repeat(k, 2, 1)
    bias = scale * (np.take_along_axis(q @ rel_k.T, np.broadcast_to(row, (B, H, TQ, TK)), -1) +
                    np.take_along_axis((wide @ rel_q.T).swapaxes(-1, -2), np.broadcast_to(row, (B, H, TQ, TK)), -2))
    got = libattn.attention(q, k, v, scale=scale, disentangled=libattn.Disentangled(span, rel_k, rel_q))
    np.testing.assert_allclose(got, reference.attention(q, k, v, scale=scale, bias=bias)[0], atol=2e-5)


def turned(x, table, rotation):
    pairs = table.shape[-1] // 2
    cos, sin = table[..., :pairs], table[..., pairs:]
    first, second = (slice(0, pairs), slice(pairs, 2 * pairs)) if rotation == "half-split" else (
        slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2))
    out = np.array(x, np.float64)
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., second] * cos + x[..., first] * sin
    return out


@pytest.mark.parametrize("rotation", ["half-split", "interleaved"])
def test_rope(qkv, rotation):
    q, k, v = qkv
    table_q, table_k = libattn.rope_table(np.arange(16, 16 + TQ), pairs=D // 2, base=500), libattn.rope_table(TK, pairs=D // 2, base=500)
    angles = np.arange(TK)[:, None] * 500.0 ** -(np.arange(D // 2) / (D // 2))
    np.testing.assert_allclose(table_k, np.concatenate([np.cos(angles), np.sin(angles)], 1), atol=1e-6)
    new_q, new_k = turned(q, table_q, rotation), turned(k, table_k, rotation)
    np.testing.assert_allclose(libattn.rope(q, table_q, rotation=rotation), new_q, atol=1e-5)
    got = libattn.attention(q, k, v, rope=libattn.Rope(table_q, table_k, rotation))
    np.testing.assert_allclose(got, reference.attention(new_q, new_k, v)[0], atol=2e-5)


def test_rope_in_place(qkv):
    q = qkv[0]
    table = libattn.rope_table(TQ, pairs=8, scaling="yarn", factor=4.0, original_length=64)
    want = libattn.rope(q, table)
    assert libattn.rope(q, table, out=q) is q
    assert np.array_equal(q, want)


def test_ragged():
    lengths_q, lengths_k = [3, 0, 8], [5, 4, 8]
    q, k, v = numbers(H, 11, D), numbers(H, 17, D), numbers(H, 17, D)
    offsets = [np.concatenate([[0], np.cumsum(x)]) for x in (lengths_q, lengths_k)]
    got = libattn.attention(q, k, v, cu_seqlens=tuple(offsets), causal="bottom-right")
    for s in range(3):
        a, b = (slice(x[s], x[s + 1]) for x in offsets)
        hidden = np.arange(lengths_k[s]) > np.arange(lengths_q[s])[:, None] + lengths_k[s] - lengths_q[s]
        want = reference.attention(q[None, :, a], k[None, :, b], v[None, :, b], hidden=hidden)[0][0]
        np.testing.assert_allclose(got[:, a], want, atol=2e-5)


def test_ragged_tokens_first():
    q = numbers(11, H, D)
    got = libattn.attention(q, q, q, cu_seqlens=[0, 4, 11], layout="bthd", return_lse=True)
    assert got.out.shape == (11, H, D) and got.lse.shape == (H, 11)
    want = reference.attention(*3 * [q[4:].swapaxes(0, 1)[None]])[0][0]
    np.testing.assert_allclose(got.out[4:].swapaxes(0, 1), want, atol=2e-5)


def test_block_table():
    pages, size = 7, 16
    k, v = numbers(pages, 2, size, D), numbers(pages, 2, size, D)
    table = np.array([[6, 2], [0, 5]], np.int32)
    q = numbers(2, H, 1, D)
    got = libattn.attention(q, k, v, block_table=table, lengths=[30, 17], return_key_sums=True)
    for s, length in enumerate([30, 17]):
        keys, values = (np.concatenate([x[page] for page in table[s]], 1)[None, :, :length] for x in (k, v))
        want = reference.attention(q[s : s + 1], keys, values)
        np.testing.assert_allclose(got.out[s : s + 1], want[0], atol=2e-5)
        np.testing.assert_allclose(got.key_sums[s, :, :length], want[2][0].sum(1), atol=2e-5)
    assert got.key_sums.shape == (2, H, 32)


def test_int8_scores(qkv):
    try:
        got = libattn.attention(*qkv, scores_of="int8")
    except NotImplementedError as error:
        pytest.skip(str(error))
    np.testing.assert_allclose(got, reference.attention(*qkv)[0], atol=0.05)


@pytest.mark.parametrize("dtype, error", [("int8", 0.02), ("float8_e4m3fn", 0.1), ("int4", 0.4)])
def test_quantised(qkv, dtype, error):
    q, k, v = qkv
    got = libattn.attention(q, libattn.quantise(k, dtype), libattn.quantise(v, dtype))
    want = reference.attention(q, k, v)[0]
    np.testing.assert_allclose(got, want, atol=error)
    assert not np.allclose(got, want, atol=1e-5)


def test_tokens_first(qkv):
    q, k, v = (x.swapaxes(1, 2) for x in qkv)
    got = libattn.attention(q, k, v, causal="top-left", layout="bthd", return_lse=True, return_weights=True)
    want = libattn.attention(*qkv, causal="top-left", return_lse=True, return_weights=True)
    assert np.array_equal(got.out.swapaxes(1, 2), want.out)
    assert np.array_equal(got.lse, want.lse) and np.array_equal(got.weights, want.weights)


@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
def test_fewer_axes(ndim):
    q = numbers(*(1, 1, 1, D)[4 - ndim :])
    got = libattn.attention(q, q, q, return_lse=True, return_weights=True)
    assert got.out.shape == q.shape and got.lse.shape == q.shape[:-1] and got.weights.ndim == max(ndim, 1)
    np.testing.assert_allclose(got.out, q, atol=1e-6)


def test_empty():
    got = libattn.attention(numbers(1, 2, 3, 8), numbers(1, 2, 0, 8), numbers(1, 2, 0, 8), return_lse=True)
    assert not got.out.any() and np.all(got.lse == -np.inf)
    assert libattn.attention(numbers(0, 2, 3, 8), numbers(0, 2, 5, 8), numbers(0, 2, 5, 8)).shape == (0, 2, 3, 8)


def test_gradients_like_differences():
    q, k, v = numbers(1, 2, 5, 6), numbers(1, 2, 7, 6), numbers(1, 2, 7, 6)
    of_out, of_lse = numbers(1, 2, 5, 6), numbers(1, 2, 5)
    bias, slopes, sinks, head_scale = numbers(1, 1, 5, 7), numbers(2), numbers(2), numbers(2) + 2
    table = numbers(2, 7)
    distance = np.arange(7) - np.arange(5)[:, None]

    def loss(**changed):
        x = dict(q=q, k=k, v=v, mask=bias, alibi=slopes, sinks=sinks, head_scale=head_scale, relative_bias=table) | changed
        total = (x["mask"] - np.asarray(x["alibi"])[:, None, None] * abs(distance) +
                 np.asarray(x["relative_bias"])[:, np.clip(distance, -3, 3) + 3])
        out, lse, *_ = reference.attention(x["q"], x["k"], x["v"], bias=total, sinks=x["sinks"],
                                           head_scale=x["head_scale"], softcap=1.5)
        return (out * of_out).sum() + (lse * of_lse).sum()

    options = dict(mask=bias, alibi=slopes, sinks=sinks, head_scale=head_scale, softcap=1.5,
                   relative_bias=libattn.RelativeBias(table, "clipped", 3))
    out, lse, *_ = libattn.attention(q, k, v, return_lse=True, **options)
    wanted = ("q", "k", "v", "mask", "head_scale", "sinks", "alibi", "relative_bias")
    got = libattn.attention_backward(q, k, v, out, lse, of_out, d_lse=of_lse, wanted=wanted, **options)
    given = dict(q=q, k=k, v=v, mask=bias, alibi=slopes, sinks=sinks, head_scale=head_scale, relative_bias=table)
    for name in wanted:
        want = reference.numerical_gradient(lambda x: loss(**{name: x}), given[name])
        np.testing.assert_allclose(getattr(got, name), want, atol=2e-4, err_msg=name)
    assert got.rel_k is None


def test_gradient_of_a_score_function():
    q, of_out = numbers(1, 1, 4, 8), numbers(1, 1, 4, 8)

    def square(tile):
        return tile.values**2

    def gradient(tile):
        return tile.values * 2 * tile.scores

    def loss(x):
        scores = (x @ q.astype(np.float64).swapaxes(-1, -2) * 8**-0.5) ** 2
        return ((reference.softmax(scores)[0] @ q) * of_out).sum()

    out, lse, *_ = libattn.attention(q, q, q, return_lse=True, score_function=square)
    got = libattn.attention_backward(q, q, q, out, lse, of_out, wanted=["q"], score_function=square,
                                     score_gradient_function=gradient)
    np.testing.assert_allclose(got.q, reference.numerical_gradient(loss, q), atol=2e-4)


def test_merge(qkv):
    q, k, v = qkv
    halves = [libattn.attention(q, k[:, :, keys], v[:, :, keys], return_lse=True) for keys in (slice(0, 9), slice(9, None))]
    out, lse = libattn.merge([half.out for half in halves], [half.lse for half in halves], return_lse=True)
    want = reference.attention(q, k, v)
    np.testing.assert_allclose(out, want[0], atol=2e-5)
    np.testing.assert_allclose(lse, want[1], atol=2e-5)


def test_patterns():
    for mask in (libattn.longformer(256, size=16, window=1, global_blocks=1, causal=True),
                 libattn.bigbird(256, size=16, window=1, random=2, seed=3, heads=4),
                 libattn.strided(256, size=16, causal=True)):
        assert mask.offsets[-1] == len(mask.columns) == mask.blocks and mask.rows == 16
        q = numbers(1, 4, 256, 16)
        seen = np.zeros((mask.heads, 16, 16), bool)
        for h in range(mask.heads):
            for r in range(16):
                n = h * 16 + r
                seen[h, r, mask.columns[mask.offsets[n] : mask.offsets[n + 1]]] = True
        hidden = ~np.repeat(np.repeat(seen, 16, 1), 16, 2)[None]
        np.testing.assert_allclose(libattn.attention(q, q, q, block_mask=mask), reference.attention(q, q, q, hidden=hidden)[0],
                                   atol=2e-5)


def test_describe(qkv):
    assert "scalar" in libattn.describe(*qkv, isa="scalar")
