# SPDX-License-Identifier: Apache-2.0
"""libattn.torch.attention() in torch.compile, torch.export and the transforms of torch.func."""
import pytest

torch = pytest.importorskip("torch")

from libattn.torch import attention
from test_torch import CASES, SINKS, TQ, B, D, H, numbers, qkv  # noqa: F401, qkv is a fixture


@pytest.mark.parametrize("case", CASES)
def test_compile(qkv, case):
    options = CASES[case]
    torch._dynamo.reset()
    compiled = torch.compile(lambda *x: attention(*x, return_lse=True, **options), fullgraph=True, backend="aot_eager")
    got, want = compiled(*qkv), attention(*qkv, return_lse=True, **options)
    assert all(map(torch.equal, got, want))
    gradients = [torch.autograd.grad(x[0].square().sum() + x[1].sum(), qkv) for x in (got, want)]
    assert all(map(torch.equal, *gradients))


def test_compiled_dropout_draws_in_each_call(qkv):
    torch._dynamo.reset()
    compiled = torch.compile(lambda *x: attention(*x, dropout=0.5), fullgraph=True, backend="aot_eager")
    torch.manual_seed(1)
    first, second = compiled(*qkv), compiled(*qkv)
    torch.manual_seed(1)
    assert torch.equal(first, compiled(*qkv)) and not torch.equal(first, second)
    torch.manual_seed(1)
    want = attention(*qkv, dropout=0.5)
    assert torch.equal(first, want)
    assert all(map(torch.equal, *(torch.autograd.grad(x.square().sum(), qkv) for x in (first, want))))


def test_inductor(qkv):
    torch._dynamo.reset()
    def function(q, k, v):
        return attention(torch.sin(q), k, v, causal="bottom-right").square()
    try:
        got = torch.compile(function, fullgraph=True)(*qkv)
    except torch._inductor.exc.InductorError as error:
        pytest.skip(f"no compiler of C++: {error}")
    want = function(*qkv)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(torch.autograd.grad(got.sum(), qkv), torch.autograd.grad(want.sum(), qkv))
    # With v the identity out has the weights, and the gradient of v those that the backward pass keeps.
    q, v = numbers(1, 1, 8, D), torch.eye(8)[None, None].requires_grad_()
    out = torch.compile(lambda q, v: attention(q, q, v, dropout=0.5), fullgraph=True)(q, v)
    assert 0 < (out == 0).sum() < 64
    torch.testing.assert_close(torch.autograd.grad(out, v, torch.eye(8)[None, None])[0], out.transpose(-1, -2))


def test_numbers_that_change():
    """Of a compiled function: windows are arguments of one graph; scales, which PyTorch makes constants, right ones."""
    torch._dynamo.reset()
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    def function(x, scale, left):
        return attention(x, x, x, scale=scale, softcap=10 * scale, window=(left, 0))

    compiled, x = torch.compile(function, fullgraph=True, backend=backend), numbers(B, H, TQ, D)
    for left in (2, 3, 5, 7):
        assert torch.equal(compiled(x, 0.3, left), function(x, 0.3, left))
    assert len(graphs) == 2
    for scale in (0.4, 0.5):
        assert torch.equal(compiled(x, scale, 4), function(x, scale, 4))


def test_compiled_transforms():
    torch._dynamo.reset()
    x = numbers(3, B, H, TQ, D, requires_grad=False)

    def loss(y):
        return attention(y, y, y, causal=True).square().sum()

    for transform, given in ((torch.func.grad, x[0]), (torch.func.vmap, x)):
        assert torch.equal(torch.compile(transform(loss), backend="aot_eager")(given), transform(loss)(given))


def test_dynamic_shapes():
    """One graph for all lengths and batches."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(lambda q, k, v: attention(q, k, v, causal=True, window=(4, 0)), fullgraph=True, dynamic=True,
                             backend=backend)
    for batch, length in ((2, 5), (3, 19), (4, 11)):
        x = [numbers(batch, H, length, D) for _ in range(3)]
        assert torch.equal(compiled(*x), attention(*x, causal=True, window=(4, 0)))
    assert len(graphs) == 1


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(H * D, 3 * H * D)
        self.sinks = torch.nn.Parameter(torch.zeros(H))

    def forward(self, x):
        q, k, v = self.project(x).view(*x.shape[:2], 3, H, D).unbind(2)
        return attention(q, k, v, causal=True, sinks=self.sinks, layout="bthd").flatten(2)


def test_export(tmp_path):
    layer, x = Layer(), torch.randn(2, 7, H * D)
    length = torch.export.Dim("length", min=2, max=64)
    program = torch.export.export(layer, (x,), dynamic_shapes={"x": {1: length}})
    assert "libattn.attention" in str(program.graph)
    torch.export.save(program, tmp_path / "layer.pt2")
    loaded = torch.export.load(tmp_path / "layer.pt2").module()
    for n in (7, 12):
        y = torch.randn(2, n, H * D)
        torch.testing.assert_close(loaded(y), layer(y))


def test_vmap_and_gradients_of_each_sample():
    q, k = numbers(3, B, H, TQ, D, requires_grad=False), numbers(B, H, TQ, D, requires_grad=False)
    got = torch.func.vmap(lambda x: attention(x, k, k, causal=True))(q)
    assert torch.equal(got, torch.stack([attention(x, k, k, causal=True) for x in q]))

    def loss(x, y, sinks):
        return attention(x, y, y, causal=True, sinks=sinks).square().sum()

    got = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2)), in_dims=(0, None, None))(q, k, SINKS.detach())
    for n in range(3):
        inputs = [x.clone().requires_grad_() for x in (q[n], k, SINKS.detach())]
        for x, want in zip(got, torch.autograd.grad(loss(*inputs), inputs)):
            assert torch.equal(x[n], want)


def test_make_fx(qkv):
    from torch.fx.experimental.proxy_tensor import make_fx

    inputs = [x.detach() for x in qkv]
    graph = make_fx(lambda *x: attention(*x, softcap=2.0))(*inputs)
    assert "libattn.attention" in graph.code
    assert torch.equal(graph(*inputs), attention(*inputs, softcap=2.0))
