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
import math
import os
import sys
import tempfile
from ctypes import byref, c_int, c_size_t

try:
    import torch
    from safetensors.torch import save_file
    from torch import nn
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

sys.dont_write_bytecode = True

from layer_library import (  # noqa: E402  pylint: disable=wrong-import-position
    FLOOR_MODEL,
    address,
    compare,
    int32s,
    int64s,
    run_checks,
    view,
)
from attn_structs import (  # noqa: E402  pylint: disable=wrong-import-position
    AlignmentConfig,
    BahdanauConfig,
    BlockConfig,
    BlockInputs,
    LlamaConfig,
    LstmConfig,
    MhaConfig,
    Params,
    RopeConfig,
    TransformerConfig,
)

RELU, GELU, SILU = 1, 2, 4
TOP_LEFT, BOTTOM_RIGHT = 1, 2


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
    yield "GRUCell after additive attention", check_bahdanau, ()
    for norm_first in (False, True):
        for activation in ("relu", "gelu"):
            yield (f"Transformer {'pre' if norm_first else 'post'}-norm {activation}", check_transformer,
                   (norm_first, activation))
    yield "Llama", check_llama, ()


if __name__ == "__main__":
    run_checks(__doc__, all_checks())
