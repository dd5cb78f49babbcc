# SPDX-License-Identifier: Apache-2.0
"""
flash-linear-attention's functions in plain PyTorch, which it holds its kernels against: `fla.ops.*.naive`, in chunks for
prompts and token by token for a token.

Its package cannot be imported without Triton, which has no CPU to run on; the files with these functions need PyTorch and
einops alone, and are loaded by themselves.
"""

import importlib.metadata
import importlib.util

from .. import linear_attention
from .base import Contender, Way
from .pytorch import load_torch

PACKAGE = "fla-core"


class Fla(Contender):
    def __init__(self, threads):
        super().__init__(threads)
        self.torch = load_torch(threads)
        self.files = importlib.metadata.distribution(PACKAGE)
        self.naive = {n: self._load(n) for n in ("linear_attn", "simple_gla", "delta_rule", "gated_delta_rule")}

    def _load(self, name):
        path = self.files.locate_file(f"fla/ops/{name}/naive.py")
        spec = importlib.util.spec_from_file_location(f"fla_naive_{name}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def version(self):
        return f"{PACKAGE} {self.files.version}, PyTorch {self.torch.__version__}"

    def notes(self):
        return "its functions in PyTorch, not its kernels, which have no CPU to run on"

    def layout(self, case, arrays):
        """Batch, token, head, channel; but for the delta rule without decays, which has heads before tokens."""
        if case.rule == "delta":
            return arrays
        return {n: a if n == "state" else a.swapaxes(1, 2).copy() for n, a in arrays.items()}

    def ways(self, case, arrays):
        tensors = {name: self.torch.from_numpy(array) for name, array in arrays.items()}
        calls = self._token(case, **tensors) if case.continues else self._prompt(case, **tensors)
        heads_first = case.rule == "delta"

        def rows(result, wanted):
            outputs, state = (x.numpy() for x in result)
            return linear_attention.take_rows(outputs if heads_first else outputs.swapaxes(1, 2), state, wanted)

        return [Way(label, call, rows) for label, call in calls.items()]

    def _token(self, case, q, k, v, state, decay=None, beta=None):
        plain, simple, delta, gated = self.naive.values()
        name, call = {
            "linear": (
                "naive_recurrent_linear_attn",
                lambda: plain.naive_recurrent_linear_attn(q, k, v, initial_state=state, output_final_state=True),
            ),
            "gated": (
                "naive_recurrent_simple_gla",
                lambda: simple.naive_recurrent_simple_gla(q, k, v, decay, initial_state=state),
            ),
            "delta": (
                "delta_rule_recurrence",
                lambda: delta.delta_rule_recurrence(q, k, v, beta, initial_state=state),
            ),
            "gated_delta": (
                "naive_recurrent_gated_delta_rule",
                lambda: gated.naive_recurrent_gated_delta_rule(
                    q, k, v, beta, decay, initial_state=state, output_final_state=True
                ),
            ),
        }[case.rule]
        return {name: call}

    def _prompt(self, case, q, k, v, decay=None, beta=None):
        plain, simple, delta, gated = self.naive.values()
        none = self.torch.zeros(q.shape[:3]) if case.rule == "linear" else None

        def without_state():
            # It returns outputs alone; the state is one product more.
            state = k.permute(0, 2, 3, 1) @ v.transpose(1, 2)
            return plain.naive_chunk_linear_attn(q, k, v), state

        return {
            "linear": {
                "naive_chunk_linear_attn": without_state,
                "naive_chunk_simple_gla, decays of 0": lambda: simple.naive_chunk_simple_gla(
                    q, k, v, none, output_final_state=True
                ),
            },
            "gated": {
                "naive_chunk_simple_gla": lambda: simple.naive_chunk_simple_gla(
                    q, k, v, decay, output_final_state=True
                )
            },
            "delta": {
                f"delta_rule_chunkwise, {n}": lambda n=n: delta.delta_rule_chunkwise(q, k, v, beta, chunk_size=n)
                for n in (32, 64)
            },
            "gated_delta": {
                "naive_chunk_gated_delta_rule": lambda: gated.naive_chunk_gated_delta_rule(
                    q, k, v, decay, beta, output_final_state=True
                )
            },
        }[case.rule]


CONTENDERS = {"fla": Fla}
