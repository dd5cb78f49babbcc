# SPDX-License-Identifier: Apache-2.0
"""
Linear attention in PyTorch's own operators, which has none for it: token by token, as the rules are written, and in
chunks of tokens, as the papers compute it (Yang et al. 2024, 2025).

With c the sums of decays within a chunk and D_ij = exp(c_i - c_j), for j <= i, all chunks have their products of q and k
and their triangular systems at once,

    u = w - z S,  (1 + tril(beta (K Kt) * D, -1)) [w z] = beta [V  exp(c) K]        without beta w = V, z = 0

and the states go from chunk to chunk:

    O = (exp(c) Q) S + ((Q Kt) * D) u,    S = exp(c_n) S + (exp(c_n - c) K)t u
"""

from .. import linear_attention
from .base import Way, restarted
from .pytorch import Pytorch

CHUNKS = (32, 64, 128)


def linear_attention_rows(result, rows):
    outputs, state = result
    return linear_attention.take_rows(outputs.numpy(), state.numpy(), rows)


def token_by_token(torch, q, k, v, decay, beta, state, in_place):
    """(outputs, state) of tensors batch x heads x tokens (x channels). in_place: the state is changed."""
    outputs = torch.empty_like(v)
    scale = q.shape[-1] ** -0.5
    kept = None if decay is None else decay.exp()
    for t in range(q.shape[2]):
        key, u = k[:, :, t, None, :], v[:, :, t, None, :]
        if kept is not None:
            factor = kept[:, :, t, None, None]
            state = state.mul_(factor) if in_place else state * factor
        if beta is not None:
            u = beta[:, :, t, None, None] * (u - key @ state)
        if in_place:
            state.addcmul_(key.transpose(2, 3), u)
        else:
            state = torch.addcmul(state, key.transpose(2, 3), u)
        outputs[:, :, t] = (q[:, :, t, None, :] @ state)[:, :, 0]
    return outputs.mul_(scale), state


def in_chunks(torch, q, k, v, decay, beta, state, chunk):
    """The same, with tokens a multiple of the chunk."""
    shape = (*q.shape[:2], q.shape[2] // chunk, chunk)
    q, k, v = (x.view(*shape, -1) for x in (q * q.shape[-1] ** -0.5, k, v))
    scores = q @ k.transpose(3, 4)
    written, read, last = k, q, None
    if decay is not None:
        sums = decay.view(shape).cumsum(3)
        between = (sums[..., :, None] - sums[..., None, :]).tril_().exp_()
        scores = scores * between
        last = sums[..., -1:].exp()[..., None]
        read = q * sums.exp()[..., None]
        written = k * (sums[..., -1:] - sums).exp()[..., None]
    scores.tril_()
    if beta is None:
        own, past = v, None
    else:
        factor = beta.view(*shape, 1)
        system = factor * (k @ k.transpose(3, 4))
        if decay is not None:
            system = system * between
        faded = k if decay is None else k * sums.exp()[..., None]
        right = factor * torch.cat((v, faded), dim=4)
        # What is on the diagonal and above is not looked at.
        solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
        own, past = solved.split((v.shape[-1], k.shape[-1]), dim=4)
    written = written.transpose(3, 4)
    outputs = torch.empty_like(v)
    for n in range(shape[2]):
        u = own[:, :, n] if past is None else own[:, :, n] - past[:, :, n] @ state
        outputs[:, :, n] = read[:, :, n] @ state + scores[:, :, n] @ u
        added = written[:, :, n] @ u
        state = state + added if last is None else state * last[:, :, n] + added
    return outputs.view(*shape[:2], -1, v.shape[-1]), state


class PytorchLinearAttention(Pytorch):
    def ways(self, case, arrays):
        torch = self.torch
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        inputs = (*(tensors[n] for n in ("q", "k", "v")), tensors.get("decay"), tensors.get("beta"))

        def way(label, function, option, state):
            return Way(label, lambda: function(torch, *inputs, state(), option), linear_attention_rows)

        if case.continues:
            given = tensors["state"]
            own = given.clone()
            return [
                restarted(way("token, in place", token_by_token, True, lambda: own), lambda: own.copy_(given)),
                way("token, another state", token_by_token, False, lambda: given),
            ]

        def empty():
            return torch.zeros(case.batch, case.heads, case.d, case.d)

        chunked = [way(f"chunks of {n}", in_chunks, n, empty) for n in CHUNKS]
        return [*chunked, way("token by token", token_by_token, True, empty)]


CONTENDERS = {"torch": PytorchLinearAttention, "torch-mkl": PytorchLinearAttention}
