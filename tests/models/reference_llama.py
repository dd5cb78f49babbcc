# SPDX-License-Identifier: Apache-2.0
"""A Llama in double precision, as a reference for attn generate.

Written for reading, after Touvron et al. 2023. Sequences are whole: nothing is
kept from one call to the next, and each token's row of logits follows from the
tokens up to it. So one call with a generated text shows, at every place, which
token a greedy generation takes there if it has taken the same ones before.
"""

import json

import numpy
import safetensors

# How weights are rounded before they are taken as exact; the products' alone, as attn_model_options.format has it.
ROUNDINGS = ("f32", "bf16")


def bf16(values):
    """The nearest bf16 of each f32, ties to even."""
    bits = values.view(numpy.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).view(numpy.float32)


def in_8_bits(rounded, most):
    """Rows of keys and values as attn_quantise() has them: their largest number becomes the type's largest one."""
    def of_rows(x):
        top = numpy.abs(x).max(-1, keepdims=True)
        return rounded(x * (most / top)) * (top / most)
    return of_rows


def e4m3(x):
    """The nearest number of three bits behind its first one; 2^-9 apart below 2^-6."""
    unit = 2.0 ** (numpy.maximum(numpy.floor(numpy.log2(numpy.maximum(numpy.abs(x), 2.0**-9))), -6) - 3)
    return numpy.rint(x / unit) * unit


# What a cache makes of keys and values before they are taken as exact.
CACHES = {"int8": in_8_bits(numpy.rint, 127), "fp8": in_8_bits(e4m3, 448)}


class Llama:
    """A folder with config.json and model.safetensors, as Transformers has them."""

    def __init__(self, folder, rounding="f32", cache=None):
        self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.file = safetensors.safe_open(folder / "model.safetensors", framework="numpy")
        self.rounding = rounding
        self.cache = CACHES[cache] if cache else lambda x: x

    def vector(self, name):
        return self.file.get_tensor(name + ".weight").astype(numpy.float64)

    def matrix(self, name):
        values = self.file.get_tensor(name + ".weight").astype(numpy.float32)
        return (bf16(values) if self.rounding == "bf16" else values).astype(numpy.float64)

    def norm(self, x, name):
        return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + self.config["rms_norm_eps"]) * self.vector(name)

    def rotated(self, x):
        """Channels i and i + d/2 of (token, head, d) turned by token / theta^(2 i / d)."""
        half = x.shape[2] // 2
        angles = numpy.arange(len(x))[:, None, None] * self.config["rope_theta"] ** (-numpy.arange(half) / half)
        cos, sin, a, b = numpy.cos(angles), numpy.sin(angles), x[..., :half], x[..., half:]
        return numpy.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def attention(self, q, k, v):
        """Causal; (token, head, d), where query heads h g to h g + g - 1 share key head h."""
        tokens, heads, d = q.shape
        group = heads // k.shape[1]
        hidden = numpy.triu(numpy.full((tokens, tokens), -numpy.inf), 1)
        out = numpy.empty_like(q)
        for head in range(heads):
            scores = q[:, head] @ k[:, head // group].T / numpy.sqrt(d) + hidden
            weights = numpy.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = weights / weights.sum(-1, keepdims=True) @ v[:, head // group]
        return out.reshape(tokens, heads * d)

    def layer(self, states, prefix):
        """One layer of every sequence; its weights are read once for all."""
        heads, kv_heads = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        w_q, w_k, w_v, w_o = (self.matrix(f"{prefix}self_attn.{name}_proj") for name in "qkvo")
        w_gate, w_up, w_down = (self.matrix(f"{prefix}mlp.{name}_proj") for name in ("gate", "up", "down"))
        for s, x in enumerate(states):
            tokens = len(x)
            y = self.norm(x, prefix + "input_layernorm")
            q = self.rotated((y @ w_q.T).reshape(tokens, heads, -1))
            k = self.rotated((y @ w_k.T).reshape(tokens, kv_heads, -1))
            v = (y @ w_v.T).reshape(tokens, kv_heads, -1)
            x = x + self.attention(q, self.cache(k), self.cache(v)) @ w_o.T
            y = self.norm(x, prefix + "post_attention_layernorm")
            gate = y @ w_gate.T
            states[s] = x + (gate / (1 + numpy.exp(-gate)) * (y @ w_up.T)) @ w_down.T

    def logits(self, sequences, firsts):
        """For each list of token ids the logits after each of its tokens from number first on: (tokens - first, V)."""
        embedding = self.file.get_tensor("model.embed_tokens.weight").astype(numpy.float64)
        states = [embedding[list(ids)] for ids in sequences]
        for number in range(self.config["num_hidden_layers"]):
            self.layer(states, f"model.layers.{number}.")
        head = self.matrix("model.embed_tokens" if self.config["tie_word_embeddings"] else "lm_head")
        return [self.norm(x[first:], "model.norm") @ head.T for x, first in zip(states, firsts)]
