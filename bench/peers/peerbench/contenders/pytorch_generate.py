# SPDX-License-Identifier: Apache-2.0
"""
Transformers' LlamaForCausalLM on PyTorch, with its growing cache and with
scaled_dot_product_attention. A cache that is allocated in advance is a second way.
In int8 the linear layers are quantised dynamically (torch.ao.quantization), as in the
suites of layers; what lies between them is f32.
"""

import os
import warnings

from .. import generate
from .base import Contender, Way
from .pytorch import load_torch


class PytorchGenerate(Contender):
    def __init__(self, threads):
        super().__init__(threads)
        os.environ["HF_HUB_OFFLINE"] = "1"
        self.torch = load_torch(threads)
        import transformers

        transformers.utils.logging.disable_progress_bar()
        self.transformers = transformers
        self.models = {}

    def version(self):
        return f"{self.torch.__version__}, Transformers {self.transformers.__version__}"

    def _model(self, precision):
        if precision not in self.models:
            torch = self.torch
            kind = torch.bfloat16 if precision == "bf16" else torch.float32
            model = self.transformers.LlamaForCausalLM.from_pretrained(
                generate.folder(), dtype=kind, attn_implementation="sdpa"
            ).eval()
            if precision == "int8":
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, torch.qint8)
            # One model at a time: other precisions have had their cases.
            self.models = {precision: model}
        return self.models[precision]

    def ways(self, case, arrays):
        model, length = self._model(case.dtype), case.prompt + generate.NEW
        caches = {
            "DynamicCache": lambda: self.transformers.DynamicCache(config=model.config),
            "StaticCache": lambda: self.transformers.StaticCache(config=model.config, max_cache_len=length),
        }
        kind = {"int8": "dynamic int8 linear"}.get(case.dtype, case.dtype)
        return [self._way(f"{kind}, {name}", model, case, arrays, make) for name, make in caches.items()]

    def _way(self, label, model, case, arrays, make):
        torch = self.torch
        ids = torch.from_numpy(arrays["ids"]).long()
        prompt, steps = ids[:, : case.prompt], ids[:, case.prompt : case.prompt + case.new].split(1, dim=1)
        places = torch.arange(case.prompt + generate.NEW)[None]

        def read(cache):
            return model(
                prompt, past_key_values=cache, position_ids=places[:, : case.prompt], use_cache=True, logits_to_keep=1
            ).logits

        state = {"cache": make()}
        if case.new:
            read(state["cache"])

        def write():
            cache = state["cache"]
            self._shorten(cache, case.prompt)
            for n, step in enumerate(steps, case.prompt):
                logits = model(
                    step, past_key_values=cache, position_ids=places[:, n : n + 1], use_cache=True, logits_to_keep=1
                ).logits
                logits.argmax(dim=-1)
            return logits

        def run():
            return write() if case.new else read(make())

        return Way(label, run, lambda logits, rows: logits[rows.tolist(), -1].float().numpy())

    def _shorten(self, cache, length):
        """Forgets what came behind the prompt; a cache that is allocated in advance is written over."""
        if isinstance(cache, self.transformers.StaticCache):
            for layer in cache.layers:
                layer.cumulative_length.fill_(length)
        else:
            # Less than nothing is so many fewer.
            cache.crop(length - cache.get_seq_length())


CONTENDERS = {"torch": PytorchGenerate, "torch-mkl": PytorchGenerate}
