# SPDX-License-Identifier: Apache-2.0
"""Attention by its formulas, in double precision: what the package's tests compare with."""
import numpy as np


def softmax(scores, sinks=None):
    """Rows of weights, and their log-sum-exp; a row without a live key has weights of 0 and -inf."""
    top = scores.max(-1, initial=-np.inf, keepdims=True)
    if sinks is not None:
        top = np.maximum(top, sinks)
    safe = np.where(np.isfinite(top), top, 0)
    powers = np.exp(scores - safe)
    total = powers.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks - safe)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total > 0, powers / total, 0), (safe + np.log(total))[..., 0]


def attention(q, k, v, *, hidden=None, bias=0.0, scale=None, temperature=1.0, head_scale=None, softcap=None, sinks=None,
              keep=None):
    """(out, lse, weights, scores) of (B, H, T, d) arrays. hidden: bool, True where a key is not seen; bias is added to
    capped scores; keep multiplies weights."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    group = q.shape[1] // max(k.shape[1], 1)
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale) / temperature
    if head_scale is not None:
        scores = scores * np.asarray(head_scale)[:, None, None]
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    scores = scores + bias
    if hidden is not None:
        scores = np.where(hidden, -np.inf, scores)
    weights, lse = softmax(scores, None if sinks is None else np.asarray(sinks, np.float64)[:, None, None])
    if keep is not None:
        weights = weights * keep
    return weights @ v, lse, weights, scores


def numerical_gradient(function, x, step=1e-6):
    """Of a function of an array to a number, by central differences."""
    x = np.array(x, np.float64)
    gradient = np.empty_like(x)
    for at in np.ndindex(x.shape):
        was = x[at]
        x[at] = was + step
        above = function(x)
        x[at] = was - step
        gradient[at] = (above - function(x)) / (2 * step)
        x[at] = was
    return gradient
