# SPDX-License-Identifier: Apache-2.0
"""
vLLM's attention for CPUs: its operators are taken from the libraries of its
package and called as vllm/v1/attention/backends/cpu_attn.py does, without the
rest of it. Keys and values are put into pages by its own operator. Which
library and which kernel are taken follows vllm/platforms/cpu.py and that file.
"""

import os

from .. import decode
from ..install import source_of
from .base import Contender, Way, refuse
from .pytorch import load_torch, tensors_of, torch_rows

# Tokens of a page: vLLM's default for CPUs, which its scheduler may make larger and no smaller than 32.
PAGE = 128


# What its caches are called where they do not have the type of the queries.
KINDS = {"e4m3": "fp8_e4m3"}


class Vllm(Contender):
    def __init__(self, threads):
        super().__init__(threads)
        torch = self.torch = load_torch(threads)
        cpu = torch.cpu
        if not cpu._is_avx512_supported():
            library = "_C_AVX2"
        else:
            library = "_C" if cpu._is_avx512_bf16_supported() else "_C_AVX512"
        self.library = f"{library}.abi3.so"
        torch.ops.load_library(os.path.join(os.environ["PEERS_VLLM"], self.library))
        self.ops = torch.ops._C
        # The system has to permit the use of matrix registers, which this asks for.
        self.amx = cpu._is_amx_tile_supported() and cpu._init_amx()

    def version(self):
        return f"{source_of('vllm').split('==')[1]} on PyTorch {self.torch.__version__}"

    def notes(self):
        return f"its operators alone, from {self.library}; pages of {PAGE} tokens"

    def check(self, case):
        refuse(case.quantised and case.dtype not in KINDS, "of fewer than 16 bits it has fp8 alone")

    def ways(self, case, arrays):
        torch = self.torch
        kind = KINDS.get(case.dtype, "auto")
        kernel = "amx" if self.amx and case.given == "bf16" else "vec"
        q, k, v = tensors_of(torch, case, arrays)
        table = torch.arange(case.batch * case.tk // PAGE, dtype=torch.int32).view(case.batch, -1)
        starts = torch.arange(case.batch + 1, dtype=torch.int32)
        lengths = torch.full((case.batch,), case.tk, dtype=torch.int32)
        # A call that its model runner makes once for all layers of a step.
        sizes = (case.batch, case.heads, case.kv_heads, case.d)
        plan = self.ops.get_scheduler_metadata(
            *sizes, lengths, q.dtype, starts, True, -1, kernel, True, None, kind
        )
        out = torch.full((case.layers * case.batch, case.heads, case.d), float("nan"), dtype=q.dtype)
        caches = [self._cache(case, *layer, kernel, kind) for layer in zip(*(decode.layers(case, t) for t in (k, v)))]
        queries, outputs = (decode.layers(case, t.view(out.shape)) for t in (q, out))
        layers = list(zip(queries, caches, outputs, strict=True))
        attend, scale = self.ops.cpu_attention_with_kv_cache, case.d**-0.5

        def run():
            for query, (keys, values), output in layers:
                attend(
                    query, keys, values, output, starts, lengths, scale, True, None, -1, table, 0.0, plan,
                    None, None, 1.0, 1.0, kind,
                )  # fmt: skip
            return out

        label = kernel if kind == "auto" else f"{kernel}, {kind}"
        return [Way(label, run, lambda result, wanted: torch_rows(result[:, :, None], wanted))]

    def _cache(self, case, k, v, kernel, kind):
        """Views of keys and of values in pages: each page has its keys before its values."""
        torch, tokens = self.torch, case.batch * case.tk
        held = k.dtype if kind == "auto" else torch.uint8
        pages = torch.empty(tokens // PAGE, case.kv_heads, 2 * PAGE, case.d, dtype=held)
        keys, values = pages.chunk(2, dim=2)
        rows = [x.transpose(1, 2).reshape(tokens, case.kv_heads, case.d) for x in (k, v)]
        self.ops.cpu_attn_reshape_and_cache(*rows, keys, values, torch.arange(tokens), kernel, 1.0, 1.0, kind)
        return keys, values


CONTENDERS = {"vllm": Vllm}
