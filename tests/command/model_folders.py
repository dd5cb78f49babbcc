# SPDX-License-Identifier: Apache-2.0
"""Folders of models of a few numbers, as Transformers writes them: a sentence encoder, a cross-encoder, a decoder, each
with a tokenizer.json. Weights are drawn, so that texts that differ give numbers that differ."""

import json

from support import Array, normal, safetensors

WIDTH, FF, POSITIONS = 8, 12, 12

# ------------------------------------------------------------------ encoders --

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "A", "e", "é", "##b"]
BERT = {
    "architectures": ["BertModel"], "model_type": "bert", "hidden_act": "gelu", "hidden_size": WIDTH,
    "intermediate_size": FF, "layer_norm_eps": 1e-12, "max_position_embeddings": POSITIONS, "num_attention_heads": 2,
    "num_hidden_layers": 2, "position_embedding_type": "absolute", "type_vocab_size": 2, "vocab_size": len(WORDS)}
MEAN = {
    "word_embedding_dimension": WIDTH, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True,
    "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False}


def module(kind, path):
    return {"idx": 0, "name": "0", "path": path, "type": f"sentence_transformers.models.{kind}"}


MODULES = [module("Transformer", ""), module("Pooling", "1_Pooling"), module("Normalize", "2_Normalize")]


def special_token(number, content):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True}


def template(names, kind):
    """Entries of TemplateProcessing: "A" and "B" are the texts, the others special tokens."""
    return [{"Sequence" if name in "AB" else "SpecialToken": {"id": name, "type_id": kind_of}}
            for name, kind_of in zip(names, kind)]


WORD_PIECES = {
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [special_token(i, name) for i, name in enumerate(WORDS[:5])],
    "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                   "lowercase": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {
        "type": "TemplateProcessing", "single": template(["[CLS]", "A", "[SEP]"], [0, 0, 0]),
        "pair": template(["[CLS]", "A", "[SEP]", "B", "[SEP]"], [0, 0, 0, 1, 1]),
        "special_tokens": {name: {"id": name, "ids": [WORDS.index(name)], "tokens": [name]}
                           for name in ("[CLS]", "[SEP]")}},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 100, "vocab": {word: i for i, word in enumerate(WORDS)}}}


def bert_tensors(labels=0):
    """Those of BertModel; with labels those of BertForSequenceClassification."""
    body = "bert." if labels else ""
    shapes = {"embeddings.word_embeddings.weight": (len(WORDS), WIDTH),
              "embeddings.position_embeddings.weight": (POSITIONS, WIDTH),
              "embeddings.token_type_embeddings.weight": (2, WIDTH), "embeddings.LayerNorm.weight": (WIDTH,),
              "embeddings.LayerNorm.bias": (WIDTH,), "pooler.dense.weight": (WIDTH, WIDTH),
              "pooler.dense.bias": (WIDTH,)}
    for layer in range(BERT["num_hidden_layers"]):
        for name, rows, columns in (("attention.self.query", WIDTH, WIDTH), ("attention.self.key", WIDTH, WIDTH),
                                    ("attention.self.value", WIDTH, WIDTH), ("attention.output.dense", WIDTH, WIDTH),
                                    ("attention.output.LayerNorm", WIDTH, None), ("intermediate.dense", FF, WIDTH),
                                    ("output.dense", WIDTH, FF), ("output.LayerNorm", WIDTH, None)):
            shapes[f"encoder.layer.{layer}.{name}.weight"] = (rows, columns) if columns else (rows,)
            shapes[f"encoder.layer.{layer}.{name}.bias"] = (rows,)
    made = {body + name: normal(shape, seed) for seed, (name, shape) in enumerate(shapes.items())}
    if labels:
        made["classifier.weight"], made["classifier.bias"] = normal((labels, WIDTH), 90), normal((labels,), 91)
    else:
        made["embeddings.position_ids"] = Array((1, POSITIONS), range(POSITIONS), "<i8")
    return made


# ------------------------------------------------------------------ decoders --

TURNS = ["<|im_start|>", "<|im_end|>"]
# The bytes of é, 🙂 and a line break are tokens of their own.
PIECES = [*"abcdehilmnoprstuwxyNSTHFLgkv,.", "Ġ", "Ċ", "Ã", "©", "ð", "Ł", "Ļ", "Ĥ", "ab", "Ġa"]
TOKENS = len(PIECES) + len(TURNS)
PLACES = 40
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 12,
    "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1,
    "max_position_embeddings": PLACES, "vocab_size": TOKENS, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "rope_scaling": None, "attention_bias": False, "tie_word_embeddings": True, "eos_token_id": TOKENS - 1}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTE_PAIRS = {
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [special_token(len(PIECES) + i, name) for i, name in enumerate(TURNS)],
    "normalizer": None, "post_processor": None, "decoder": BYTE_LEVEL,
    "pre_tokenizer": {"type": "Sequence",
                      "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL]},
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
              "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
              "vocab": {token: i for i, token in enumerate(PIECES)}, "merges": [["a", "b"], ["Ġ", "a"]]}}
BYTES = {"Ġ": b" ", "Ċ": b"\n", "Ã": b"\xc3", "©": b"\xa9", "ð": b"\xf0", "Ł": b"\x9f", "Ļ": b"\x99", "Ĥ": b"\x82"}


def spelled(ids):
    """The bytes of tokens; special ones have none."""
    return b"".join(BYTES.get(c, c.encode()) for i in ids if i < len(PIECES) for c in PIECES[i])


def llama_tensors():
    width, ff, heads = LLAMA["hidden_size"], LLAMA["intermediate_size"], LLAMA["num_attention_heads"]
    kv = width // heads * LLAMA["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": (TOKENS, width), "model.norm.weight": (width,)}
    for layer in range(LLAMA["num_hidden_layers"]):
        for name, shape in (("input_layernorm", (width,)), ("post_attention_layernorm", (width,)),
                            ("self_attn.q_proj", (width, width)), ("self_attn.k_proj", (kv, width)),
                            ("self_attn.v_proj", (kv, width)), ("self_attn.o_proj", (width, width)),
                            ("mlp.gate_proj", (ff, width)), ("mlp.up_proj", (ff, width)),
                            ("mlp.down_proj", (width, ff))):
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    return {name: normal(shape, seed) for seed, (name, shape) in enumerate(shapes.items())}


T5 = {
    "architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 12, "d_kv": 4, "d_ff": 16,
    "num_layers": 2, "num_decoder_layers": 2, "num_heads": 3, "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20, "feed_forward_proj": "relu", "layer_norm_epsilon": 1e-6, "vocab_size": TOKENS,
    "tie_word_embeddings": True, "is_encoder_decoder": True, "decoder_start_token_id": TOKENS - 2,
    "pad_token_id": TOKENS - 2, "eos_token_id": TOKENS - 1}


def t5_tensors():
    width, ff = T5["d_model"], T5["d_ff"]
    inner = T5["d_kv"] * T5["num_heads"]
    shapes = {"shared.weight": (TOKENS, width)}
    for side, attentions in (("encoder", ("SelfAttention",)), ("decoder", ("SelfAttention", "EncDecAttention"))):
        shapes[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = (
            T5["relative_attention_num_buckets"], T5["num_heads"])
        shapes[f"{side}.final_layer_norm.weight"] = (width,)
        for block in range(T5["num_layers"]):
            for number, attention in enumerate(attentions):
                layer = f"{side}.block.{block}.layer.{number}."
                shapes[layer + "layer_norm.weight"] = (width,)
                for name in "qkv":
                    shapes[f"{layer}{attention}.{name}.weight"] = (inner, width)
                shapes[f"{layer}{attention}.o.weight"] = (width, inner)
            layer = f"{side}.block.{block}.layer.{len(attentions)}."
            shapes[layer + "layer_norm.weight"] = (width,)
            shapes[layer + "DenseReluDense.wi.weight"] = (ff, width)
            shapes[layer + "DenseReluDense.wo.weight"] = (width, ff)
    return {name: normal(shape, seed) for seed, (name, shape) in enumerate(shapes.items())}


class ModelFolder:
    """A folder that files are put into."""

    def __init__(self, path):
        self.path = path
        path.mkdir()

    def put(self, name, content):
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")

    def drop(self, name):
        (self.path / name).unlink()

    def content(self, name):
        return (self.path / name).read_bytes()


def sentence_encoder(path):
    folder = ModelFolder(path)
    folder.put("config.json", BERT)
    folder.put("tokenizer.json", WORD_PIECES)
    folder.put("modules.json", MODULES)
    folder.put("1_Pooling/config.json", MEAN)
    folder.put("model.safetensors", safetensors(bert_tensors()))
    return folder


def cross_encoder(path, labels=1):
    folder = ModelFolder(path)
    folder.put("config.json", BERT | {"architectures": ["BertForSequenceClassification"],
                                      "id2label": {str(i): f"LABEL_{i}" for i in range(labels)}})
    folder.put("tokenizer.json", WORD_PIECES)
    folder.put("model.safetensors", safetensors(bert_tensors(labels)))
    return folder


def decoder(path):
    folder = ModelFolder(path)
    folder.put("config.json", LLAMA)
    folder.put("tokenizer.json", BYTE_PAIRS)
    folder.put("model.safetensors", safetensors(llama_tensors()))
    return folder


def encoder_decoder(path):
    folder = ModelFolder(path)
    folder.put("config.json", T5)
    folder.put("tokenizer.json", BYTE_PAIRS)
    folder.put("model.safetensors", safetensors(t5_tensors()))
    return folder
