#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares libattn_nn with PyTorch's modules on random weights.

Usage: check_layers.py LIBATTN_NN [--seed N] [WORD ...]

LIBATTN_NN is libattn_nn.so; with WORDs only the checks whose names hold one of
them run. State dicts go through safetensors files, as a user's would. A result
passes when its largest error against the module in float64 is at most twice
that of the module in float32 plus a floor. Exit code: 0 all passed, 1 some
failed, 2 wrong usage, 77 without torch or safetensors.
"""
import copy
import ctypes
import math
import os
import sys
import tempfile
from ctypes import byref, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path

try:
    import torch
    from safetensors.torch import save_file
    from torch import nn
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from attn_structs import (  # noqa: E402  pylint: disable=wrong-import-position
    AdamwOptions,
    AlignmentConfig,
    BahdanauConfig,
    BlockConfig,
    BlockInputs,
    LinearGradients,
    LlamaConfig,
    LstmConfig,
    MhaConfig,
    NormGradients,
    Parameter,
    Params,
    RopeConfig,
    Tensor,
    TransformerConfig,
)

UNIT = 2.0**-24
# Roundings of one layer, for cases in which float32 happens to be exact; models have several layers.
FLOOR_LAYER, FLOOR_MODEL = 24, 48

RELU, GELU, SILU = 1, 2, 4
TOP_LEFT, BOTTOM_RIGHT = 1, 2


class Failure(Exception):
    pass


class Library:
    """Calls by name; a status that is not 0 is a Failure with the library's sentence."""

    def __init__(self, path):
        self.dll = ctypes.CDLL(path)
        self.dll.attn_last_error.restype = c_char_p

    def __call__(self, name, *arguments):
        function = getattr(self.dll, name, None)
        if function is None:
            raise Failure(f"there is no {name}")
        converted = [c_int64(a) if isinstance(a, int) else c_float(a) if isinstance(a, float) else a
                     for a in arguments]
        status = function(*converted)
        if status != 0:
            raise Failure(f"{name}: status {status}, {self.dll.attn_last_error().decode()}")

    def make(self, name, *arguments):
        made = c_void_p()
        self(name, byref(made), *arguments)
        return made

    def free(self, name, made):
        getattr(self.dll, name)(made)


def view(x):
    """A tensor of two or three axes, (B, T, C) or (rows, columns), or a vector; x must be kept."""
    assert x.is_contiguous() and x.dtype == torch.float32
    t = Tensor(data=x.data_ptr(), dtype=0)
    shape = [1] * (4 - x.dim()) + list(x.shape)
    if x.dim() == 3:
        shape = [x.shape[0], 1, x.shape[1], x.shape[2]]
    stride = 1
    for axis in (3, 2, 1, 0):
        t.shape[axis], t.stride[axis] = shape[axis], stride
        stride *= shape[axis]
    return t


def address(thing):
    return ctypes.cast(ctypes.pointer(thing), c_void_p)


def int64s(values):
    return (c_int64 * len(values))(*values)


def int32s(values):
    flat = [int(v) for v in values.flatten()]
    return (c_int32 * len(flat))(*flat)


class Weights:
    """A state dict through a safetensors file."""

    def __init__(self, lib, state):
        self.lib = lib
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            save_file({name: value.detach().contiguous().clone() for name, value in state.items()}, path)
            self.handle = lib.make("attn_weights_open", path.encode())

    def __enter__(self):
        return self.handle

    def __exit__(self, *_):
        self.lib.free("attn_weights_destroy", self.handle)


def compare(what, got, exact, naive, floor=FLOOR_LAYER):
    """Largest errors relative to the largest number of each row."""
    exact, got, naive = exact.double(), got.double(), naive.double()
    if got.shape != exact.shape or torch.isnan(got).any():
        raise Failure(f"{what}: shape {tuple(got.shape)} for {tuple(exact.shape)}, "
                      f"{int(torch.isnan(got).sum())} NaN")
    size = exact.abs().amax(-1, keepdim=True).clamp_min(float(exact.square().mean().sqrt()) / 2 + 1e-30) * UNIT
    mine, theirs = float(((got - exact).abs() / size).max()), float(((naive - exact).abs() / size).max())
    if not mine <= 2 * theirs + floor:
        raise Failure(f"{what}: off by {mine:.1f} units, float32 torch by {theirs:.1f}; expected at most "
                      f"{2 * theirs + floor:.1f}")


def randomised(module):
    """Norms and biases are ones and zeros in a new module, which would hide exchanges."""
    with torch.no_grad():
        for name, p in module.named_parameters():
            if p.dim() == 1:
                p.copy_(torch.randn_like(p) * 0.3 + (1.0 if "norm" in name and "weight" in name else 0.0))
    return module.eval()


def in_both(module):
    return copy.deepcopy(module).double(), module


# ------------------------------------------------------------------- checks --

def check_mha(lib, kdim, vdim, bias, causal, padded, cross):
    d, heads, batch, tq, tk = 24, 4, 3, 9, 13 if cross else 9
    module = randomised(nn.MultiheadAttention(d, heads, bias=bias, kdim=kdim, vdim=vdim, batch_first=True))
    x = torch.randn(batch, tq, d)
    memory = torch.randn(batch, tk, kdim or d) if cross else x
    lengths = [tk, 1, tk // 2] if padded else [tk] * batch
    padding = torch.arange(tk)[None, :] >= torch.tensor(lengths)[:, None]
    mask = torch.ones(tq, tk, dtype=torch.bool).triu(1) if causal else None
    results = [m(x.to(dtype), memory.to(dtype), memory.to(dtype), key_padding_mask=padding if padded else None,
                 attn_mask=mask, average_attn_weights=True)
               for m, dtype in zip(in_both(module), (torch.float64, torch.float32))]
    config = MhaConfig(d_model=d, heads=heads, d_memory=kdim or 0)
    with Weights(lib, {"layer." + k: v for k, v in module.state_dict().items()}) as weights:
        mha = lib.make("attn_mha_load", byref(config), weights, b"layer.")
    if padded and cross:
        memory = memory.masked_fill(padding[:, :, None], float("nan"))
    out, all_weights = torch.full((batch, tq, d), 7.0), torch.full((batch, heads, tq, tk), 7.0)
    kv_len, weight_view = int64s(lengths), view(all_weights)
    params = Params(causal=TOP_LEFT if causal else 0, weights=address(weight_view))
    if padded:
        params.kv_len = address(kv_len)
    tx, tm, to = view(x), view(memory), view(out)
    lib("attn_mha_forward", mha, byref(tx), byref(tm) if cross else None, byref(to), byref(params), None, c_size_t(0))
    lib.free("attn_mha_destroy", mha)
    compare("out", out, results[0][0], results[1][0])
    compare("average weights", all_weights.mean(1), results[0][1], results[1][1])


def check_block(lib, decoder, norm_first, activation, causal):
    d, heads, ff, batch, tokens, tm = 32, 4, 56, 2, 11, 7
    kind = nn.TransformerDecoderLayer if decoder else nn.TransformerEncoderLayer
    module = randomised(kind(d, heads, ff, dropout=0, activation=activation, batch_first=True, norm_first=norm_first,
                             layer_norm_eps=1e-5))
    x, memory = torch.randn(batch, tokens, d), torch.randn(batch, tm, d)
    mask = torch.ones(tokens, tokens, dtype=torch.bool).triu(1) if causal else None

    def run(m, dtype):
        if decoder:
            return m(x.to(dtype), memory.to(dtype), tgt_mask=mask)
        return m(x.to(dtype), src_mask=mask)

    exact, naive = [run(m, dtype) for m, dtype in zip(in_both(module), (torch.float64, torch.float32))]
    config = BlockConfig(d_ff=ff, activation=RELU if activation == "relu" else GELU, eps=1e-5,
                         norm_first=int(norm_first), cross=int(decoder))
    attention = MhaConfig(d_model=d, heads=heads)
    config.attention = address(attention)
    with Weights(lib, module.state_dict()) as weights:
        block = lib.make("attn_block_load", byref(config), weights, b"", c_int(0))
    out = torch.full((batch, tokens, d), 7.0)
    params, tx, tmem, to = Params(causal=TOP_LEFT if causal else 0), view(x), view(memory), view(out)
    inputs = BlockInputs(self=address(params))
    if decoder:
        inputs.memory = address(tmem)
    lib("attn_block_forward", block, byref(tx), byref(to), byref(inputs), None, c_size_t(0))
    lib.free("attn_block_destroy", block)
    compare("out", out, exact, naive)


def check_lstm(lib, layers, bidirectional, packed, initial):
    input_size, hidden, batch, tokens = 10, 17, 4, 12
    directions = 2 if bidirectional else 1
    module = nn.LSTM(input_size, hidden, layers, bidirectional=bidirectional, batch_first=True)
    x = torch.randn(batch, tokens, input_size)
    lengths = [12, 5, 1, 8] if packed else [tokens] * batch
    state = torch.randn(2, layers * directions, batch, hidden) * (0.5 if initial else 0)

    def run(m, dtype):
        rows = x.to(dtype)
        if packed:
            rows = nn.utils.rnn.pack_padded_sequence(rows, lengths, batch_first=True, enforce_sorted=False)
        out, (h, c) = m(rows, (state[0].to(dtype), state[1].to(dtype)))
        if packed:
            out = nn.utils.rnn.pad_packed_sequence(out, batch_first=True, total_length=tokens)[0]
        return out, torch.stack([h, c])

    exact, naive = [run(m, dtype) for m, dtype in zip(in_both(module), (torch.float64, torch.float32))]
    config = LstmConfig(input=input_size, hidden=hidden, layers=layers, bidirectional=int(bidirectional))
    with Weights(lib, {"rnn." + k: v for k, v in module.state_dict().items()}) as weights:
        lstm = lib.make("attn_lstm_load", byref(config), weights, b"rnn.")
    out = torch.full((batch, tokens, directions * hidden), 7.0)
    its_state = state.reshape(2, -1, hidden).contiguous().clone()
    live = int64s(lengths)
    tx, ts, to = view(x), view(its_state), view(out)
    lib("attn_lstm_forward", lstm, byref(tx), live, byref(ts), byref(to), c_int(0), None, c_size_t(0))
    lib.free("attn_lstm_destroy", lstm)
    compare("out", out, exact[0], naive[0])
    compare("state", its_state, exact[1].reshape(its_state.shape), naive[1].reshape(its_state.shape))


def check_norm(lib, rms):
    channels, eps = 37, 1e-5
    module = randomised(nn.RMSNorm(channels, eps=eps) if rms else nn.LayerNorm(channels, eps=eps))
    x = torch.randn(3, 5, channels) * 3 + 1
    exact, naive = [m(x.to(dtype)) for m, dtype in zip(in_both(module), (torch.float64, torch.float32))]
    out, gamma = torch.empty(3, 5, channels), module.weight.detach()
    tx, tg, to = view(x), view(gamma), view(out)
    tb = None if rms else view(module.bias.detach())
    lib("attn_normalise", c_int(1 if rms else 0), byref(tx), byref(tg), None if rms else byref(tb), eps, byref(to),
        c_int(0))
    compare("out", out, exact, naive)


def check_activations(lib):
    functions = {1: nn.functional.relu, 2: nn.functional.gelu, 3: lambda x: nn.functional.gelu(x, approximate="tanh"),
                 4: nn.functional.silu, 5: torch.tanh, 6: torch.sigmoid}
    x = torch.randn(2, 9, 45) * 4
    for number, function in functions.items():
        out = torch.empty_like(x)
        tx, to = view(x), view(out)
        lib("attn_activate", c_int(number), byref(tx), byref(to), c_int(0))
        compare(f"activation {number}", out, function(x.double()), function(x))


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


def check_bahdanau(lib):
    batch, tokens, embedding, annotation, hidden, width = 3, 8, 6, 10, 14, 12
    cell = nn.GRUCell(embedding + annotation, hidden)
    w_q, w_k = nn.Linear(hidden, width, bias=False), nn.Linear(annotation, width)
    v = torch.randn(width)
    word, states = torch.randn(batch, embedding), torch.randn(batch, tokens, annotation)
    before = torch.randn(batch, hidden)

    def run(dtype):
        q, k, gru = (copy.deepcopy(m).to(dtype) for m in (w_q, w_k, cell))
        score = torch.tanh(q(before.to(dtype))[:, None] + k(states.to(dtype))) @ v.to(dtype)
        weights = score.softmax(-1)
        context = (weights[:, :, None] * states.to(dtype)).sum(1)
        return gru(torch.cat([word.to(dtype), context], -1), before.to(dtype)), context, weights

    with torch.no_grad():
        exact, naive = run(torch.float64), run(torch.float32)
    kept = [p.detach().contiguous() for p in (w_q.weight, w_k.weight, w_k.bias, v, cell.weight_ih, cell.weight_hh,
                                              cell.bias_ih, cell.bias_hh)]
    views = [view(p) for p in kept]
    alignment = lib.make("attn_alignment_create", byref(AlignmentConfig(
        score=3, d_query=hidden, d_key=annotation, d_attention=width, w_q=views[0], w_k=views[1], bias=views[2],
        v=views[3])))
    step = lib.make("attn_bahdanau_create", byref(BahdanauConfig(
        alignment=alignment, embedding=embedding, annotation=annotation, hidden=hidden, w_ih=views[4], w_hh=views[5],
        b_ih=views[6], b_hh=views[7])))
    projected, state = torch.empty(batch, tokens, width), before.clone()[:, None].contiguous()
    context, weights = torch.empty(batch, 1, annotation), torch.empty(batch, 1, tokens)
    rows = word[:, None].contiguous()
    tensors = [view(t) for t in (states, projected, rows, state, context, weights)]
    lib("attn_alignment_project", alignment, byref(tensors[0]), byref(tensors[1]), c_int(0))
    lib("attn_bahdanau_forward", step, byref(tensors[2]), byref(tensors[1]), byref(tensors[0]), None,
        byref(tensors[3]), byref(tensors[4]), byref(tensors[5]), c_int(0), None, c_size_t(0))
    lib.free("attn_bahdanau_destroy", step)
    lib.free("attn_alignment_destroy", alignment)
    for what, got, e, n in zip(("state", "context", "weights"), (state, context, weights), exact, naive):
        compare(what, got[:, 0], e, n)


class EncoderDecoder(nn.Module):
    """nn.Transformer between embeddings, under the names that libattn_nn reads."""

    def __init__(self, d, heads, ff, source, target, norm_first, activation):
        super().__init__()
        self.d = d
        self.src_embedding, self.tgt_embedding = nn.Embedding(source, d), nn.Embedding(target, d)
        body = nn.Transformer(d, heads, 2, 2, ff, dropout=0, activation=activation, batch_first=True,
                              norm_first=norm_first)
        self.encoder, self.decoder = body.encoder, body.decoder
        self.generator = nn.Linear(d, target)

    def embed(self, table, ids):
        dtype = table.weight.dtype
        position = torch.arange(ids.shape[1], dtype=torch.float64)[:, None]
        angle = position * 10000.0 ** (-torch.arange(0, self.d, 2, dtype=torch.float64) / self.d)
        rows = torch.stack([angle.sin(), angle.cos()], -1).reshape(ids.shape[1], self.d)
        return table(ids) * math.sqrt(self.d) + rows.to(dtype)

    def encode(self, ids):
        return self.encoder(self.embed(self.src_embedding, ids))

    def forward(self, memory, ids):
        mask = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
        return self.generator(self.decoder(self.embed(self.tgt_embedding, ids), memory, tgt_mask=mask))


def check_transformer(lib, norm_first, activation):
    d, heads, ff, source, target, batch, ts, tt = 24, 3, 40, 31, 19, 2, 9, 6
    module = randomised(EncoderDecoder(d, heads, ff, source, target, norm_first, activation))
    ids, targets = torch.randint(source, (batch, ts)), torch.randint(target, (batch, tt))
    wide, narrow = in_both(module)
    exact, naive = wide.encode(ids), narrow.encode(ids)
    config = TransformerConfig(
        encoder_layers=2, decoder_layers=2, d_model=d, heads=heads, d_ff=ff, source_vocabulary=source,
        target_vocabulary=target, positions=16, activation=RELU if activation == "relu" else GELU, eps=1e-5,
        norm_first=int(norm_first), final_norms=1, bos=1, eos=2)
    with Weights(lib, module.state_dict()) as weights:
        model = lib.make("attn_transformer_load", byref(config), weights, b"")
    memory, logits = torch.empty(batch, ts, d), torch.empty(batch, tt, target)
    tm, tl = view(memory), view(logits)
    lib("attn_transformer_encode", model, batch, ts, int32s(ids), None, byref(tm), c_int(0))
    compare("memory", memory, exact, naive, FLOOR_MODEL)
    lib("attn_transformer_score", model, byref(tm), None, tt, int32s(targets), byref(tl), None, c_int(0))
    lib.free("attn_transformer_destroy", model)
    compare("logits", logits, wide(exact, targets), narrow(naive, targets), FLOOR_MODEL)


class Llama(nn.Module):
    """A decoder written out, under the names of LlamaForCausalLM."""

    def __init__(self, layers, d, heads, kv_heads, ff, vocabulary, base):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim, self.base, self.layers = heads, kv_heads, d // heads, base, layers
        sizes = {"self_attn.q_proj": (d, d), "self_attn.k_proj": (kv_heads * self.head_dim, d),
                 "self_attn.v_proj": (kv_heads * self.head_dim, d), "self_attn.o_proj": (d, d),
                 "mlp.gate_proj": (ff, d), "mlp.up_proj": (ff, d), "mlp.down_proj": (d, ff)}
        self.tensors = {"model.embed_tokens.weight": torch.randn(vocabulary, d),
                        "model.norm.weight": 1 + 0.3 * torch.randn(d),
                        "lm_head.weight": torch.randn(vocabulary, d) / math.sqrt(d)}
        for layer in range(layers):
            prefix = f"model.layers.{layer}."
            for name, (rows, columns) in sizes.items():
                self.tensors[f"{prefix}{name}.weight"] = torch.randn(rows, columns) / math.sqrt(columns)
            for name in ("input_layernorm", "post_attention_layernorm"):
                self.tensors[f"{prefix}{name}.weight"] = 1 + 0.3 * torch.randn(d)

    def rotate(self, x):
        half = self.head_dim // 2
        angle = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * self.base ** (
            -torch.arange(half, dtype=torch.float64) / half)
        cosine, sine = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)

    def forward(self, ids, dtype):
        w = {name: t.to(dtype) for name, t in self.tensors.items()}

        def norm(x, name):
            return x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-5) * w[name]

        x = w["model.embed_tokens.weight"][ids]
        batch, tokens, _ = x.shape
        mask = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        for layer in range(self.layers):
            p = f"model.layers.{layer}."
            h = norm(x, p + "input_layernorm.weight")
            q, k, v = (
                (h @ w[f"{p}self_attn.{n}_proj.weight"].T).reshape(batch, tokens, -1, self.head_dim).transpose(1, 2)
                for n in "qkv")
            q, k = self.rotate(q), self.rotate(k)
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
            score = (q @ k.transpose(2, 3) / math.sqrt(self.head_dim)).masked_fill(mask, -math.inf)
            out = (score.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, -1)
            x = x + out @ w[p + "self_attn.o_proj.weight"].T
            h = norm(x, p + "post_attention_layernorm.weight")
            gate = nn.functional.silu(h @ w[p + "mlp.gate_proj.weight"].T)
            x = x + (gate * (h @ w[p + "mlp.up_proj.weight"].T)) @ w[p + "mlp.down_proj.weight"].T
        return norm(x, "model.norm.weight") @ w["lm_head.weight"].T


def check_llama(lib):
    layers, d, heads, kv_heads, ff, vocabulary, batch, tokens = 3, 48, 6, 2, 80, 37, 2, 14
    model = Llama(layers, d, heads, kv_heads, ff, vocabulary, 20000.0)
    ids = torch.randint(vocabulary, (batch, tokens))
    exact, naive = model(ids, torch.float64), model(ids, torch.float32)
    config = LlamaConfig(layers=layers, d_model=d, heads=heads, kv_heads=kv_heads, d_ff=ff, vocabulary=vocabulary,
                         eps=1e-5)
    rope = RopeConfig(base=20000.0)
    config.rope = address(rope)
    with Weights(lib, model.tensors) as weights:
        llama = lib.make("attn_llama_load", byref(config), weights)
    session = lib.make("attn_llama_session_create", llama, batch, tokens)
    prompt = 9
    first, last = torch.empty(batch, prompt, vocabulary), torch.empty(batch, 1, vocabulary)
    tf, tl = view(first), view(last)
    lib("attn_llama_forward", session, prompt, int32s(ids[:, :prompt]), byref(tf), c_int(0))
    compare("prefill", first, exact[:, :prompt], naive[:, :prompt], FLOOR_MODEL)
    for t in range(prompt, tokens):
        lib("attn_llama_forward", session, 1, int32s(ids[:, t:t + 1]), byref(tl), c_int(0))
        compare(f"token {t}", last, exact[:, t:t + 1], naive[:, t:t + 1], FLOOR_MODEL)
    lib.free("attn_llama_session_destroy", session)
    lib.free("attn_llama_destroy", llama)


def all_checks():
    for cross in (False, True):
        for bias in (True, False):
            for causal, padded in ((False, False), (True, False), (False, True), (True, True)):
                yield (f"MultiheadAttention{' cross' * cross}{' biases' * bias}{' causal' * causal}"
                       f"{' padded' * padded}", check_mha, (None, None, bias, causal, padded, cross))
    for bias in (True, False):
        yield f"MultiheadAttention kdim vdim{' biases' * bias}", check_mha, (20, 20, bias, False, True, True)
    for decoder in (False, True):
        for norm_first in (False, True):
            for activation in ("relu", "gelu"):
                yield (f"Transformer{'De' if decoder else 'En'}coderLayer {'pre' if norm_first else 'post'}-norm "
                       f"{activation}", check_block, (decoder, norm_first, activation, activation == "gelu"))
    for layers, both, packed, initial in ((1, False, False, False), (2, False, True, True), (2, True, False, True),
                                          (2, True, True, False), (2, True, True, True)):
        yield (f"LSTM {layers} layers{' bidirectional' * both}{' packed' * packed}{' state' * initial}", check_lstm,
               (layers, both, packed, initial))
    yield "LayerNorm", check_norm, (False,)
    yield "RMSNorm", check_norm, (True,)
    yield "activations", check_activations, ()
    yield "gradients of Linear", check_linear_backward, ()
    for smoothing in (0.0, 0.1):
        yield f"cross-entropy with label smoothing {smoothing}", check_cross_entropy, (smoothing,)
    yield "AdamW with clipped gradients", check_adamw, ()
    yield "gradients of LayerNorm", check_norm_backward, (False,)
    yield "gradients of RMSNorm", check_norm_backward, (True,)
    yield "gradients of activations and gates", check_activations_backward, ()
    yield "gradient of Embedding", check_embed_backward, ()
    yield "GRUCell after additive attention", check_bahdanau, ()
    for norm_first in (False, True):
        for activation in ("relu", "gelu"):
            yield (f"Transformer {'pre' if norm_first else 'post'}-norm {activation}", check_transformer,
                   (norm_first, activation))
    yield "Llama", check_llama, ()


def main():
    arguments = sys.argv[1:]
    seed = 1
    if "--seed" in arguments:
        at = arguments.index("--seed")
        seed = int(arguments[at + 1])
        del arguments[at:at + 2]
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        sys.exit(0 if arguments[:1] == ["--help"] else 2)
    lib, words = Library(arguments[0]), arguments[1:]
    print(f"seed {seed}, torch {torch.__version__}")
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False
    torch.set_grad_enabled(False)
    passed = failed = 0
    for name, check, rest in all_checks():
        if words and not any(word in name for word in words):
            continue
        torch.manual_seed(seed)
        try:
            check(lib, *rest)
            passed += 1
        except Failure as failure:
            failed += 1
            print(f"FAILED {name}: {failure}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
