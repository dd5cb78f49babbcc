# SPDX-License-Identifier: Apache-2.0
"""Attention on CPUs: exact, fast, without the T×T matrix.

    import libattn

    out = libattn.attention(q, k, v, causal=True)                # (batch, heads, tokens, channels)
    out, lse, *_ = libattn.attention(q, k, v, lengths=[90, 100], window=(64, 0), return_lse=True)

Arrays are those of NumPy, PyTorch (on the CPU), JAX, or anything with `__dlpack__`, in float32, bfloat16 and float16.
They may have any strides, but channels side by side, and are not copied. Results are of the library and the type of q.
The interpreter's lock is released while libattn computes.

libattn.torch, libattn.transformers and libattn.onnx put it where those libraries have theirs.
"""
from ._core import CacheFull, active_set, instruction_sets, num_threads, runtime, set_num_threads, version
from .attention import Gradients, Result, attention, attention_backward, describe, dropout_keeps, merge
from .cache import Cache, Usage, store
from .heatmap import heatmap
from .linear import LinearGradients, draw_features, linear_attention, linear_attention_backward
from .options import BlockMask, Disentangled, Dropout, Quantised, RelativeBias, Rope, Tree, Window
from .patterns import alibi_slopes, bigbird, longformer, strided
from .quantise import quantise
from .rope import rope, rope_table

__version__ = version()

__all__ = [
    "BlockMask", "Cache", "CacheFull", "Disentangled", "Dropout", "Gradients", "LinearGradients", "Quantised",
    "RelativeBias", "Result", "Rope", "Tree", "Usage", "Window", "active_set", "alibi_slopes", "attention",
    "attention_backward", "bigbird", "describe", "draw_features", "dropout_keeps", "heatmap", "instruction_sets",
    "linear_attention", "linear_attention_backward", "longformer", "merge", "num_threads", "quantise", "rope",
    "rope_table", "runtime", "set_num_threads", "store", "strided", "version"]
