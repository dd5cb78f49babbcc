# SPDX-License-Identifier: Apache-2.0
"""
libattn_nn's decoder, through its C interface: a session that holds the keys and
values of all sequences, to which the prompt and then a token a step are added.
"""

import ctypes as c
import os

import numpy as np

from .. import generate
from .attn_nn import F32, INT64, POINTER, WAYS, AttnLayers, format_of, unwritten
from .attn import tensor_of
from .base import Way

from attn_structs import LlamaConfig, RopeConfig  # isort: skip  pylint: disable=wrong-import-order

SIGNATURES = {
    "attn_weights_open": (c.c_int, [POINTER, c.c_char_p]),
    "attn_weights_destroy": (None, [POINTER]),
    "attn_llama_load": (c.c_int, [POINTER] * 3),
    "attn_llama_destroy": (None, [POINTER]),
    "attn_llama_session_create": (c.c_int, [POINTER, POINTER, INT64, INT64]),
    "attn_llama_session_destroy": (None, [POINTER]),
    "attn_llama_session_truncate": (c.c_int, [POINTER, INT64]),
    "attn_llama_forward": (c.c_int, [POINTER, INT64, POINTER, POINTER, c.c_int]),
}


class AttnGenerate(AttnLayers):
    def __init__(self, threads):
        super().__init__(threads)
        for name, (result, arguments) in SIGNATURES.items():
            function = self._function(name)
            function.restype, function.argtypes = result, arguments
        self.models = {}

    def ways(self, case, arrays):
        return [self._session(case, arrays, *way) for way in WAYS[case.dtype]]

    def _model(self, precision, group, between):
        key = precision, group, between
        if key not in self.models:
            sizes = generate.config()
            rope, form = RopeConfig(base=sizes["rope_theta"]), format_of(precision, group)
            config = LlamaConfig(
                layers=sizes["num_hidden_layers"],
                d_model=sizes["hidden_size"],
                heads=sizes["num_attention_heads"],
                kv_heads=sizes["num_key_value_heads"],
                d_ff=sizes["intermediate_size"],
                vocabulary=sizes["vocab_size"],
                eps=sizes["rms_norm_eps"],
                rope=c.addressof(rope),
                tied=1,
                format=c.addressof(form),
                activations=between,
            )
            path = os.fsencode(generate.folder() / "model.safetensors")
            weights = self._make("attn_weights_open", "attn_weights_destroy", path)
            self.models[key] = self._make("attn_llama_load", "attn_llama_destroy", c.byref(config), weights.pointer)
        return self.models[key]

    def _session(self, case, arrays, group, between, name):
        model, ids = self._model(case.dtype, group, between), arrays["ids"]
        create, destroy = "attn_llama_session_create", "attn_llama_session_destroy"
        session = self._make(create, destroy, model.pointer, case.batch, case.prompt + generate.NEW)
        truncate, forward = self._function("attn_llama_session_truncate"), self._function("attn_llama_forward")
        logits = unwritten(case.batch, 1, 1, generate.config()["vocab_size"])
        view = tensor_of(logits, F32)
        prompt = np.ascontiguousarray(ids[:, : case.prompt])
        # Of a step the ids of all sequences stand together.
        steps = np.ascontiguousarray(ids[:, case.prompt : case.prompt + case.new].T)
        keep = (model, session, prompt, steps, logits, view)

        def add(tokens, array):
            where = array.ctypes.data
            self._check(forward(session.pointer, tokens, where, c.addressof(view), self.threads))

        def read():
            self._check(truncate(session.pointer, 0))
            add(case.prompt, prompt)
            return keep

        def write():
            self._check(truncate(session.pointer, case.prompt))
            for step in steps:
                add(1, step)
                logits.argmax(axis=-1)
            return keep

        if case.new:
            read()
        return Way(f"attn_llama_forward{name}", write if case.new else read, lambda _, rows: logits[rows, 0, 0])


CONTENDERS = {"attn": AttnGenerate}
