#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares models that attn_model_open() reads from a folder with Transformers, on small models from random configurations.

Usage: check_folders.py LIBATTN_NN [--seed N] [--rounds N] [WORD ...]

LIBATTN_NN is libattn_nn.so; with WORDs only the checks whose names hold one of
them run. save_pretrained() writes each folder, in f32 or bf16, in one file or in
shards. Hidden states, those before each layer, pooled states, embeddings and
logits pass when their largest error against Transformers in float64 is at most
twice that of Transformers in float32 plus a floor; greedy tokens have to be those
of float64, but where its two likeliest are closer than LEAD. Then entries of
files are changed, and the sentence of each refusal is compared. Exit code: 0 all
passed, 1 some failed, 2 wrong usage, 77 without torch or transformers.
"""
import ctypes
import json
import os
import random
import shutil
import sys
import tempfile
from ctypes import byref, c_int64, c_void_p

os.environ.setdefault("HF_HUB_OFFLINE", "1")

try:
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

sys.dont_write_bytecode = True
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

from layer_library import (  # noqa: E402  pylint: disable=wrong-import-position
    FLOOR_MODEL,
    Failure,
    address,
    compare,
    int32s,
    int64s,
    run_checks,
    view,
)
import random_configs  # noqa: E402  pylint: disable=wrong-import-position
from attn_structs import (  # noqa: E402  pylint: disable=wrong-import-position
    CacheConfig,
    ModelBatch,
    ModelInfo,
    ModelOptions,
    ModelOutputs,
    ModelTokens,
)

# Logits of the random models are about 1 in size.
LEAD = 1e-4
NEW_TOKENS = 6
MEAN, FIRST, LAST, MAX = 1, 2, 3, 4
POOLINGS = {"pooling_mode_mean_tokens": MEAN, "pooling_mode_cls_token": FIRST, "pooling_mode_lasttoken": LAST,
            "pooling_mode_max_tokens": MAX}


# ------------------------------------------------------------------------ models --


def randomise(model, dtype):
    """Weights of about the size that keeps states as large as they are; norms about one, so that exchanges show. T5 does
    not scale its scores, so its queries are small."""
    one = 0.0 if model.config.model_type == "gemma2" else 1.0
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1:
                base = one if ("norm" in name.lower() or ".ln_" in name) and name.endswith("weight") else 0.0
                p.copy_(base + 0.3 * torch.randn_like(p))
            elif "embed" in name:
                p.copy_(torch.randn_like(p) * (1.0 if p.shape[0] > 100 else 0.5))
            else:
                width = model.config.d_kv if name.endswith(("SelfAttention.q.weight", "EncDecAttention.q.weight")) else 1
                p.copy_(torch.randn_like(p) * 1.3 / (width * p.shape[1]) ** 0.5)
    return model.to(dtype).eval()


def write_json(folder, name, content):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file)


def change_json(folder, name, change):
    path = os.path.join(folder, name)
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    change(content)
    write_json(folder, name, content)


class Folder:
    """A model that save_pretrained() has written, and what Transformers reads from it in f64 and f32."""

    def __init__(self, class_name, config, draw, change=None):
        self.path = tempfile.mkdtemp(prefix="attn-model-")
        self.kind = getattr(transformers, class_name)
        model = self.kind(config)
        if change:
            change(model)
        model = randomise(model, draw.choice([torch.float32, torch.float32, torch.bfloat16]))
        model.save_pretrained(self.path, max_shard_size=draw.choice(["20KB", "200KB", "5GB"]))
        self.read()

    def read(self):
        self.exact, self.naive = (
            self.kind.from_pretrained(self.path, dtype=dtype, attn_implementation="eager").eval()
            for dtype in (torch.float64, torch.float32))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path)


class Model:
    """attn_model of a folder."""

    def __init__(self, lib, path, **options):
        self.lib = lib
        self.handle = lib.make("attn_model_open", path.encode(), byref(ModelOptions(**options)))
        self.info = ModelInfo()
        lib("attn_model_describe", self.handle, byref(self.info))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lib.free("attn_model_close", self.handle)


class Outputs:
    """Tensors for a call by their names, and the struct that points to them."""

    def __init__(self, info, tokens, layers=None, **rows):
        self.kept = []
        layers = info.layers if layers is None else layers
        self.states = [torch.full((1, tokens, info.d_model), torch.nan) for _ in range(layers + 1)]
        self.hidden = torch.full((1, tokens, info.d_model), torch.nan)
        pointers = (c_void_p * len(self.states))(*[self.point(t) for t in self.states])
        self.struct = ModelOutputs(hidden=self.point(self.hidden), states=ctypes.cast(pointers, c_void_p))
        self.kept.append(pointers)
        for name, shape in rows.items():
            setattr(self, name, torch.full((1, *shape), torch.nan))
            setattr(self.struct, name, self.point(getattr(self, name)))

    def point(self, tensor):
        self.kept.append(view(tensor))
        return ctypes.addressof(self.kept[-1])


def expect(what, got, expected):
    if got != expected:
        raise Failure(f"{what} is {got}; expected {expected}")


# ---------------------------------------------------------------------- encoders --


def old_names(folder):
    """gamma and beta, as the first files of BERT have it, in a single file."""
    state = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            state.update(load_file(os.path.join(folder, name)))
        if "safetensors" in name:
            os.remove(os.path.join(folder, name))
    renamed = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t
               for name, t in state.items()}
    save_file(renamed, os.path.join(folder, "model.safetensors"))


def draw_sentences(draw, config, info):
    """Offsets, ids without that of padding, which shifts positions in RoBERTa, and token types. Of few sequences the
    largest error of float32 would follow from luck."""
    padding = getattr(config, "pad_token_id", None)
    usable = [i for i in range(config.vocab_size) if i != padding]
    longest = min(info.max_tokens, 40)
    lengths = [draw.randint(1, longest) for _ in range(draw.randint(8, 12))] + [1, longest]
    offsets = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    ids = [draw.choice(usable) for _ in range(offsets[-1])]
    types = [draw.randrange(info.token_types) for _ in ids] if info.token_types else None
    return offsets, torch.tensor(ids), torch.tensor(types) if types else None


def by_sequence(offsets):
    return [slice(a, b) for a, b in zip(offsets, offsets[1:])]


def pool(hidden, pooling, normalise):
    row = {MEAN: lambda: hidden.mean(0), FIRST: lambda: hidden[0], LAST: lambda: hidden[-1],
           MAX: lambda: hidden.amax(0)}[pooling]()
    return row / row.norm() if normalise else row


def has_token_head(model):
    return type(model).__name__.endswith(("ForMaskedLM", "ForTokenClassification"))


def reference_encoder(model, offsets, ids, types, pooling):
    """Each sequence by itself."""
    states, pooled, logits, embeddings, token_logits = [], [], [], [], []
    for part in by_sequence(offsets):
        extra = {} if types is None else {"token_type_ids": types[part][None]}
        body = model.base_model
        out = body(input_ids=ids[part][None], output_hidden_states=True, **extra)
        states.append(torch.stack([s[0] for s in out.hidden_states]))
        embeddings.append(pool(out.last_hidden_state[0], *pooling))
        if getattr(out, "pooler_output", None) is not None:
            pooled.append(out.pooler_output[0])
        if has_token_head(model):
            token_logits.append(model(input_ids=ids[part][None], **extra).logits[0])
        elif hasattr(model, "classifier"):
            logits.append(model(input_ids=ids[part][None], **extra).logits[0])
    return {"states": torch.cat(states, 1), "embeddings": torch.stack(embeddings),
            "pooled": torch.stack(pooled) if pooled else None, "logits": torch.stack(logits) if logits else None,
            "token_logits": torch.cat(token_logits) if token_logits else None}


def write_sentence_files(draw, folder, config):
    """The files of sentence-transformers with some pooling."""
    key = draw.choice(list(POOLINGS))
    normalise = draw.random() < 0.5
    package = "sentence_transformers.models."
    steps = ["Transformer", "Pooling"] + ["Normalize"] * normalise
    write_json(folder, "modules.json", [
        {"idx": i, "name": str(i), "path": f"{i}_{step}" if i else "", "type": package + step}
        for i, step in enumerate(steps)])
    pooling = {name: name == key for name in (*POOLINGS, "pooling_mode_mean_sqrt_len_tokens")}
    write_json(folder, "1_Pooling/config.json", {"word_embedding_dimension": config.hidden_size, **pooling})
    write_json(folder, "sentence_bert_config.json", {"max_seq_length": 11, "do_lower_case": False})
    return POOLINGS[key], normalise


def run_encoder(lib, draw, folder, pooling, options):
    config = folder.exact.config
    with Model(lib, folder.path, **options) as model:
        info = model.info
        expect("kind", info.kind, 0)
        expect("architecture", info.architecture.decode(), type(folder.exact).__name__)
        expect("pooling", (info.pooling, bool(info.normalise)), pooling)
        offsets, ids, types = draw_sentences(draw, config, info)
        num = len(offsets) - 1
        exact, naive = (reference_encoder(m, offsets, ids, types, pooling) for m in (folder.exact, folder.naive))
        rows = {"embeddings": (num, info.d_model)}
        expect("pooler", bool(info.pooler), exact["pooled"] is not None)
        expect("head", info.logits, 0 if exact["logits"] is None else config.num_labels)
        if info.pooler:
            rows["pooled"] = (num, info.d_model)
        if info.logits:
            rows["logits"] = (num, info.logits)
        expect("head of tokens", info.token_logits,
               0 if exact["token_logits"] is None else exact["token_logits"].shape[1])
        if info.token_logits:
            rows["token_logits"] = (offsets[-1], info.token_logits)
        outputs = Outputs(info, offsets[-1], **rows)
        kept = int64s(offsets), int32s(ids), types is not None and int32s(types)
        batch = ModelBatch(num_sequences=num, offsets=ctypes.addressof(kept[0]), ids=ctypes.addressof(kept[1]),
                           token_types=ctypes.addressof(kept[2]) if kept[2] else None)
        lib("attn_model_encode", model.handle, byref(batch), byref(outputs.struct))
    for layer, state in enumerate(outputs.states):
        compare(f"states[{layer}]", state[0], exact["states"][layer], naive["states"][layer], FLOOR_MODEL)
    compare("hidden", outputs.hidden[0], exact["states"][-1], naive["states"][-1], FLOOR_MODEL)
    for name in rows:
        compare(name, getattr(outputs, name)[0], exact[name], naive[name], FLOOR_MODEL)


def check_encoder(lib, class_name, make_config, old=False):
    draw = random.Random(torch.initial_seed() * 1000 + hash_of(class_name))
    for _ in range(ROUNDS):
        with Folder(class_name, make_config(draw), draw) as folder:
            if old:
                old_names(folder.path)
            if draw.random() < 0.5:
                pooling, options = write_sentence_files(draw, folder.path, folder.exact.config), {}
                pooling = (pooling[0], pooling[1])
            else:
                pooling, options = (MEAN, True), {"pooling": MEAN, "normalise": 1}
            run_encoder(lib, draw, folder, pooling, options)


# ---------------------------------------------------------------------- decoders --


def version_4(content):
    """Rotations as Transformers had them up to version 4."""
    rope = content.pop("rope_parameters")
    content["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    content["rope_scaling"] = None if kind == "default" else {"type": kind, **rope}


class Session:
    """A decoder over a cache, sequence by sequence."""

    def __init__(self, model, num, tokens):
        self.model, self.lib, self.tokens = model, model.lib, tokens
        self.memory = self.sources = None
        config = CacheConfig(max_tokens=tokens, max_sequences=num, page_size=16)
        self.lib("attn_model_cache_config", model.handle, byref(config))
        self.cache = self.lib.make("attn_cache_create", byref(config))
        self.ids = []
        for _ in range(num):
            number = c_int64()
            self.lib("attn_cache_add", self.cache, byref(number))
            self.ids.append(number.value)

    def step(self, parts, rows=None, states=True):
        """Runs some more ids of each sequence, of which some have none."""
        flat = torch.cat(parts)
        counts = int64s([len(p) for p in parts])
        self.lib("attn_cache_step", self.cache, len(self.ids), int64s(self.ids), counts, None)
        info = self.model.info
        wanted = {"logits": (len(flat) if rows is None else len(rows), info.logits)} if info.logits else {}
        outputs = Outputs(info, len(flat), info.decoder_layers if info.kind == 2 else None, **wanted)
        if not states:
            outputs.struct.hidden = outputs.struct.states = None
        kept = int32s(flat), rows is not None and int64s(rows)
        tokens = ModelTokens(ids=ctypes.addressof(kept[0]))
        if rows is not None:
            tokens.num_rows, tokens.rows = len(rows), ctypes.addressof(kept[1])
        if self.memory:
            tokens.memory, tokens.sources = self.memory, ctypes.addressof(self.sources)
        self.lib("attn_model_step", self.model.handle, self.cache, byref(tokens), byref(outputs.struct))
        return outputs

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lib.free("attn_cache_destroy", self.cache)


def reference_decoder(model, _, ids):
    out = model(input_ids=ids[None], output_hidden_states=True)
    return torch.stack([s[0] for s in out.hidden_states]), out.logits[0] if hasattr(out, "logits") else None


def compare_prompts(session, folder, texts, draw, reference=reference_decoder):
    """Prompts in two chunks; what each chunk gives is put together by sequence."""
    cuts = [draw.randint(0, len(t)) for t in texts]
    chunks = [[t[:c] for t, c in zip(texts, cuts)], [t[c:] for t, c in zip(texts, cuts)]]
    states = [[] for _ in texts]
    logits = [[] for _ in texts]
    for parts in chunks:
        if not sum(len(p) for p in parts):
            continue
        outputs = session.step(parts)
        at = 0
        for s, part in enumerate(parts):
            rows = slice(at, at + len(part))
            states[s].append(torch.stack([t[0, rows] for t in outputs.states]))
            if session.model.info.logits:
                logits[s].append(outputs.logits[0, rows])
            at += len(part)
        compare("hidden", outputs.hidden, outputs.states[-1], outputs.states[-1], 0)
    for s, text in enumerate(texts):
        (exact, exact_logits), (naive, naive_logits) = (reference(m, s, text) for m in (folder.exact, folder.naive))
        mine = torch.cat(states[s], 1)
        for layer in range(len(exact)):
            compare(f"states[{layer}] of text {s}", mine[layer], exact[layer], naive[layer], FLOOR_MODEL)
        if exact_logits is not None:
            compare(f"logits of text {s}", torch.cat(logits[s]), exact_logits, naive_logits, FLOOR_MODEL)


def compare_greedy(session, folder, texts, reference=reference_decoder):
    """Both go on with the tokens of float64, so that one close call does not decide about what follows."""
    texts = list(texts)
    session.lib("attn_cache_truncate", session.cache, session.ids[0], 0)
    for number in session.ids[1:]:
        session.lib("attn_cache_truncate", session.cache, number, 0)
    parts = texts
    for step in range(NEW_TOKENS):
        ends = [sum(len(p) for p in parts[:i + 1]) - 1 for i in range(len(parts))]
        outputs = session.step(parts, rows=ends, states=False)
        parts = []
        for s, text in enumerate(texts):
            best = reference(folder.exact, s, text)[1][-1].topk(2)
            mine = outputs.logits[0, s].argmax()
            if mine != best.indices[0] and best.values[0] - best.values[1] > LEAD:
                raise Failure(f"token {step} of text {s} is {int(mine)}; expected {int(best.indices[0])}")
            parts.append(best.indices[:1])
            texts[s] = torch.cat([text, parts[-1]])


def check_decoder(lib, class_name, make_config, old_rope=False):
    draw = random.Random(torch.initial_seed() * 1000 + hash_of(class_name))
    for _ in range(ROUNDS):
        with Folder(class_name, make_config(draw), draw) as folder:
            if old_rope:
                change_json(folder.path, "config.json", version_4)
                folder.read()
            vocabulary = folder.exact.config.vocab_size
            texts = [torch.randint(vocabulary, (draw.randint(1, 20),)) for _ in range(3)]
            with Model(lib, folder.path) as model:
                expect("kind", model.info.kind, 1)
                expect("logits", model.info.logits, vocabulary if hasattr(folder.exact, "lm_head") else 0)
                expect("eos", model.info.num_eos, 1)
                with Session(model, len(texts), 64) as session:
                    compare_prompts(session, folder, texts, draw)
                    if model.info.logits:
                        compare_greedy(session, folder, texts)


# -------------------------------------------------------------- encoder-decoders --


def untie(model):
    """An output matrix of its own, as T5 1.1 and mT5 have it."""
    model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))


class Memory:
    """attn_model_memory with some texts, the last one by the hidden states that attn_model_encode() gives."""

    def __init__(self, model, texts):
        self.model, self.lib = model, model.lib
        self.handle = self.lib.make("attn_model_memory_create", model.handle)
        self.encoded = self.encode(texts)
        last = self.encoded.hidden[:, -len(texts[-1]):].contiguous()
        self.sources = self.add(texts[:-1], None) + self.add(texts[-1:], view(last))

    @staticmethod
    def batch(texts):
        kept = int64s([sum(map(len, texts[:i])) for i in range(len(texts) + 1)]), int32s(torch.cat(texts))
        return kept, ModelBatch(num_sequences=len(texts), offsets=ctypes.addressof(kept[0]),
                                ids=ctypes.addressof(kept[1]))

    def encode(self, texts):
        kept, batch = self.batch(texts)
        outputs = Outputs(self.model.info, kept[0][-1])
        self.lib("attn_model_encode", self.model.handle, byref(batch), byref(outputs.struct))
        return outputs

    def add(self, texts, hidden):
        _, batch = self.batch(texts)
        sources = int64s([-1] * len(texts))
        self.lib("attn_model_memory_add", self.handle, byref(batch), hidden and byref(hidden), sources)
        return list(sources)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lib.free("attn_model_memory_destroy", self.handle)


def compare_encoder(memory, folder, texts):
    at = 0
    for s, text in enumerate(texts):
        exact, naive = (torch.stack([t[0] for t in m.encoder(input_ids=text[None], output_hidden_states=True).hidden_states])
                        for m in (folder.exact, folder.naive))
        for layer, state in enumerate(memory.encoded.states):
            compare(f"states[{layer}] of source {s}", state[0, at:at + len(text)], exact[layer], naive[layer], FLOOR_MODEL)
        at += len(text)


def check_encoder_decoder(lib, class_name, make_config):
    draw = random.Random(torch.initial_seed() * 1000 + hash_of(class_name))
    has_head = class_name.endswith("ForConditionalGeneration")
    for _ in range(ROUNDS):
        change = untie if has_head and draw.random() < 0.5 else None
        with Folder(class_name, make_config(draw), draw, change) as folder:
            config = folder.exact.config
            sources = [torch.randint(config.vocab_size, (draw.choice([1, 7, 16, 17, 40]),)) for _ in range(4)]
            texts = [torch.randint(config.vocab_size, (draw.randint(1, 40),)) for _ in range(5)]
            chosen = [draw.randrange(len(sources)) for _ in texts]

            def reference(model, s, ids):
                out = model(input_ids=sources[chosen[s]][None], decoder_input_ids=ids[None], output_hidden_states=True)
                return torch.stack([t[0] for t in out.decoder_hidden_states]), out.logits[0] if has_head else None

            with Model(lib, folder.path) as model, Memory(model, sources) as memory:
                info = model.info
                expect("kind", info.kind, 2)
                expect("logits", info.logits, config.vocab_size if has_head else 0)
                expect("layers", (info.layers, info.decoder_layers), (config.num_layers, config.num_decoder_layers))
                expect("marks", (info.decoder_start, info.pad), (config.decoder_start_token_id, config.pad_token_id))
                compare_encoder(memory, folder, sources)
                with Session(model, len(texts), 64) as session:
                    session.memory = memory.handle
                    session.sources = int64s([memory.sources[i] for i in chosen])
                    compare_prompts(session, folder, texts, draw, reference)
                    if has_head:
                        compare_greedy(session, folder, texts, reference)


# ---------------------------------------------------------------------- refusals --


def refuses(lib, folder, what, *words):
    try:
        with Model(lib, folder):
            pass
    except Failure as failure:
        missing = [word for word in words if word not in str(failure)]
        if missing:
            raise Failure(f"{what}: no {missing[0]} in \"{failure}\"") from None
        return
    raise Failure(f"{what} is taken; expected it to be refused")


def check_refusals(lib, class_name, make_config, changes):
    """Entries of config.json, each with the words that its refusal has."""
    draw = random.Random(torch.initial_seed())
    with Folder(class_name, make_config(draw), draw) as folder:
        before = json.loads(open(os.path.join(folder.path, "config.json"), encoding="utf-8").read())
        with Model(lib, folder.path):
            pass
        for name, value, *words in changes:
            content = dict(before)
            content.pop(name, None)
            if value is not ...:
                content[name] = value
            write_json(folder.path, "config.json", content)
            refuses(lib, folder.path, f"{name} {value}", "config.json", name, *words)


def check_files(lib):
    """Weights that are missing or in another format."""
    draw = random.Random(torch.initial_seed())
    with Folder("BertModel", random_configs.bert(draw), draw) as folder:
        for name in os.listdir(folder.path):
            if "safetensors" in name:
                os.remove(os.path.join(folder.path, name))
        refuses(lib, folder.path, "a folder without weights", "neither", "model.safetensors.index.json")
        for name in ("pytorch_model.bin", "model-q4.gguf"):
            open(os.path.join(folder.path, name), "wb").close()
            refuses(lib, folder.path, name, name, "safetensors")
            refuses(lib, os.path.join(folder.path, name), name, name, "folder")
            os.remove(os.path.join(folder.path, name))
        write_json(folder.path, "model.safetensors.index.json", {"weight_map": {"a": "model-1.safetensors"}})
        refuses(lib, folder.path, "a missing shard", "model-1.safetensors")


def hash_of(text):
    return sum(ord(c) * (i + 1) for i, c in enumerate(text))


BERT_REFUSALS = [
    ("model_type", "mamba", "'mamba' (BertModel)", "distilbert"), ("model_type", ..., "missing"),
    ("hidden_size", ..., "missing"), ("hidden_size", "many", "'many'"), ("hidden_size", 0, "0"),
    ("hidden_act", "mish", "'mish'"), ("position_embedding_type", "relative_key", "absolute"),
    ("is_decoder", True, "true"), ("quantization_config", {"bits": 4}, "an object"),
    ("architectures", ["LlamaModel"], "LlamaModel", "Bert"), ("architectures", "BertModel", "array"),
]
LLAMA_REFUSALS = [
    ("rope_scaling", {"rope_type": "dynamic", "factor": 2.0}, "'dynamic'", "yarn"), ("rope_scaling", 3, "3"),
    ("hidden_act", "gelu", "'gelu'", "silu"), ("num_key_value_heads", 0, "0"), ("tie_word_embeddings", "yes", "'yes'"),
    ("architectures", ["LlamaForSequenceClassification"], "LlamaForCausalLM"), ("eos_token_id", 100000, "100000"),
    ("sliding_window", 8, "8"), ("vocab_size", 1.5, "1.5"),
]


def all_checks():
    for name, config in (("Bert", random_configs.bert), ("Roberta", random_configs.roberta),
                         ("XLMRoberta", random_configs.xlm_roberta), ("DistilBert", random_configs.distilbert)):
        for end in ("Model", "ForSequenceClassification", "ForMaskedLM", "ForTokenClassification"):
            yield f"{name}{end}", check_encoder, (f"{name}{end}", config)
    yield "T5EncoderModel", check_encoder, ("T5EncoderModel", random_configs.t5)
    yield "BertModel gamma and beta", check_encoder, ("BertModel", random_configs.bert, True)
    for name, config in (("Llama", random_configs.llama), ("Mistral", random_configs.mistral),
                         ("Qwen2", random_configs.qwen), ("Qwen3", random_configs.qwen3), ("Gemma2", random_configs.gemma2)):
        yield f"{name}ForCausalLM", check_decoder, (f"{name}ForCausalLM", config)
        yield f"{name}Model", check_decoder, (f"{name}Model", config)
    yield "GPT2LMHeadModel", check_decoder, ("GPT2LMHeadModel", random_configs.gpt2)
    yield "GPT2Model", check_decoder, ("GPT2Model", random_configs.gpt2)
    yield "LlamaForCausalLM, rope_scaling", check_decoder, ("LlamaForCausalLM", random_configs.llama, True)
    for name, config in (("T5", random_configs.t5), ("MT5", random_configs.mt5)):
        for end in ("ForConditionalGeneration", "Model"):
            yield f"{name}{end}", check_encoder_decoder, (f"{name}{end}", config)
    yield "MT5EncoderModel", check_encoder, ("MT5EncoderModel", random_configs.mt5)
    yield "refusals BertModel", check_refusals, ("BertModel", random_configs.bert, BERT_REFUSALS)
    yield "refusals LlamaForCausalLM", check_refusals, ("LlamaForCausalLM", random_configs.llama, LLAMA_REFUSALS)
    yield "refusals of files", check_files, ()


ROUNDS = 4

if __name__ == "__main__":
    if "--rounds" in sys.argv:
        place = sys.argv.index("--rounds")
        ROUNDS = int(sys.argv[place + 1])
        del sys.argv[place:place + 2]
    print(f"transformers {transformers.__version__}")
    run_checks(__doc__, all_checks())
