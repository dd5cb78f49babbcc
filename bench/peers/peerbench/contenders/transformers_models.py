# SPDX-License-Identifier: Apache-2.0
"""
Models in Transformers with one of its kinds of attention, all else being equal: sdpa, eager, and libattn by its Python
package.
"""

import functools
import os
import sys

from .. import embedding, generate, transformer_models
from .base import Contender, Way


class TransformersModels(Contender):
    def __init__(self, threads, implementation):
        super().__init__(threads)
        os.environ["HF_HUB_OFFLINE"] = "1"
        import torch

        torch.set_num_threads(threads)
        import transformers

        transformers.utils.logging.disable_progress_bar()
        transformers.utils.logging.set_verbosity_error()
        self.torch, self.transformers, self.implementation = torch, transformers, implementation
        self.libattn = None
        if implementation == "libattn":
            sys.path.insert(0, os.environ["PEERS_LIBATTN_PYTHON"])
            import libattn.transformers

            libattn.transformers.register()
            libattn.set_num_threads(threads)
            self.libattn = libattn

    def version(self):
        own = f"{self.libattn.version()}, PyTorch " if self.libattn else ""
        return f"{own}{self.torch.__version__}, Transformers {self.transformers.__version__}"

    def ways(self, case, arrays):
        return [(self._prefill if case.task == "prefill" else self._train)(case, arrays)]

    def _prefill(self, case, arrays):
        torch = self.torch
        kind = torch.bfloat16 if case.dtype == "bf16" else torch.float32
        model = self.transformers.LlamaForCausalLM.from_pretrained(
            generate.folder(), dtype=kind, attn_implementation=self.implementation
        ).eval()
        ids = torch.from_numpy(arrays["ids"]).long()

        def run():
            with torch.inference_mode():
                return model(ids, use_cache=True, logits_to_keep=1).logits

        return Way(self.implementation, run, lambda logits, rows: logits[rows.tolist(), -1].float().numpy())

    def _train(self, case, arrays):
        torch = self.torch
        model = self.transformers.BertModel.from_pretrained(
            embedding.model_folder(), dtype=torch.float32, attn_implementation=self.implementation,
            add_pooling_layer=False,
        )  # fmt: skip
        model.train(case.dropout)
        first = {name: x.clone() for name, x in model.state_dict().items()}
        ids, mask, targets = (torch.from_numpy(arrays[name]) for name in ("ids", "mask", "targets"))
        optimizer = torch.optim.AdamW(model.parameters(), lr=transformer_models.LEARNING_RATE, fused=True)

        def loss_of(count):
            states = model(input_ids=ids[:count], attention_mask=mask[:count]).last_hidden_state
            own = mask[:count, :, None].to(states.dtype)
            means = torch.nn.functional.normalize((states * own).sum(1) / own.sum(1), dim=1)
            return 1 - (means * targets[:count]).sum(1).mean()

        def run():
            optimizer.zero_grad(set_to_none=True)
            loss_of(case.batch).backward()
            optimizer.step()

        def rows(_, _rows):
            """From the weights that the model began with, without dropout."""
            model.load_state_dict(first)
            model.eval()
            model.zero_grad(set_to_none=True)
            loss = loss_of(transformer_models.CHECKED)
            loss.backward()
            values, gradients = [float(loss)], {name: p.grad for name, p in model.named_parameters()}
            for name in transformer_models.MATRICES:
                gradient = gradients[name].double().numpy()
                values += [(gradient * d).sum() for d in transformer_models.directions(name, gradient.shape)]
            model.zero_grad(set_to_none=True)
            model.train(case.dropout)
            return [values]

        return Way(self.implementation, run, rows)


CONTENDERS = {
    "torch-sdpa": functools.partial(TransformersModels, implementation="sdpa"),
    "torch-eager": functools.partial(TransformersModels, implementation="eager"),
    "attn-python": functools.partial(TransformersModels, implementation="libattn"),
}
