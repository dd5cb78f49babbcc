# SPDX-License-Identifier: Apache-2.0
"""
llama.cpp through llama-cpp-python's bindings of its C interface, compiled for this machine:
its own files of the model, a batch of tokens a call. Of bf16 it is tried with weights in
bf16 and in f16, int8 is q8_0. Keys and values are f16, llama.cpp's default, and f32 in f32.
"""

import ctypes as c

import numpy as np

from .. import generate
from .base import Contender, Way

FILES = {"f32": ("f32",), "bf16": ("bf16", "f16"), "int8": ("q8_0",)}
GGML_F32 = 0


class Llama(Contender):
    def __init__(self, threads):
        super().__init__(threads)
        import llama_cpp

        self.api = llama_cpp
        # It writes pages about each model; errors are in what its functions return.
        self.quiet = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self.quiet, c.c_void_p(0))
        llama_cpp.llama_backend_init()

    def version(self):
        return f"llama-cpp-python {self.api.__version__}"

    def notes(self):
        return "built on this machine for its processor"

    def ways(self, case, arrays):
        return [self._way(case, arrays, kind) for kind in FILES[case.dtype]]

    def _way(self, case, arrays, kind):
        session = _Session(self.api, generate.folder() / f"{kind}.gguf", case, self.threads)
        ids = arrays["ids"]

        def read():
            session.forget(0)
            for b in range(case.batch):
                session.decode(ids[b, : case.prompt], 0, [b], last_only=True)
            return session

        def write():
            session.forget(case.prompt)
            for n in range(case.prompt, case.prompt + case.new):
                session.decode(ids[:, n], n, range(case.batch))
                for b in range(case.batch):
                    session.logits(b).argmax()
            return session

        def rows(_, wanted):
            return np.stack([session.logits(b if case.new else -1) for b in wanted])

        if case.new:
            read()
        return Way(f"{kind}.gguf", write if case.new else read, rows)


class _Session:
    """A model, a context and a batch of llama.cpp's."""

    def __init__(self, api, path, case, threads):
        self.api, self.case = api, case
        options = api.llama_model_default_params()
        options.n_gpu_layers = 0
        self.model = api.llama_model_load_from_file(str(path).encode(), options)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        options = api.llama_context_default_params()
        options.n_ctx = case.batch * (case.prompt + generate.NEW)
        options.n_batch = options.n_ubatch = case.prompt
        options.n_seq_max = case.batch
        options.n_threads = options.n_threads_batch = threads
        if case.dtype == "f32":
            options.type_k = options.type_v = GGML_F32
        self.context = api.llama_init_from_model(self.model, options)
        if not self.context:
            raise RuntimeError("llama.cpp cannot make a context")
        self.batch = api.llama_batch_init(case.prompt, 0, 1)

    def forget(self, length):
        """All tokens from `length` on, of every sequence."""
        memory = self.api.llama_get_memory(self.context)
        for b in range(self.case.batch):
            if not self.api.llama_memory_seq_rm(memory, b, length, -1):
                raise RuntimeError(f"llama.cpp cannot forget tokens from {length} on")

    def decode(self, ids, place, sequences, last_only=False):
        """A prompt of one sequence from `place` on, or a token at `place` for each sequence."""
        batch, sequences = self.batch, list(sequences)
        batch.n_tokens = len(ids)
        for n, token in enumerate(ids):
            batch.token[n] = int(token)
            batch.pos[n] = place + n if len(sequences) == 1 else place
            batch.n_seq_id[n] = 1
            batch.seq_id[n][0] = sequences[0] if len(sequences) == 1 else sequences[n]
            batch.logits[n] = not last_only or n == len(ids) - 1
        if self.api.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")

    def logits(self, n):
        pointer = self.api.llama_get_logits_ith(self.context, int(n))
        return np.ctypeslib.as_array(pointer, (generate.config()["vocab_size"],))

    def __del__(self):
        if getattr(self, "batch", None) is not None:
            self.api.llama_batch_free(self.batch)
        if getattr(self, "context", None):
            self.api.llama_free(self.context)
        if getattr(self, "model", None):
            self.api.llama_model_free(self.model)


CONTENDERS = {"llama.cpp": Llama}
