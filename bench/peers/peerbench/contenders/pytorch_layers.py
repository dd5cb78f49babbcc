# SPDX-License-Identifier: Apache-2.0
"""
PyTorch's multi-head attention and BERT, each in the ways in which people run
them, of which the fastest is kept.

    mha     nn.MultiheadAttention on its fast path, which is asserted to run; the same written with
            F.linear and scaled_dot_product_attention, with one product for q, k, v or three. Grouped
            heads have no module, so that only these are left.
    embed   transformers' BertModel with scaled_dot_product_attention; the same computation written with
            functions, without what the modules cost in Python. Batches are padded, mean pooling and
            normalisation follow, as in sentence-transformers.

In bf16 each of these is run with all tensors in bf16, and in f32 under autocast. In int8 the linear layers are
quantised dynamically (torch.ao.quantization), weights with a scale for each output: as modules, whose activations have 7
bits, and by the operator below them with 8.
"""

import os
import warnings

import numpy as np

from .. import embedding, layer
from ..tensors import widen
from .base import Contender, Way
from .pytorch import enter_for_ever, load_torch


class PytorchLayers(Contender):
    def __init__(self, threads):
        super().__init__(threads)
        os.environ["HF_HUB_OFFLINE"] = "1"
        self.torch = load_torch(threads)
        from torch.nn.attention import SDPBackend, sdpa_kernel

        # Here the layer is compared, so PyTorch may choose how its attention is computed.
        enter_for_ever(sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]))
        self.models = {}

    def version(self):
        return self.torch.__version__

    def ways(self, case, arrays):
        return self._mha(case, arrays) if case.suite == "mha" else self._embed(case, arrays)

    # ---------------------------------------------------------------- mha --

    def _mha(self, case, arrays):
        torch = self.torch
        wide = {name: widen(a, case.dtype if a.dtype == np.uint16 else "f32") for name, a in arrays.items()}
        tensors = {name: torch.from_numpy(a) for name, a in wide.items()}

        def rows(output, wanted):
            b, i = wanted.T.tolist()
            return output[b, i].float().numpy()

        if case.dtype == "int8":
            kinds = {"dynamic int8 linear": False, "dynamic int8 of 8 bits": True}
            return [
                Way(f"{kind}, sdpa; {count}", self._quantised(case, tensors, products, packed), rows)
                for kind, packed in kinds.items()
                for count, products in (("three products", 3), ("one product", 1))
            ]
        forms = [("", tensors, lambda run: run)]
        if case.dtype == "bf16":
            narrow = {name: tensor.bfloat16() for name, tensor in tensors.items()}
            forms = [("bf16: ", narrow, lambda run: run), ("autocast: ", tensors, self._autocast)]
        ways = []
        for label, these, wrap in forms:
            ways += [
                Way(f"{label}linear, sdpa; three products", wrap(self._separate(case, these)), rows),
                Way(f"{label}linear, sdpa; one product", wrap(self._fused(case, these)), rows),
            ]
        # Its causal form wants a T x T mask, and takes no fast path without one; autocast switches the fast path off.
        if case.group == 1 and not case.causal:
            ways.append(Way(f"{forms[0][0]}nn.MultiheadAttention, fast path", self._module(case, forms[0][1]), rows))
        return ways

    def _autocast(self, run):
        def cast():
            with self.torch.autocast("cpu", self.torch.bfloat16):
                return run()

        return cast

    def _quantise(self, module):
        """Linear layers in int8, as PyTorch's users get them: weights before, activations in each call."""
        quantization = self.torch.ao.quantization
        spec = {self.torch.nn.Linear: quantization.per_channel_dynamic_qconfig}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return quantization.quantize_dynamic(module, spec)

    def _quantised(self, case, tensors, products, packed):
        """With modules, or as _packed_linear() has it."""
        torch = self.torch
        names = ("q", "k", "v") if products == 3 else ("qkv",)
        weights = {part: (tensors[f"w_{part}"], layer.bias(tensors, part)) for part in layer.PARTS}
        joined = [torch.cat([weights[p][0] for p in "qkv"])]
        joined.append(torch.cat([weights[p][1] for p in "qkv"]) if case.bias else None)
        weights["qkv"] = joined
        if packed:
            products_of = {name: self._packed_linear(*weights[name]) for name in (*names, "o")}
        else:
            products_of = self._quantise(
                torch.nn.ModuleDict({name: self._linear_module(*weights[name]) for name in (*names, "o")}).eval()
            )
        heads = [case.heads, case.kv_heads, case.kv_heads]
        project = {name: products_of[name] for name in (*names, "o")}

        def run():
            rows = [project[n](tensors["x"]).view(case.batch, case.t, -1, case.head_dim) for n in names]
            q, k, v = rows if products == 3 else rows[0].split(heads, dim=2)
            return project["o"](self._attend(case, q, k, v))

        return run

    def _linear_module(self, weight, bias):
        module = self.torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
        module.weight.copy_(weight)
        if bias is not None:
            module.bias.copy_(bias)
        return module

    def _module(self, case, tensors):
        torch = self.torch
        module = torch.nn.MultiheadAttention(case.d_model, case.heads, bias=case.bias, batch_first=True).eval()
        module = module.to(tensors["x"].dtype)
        module.in_proj_weight.copy_(torch.cat([tensors[f"w_{p}"] for p in "qkv"]))
        module.out_proj.weight.copy_(tensors["w_o"])
        if case.bias:
            module.in_proj_bias.copy_(torch.cat([tensors[f"b_{p}"] for p in "qkv"]))
            module.out_proj.bias.copy_(tensors["b_o"])
        x, native, calls = tensors["x"], torch._native_multi_head_attention, []

        def run():
            return module(x, x, x, need_weights=False)[0]

        def watched(*arguments, **options):
            calls.append(1)
            return native(*arguments, **options)

        torch._native_multi_head_attention = watched
        try:
            run()
        finally:
            torch._native_multi_head_attention = native
        if not calls:
            raise RuntimeError("nn.MultiheadAttention did not take its fast path")
        return run

    def _attend(self, case, q, k, v):
        """Attention of (batch, token, head, channel) and the last product's input."""
        options = {"is_causal": case.causal, "enable_gqa": case.group > 1}
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        out = self.torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
        return out.transpose(1, 2).reshape(case.batch, case.t, case.d_model)

    def _separate(self, case, tensors):
        linear = self.torch.nn.functional.linear
        weights = {p: (tensors[f"w_{p}"], layer.bias(tensors, p)) for p in layer.PARTS}

        def run():
            q, k, v = (
                linear(tensors["x"], *weights[p]).view(case.batch, case.t, -1, case.head_dim) for p in "qkv"
            )
            return linear(self._attend(case, q, k, v), *weights["o"])

        return run

    def _fused(self, case, tensors):
        torch = self.torch
        linear = torch.nn.functional.linear
        weight = torch.cat([tensors[f"w_{p}"] for p in "qkv"])
        bias = torch.cat([tensors[f"b_{p}"] for p in "qkv"]) if case.bias else None
        heads = [case.heads, case.kv_heads, case.kv_heads]

        def run():
            qkv = linear(tensors["x"], weight, bias).view(case.batch, case.t, -1, case.head_dim)
            return linear(self._attend(case, *qkv.split(heads, dim=2)), tensors["w_o"], layer.bias(tensors, "o"))

        return run

    # -------------------------------------------------------------- embed --

    def _embed(self, case, arrays):
        torch = self.torch
        if case.dtype not in self.models:
            self.models[case.dtype] = self._encoders(case.dtype)
        batches = []
        for first, last in embedding.batches(case, arrays):
            ids, mask = (torch.from_numpy(a) for a in embedding.padded(arrays, first, last))
            batches.append((ids, mask, bool((mask == 0).any())))

        def pool(states, mask, is_padded):
            states = states.float()
            if is_padded:
                wide = mask.unsqueeze(-1).float()
                mean = (states * wide).sum(1) / wide.sum(1)
            else:
                mean = states.mean(1)
            return torch.nn.functional.normalize(mean, dim=1)

        def way(label, model):
            def run():
                return [pool(model(ids, mask if some else None), mask, some) for ids, mask, some in batches]

            return Way(label, run, lambda out, _: torch.cat(out).numpy())

        return [way(label, model) for label, model in self.models[case.dtype].items()]

    def _encoders(self, precision):
        """{label: function of ids and mask} of a precision."""
        torch = self.torch
        if precision == "int8":
            return {
                "dynamic int8, BertModel, sdpa": self._transformers(change=self._quantise),
                "dynamic int8 of 8 bits, functions, sdpa": self._functions(linear=self._packed_linear),
            }
        if precision == "f32":
            return {"BertModel, sdpa": self._transformers(), "functions, sdpa": self._functions()}

        def under_autocast(model):
            def run(ids, mask):
                with torch.autocast("cpu", torch.bfloat16):
                    return model(ids, mask)

            return run

        return {
            "bf16, BertModel, sdpa": self._transformers(change=lambda model: model.bfloat16()),
            "bf16, functions, sdpa": self._functions(torch.bfloat16),
            "autocast, BertModel, sdpa": under_autocast(self._transformers()),
            "autocast, functions, sdpa": under_autocast(self._functions()),
        }

    def _transformers(self, change=lambda model: model):
        from transformers import BertModel

        model = BertModel.from_pretrained(
            embedding.model_folder(), attn_implementation="sdpa", add_pooling_layer=False
        ).eval()
        model = change(model)

        def run(ids, mask):
            return model(input_ids=ids, attention_mask=mask).last_hidden_state

        return run

    def _packed_linear(self, weight, bias):
        """
        A product in int8 without a module, weights with a scale for each output. The modules give activations 7
        bits, for processors whose sums of two products may overflow 16 bits; with VNNI none does.
        """
        torch = self.torch
        observer = torch.ao.quantization.default_per_channel_weight_observer()
        observer(weight)
        scales, zeros = observer.calculate_qparams()
        integers = torch.quantize_per_channel(weight, scales, zeros, observer.ch_axis, torch.qint8)
        packed = torch.ops.quantized.linear_prepack(integers, bias)
        return lambda x: torch.ops.quantized.linear_dynamic(x, packed, reduce_range=False)

    def _plain_linear(self, weight, bias):
        linear = self.torch.nn.functional.linear
        return lambda x: linear(x, weight, bias)

    def _functions(self, dtype=None, linear=None):
        from safetensors.torch import load_file

        torch, sizes = self.torch, embedding.config()
        w, f = load_file(embedding.model_folder() / "model.safetensors"), torch.nn.functional
        w = {name: x.to(dtype) if dtype and x.is_floating_point() else x for name, x in w.items()}
        width, heads, eps = sizes["hidden_size"], sizes["num_attention_heads"], sizes["layer_norm_eps"]
        types = w["embeddings.token_type_embeddings.weight"][0]
        positions = w["embeddings.position_embeddings.weight"] + types
        names = [f"encoder.layer.{i}" for i in range(sizes["num_hidden_layers"])]
        layers = [self._bert_layer(w, name, linear or self._plain_linear) for name in names]

        def norm(x, parameters):
            return f.layer_norm(x, (width,), *parameters, eps)

        first_norm = [w[f"embeddings.LayerNorm.{kind}"] for kind in ("weight", "bias")]

        def run(ids, mask):
            batch, tokens = ids.shape
            live = None if mask is None else mask[:, None, None, :].bool()
            x = norm(f.embedding(ids, w["embeddings.word_embeddings.weight"]) + positions[:tokens], first_norm)
            for qkv, out, norm_1, up, down, norm_2 in layers:
                q, k, v = qkv(x).view(batch, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4)
                y = f.scaled_dot_product_attention(q, k, v, attn_mask=live)
                x = norm(x + out(y.transpose(1, 2).reshape(batch, tokens, width)), norm_1)
                x = norm(x + down(f.gelu(up(x))), norm_2)
            return x

        return run

    def _bert_layer(self, w, name, linear):
        """A layer's products, queries, keys and values in one, as functions, and its norms as (weight, bias)."""

        def pair(part):
            return [w[f"{name}.{part}.{kind}"] for kind in ("weight", "bias")]

        inner = [pair(f"attention.self.{part}") for part in ("query", "key", "value")]
        qkv = [self.torch.cat(parts) for parts in zip(*inner, strict=True)]
        out, norm_1 = linear(*pair("attention.output.dense")), pair("attention.output.LayerNorm")
        up, down = linear(*pair("intermediate.dense")), linear(*pair("output.dense"))
        return linear(*qkv), out, norm_1, up, down, pair("output.LayerNorm")


CONTENDERS = {"torch": PytorchLayers, "torch-mkl": PytorchLayers}
