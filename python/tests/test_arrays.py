# SPDX-License-Identifier: Apache-2.0
"""Arrays of each library, of any strides, without copies; and those that cannot be taken."""
import array
import subprocess
import sys

import libattn
import numpy as np
import pytest

import reference

random = np.random.default_rng(2)
SHAPE = (2, 3, 10, 16)


def numbers(*shape):
    return random.standard_normal(shape).astype(np.float32)


def _libraries():
    yield "numpy", lambda x, dtype: x.astype(_dtype(dtype))
    yield "torch", lambda x, dtype: pytest.importorskip("torch").from_numpy(x).to(getattr(pytest.importorskip("torch"), dtype))
    yield "jax", lambda x, dtype: pytest.importorskip("jax.numpy").asarray(x, dtype=dtype)


def _dtype(name):
    return getattr(pytest.importorskip("ml_dtypes"), name) if name == "bfloat16" else name


LIBRARIES = list(_libraries())


@pytest.mark.parametrize("dtype, error", [("float32", 2e-6), ("float16", 2e-3), ("bfloat16", 2e-2)])
@pytest.mark.parametrize("name, make", LIBRARIES, ids=lambda x: x if isinstance(x, str) else "")
def test_library(name, make, dtype, error):
    q = make(numbers(*SHAPE), dtype)
    got = libattn.attention(q, q, q, return_lse=True, return_weights=True)
    assert type(got.out) is type(q) and type(got.lse) is type(q) and type(got.weights) is type(q)
    assert got.out.dtype == q.dtype and "float32" in str(got.lse.dtype)
    wide = np.asarray(q.float() if name == "torch" else q).astype(np.float64)
    want = reference.attention(wide, wide, wide)
    out = np.asarray(got.out.float() if name == "torch" else got.out).astype(np.float64)
    np.testing.assert_allclose(out, want[0], atol=error, rtol=error)
    # Weights in bfloat16 are rounded before they are summed.
    np.testing.assert_allclose(np.asarray(got.lse), want[1], atol=5e-3 if dtype == "bfloat16" else 1e-5)


@pytest.mark.parametrize("name, make", LIBRARIES, ids=lambda x: x if isinstance(x, str) else "")
def test_options_of_the_same_library(name, make):
    """Arrays of options may be of any library, too."""
    x = numbers(*SHAPE)
    mask = random.random((1, 1, 10, 10)) < 0.8
    q = make(x, "float32")
    foreign = {"numpy": np.asarray, "torch": lambda y: __import__("torch").from_numpy(np.asarray(y)),
               "jax": lambda y: __import__("jax").numpy.asarray(y)}[name]
    got = libattn.attention(q, q, q, mask=foreign(mask), lengths=foreign([7, 10]), sinks=foreign(np.float32([0, 1, 2])))
    hidden = ~mask | (np.arange(10) >= np.array([7, 10])[:, None, None, None])
    want = reference.attention(x, x, x, hidden=hidden, sinks=[0, 1, 2])[0]
    np.testing.assert_allclose(np.asarray(got), want, atol=1e-5)


def test_strides_are_taken_as_they_are():
    wide = numbers(2, 10, 3, 3, 16)  # packed projections: batch, token, (q, k, v), head, channel
    q, k, v = (wide[:, :, n].swapaxes(1, 2) for n in range(3))
    want = reference.attention(q, k, v)[0]
    np.testing.assert_allclose(libattn.attention(q, k, v), want, atol=1e-5)
    backwards = libattn.attention(q[:, :, ::-1], k[::-1, ::-1][::-1, ::-1], v)
    np.testing.assert_allclose(backwards, want[:, :, ::-1], atol=1e-5)
    same = np.broadcast_to(q[:1, :1], q.shape)
    np.testing.assert_allclose(libattn.attention(same, k, v), reference.attention(same, k, v)[0], atol=1e-5)


def test_nothing_is_copied():
    """Of 64 MB of keys: memory does not grow by them."""
    resource = pytest.importorskip("resource")
    code = """
import libattn, numpy as np, resource
k = np.zeros((1, 1, 16, 2**20), np.float32).reshape(1, 1, 2**18, 64)[:, :, ::-1]
q = np.zeros((1, 1, 1, 64), np.float32)
libattn.attention(q, k[:, :, :64], k[:, :, :64])
k.sum()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
libattn.attention(q, k, k)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    assert resource
    grown = int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    assert grown < 16 * 1024


@pytest.mark.parametrize("name, make", LIBRARIES[:2], ids=lambda x: x if isinstance(x, str) else "")
def test_out(name, make):
    q = make(numbers(*SHAPE), "float32")
    out = make(numbers(*SHAPE), "float32")
    assert libattn.attention(q, q, q, out=out) is out
    np.testing.assert_array_equal(np.asarray(out), np.asarray(libattn.attention(q, q, q)))
    wide = make(numbers(2, 3, 20, 16), "float32")
    libattn.attention(q, q, q, out=wide[:, :, ::2])
    np.testing.assert_array_equal(np.asarray(wide)[:, :, ::2], np.asarray(out))


def test_out_of_another_type():
    q = numbers(*SHAPE)
    out = np.empty(SHAPE, np.float16)
    libattn.attention(q, q, q, out=out)
    np.testing.assert_array_equal(out, libattn.attention(q, q, q).astype(np.float16))


def test_buffers():
    flat = array.array("f", range(8))
    got = libattn.attention(memoryview(flat), memoryview(flat), memoryview(flat))
    np.testing.assert_array_equal(got, np.arange(8))
    with pytest.raises(ValueError, match="q is a builtins.list; expected an array"):
        libattn.attention([[1.0]], flat, flat)


def test_read_only():
    q = numbers(*SHAPE)
    q.flags.writeable = False
    out = libattn.attention(q, q, q)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out cannot be used: .*read-only"):
        libattn.attention(q, q, q, out=out)
    jax = pytest.importorskip("jax")
    with pytest.raises(ValueError, match="out is a .*; expected a NumPy array or a PyTorch tensor"):
        libattn.attention(q, q, q, out=jax.numpy.zeros(SHAPE))


def test_wrong_types():
    q = numbers(*SHAPE)
    with pytest.raises(ValueError, match="k has elements of the type float64; expected float32"):
        libattn.attention(q, q.astype(np.float64), q)
    with pytest.raises(ValueError, match="k has elements of the type complex64"):
        libattn.attention(q, q.astype(np.complex64), q)
    with pytest.raises(ValueError, match="byte|endian|type"):
        libattn.attention(q, q.astype(">f4"), q)
    with pytest.raises(ValueError, match="v is None"):
        libattn.attention(q, q, None)
    with pytest.raises(ValueError, match="q has 5 axes; expected 4 at most"):
        libattn.attention(q[None], q, q)


def test_unaligned_strides():
    records = np.zeros((4, 8), np.dtype([("x", "f4"), ("y", "i1")]))
    with pytest.raises(ValueError, match="q has a stride of .* bytes, which is not a multiple"):
        libattn.attention(records["x"], records["x"], records["x"])


def test_torch_gradients_are_not_lost():
    torch = pytest.importorskip("torch")
    q = torch.zeros(SHAPE, requires_grad=True)
    with pytest.raises(ValueError, match="q requires a gradient.*libattn.torch"):
        libattn.attention(q, q, q)
    with torch.no_grad():
        assert not libattn.attention(q, q, q).requires_grad
    with pytest.raises(ValueError, match="another device"):
        libattn.attention(torch.zeros(SHAPE, device="meta"), q.detach(), q.detach())
    with pytest.raises(ValueError, match="q.*(sparse|layout)"):
        libattn.attention(torch.zeros(4, 4).to_sparse(), q.detach(), q.detach())
