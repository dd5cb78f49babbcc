# SPDX-License-Identifier: Apache-2.0
"""Linear attention against its recurrence."""
import libattn
import numpy as np
import pytest

import reference

random = np.random.default_rng(4)
B, H, T, DK, DV = 2, 3, 21, 8, 6


def numbers(*shape):
    return random.standard_normal(shape).astype(np.float32)


def recurrence(q, k, v, *, decay=None, beta=None, state=None, resets=None, normalise=False):
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    s = np.zeros((B, H, DK, v.shape[-1])) if state is None else np.array(state, np.float64)
    total = np.zeros((B, H, DK))
    out = np.empty((B, H, T, v.shape[-1]))
    for t in range(T):
        if resets is not None:
            s = np.where(resets[:, :, t, :, None], 0, s)
        if decay is not None:
            s = s * np.exp(np.broadcast_to(decay, (B, H, T, decay.shape[-1]))[:, :, t, :, None])
        written = v[:, :, t]
        if beta is not None:
            written = np.broadcast_to(beta, (B, H, T, 1))[:, :, t] * (written - np.einsum("bhk,bhkv->bhv", k[:, :, t], s))
        s = s + k[:, :, t, :, None] * written[:, :, None]
        total = total + k[:, :, t]
        read = np.einsum("bhk,bhkv->bhv", q[:, :, t], s)
        out[:, :, t] = read / (q[:, :, t] * total).sum(-1)[..., None] if normalise else read * DK**-0.5
    return out, s


@pytest.fixture
def qkv():
    k = numbers(B, H, T, DK)
    return numbers(B, H, T, DK), k / np.linalg.norm(k, axis=-1, keepdims=True), numbers(B, H, T, DV)


DECAY, BY_ROW = -abs(numbers(B, H, T, 1)), -abs(numbers(1, H, T, DK))
BETA, STATE = random.random((B, 1, T, 1)).astype(np.float32), numbers(B, H, DK, DV)
RESETS = random.random((B, H, T, 1)) < 0.1


@pytest.mark.parametrize("options", [{}, {"decay": DECAY}, {"decay": BY_ROW}, {"beta": BETA}, {"beta": BETA, "decay": DECAY},
                                     {"state": STATE}, {"resets": RESETS}], ids=lambda x: " ".join(x) or "linear")
def test_rule(qkv, options):
    want, want_state = recurrence(*qkv, **options)
    got, state = libattn.linear_attention(*qkv, return_state=True, **options)
    np.testing.assert_allclose(got, want, atol=5e-5)
    np.testing.assert_allclose(state, want_state, atol=5e-5)
    swapped = [x.swapaxes(1, 2) for x in qkv]
    first = {name: x if name == "state" else x.swapaxes(1, 2) for name, x in options.items()}
    np.testing.assert_array_equal(libattn.linear_attention(*swapped, layout="bthd", **first).swapaxes(1, 2), got)


def test_state_goes_on(qkv):
    want = libattn.linear_attention(*qkv, decay=DECAY)
    state = np.zeros((B, H, DK, DV), np.float32)
    outs = []
    for t in range(T):
        out, same = libattn.linear_attention(*(x[:, :, t : t + 1] for x in qkv), decay=DECAY[:, :, t : t + 1], state=state,
                                             return_state=state)
        assert same is state
        outs.append(out)
    np.testing.assert_allclose(np.concatenate(outs, 2), want, atol=2e-5)


def test_features(qkv):
    q, k, v = qkv
    features = [np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (q, k)]
    want = recurrence(*features, v, normalise=True)[0]
    np.testing.assert_allclose(libattn.linear_attention(q, k, v, features="elu", normalise=True), want, atol=5e-5)


def test_performer_estimates_attention(qkv):
    projection = libattn.draw_features(512, DK, seed=3)
    assert projection.shape == (1, 512, DK)
    got, state = libattn.linear_attention(*qkv, features="positive", projection=projection, normalise=True,
                                          bidirectional=True, return_state=True)
    assert state.shape == (B, H, 512, DV + 1)
    assert abs(got - reference.attention(*qkv)[0]).mean() < 0.05


def test_ragged(qkv):
    q, k, v = (x[0].swapaxes(0, 1) for x in qkv)
    got, state = libattn.linear_attention(q, k, v, cu_seqlens=[0, 5, 21], return_state=True, layout="bthd")
    assert got.shape == (T, H, DV) and state.shape == (2, H, DK, DV)
    np.testing.assert_allclose(got[5:], libattn.linear_attention(q[5:], k[5:], v[5:], layout="bthd"), atol=2e-5)
    padded = libattn.linear_attention(*qkv, lengths=[5, 21])
    assert not padded[0, :, 5:].any()


def test_gradients(qkv):
    q, k, v = qkv
    of_out, of_state = numbers(B, H, T, DV), numbers(B, H, DK, DV)
    got = libattn.linear_attention_backward(q, k, v, of_out, d_state=of_state, decay=DECAY, state=STATE,
                                            wanted=["q", "k", "v", "decay", "state"])

    def loss(**changed):
        x = dict(q=q, k=k, v=v, decay=DECAY, state=STATE) | changed
        out, state = recurrence(x["q"], x["k"], x["v"], decay=x["decay"], state=x["state"])
        return (out * of_out).sum() + (state * of_state).sum()

    # Along one random direction each: all differences would take long.
    for name, x in dict(q=q, k=k, v=v, decay=DECAY, state=STATE).items():
        direction = numbers(*x.shape)
        slope = (loss(**{name: x + 1e-5 * direction.astype(np.float64)}) - loss(**{name: x - 1e-5 * direction.astype(np.float64)})) / 2e-5
        np.testing.assert_allclose((getattr(got, name) * direction).sum(), slope, rtol=2e-3, atol=2e-2, err_msg=name)
    with pytest.raises(NotImplementedError):
        libattn.linear_attention_backward(q, k, v, of_out, beta=BETA)
