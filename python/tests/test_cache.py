# SPDX-License-Identifier: Apache-2.0
"""Caches, and pools of one's own."""
import threading

import libattn
import numpy as np
import pytest

import reference

random = np.random.default_rng(3)


def numbers(*shape):
    return random.standard_normal(shape).astype(np.float32)


def cache(**changed):
    return libattn.Cache(**dict(layers=2, kv_heads=2, dk=16, max_tokens=64, max_sequences=3, page_size=16) | changed)


@pytest.mark.parametrize("rope", [None, {"pairs": 8, "base": 300.0}])
def test_decoding_is_prefill(rope):
    kept = cache(rope=rope)
    a, b = kept.add(), kept.add()
    q, k, v = numbers(1, 4, 20, 16), numbers(1, 2, 20, 16), numbers(1, 2, 20, 16)
    table = None if rope is None else libattn.rope_table(20, **rope)
    turned = [x if table is None else libattn.rope(x, table) for x in (q, k)]
    want = libattn.attention(*turned, v, causal=True)
    outs = []
    for first, last in ((0, 12), (12, 13), (13, 20)):
        kept.step([b, a], [0, last - first])
        rows = [x[:, :, first:last] for x in (q, k, v)]
        kept.append(1, *rows[1:])
        outs.append(kept.attend(1, kept.rotate(rows[0])))
    np.testing.assert_allclose(np.concatenate(outs, 2), want, atol=2e-5)
    assert kept.length(a) == 20 and kept.length(b) == 0 and kept.length(77) == -1
    assert kept.usage.tokens == 20 and kept.usage.pages_in_use == 2


def test_outputs_and_options():
    kept = cache(dv=8)
    a, b = kept.add(), kept.add()
    kept.step([a, b], [5, 9])
    q, k, v = numbers(4, 14, 16), numbers(2, 14, 16), numbers(2, 14, 8)
    kept.append(0, k, v)
    got = kept.attend(0, q, return_lse=True, return_weights=True, return_key_sums=True, alibi=libattn.alibi_slopes(4))
    assert got.out.shape == (4, 14, 8) and got.lse.shape == (4, 14) and got.weights.shape == (4, 14, kept.keys)
    assert got.key_sums.shape == (2, 4, kept.keys)
    bias = -libattn.alibi_slopes(4)[:, None, None] * abs(np.arange(9)[:, None] - np.arange(9))
    want = reference.attention(q[None, :, 5:], k[None, :, 5:], v[None, :, 5:], bias=bias,
                               hidden=np.arange(9) > np.arange(9)[:, None])
    np.testing.assert_allclose(got.out[:, 5:], want[0][0], atol=2e-5)
    np.testing.assert_allclose(got.lse[:, 5:], want[1][0], atol=2e-5)
    np.testing.assert_allclose(got.key_sums[1, :, :9], want[2][0].sum(1), atol=2e-5)
    tokens_first = kept.attend(0, q.swapaxes(0, 1)[None], layout="bthd", return_lse=True, alibi=libattn.alibi_slopes(4))
    assert np.array_equal(tokens_first.out[0].swapaxes(0, 1), got.out)
    with pytest.raises(ValueError, match="causal is given; a cache knows"):
        kept.attend(0, q, causal="top-left")


def test_sequences():
    kept = cache(num_pages=5)
    a = kept.add()
    kept.step([a], [20])
    for layer in range(2):
        kept.append(layer, numbers(1, 2, 20, 16), numbers(1, 2, 20, 16))
    kept.keep(a, 16, [17, 19])
    b = kept.fork(a)
    assert kept.length(b) == 18 and kept.usage.pages_in_use == 2
    with pytest.raises(NotImplementedError, match="does not have alone"):
        kept.keep(a, 16, [17])
    kept.truncate(b, 17)
    assert kept.length(a) == 18 and kept.length(b) == 17
    kept.remove(b)
    assert kept.usage.num_sequences == 1
    kept.add(), kept.add()
    with pytest.raises(libattn.CacheFull):
        kept.add()
    with pytest.raises(libattn.CacheFull):
        kept.step([a, a + 2], [40, 60])
    assert kept.length(a) == 18
    with pytest.raises(MemoryError):
        kept.add()


@pytest.mark.parametrize("dtype, error", [("bfloat16", 0.02), ("float16", 2e-3), ("int8", 0.05), ("float8_e4m3fn", 0.2)])
def test_types(dtype, error):
    kept = cache(dtype=dtype)
    a = kept.add()
    kept.step([a], [30])
    q, k, v = numbers(1, 2, 30, 16), numbers(1, 2, 30, 16), numbers(1, 2, 30, 16)
    kept.append(0, k, v)
    np.testing.assert_allclose(kept.attend(0, q), libattn.attention(q, k, v, causal=True), atol=error)


def test_one_thread_at_a_time():
    kept = cache(max_tokens=4096, page_size=0)
    kept.step([kept.add()], [4096])
    x = numbers(1, 2, 4096, 16)
    kept.append(0, x, x)
    inside, seen = threading.Event(), []

    def function(tile):
        inside.set()

    def attend():
        kept.attend(0, x, score_function=function)

    thread = threading.Thread(target=attend)
    thread.start()
    inside.wait()
    try:
        kept.add()
    except RuntimeError as error:
        seen.append(str(error))
    thread.join()
    assert seen == ["the cache is in use by another thread"]
    kept.add()


@pytest.mark.parametrize("dtype", [None, "int8", "int4"])
def test_store(dtype):
    pages, rows = 4, numbers(1, 2, 6, 32)
    table = libattn.rope_table(6, pairs=16)
    want = libattn.rope(rows, table)
    pool = np.zeros((pages, 2, 16, 32), np.float32)
    if dtype is not None:
        pool, want = libattn.quantise(pool, dtype), libattn.quantise(want, dtype)
    libattn.store(rows, [33, -1, 0, 1, 2, 3], pool, rotations=table)
    stored, expected = (pool, want) if dtype is None else (pool.data, want.data)
    np.testing.assert_array_equal(stored[2, :, 1], expected[0, :, 0])
    np.testing.assert_array_equal(stored[0, :, 0], expected[0, :, 2])
    if dtype is not None:
        np.testing.assert_array_equal(pool.scale[2, :, 1], want.scale[0, :, 0])
    with pytest.raises(ValueError, match="slots"):
        libattn.store(rows, [0, 0, 1, 2, 3, 4], pool)
