# SPDX-License-Identifier: Apache-2.0
"""
libattn_nn: a multi-head attention layer, and a BERT-style encoder, through
their C interface with memory that was allocated in advance.

The structures are those of tools/attn_structs.py. Their sizes are in
struct_size, and a library with others refuses them or says which field it
misses; that the fields mean the same is shown by the outputs, which are
compared with the reference.
"""

import contextlib
import ctypes as c
import os

import numpy as np

from .. import embedding, layer
from ..tensors import widen
from .attn import ATTN_OK, ATTN_UNSUPPORTED, CAUSAL_TOP_LEFT, DTYPE, Attn, tensor_of
from .base import Contender, Unsupported, Way

# Found where attn.py says.
from attn_structs import (  # isort: skip  pylint: disable=wrong-import-order
    BertConfig,
    LinearFormat,
    LinearOptions,
    MhaConfig,
    MhaWeights,
    Params,
    Tensor,
)

F32, BF16 = DTYPE["f32"], DTYPE["bf16"]
# attn_weight_format and attn_multiply of each precision.
FORMATS = {"f32": (0, 0), "bf16": (2, 1), "int8": (3, 2)}
# Each precision's ways: the group of inputs with a scale, what lies between products, and the name. Integers have the
# scales that the examples take and everything else in f32 or bf16, or a scale for each output, as the peers have.
WAYS = {
    "f32": ((0, F32, ""),),
    "bf16": ((0, BF16, ""),),
    "int8": (
        (64, F32, ", scales of 64 inputs, the rest in f32"),
        (64, BF16, ", scales of 64 inputs, the rest in bf16"),
        (0, BF16, ", scales of outputs, the rest in bf16"),
    ),
}
# attn_qk, and what the name of a way says of it: scores of layers alone.
INT8_SCORES = 1, ", int8 scores"
ACTIVATION = {"gelu": 2, "gelu_new": 3, "relu": 1}


POINTER, SIZE, INT64 = c.c_void_p, c.c_size_t, c.c_int64

# {function: (result, arguments)} of those whose arguments are not all plain ints.
SIGNATURES = {
    "attn_linear_quantize": (c.c_int, [POINTER, POINTER, INT64, POINTER, POINTER]),
    "attn_linear_forward": (c.c_int, [POINTER] * 4),
    "attn_linear_forward_parts": (c.c_int, [POINTER] * 4),
    "attn_linear_destroy": (None, [POINTER]),
    "attn_linear_isa": (c.c_char_p, [POINTER]),
    "attn_mha_create": (c.c_int, [POINTER] * 3),
    "attn_mha_destroy": (None, [POINTER]),
    "attn_mha_workspace_size": (SIZE, [POINTER, INT64, INT64, INT64, POINTER]),
    "attn_mha_forward": (c.c_int, [POINTER] * 6 + [SIZE]),
    "attn_weights_open": (c.c_int, [POINTER, c.c_char_p]),
    "attn_weights_destroy": (None, [POINTER]),
    "attn_bert_load": (c.c_int, [POINTER, POINTER, POINTER, c.c_char_p]),
    "attn_bert_destroy": (None, [POINTER]),
    "attn_bert_workspace_size": (SIZE, [POINTER, INT64, INT64, c.c_int]),
    "attn_bert_forward": (c.c_int, [POINTER, INT64, POINTER, POINTER, POINTER, POINTER, c.c_int, POINTER, SIZE]),
    "attn_mean_pool": (c.c_int, [POINTER, INT64, POINTER, c.c_int, POINTER]),
}


class Handle:
    """An object of the library, destroyed when nothing refers to it any more."""

    def __init__(self, pointer, destroy):
        self.pointer, self._destroy = pointer, destroy

    def __del__(self):
        self._destroy(self.pointer)


def vector(array):
    """A bias as a tensor, or one without data."""
    return Tensor() if array is None else tensor_of(array.reshape(1, 1, 1, -1), F32)


def dtype_of(array):
    """bf16 is kept as its bits."""
    return BF16 if array.dtype == np.uint16 else F32


def matrix(array):
    return tensor_of(array[None, None], dtype_of(array))


def activations(array):
    """batch x token x channel as batch, 1, token, channel."""
    return tensor_of(array[:, None], dtype_of(array))


def heads_of(array, heads):
    """batch x token x (head channel) as the core's batch, head, token, channel."""
    b, t, width = array.shape
    return tensor_of(array.reshape(b, t, heads, width // heads).transpose(0, 2, 1, 3), dtype_of(array))


def unwritten(*shape, precision="f32"):
    """An output whose pages exist; if it is never written it is NaN."""
    return np.full(shape, 0xFFFF, np.uint16) if precision == "bf16" else np.full(shape, np.nan, np.float32)


def format_of(precision, group):
    weights, multiply = FORMATS[precision]
    return LinearFormat(weights=weights, multiply=multiply, group=group)


class AttnLayers(Contender):
    def __init__(self, threads):
        super().__init__(threads)
        # The core checks that attn_params lies as Params says.
        self.core = Attn(threads)
        self.lib = c.CDLL(os.environ["PEERS_LIBATTN_NN"])
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(self.lib, name, None)
            if function is not None:
                function.restype, function.argtypes = result, arguments
        self.berts = {}

    def version(self):
        return self.core.version()

    def _function(self, name):
        if not hasattr(self.lib, name):
            raise Unsupported(f"this libattn_nn has no {name}()")
        return getattr(self.lib, name)

    def _check(self, status):
        if status == ATTN_OK:
            return
        text = self.core.lib.attn_last_error().decode()
        raise Unsupported(text) if status == ATTN_UNSUPPORTED else RuntimeError(text)

    def _make(self, create, destroy, *arguments):
        handle = POINTER()
        self._check(self._function(create)(c.byref(handle), *arguments))
        return Handle(handle, self._function(destroy))

    def ways(self, case, arrays):
        if case.suite == "embed":
            return [self._embed(case, arrays, *way) for way in WAYS[case.dtype]]
        ways = [self._mha(case, arrays, *way) for way in WAYS[case.dtype]]
        if case.dtype == "int8":
            with contextlib.suppress(Unsupported):  # of a processor without int8 dot products
                ways.append(self._mha(case, arrays, *WAYS["int8"][-1], *INT8_SCORES))
        return ways

    # ---------------------------------------------------------------- mha --

    def _mha(self, case, arrays, group, between, name, scores=0, of_scores=""):
        weights = MhaWeights()
        for part in layer.PARTS:
            setattr(weights, f"w_{part}", matrix(arrays[f"w_{part}"]))
            setattr(weights, f"b_{part}", vector(layer.bias(arrays, part)))
        form = format_of(case.dtype, group)
        config = MhaConfig(
            d_model=case.d_model, heads=case.heads, kv_heads=case.kv_heads, format=c.addressof(form)
        )
        mha = self._make("attn_mha_create", "attn_mha_destroy", c.byref(config), c.byref(weights))
        out = unwritten(case.batch, case.t, case.d_model, precision=case.dtype)
        x_view, out_view = activations(arrays["x"]), activations(out)
        options = {"inputs": int(case.dtype == "int8" and between == BF16), "qk": scores}
        params = Params(num_threads=self.threads, **options)
        if case.causal:
            params.causal = CAUSAL_TOP_LEFT
        size = self._function("attn_mha_workspace_size")(mha.pointer, case.batch, case.t, case.t, c.byref(params))
        if size == SIZE(-1).value:
            raise Unsupported(self.core.lib.attn_last_error().decode())
        workspace = np.zeros(max(size, 1), np.uint8)
        forward, keep = self._function("attn_mha_forward"), (arrays, x_view, out_view, params, workspace, mha)
        arguments = (
            mha.pointer, c.addressof(x_view), None, c.addressof(out_view), c.addressof(params),
            workspace.ctypes.data, size,
        )  # fmt: skip

        def run():
            self._check(forward(*arguments))
            return keep

        def rows(_, wanted):
            return widen(out[wanted[:, 0], wanted[:, 1]], case.dtype)

        way = Way("attn_mha_forward" + name + of_scores, run, rows, self._parts(case, arrays, form, options))
        way.detail = f"workspace {size} bytes"
        return way

    def _parts(self, case, arrays, form, options):
        """The products alone, on the same x, and the core alone, with these options, on what they have written."""
        weights = (Tensor * 3)(*(matrix(arrays[f"w_{p}"]) for p in "qkv"))
        biases = (Tensor * 3)(*(vector(layer.bias(arrays, p)) for p in "qkv"))
        inner = self._make("attn_linear_quantize", "attn_linear_destroy", c.byref(form), 3, weights, biases)
        outer = self._make(
            "attn_linear_quantize",
            "attn_linear_destroy",
            c.byref(form),
            1,
            c.byref(matrix(arrays["w_o"])),
            c.byref(vector(layer.bias(arrays, "o"))),
        )
        # Side by side in one row of each token, as a layer keeps them.
        qkv = unwritten(case.batch, case.t, sum(case.widths[p] for p in "qkv"), precision=case.dtype)
        ends = np.cumsum([case.widths[p] for p in "qkv"])
        q, k, v = np.split(qkv, ends[:2], axis=2)
        attended, out = (unwritten(case.batch, case.t, case.d_model, precision=case.dtype) for _ in range(2))
        views = [activations(a) for a in (arrays["x"], q, k, v, attended, out)]
        pointers = [c.addressof(view) for view in views]
        outs = (POINTER * 3)(*pointers[1:4])
        products = LinearOptions(num_threads=self.threads)
        split = [heads_of(q, case.heads), heads_of(k, case.kv_heads), heads_of(v, case.kv_heads)]
        split.append(heads_of(attended, case.heads))
        plan_way = self.core.plan(split, causal=case.causal, **options)
        project, multiply = self._function("attn_linear_forward_parts"), self._function("attn_linear_forward")
        keep = (arrays, qkv, attended, out, views, weights, biases, split)

        def projections():
            self._check(project(inner.pointer, pointers[0], outs, c.addressof(products)))
            self._check(multiply(outer.pointer, pointers[4], pointers[5], c.addressof(products)))
            return keep

        self._check(project(inner.pointer, pointers[0], outs, c.addressof(products)))
        plan_way()
        return {"projections": projections, "attention": plan_way}

    # -------------------------------------------------------------- embed --

    def _load_bert(self, precision, group, between):
        sizes, form = embedding.config(), format_of(precision, group)
        config = BertConfig(
            format=c.addressof(form),
            activations=between,
            layers=sizes["num_hidden_layers"],
            d_model=sizes["hidden_size"],
            heads=sizes["num_attention_heads"],
            d_ff=sizes["intermediate_size"],
            vocabulary=sizes["vocab_size"],
            positions=sizes["max_position_embeddings"],
            activation=ACTIVATION[sizes["hidden_act"]],
            eps=sizes["layer_norm_eps"],
        )
        path = os.fsencode(embedding.model_folder() / "model.safetensors")
        weights = self._make("attn_weights_open", "attn_weights_destroy", path)
        return self._make("attn_bert_load", "attn_bert_destroy", c.byref(config), weights.pointer, b"")

    def _embed(self, case, arrays, group, between, name):
        key = case.dtype, group, between
        if key not in self.berts:
            self.berts[key] = self._load_bert(*key)
        bert, width = self.berts[key], embedding.config()["hidden_size"]
        forward, pool = self._function("attn_bert_forward"), self._function("attn_mean_pool")
        workspace_size = self._function("attn_bert_workspace_size")
        ids, offsets = arrays["ids"], arrays["offsets"]
        out = unwritten(1, len(offsets) - 1, width)
        batches, most_tokens, most_bytes = [], 0, 1
        for first, last in embedding.batches(case, arrays):
            own = np.ascontiguousarray(offsets[first : last + 1] - offsets[first])
            tokens = int(own[-1])
            most_tokens = max(most_tokens, tokens)
            most_bytes = max(most_bytes, workspace_size(bert.pointer, last - first, tokens, self.threads))
            batches.append((last - first, own, tokens, int(offsets[first]), activations(out[:, first:last])))
        # One buffer for all batches, as a service would have.
        hidden, workspace = unwritten(1, most_tokens, width), np.zeros(most_bytes, np.uint8)
        views = [activations(hidden[:, :tokens]) for _, _, tokens, _, _ in batches]
        calls = [
            (
                (
                    bert.pointer, count, own.ctypes.data, ids.ctypes.data + 4 * start, c.addressof(view), None,
                    self.threads, workspace.ctypes.data, most_bytes,
                ),
                (c.addressof(view), count, own.ctypes.data, 1, c.addressof(target)),
            )
            for (count, own, _, start, target), view in zip(batches, views, strict=True)
        ]  # fmt: skip
        keep = (ids, batches, views, hidden, workspace, bert)

        def run():
            for encode, reduce in calls:
                self._check(forward(*encode))
                self._check(pool(*reduce))
            return keep

        way = Way("attn_bert_forward, ragged" + name, run, lambda _, wanted: out[0])
        way.detail = f"workspace {most_bytes} bytes"
        return way


CONTENDERS = {"attn": AttnLayers}
