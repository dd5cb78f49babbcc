# SPDX-License-Identifier: Apache-2.0
"""
SmolLM2-135M-Instruct in the forms that the libraries read, in a process of its
own. The package has its weights in 4 bits; these are widened to f32 once, and all that is
written follows from that:

    f32.gguf, f16.gguf, bf16.gguf, q8_0.gguf    for llama.cpp; norms in f32
    config.json, model.safetensors              f32, under the names of Transformers
    tokenizer.json                              its byte-pair tokens

Usage: python -m peerbench.convert_smollm MODEL_FOLDER OUT_FOLDER
"""

import json
import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quants

# llama.cpp's names of a layer's matrices, and those of Transformers.
LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}


def transformers_name(name):
    """model.layers.0.mlp.up_proj.weight of blk.0.ffn_up.weight."""
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{LAYER[parts[2]]}.{parts[3]}"
    return f"{OUTER[parts[0]]}.{parts[1]}"


def halves_apart(matrix, heads):
    """Rows as Transformers has them: both numbers that a rotation turns are half a head apart, and not neighbours."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_gguf(reader, tensors, kind, target):
    """The file again, with matrices in another type."""
    architecture = reader.fields["general.architecture"].contents()
    writer = GGUFWriter(str(target), architecture)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    for name, values in tensors.items():
        if values.ndim < 2 or kind == GGMLQuantizationType.F32:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_transformers(reader, tensors, out):
    from safetensors.numpy import save_file  # pylint: disable=import-outside-toplevel

    def field(name):
        return reader.fields[name].contents()

    heads, kv_heads = field("llama.attention.head_count"), field("llama.attention.head_count_kv")
    turned = {"attn_q": heads, "attn_k": kv_heads}
    named = {}
    for name, values in tensors.items():
        inner = name.split(".")[-2]
        values = halves_apart(values, turned[inner]) if inner in turned else values
        named[transformers_name(name)] = np.ascontiguousarray(values)
    save_file(named, str(out / "model.safetensors"), {"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": field("llama.embedding_length"),
        "intermediate_size": field("llama.feed_forward_length"),
        "num_hidden_layers": field("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": field("llama.context_length"),
        "rms_norm_eps": field("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": field("llama.rope.freq_base"),
        "vocab_size": field("llama.vocab_size"),
        "tie_word_embeddings": True,
        "hidden_act": "silu",
    }
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def write_tokenizer(reader, target):
    from tokenizers import Tokenizer, models, pre_tokenizers  # pylint: disable=import-outside-toplevel

    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(pair.split(" ")) for pair in reader.fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE({token: n for n, token in enumerate(tokens)}, merges))
    steps = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.save(str(target))


def main(model, out):
    (source,) = model.glob("*.gguf")
    reader = GGUFReader(str(source))
    tensors = {t.name: quants.dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}
    for kind in ("F32", "F16", "BF16", "Q8_0"):
        write_gguf(reader, tensors, GGMLQuantizationType[kind], out / f"{kind.lower()}.gguf")
    write_tokenizer(reader, out / "tokenizer.json")
    write_transformers(reader, tensors, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
