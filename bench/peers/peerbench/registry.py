# SPDX-License-Identifier: Apache-2.0
"""
Who takes part: one row for each contender, with what it has to have installed
or built and the environment of its process. Nothing is imported before a
worker asks for its contender, so this table needs no peer.
"""

import importlib
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """
    `own` marks libattn, everyone else is a peer. `groups` are headings of
    requirements.txt, `native` what build_native.py makes; `libraries` maps
    variables of the environment to files that it made, `preload` names one
    that is put before all other libraries.
    """

    name: str
    title: str
    module: str
    own: bool = False
    groups: tuple = ()
    native: tuple = ()
    preload: str = ""
    environment: dict = field(default_factory=dict)


ROWS = (
    Row("attn", "libattn", "attn", own=True, native=("libattn",)),
    Row("attn-fast", "libattn, fast exp", "attn", own=True, native=("libattn",)),
    Row("torch", "PyTorch", "pytorch", groups=("torch",)),
    Row(
        "torch-mkl",
        "PyTorch, MKL's Intel path",
        "pytorch",
        groups=("torch",),
        native=("mkl_intel",),
        preload="mkl_intel",
    ),
    Row(
        "zentorch",
        "zentorch",
        "zen",
        groups=("torch", "zentorch"),
        native=("mkl_intel",),
        preload="mkl_intel",
    ),
    Row("onnxruntime", "ONNX Runtime", "onnx_runtime", groups=("onnxruntime",)),
    Row("openvino", "OpenVINO", "openvino_sdpa", groups=("openvino",)),
    Row("jax", "JAX", "jax_nn", groups=("jax",), environment={"JAX_PLATFORMS": "cpu"}),
    Row("ggml", "ggml", "ggml", native=("ggml",)),
    Row("naive", "OpenBLAS, unfused", "naive", native=("libattn", "naive")),
)

NAMES = tuple(row.name for row in ROWS)


def row(name):
    return ROWS[NAMES.index(name)]


def make(name, threads):
    """The contender itself; imports its library."""
    module = importlib.import_module(f".contenders.{row(name).module}", __package__)
    return module.CONTENDERS[name](threads)
