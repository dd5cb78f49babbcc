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
    requirements.txt, `native` what build_native.py makes; `preload` names one of
    its files that is put before all other libraries. `module` has this contender
    for bare attention, `decode` for decoding, `backward` for gradients, `linear` for linear layers,
    `linear_attention` for attention with a state, `layers` for layers of attention and encoders, `generate` for
    language models, `transformers` for models in Transformers; "" without one. `tolerance` is by suite and type where a library is rougher than the type is:
    everybody else is held to the suite's own.
    """

    name: str
    title: str
    module: str
    decode: str = ""
    layers: str = ""
    generate: str = ""
    backward: str = ""
    linear: str = ""
    linear_attention: str = ""
    transformers: str = ""
    own: bool = False
    groups: tuple = ()
    native: tuple = ()
    preload: str = ""
    environment: dict = field(default_factory=dict)
    tolerance: dict = field(default_factory=dict)


# PyTorch's flash kernel for gradients rounds more often in bf16 than others do: its largest errors were 0.025 to 0.041.
ROUGH_GRADIENTS = {("backward", "bf16"): 0.06}

ROWS = (
    Row(
        "attn",
        "libattn",
        "attn",
        "attn_decode",
        "attn_nn",
        "attn_generate",
        "attn_backward",
        "attn_linear",
        "attn_linear_attention",
        own=True,
        native=("libattn",),
    ),
    Row(
        "torch",
        "PyTorch",
        "pytorch",
        "pytorch_decode",
        "pytorch_layers",
        "pytorch_generate",
        "pytorch_backward",
        "pytorch_linear",
        "pytorch_linear_attention",
        groups=("torch",),
        tolerance=ROUGH_GRADIENTS,
    ),
    Row(
        "torch-mkl",
        "PyTorch, MKL's Intel path",
        "pytorch",
        "pytorch_decode",
        "pytorch_layers",
        "pytorch_generate",
        "pytorch_backward",
        "pytorch_linear",
        "pytorch_linear_attention",
        groups=("torch",),
        native=("mkl_intel",),
        preload="mkl_intel",
        tolerance=ROUGH_GRADIENTS,
    ),
    Row(
        "zentorch",
        "zentorch",
        "zen",
        "pytorch_decode",
        groups=("torch", "zentorch"),
        native=("mkl_intel",),
        preload="mkl_intel",
    ),
    # In 4 bits ONNX Runtime has one scale for a channel of all tokens: 0.63 to 0.86. Of 131072 keys it is off by 0.93,
    # which is no result.
    Row(
        "onnxruntime",
        "ONNX Runtime",
        "onnx_runtime",
        "onnx_decode",
        "onnx_layers",
        linear="onnx_linear",
        linear_attention="onnx_linear_attention",
        groups=("onnxruntime",),
        tolerance={("decode", "int4"): 0.9},
    ),
    Row(
        "openvino",
        "OpenVINO",
        "openvino_sdpa",
        "openvino_decode",
        "openvino_layers",
        linear="openvino_linear",
        groups=("openvino",),
    ),
    Row("jax", "JAX", "jax_nn", backward="jax_backward", groups=("jax",), environment={"JAX_PLATFORMS": "cpu"}),
    # ggml adds the values of a single query up in f16: some 4096 of them are off by up to 0.041. It is what its users have, and
    # the peer to be compared with. The sum of 131072 is off by 0.2, which is no result.
    Row(
        "ggml",
        "ggml",
        "ggml",
        "ggml_decode",
        linear_attention="ggml_linear_attention",
        native=("ggml",),
        tolerance={("decode", "f16"): 0.05},
    ),
    # vLLM rounds to fp8 towards zero, which is twice as far: its largest errors were 0.32 to 0.39.
    Row(
        "vllm",
        "vLLM's kernel for CPUs",
        "",
        "vllm_decode",
        groups=("torch",),
        native=("vllm",),
        tolerance={("decode", "e4m3"): 0.5},
    ),
    # llama.cpp approximates some functions: its logits in f32 are off by 1e-3 of their deviation.
    Row(
        "llama.cpp",
        "llama.cpp",
        "",
        generate="llama_generate",
        groups=("llama",),
        tolerance={("generate", "f32"): 5e-3},
    ),
    Row("naive", "OpenBLAS, unfused", "naive", native=("libattn", "naive")),
    Row(
        "fla",
        "flash-linear-attention's functions in PyTorch",
        "",
        linear_attention="fla_linear_attention",
        groups=("torch", "fla"),
        native=("mkl_intel",),
        preload="mkl_intel",
    ),
    # Each in a process of its own: libattn.so has other threads than PyTorch's, and for bare attention PyTorch is confined to
    # its flash kernel.
    Row(
        "attn-python",
        "libattn in Transformers",
        "",
        transformers="transformers_models",
        own=True,
        groups=("torch",),
        native=("libattn",),
    ),
    Row(
        "torch-sdpa",
        "PyTorch's attention in Transformers",
        "",
        transformers="transformers_models",
        groups=("torch",),
    ),
    Row(
        "torch-eager",
        "Transformers' attention in PyTorch's operators",
        "",
        transformers="transformers_models",
        groups=("torch",),
    ),
)

NAMES = tuple(row.name for row in ROWS)

# What a suite needs besides: for everyone ("") or for one contender, groups of requirements.txt and builds.
SUITE_GROUPS = {
    "embed": {
        "": ("embed",),
        "torch": ("transformers",),
        "torch-mkl": ("transformers",),
        "onnxruntime": ("torch", "transformers"),
        "openvino": ("torch", "transformers", "onnxruntime"),
    },
    "generate": {"": ("embed", "gguf"), "torch": ("transformers",), "torch-mkl": ("transformers",)},
    "transformers": {"": ("embed", "gguf", "transformers")},
}

# What is taken if it can be had: without it a contender does what it can, and says what it cannot.
OPTIONAL_GROUPS = {"openvino": ("nncf",)}
SUITE_NATIVE = {
    "linear": {"attn": ("libattn_nn",)},
    "mha": {"attn": ("libattn_nn",)},
    "embed": {
        "": ("minilm", "sentences"),
        "attn": ("libattn_nn",),
        "onnxruntime": ("minilm_onnx",),
        "openvino": ("minilm_onnx",),
    },
    "generate": {"": ("smollm", "sentences", "smollm_files"), "attn": ("libattn_nn",)},
    "transformers": {"": ("minilm", "smollm", "sentences", "smollm_files"), "attn-python": ("libattn_python",)},
}


def row(name):
    return ROWS[NAMES.index(name)]


def module(name, suite):
    """The file in contenders/ with this contender for a suite; "" if it takes no part."""
    r = row(name)
    own = {
        "attention": r.module,
        "decode": r.decode,
        "backward": r.backward,
        "linear": r.linear,
        "linear-attention": r.linear_attention,
        "generate": r.generate,
        "transformers": r.transformers,
    }
    return own.get(suite, r.layers)


def takes_part(name, suite):
    return bool(module(name, suite))


def tolerance(name, suite, dtype):
    """What a contender may differ by from the reference where that is not the suite's own; None: the suite's."""
    return row(name).tolerance.get((suite, dtype))


def home(name):
    """The suite whose module knows a contender's version: that of bare attention, where it takes part in it."""
    suites = ("attention", "decode", "generate", "linear-attention", "transformers")
    return next(suite for suite in suites if module(name, suite))


def extras(table, name, suite):
    """What SUITE_GROUPS or SUITE_NATIVE say that a contender needs for a suite."""
    needs = table.get(suite, {})
    return needs.get("", ()) + needs.get(name, ())


def make(name, threads, suite="attention"):
    """The contender itself; imports its library."""
    file = importlib.import_module(f".contenders.{module(name, suite)}", __package__)
    return file.CONTENDERS[name](threads)
