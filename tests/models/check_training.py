#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares gradients, the loss and the optimiser of libattn_nn with PyTorch's on random numbers.

Usage: check_training.py LIBATTN_NN [--seed N] [WORD ...]

LIBATTN_NN is libattn_nn.so; with WORDs only the checks whose names hold one of
them run. A result passes when its largest error against float64 is at most twice
that of float32 plus a floor. Exit code: 0 all passed, 1 some failed, 2 wrong
usage, 77 without torch.
"""
import ctypes
import sys
from ctypes import byref, c_int, c_int64, c_size_t

try:
    import torch
    from torch import nn
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

sys.dont_write_bytecode = True

from layer_library import address, compare, int32s, int64s, run_checks, view  # noqa: E402  pylint: disable=wrong-import-position
from attn_structs import (  # noqa: E402  pylint: disable=wrong-import-position
    AdamwOptions,
    AlignmentConfig,
    AlignmentGradients,
    BahdanauConfig,
    BahdanauGradients,
    BlockConfig,
    BlockGradients,
    BlockPass,
    BlockWeights,
    LinearGradients,
    LstmConfig,
    LstmGradients,
    LstmWeights,
    MhaConfig,
    MhaGradients,
    MhaWeights,
    NormGradients,
    Parameter,
    Params,
    PoolGradients,
)


GELU = 2


def gradients_of(function, d_out, *inputs):
    """Gradients of inputs where function's result has d_out, by autograd in float64 and in float32."""
    for dtype in (torch.float64, torch.float32):
        with torch.enable_grad():
            leaves = [x.to(dtype).clone().requires_grad_() for x in inputs]
            yield torch.autograd.grad(function(*leaves), leaves, d_out.to(dtype))


def check_linear_backward(lib):
    x, d_out, weight, bias = (torch.randn(*shape) for shape in ((3, 700, 45), (3, 700, 130), (130, 45), (130,)))
    exact, naive = gradients_of(nn.functional.linear, d_out, x, weight, bias)
    got = [torch.full_like(e, 7.0, dtype=torch.float32) for e in exact]
    tw, tx, td = view(weight), view(x), view(d_out)
    wanted = [view(g) for g in got]
    gradients = LinearGradients(**{name: address(t) for name, t in zip(("x", "weights", "bias"), wanted)})
    lib("attn_linear_backward", byref(tw), byref(tx), byref(td), byref(gradients), None, c_size_t(0))
    for name, *three in zip(("x", "weights", "bias"), got, exact, naive):
        compare(f"gradient of {name}", *three)


def check_cross_entropy(lib, smoothing):
    classes = 70
    logits, labels = torch.randn(2, 40, classes) * 4, torch.randint(0, classes, (2, 40))
    labels[0, 3] = labels[1, 7] = -100
    losses, gradients = [], []
    for dtype in (torch.float64, torch.float32):
        with torch.enable_grad():
            leaf = logits.to(dtype).clone().requires_grad_()
            loss = nn.functional.cross_entropy(leaf.reshape(-1, classes), labels.reshape(-1), ignore_index=-100,
                                               label_smoothing=smoothing)
            losses.append(loss.detach().reshape(1))
            gradients.append(torch.autograd.grad(loss, leaf)[0])
    got, loss = torch.full_like(logits, 7.0), ctypes.c_double()
    tl, tg = view(logits), view(got)
    lib("attn_cross_entropy", byref(tl), int32s(labels), smoothing, byref(loss), byref(tg), c_int(0))
    compare("loss", torch.tensor([loss.value]), *losses)
    compare("gradient", got, *gradients)


def check_adamw(lib):
    """Ten steps on two tensors, of which one does not decay, with gradients that are clipped together."""
    starts, rate, decay, most = [torch.randn(7, 9), torch.randn(31)], 0.01, 0.1, 2.0
    gradients = [[torch.randn_like(s) for s in starts] for _ in range(10)]
    results = []
    for dtype in (torch.float64, torch.float32):
        values = [s.to(dtype).clone().requires_grad_() for s in starts]
        optimiser = torch.optim.AdamW([{"params": values[:1], "weight_decay": decay},
                                       {"params": values[1:], "weight_decay": 0.0}], lr=rate)
        for step in gradients:
            for value, gradient in zip(values, step):
                value.grad = gradient.to(dtype).clone()
            nn.utils.clip_grad_norm_(values, most)
            optimiser.step()
        results.append([v.detach() for v in values])
    got = [s.clone() for s in starts]
    means, squares = [torch.zeros_like(s) for s in starts], [torch.zeros_like(s) for s in starts]
    options = AdamwOptions(learning_rate=rate, weight_decay=decay)
    for number, step in enumerate(gradients, 1):
        current = [g.clone() for g in step]
        parameters = (Parameter * 2)(*(
            Parameter(values=v.data_ptr(), gradients=g.data_ptr(), mean=m.data_ptr(), square=q.data_ptr(),
                      count=v.numel(), decays=i == 0)
            for i, (v, g, m, q) in enumerate(zip(got, current, means, squares))))
        lib("attn_clip_gradients", parameters, c_int64(2), ctypes.c_double(most), None, c_int(0))
        lib("attn_adamw_step", parameters, c_int64(2), c_int64(number), byref(options))
    for i, name in enumerate(("with decay", "without decay")):
        compare(name, got[i], results[0][i], results[1][i])


def check_norm_backward(lib, rms):
    channels, eps = 37, 1e-5
    x, d_out = torch.randn(3, 50, channels) * 3 + 1, torch.randn(3, 50, channels)
    gamma, beta = torch.rand(channels) + 0.5, torch.randn(channels)
    if rms:
        exact, naive = gradients_of(lambda *a: nn.functional.rms_norm(a[0], (channels,), a[1], eps), d_out, x, gamma)
    else:
        exact, naive = gradients_of(lambda *a: nn.functional.layer_norm(a[0], (channels,), a[1], a[2], eps), d_out, x,
                                    gamma, beta)
    got = [torch.full_like(e, 7.0, dtype=torch.float32) for e in exact]
    tx, tg, td = view(x), view(gamma), view(d_out)
    wanted = [view(g) for g in got]
    gradients = NormGradients(**{name: address(t) for name, t in zip(("x", "gamma", "beta"), wanted)})
    lib("attn_normalise_backward", c_int(1 if rms else 0), byref(tx), byref(tg), eps, byref(td), byref(gradients), None,
        c_size_t(0))
    for name, *three in zip(("x", "gamma", "beta"), got, exact, naive):
        compare(f"gradient of {name}", *three)


def check_activations_backward(lib):
    functions = {0: lambda x: x * 1, 1: nn.functional.relu, 2: nn.functional.gelu,
                 3: lambda x: nn.functional.gelu(x, approximate="tanh"), 4: nn.functional.silu, 5: torch.tanh,
                 6: torch.sigmoid}
    x, up, d_out = torch.randn(2, 9, 45) * 4, torch.randn(2, 9, 45), torch.randn(2, 9, 45)
    tx, tu, td = view(x), view(up), view(d_out)
    for number, function in functions.items():
        first, second = torch.empty_like(x), torch.empty_like(x)
        t1, t2 = view(first), view(second)
        exact, naive = gradients_of(function, d_out, x)
        lib("attn_activate_backward", c_int(number), byref(tx), byref(td), byref(t1), c_int(0))
        compare(f"activation {number}", first, exact[0], naive[0])
        exact, naive = gradients_of(lambda g, u, f=function: f(g) * u, d_out, x, up)
        lib("attn_gate_backward", c_int(number), byref(tx), byref(tu), byref(td), byref(t1), byref(t2), c_int(0))
        compare(f"gate {number}", first, exact[0], naive[0])
        compare(f"up {number}", second, exact[1], naive[1])


def check_embed_backward(lib):
    table, ids, d_out = torch.randn(30, 45), torch.randint(0, 25, (2, 40)), torch.randn(2, 40, 45)
    exact, naive = gradients_of(lambda t: nn.functional.embedding(ids, t) * 0.7, d_out, table)
    got = torch.full_like(table, 7.0)
    td, tt, numbers = view(d_out), view(got), int32s(ids)
    lib("attn_embed_backward", numbers, 0.7, byref(td), byref(tt), c_int(0), c_int(0))
    compare("table", got, exact[0], naive[0])


def check_lstm_backward(lib, bidirectional):
    input_size, hidden, batch, tokens = 10, 17, 4, 12
    directions, lengths = 2 if bidirectional else 1, [12, 5, 1, 8]
    module = nn.LSTM(input_size, hidden, bidirectional=bidirectional, batch_first=True)
    names = [name for name, _ in module.named_parameters()]
    x, d_out = torch.randn(batch, tokens, input_size), torch.randn(batch, tokens, directions * hidden)
    state, d_state = (torch.randn(2, directions, batch, hidden) for _ in range(2))

    def run(rows, first, *weights):
        packed = nn.utils.rnn.pack_padded_sequence(rows, lengths, batch_first=True, enforce_sorted=False)
        given = module.to(rows.dtype)
        out, last = torch.func.functional_call(given, dict(zip(names, weights)), (packed, (first[0], first[1])))
        padded = nn.utils.rnn.pad_packed_sequence(out, batch_first=True, total_length=tokens)[0]
        return torch.cat([padded.flatten(), torch.stack(last).flatten()])

    values = [p.detach().clone() for p in module.parameters()]
    exact, naive = gradients_of(run, torch.cat([d_out.flatten(), d_state.flatten()]), x, state, *values)
    out = run(x, state, *values)[: d_out.numel()].reshape(d_out.shape).contiguous()
    got = [torch.full_like(e, 7.0, dtype=torch.float32) for e in exact]
    got[1].copy_(d_state)
    tensors = [view(t) for t in (x, state.reshape(2, -1, hidden), out, d_out, got[0], got[1].reshape(2, -1, hidden))]
    weights, sums = ((LstmWeights * directions)(*(LstmWeights(*map(view, of[4 * d : 4 * d + 4]))
                                                  for d in range(directions))) for of in (values, got[2:]))
    gradients = LstmGradients(x=address(tensors[4]), weights=address(sums), state=address(tensors[5]))
    config = LstmConfig(input=input_size, hidden=hidden, bidirectional=int(bidirectional))
    lib("attn_lstm_backward", byref(config), weights, byref(tensors[0]), int64s(lengths), byref(tensors[1]),
        byref(tensors[2]), byref(tensors[3]), byref(gradients), None, c_size_t(0))
    for name, *three in zip(["x", "state", *names], got, exact, naive):
        compare(f"gradient of {name}", *three)


def block_weights(values, attentions, norms, make=lambda t: t):
    """BlockWeights over the parameters of a layer of PyTorch's, and the tensors that it points to, by their names."""
    tensors, weights, kept = {}, BlockWeights(), []
    for member, name in attentions.items():
        packed, bias = values[f"{name}.in_proj_weight"], values[f"{name}.in_proj_bias"]
        d = packed.shape[1]
        parts = dict(zip(("w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o"),
                         (*packed.split(d), values[f"{name}.out_proj.weight"], *bias.split(d),
                          values[f"{name}.out_proj.bias"])))
        parts = {part: make(t.contiguous()) for part, t in parts.items()}
        tensors[f"{name}.in_proj_weight"] = [parts[p] for p in ("w_q", "w_k", "w_v")]
        tensors[f"{name}.in_proj_bias"] = [parts[p] for p in ("b_q", "b_k", "b_v")]
        tensors[f"{name}.out_proj.weight"], tensors[f"{name}.out_proj.bias"] = [parts["w_o"]], [parts["b_o"]]
        kept.append(MhaWeights(**{part: view(t) for part, t in parts.items()}))
        setattr(weights, member, address(kept[-1]))
    others = {"w_up": "linear1.weight", "b_up": "linear1.bias", "w_down": "linear2.weight", "b_down": "linear2.bias"}
    for i, norm in enumerate(norms):
        others[f"{norm}_gamma"], others[f"{norm}_beta"] = f"norm{i + 1}.weight", f"norm{i + 1}.bias"
    for member, name in others.items():
        tensors[name] = [make(values[name])]
        setattr(weights, member, view(tensors[name][0]))
    return weights, tensors, kept


def check_block_backward(lib, cross, norm_first):
    d, heads, d_ff, batch, tq, tk = 24, 4, 40, 3, 9, 13
    layer = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
    module = layer(d, heads, d_ff, dropout=0.0, activation="gelu", batch_first=True, norm_first=norm_first)
    x, memory, d_out = (torch.randn(batch, t, d) for t in (tq, tk, tq))
    lengths = [tk, 1, tk // 2] if cross else [tq, 2, tq // 2]
    padding = torch.arange(tk if cross else tq)[None, :] >= torch.tensor(lengths)[:, None]
    causal = torch.triu(torch.full((tq, tq), True), 1)
    names = [name for name, _ in module.named_parameters()]
    values = [torch.randn_like(p) * 0.3 + (1 if ".weight" in n and "norm" in n else 0)
              for n, p in module.named_parameters()]

    def run(rows, others, *weights):
        kind = {"tgt_mask": causal, "memory_key_padding_mask": padding} if cross else {"src_key_padding_mask": padding}
        inputs = (rows, others) if cross else (rows,)
        out = torch.func.functional_call(module.to(rows.dtype), dict(zip(names, weights)), inputs, kind)
        return out + 0 * others.sum()

    exact, naive = [[*g] for g in gradients_of(run, d_out, x, memory, *values)]
    attentions = {"self": "self_attn", "cross": "multihead_attn"} if cross else {"self": "self_attn"}
    norms = ["self", "cross", "network"] if cross else ["self", "network"]
    weights, _, kept1 = block_weights(dict(zip(names, values)), attentions, norms)
    sums, got, kept2 = block_weights(dict(zip(names, values)), attentions, norms, lambda t: torch.full_like(t, 7.0))
    d_x, d_memory, kv_len = torch.full_like(x, 7.0), torch.full_like(memory, 7.0), int64s(lengths)
    tx, tm, td, t1, t2 = map(view, (x, memory, d_out, d_x, d_memory))
    padded, of_self = Params(kv_len=address(kv_len)), Params(causal=1)
    attention = MhaConfig(d_model=d, heads=heads)
    config = BlockConfig(attention=address(attention), d_ff=d_ff, activation=GELU, eps=1e-5,
                         norm_first=int(norm_first), cross=int(cross))
    one = BlockPass(self=address(of_self if cross else padded))
    gradients = BlockGradients(x=address(t1), weights=address(sums))
    if cross:
        one.cross, one.memory, gradients.memory = address(padded), address(tm), address(t2)
    lib("attn_block_backward", byref(config), byref(weights), byref(tx), byref(one), byref(td), byref(gradients), None,
        c_size_t(0))
    compare("gradient of x", d_x, exact[0], naive[0])
    if cross:
        compare("gradient of the memory", d_memory, exact[1], naive[1])
    for name, *two in zip(names, exact[2:], naive[2:]):
        compare(f"gradient of {name}", torch.cat(got[name]), *two)


def check_mha_backward(lib, cross):
    d, heads, batch, tq, tk = 24, 4, 3, 9, 13 if cross else 9
    module = nn.MultiheadAttention(d, heads, batch_first=True)
    x, memory, d_out = (torch.randn(batch, t, d) for t in (tq, tk, tq))
    lengths = [tk, 1, tk // 2]
    padding = torch.arange(tk)[None, :] >= torch.tensor(lengths)[:, None]
    names = [name for name, _ in module.named_parameters()]
    values = [torch.randn_like(p) * 0.3 for p in module.parameters()]

    def run(rows, others, *weights):
        keys = others if cross else rows
        return torch.func.functional_call(module.to(rows.dtype), dict(zip(names, weights)), (rows, keys, keys),
                                          {"key_padding_mask": padding, "need_weights": False})[0]

    inputs = (x, memory) if cross else (x, x * 0 + 1)
    exact, naive = [[*g] for g in gradients_of(lambda a, b, *w: run(a, b, *w) + 0 * b.sum(), d_out, *inputs, *values)]
    of = dict(zip(names, values))
    parts = [*of["in_proj_weight"].split(d), of["out_proj.weight"], *of["in_proj_bias"].split(d), of["out_proj.bias"]]
    members = ("w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o")
    got = {name: torch.full_like(part, 7.0) for name, part in zip(members, parts)}
    d_x, d_memory, kv_len = torch.full_like(x, 7.0), torch.full_like(memory, 7.0), int64s(lengths)
    weights = MhaWeights(**{name: view(part.contiguous()) for name, part in zip(members, parts)})
    sums = MhaWeights(**{name: view(part) for name, part in got.items()})
    tx, tm, td, t1, t2 = map(view, (x, memory, d_out, d_x, d_memory))
    gradients = MhaGradients(x=address(t1), weights=address(sums))
    if cross:
        gradients.memory = address(t2)
    config, params = MhaConfig(d_model=d, heads=heads), Params(kv_len=address(kv_len))
    lib("attn_mha_backward", byref(config), byref(weights), byref(tx), byref(tm) if cross else None, byref(params),
        byref(td), byref(gradients), None, c_size_t(0))
    results = {"in_proj_weight": torch.cat([got[n] for n in ("w_q", "w_k", "w_v")]), "out_proj.weight": got["w_o"],
               "in_proj_bias": torch.cat([got[n] for n in ("b_q", "b_k", "b_v")]), "out_proj.bias": got["b_o"]}
    compare("gradient of x", d_x, exact[0], naive[0])
    if cross:
        compare("gradient of the memory", d_memory, exact[1], naive[1])
    for name, *two in zip(names, exact[2:], naive[2:]):
        compare(f"gradient of {name}", results[name], *two)


def check_pool_backward(lib):
    batch, tokens, channels, inner, lengths = 3, 20, 33, 25, [20, 7, 1]
    x, d_out = torch.randn(batch, tokens, channels), torch.randn(batch, channels)
    w, bias, v = torch.randn(inner, channels) * 0.2, torch.randn(inner), torch.randn(inner)
    live = torch.arange(tokens) < torch.tensor(lengths)[:, None]

    def run(rows, matrix, shift, query):
        scores = torch.tanh(nn.functional.linear(rows, matrix, shift)) @ query
        return (scores.masked_fill(~live, -torch.inf).softmax(1)[:, None] @ rows).squeeze(1)

    exact, naive = gradients_of(run, d_out, x, w, bias, v)
    got = [torch.full_like(e, 7.0, dtype=torch.float32) for e in exact]
    tensors = [view(t) for t in (w, bias, v, x, d_out.reshape(batch, 1, channels))]
    wanted = [view(g) for g in got]
    gradients = PoolGradients(**{name: address(t) for name, t in zip(("x", "w", "bias", "v"), wanted)})
    lib("attn_pool_backward", *map(byref, tensors[:4]), int64s(lengths), byref(tensors[4]), byref(gradients), None,
        c_size_t(0))
    for name, *three in zip(("x", "w", "bias", "v"), got, exact, naive):
        compare(f"gradient of {name}", *three)


def check_additive_backward(lib):
    batch, queries, keys, d_query, d_key, inner, dv, temperature = 3, 7, 20, 24, 33, 40, 17, 1.5
    lengths = [20, 7, 1]
    q, d_out = torch.randn(batch, queries, d_query), torch.randn(batch, queries, dv)
    rows, values = torch.randn(batch, keys, d_key), torch.randn(batch, keys, dv)
    w_q, w_k, bias, v = (torch.randn(inner, d_query) * 0.2, torch.randn(inner, d_key) * 0.2, torch.randn(inner),
                         torch.randn(inner))
    live = torch.arange(keys) < torch.tensor(lengths)[:, None]

    def run(q, rows, values, w_q, w_k, bias, v):
        projected = nn.functional.linear(rows, w_k, bias)
        scores = torch.tanh(nn.functional.linear(q, w_q)[:, :, None] + projected[:, None]) @ v / temperature
        return scores.masked_fill(~live[:, None], -torch.inf).softmax(2) @ values

    exact, naive = gradients_of(run, d_out, q, rows, values, w_q, w_k, bias, v)
    got = [torch.full_like(e, 7.0, dtype=torch.float32) for e in exact]
    projected = nn.functional.linear(rows, w_k, bias)
    d_projected = torch.full_like(projected, 7.0)
    config = AlignmentConfig(score=3, d_query=d_query, d_key=d_key, d_attention=inner, temperature=temperature,
                             w_q=view(w_q), w_k=view(w_k), bias=view(bias), v=view(v))
    tq, tp, tv, td, of_projected = map(view, (q, projected, values, d_out, d_projected))
    wanted = [view(g) for g in got]
    gradients = AlignmentGradients(q=address(wanted[0]), projected=address(of_projected), v=address(wanted[2]),
                                   w_q=address(wanted[3]), score_v=address(wanted[6]))
    kv_len = int64s(lengths)
    params = Params(kv_len=address(kv_len))
    lib("attn_alignment_backward", byref(config), byref(tq), byref(tp), byref(tv), byref(params), byref(td),
        byref(gradients), None, c_size_t(0))
    tw, tx = view(w_k), view(rows)
    linear = LinearGradients(x=address(wanted[1]), weights=address(wanted[4]), bias=address(wanted[5]))
    lib("attn_linear_backward", byref(tw), byref(tx), byref(of_projected), byref(linear), None, c_size_t(0))
    for name, *three in zip(("q", "keys", "v", "w_q", "w_k", "bias", "score_v"), got, exact, naive):
        compare(f"gradient of {name}", *three)


def check_bahdanau_backward(lib):
    """A decoder of three steps over one set of annotations, which are keys and values."""
    batch, tokens, steps, embedding, annotation, hidden, inner = 3, 20, 3, 12, 17, 24, 30
    lengths = [20, 7, 1]
    words, notes = torch.randn(steps, batch, embedding), torch.randn(batch, tokens, annotation)
    state, d_state = torch.randn(batch, hidden) * 0.5, torch.randn(batch, hidden)
    w_q, w_k, bias, v = (torch.randn(inner, hidden) * 0.2, torch.randn(inner, annotation) * 0.2, torch.randn(inner),
                         torch.randn(inner))
    gru = [torch.randn(3 * hidden, n) * 0.2 for n in (embedding + annotation, hidden)]
    gru += [torch.randn(3 * hidden) * 0.2 for _ in range(2)]
    live = torch.arange(tokens) < torch.tensor(lengths)[:, None]
    states = []

    def run(words, notes, state, w_q, w_k, bias, v, w_ih, w_hh, b_ih, b_hh):
        projected = nn.functional.linear(notes, w_k, bias)
        for word in words:
            states.append(state.detach().float())
            scores = torch.tanh(nn.functional.linear(state, w_q)[:, None] + projected) @ v
            context = (scores.masked_fill(~live, -torch.inf).softmax(1)[:, None] @ notes).squeeze(1)
            x, h = (nn.functional.linear(torch.cat((word, context), 1), w_ih, b_ih),
                    nn.functional.linear(state, w_hh, b_hh))
            (x_r, x_z, x_n), (h_r, h_z, h_n) = x.chunk(3, 1), h.chunk(3, 1)
            update = torch.sigmoid(x_z + h_z)
            state = (1 - update) * torch.tanh(x_n + torch.sigmoid(x_r + h_r) * h_n) + update * state
        return state

    exact, naive = gradients_of(run, d_state, words, notes, state, w_q, w_k, bias, v, *gru)
    got = [torch.full_like(e, 7.0, dtype=torch.float32) for e in exact]
    projected = nn.functional.linear(notes, w_k, bias)
    d_projected, got[2] = torch.full_like(projected, 7.0), d_state.clone()
    config = BahdanauConfig(embedding=embedding, annotation=annotation, hidden=hidden,
                            **{name: view(t) for name, t in zip(("w_ih", "w_hh", "b_ih", "b_hh"), gru)})
    alignment = AlignmentConfig(score=3, d_query=hidden, d_key=annotation, d_attention=inner, w_q=view(w_q),
                                w_k=view(w_k), bias=view(bias), v=view(v))
    tp, tn, of_projected, of_notes = view(projected), view(notes), view(d_projected), view(got[1])
    for step in reversed(range(steps)):
        tensors = {"word": view(got[0][step][:, None]), "state": view(got[2][:, None]), "projected": of_projected,
                   "annotations": of_notes, "w_q": view(got[3]), "score_v": view(got[6])}
        tensors |= {name: view(t) for name, t in zip(("w_ih", "w_hh", "b_ih", "b_hh"), got[7:])}
        again = int(step < steps - 1)
        gradients = BahdanauGradients(accumulate=again, accumulate_keys=again,
                                      **{name: address(t) for name, t in tensors.items()})
        word, before = view(words[step][:, None]), view(states[step][:, None])
        lib("attn_bahdanau_backward", byref(config), byref(alignment), byref(word), byref(tp), byref(tn),
            int64s(lengths), byref(before), None, byref(gradients), None, c_size_t(0))
    tw, of_w_k, of_bias = view(w_k), view(got[4]), view(got[5])
    linear = LinearGradients(x=address(of_notes), weights=address(of_w_k), bias=address(of_bias), accumulate_x=1)
    lib("attn_linear_backward", byref(tw), byref(tn), byref(of_projected), byref(linear), None, c_size_t(0))
    names = ("words", "annotations", "state", "w_q", "w_k", "bias", "score_v", "w_ih", "w_hh", "b_ih", "b_hh")
    for name, *three in zip(names, got, exact, naive):
        compare(f"gradient of {name}", *three)


def all_checks():
    yield "gradients of Linear", check_linear_backward, ()
    for smoothing in (0.0, 0.1):
        yield f"cross-entropy with label smoothing {smoothing}", check_cross_entropy, (smoothing,)
    yield "AdamW with clipped gradients", check_adamw, ()
    yield "gradients of LayerNorm", check_norm_backward, (False,)
    yield "gradients of RMSNorm", check_norm_backward, (True,)
    yield "gradients of activations and gates", check_activations_backward, ()
    yield "gradient of Embedding", check_embed_backward, ()
    for both in (False, True):
        yield f"gradients of LSTM{' bidirectional' * both}", check_lstm_backward, (both,)
    for cross in (False, True):
        yield f"gradients of MultiheadAttention{' cross' * cross}", check_mha_backward, (cross,)
    for cross, norm_first in ((False, False), (False, True), (True, False), (True, True)):
        name = f"Transformer{'Decoder' if cross else 'Encoder'}Layer{' norm_first' * norm_first}"
        yield f"gradients of {name}", check_block_backward, (cross, norm_first)
    yield "gradients of attention pooling", check_pool_backward, ()
    yield "gradients of additive attention", check_additive_backward, ()
    yield "gradients of Bahdanau's decoder", check_bahdanau_backward, ()


if __name__ == "__main__":
    run_checks(__doc__, all_checks())
