# SPDX-License-Identifier: Apache-2.0
"""Configurations of small models of Transformers, drawn at random: a function for each architecture that
attn_model_open() reads. Each takes a random.Random."""
import transformers


def common(draw):
    """Sizes under the names that most configurations have. Of few channels a norm's variance may nearly vanish, which
    makes any rounding large: 16 at least."""
    heads = draw.choice([2, 3, 4])
    return {"num_hidden_layers": draw.randint(1, 4), "num_attention_heads": heads,
            "hidden_size": heads * draw.choice([8, 12, 16]), "intermediate_size": draw.choice([16, 37, 64]),
            "vocab_size": draw.choice([29, 101, 150]), "max_position_embeddings": draw.choice([24, 40])}


def bert(draw):
    return transformers.BertConfig(**common(draw), hidden_act=draw.choice(["gelu", "gelu_new", "relu", "silu"]),
                                   type_vocab_size=draw.choice([1, 2, 3]), num_labels=draw.choice([1, 2, 5]),
                                   layer_norm_eps=draw.choice([1e-12, 1e-5]))


def roberta(draw, kind=transformers.RobertaConfig):
    return kind(**common(draw), hidden_act=draw.choice(["gelu", "relu"]), type_vocab_size=draw.choice([1, 2]),
                num_labels=draw.choice([1, 3]), layer_norm_eps=1e-5, pad_token_id=draw.choice([1, 1, 0, 3]),
                bos_token_id=0, eos_token_id=2)


def xlm_roberta(draw):
    return roberta(draw, transformers.XLMRobertaConfig)


def distilbert(draw):
    sizes = common(draw)
    return transformers.DistilBertConfig(
        n_layers=sizes["num_hidden_layers"], n_heads=sizes["num_attention_heads"], dim=sizes["hidden_size"],
        hidden_dim=sizes["intermediate_size"], vocab_size=sizes["vocab_size"], num_labels=draw.choice([1, 2]),
        max_position_embeddings=sizes["max_position_embeddings"], activation=draw.choice(["gelu", "relu"]))


def t5(draw, kind=transformers.T5Config):
    return kind(
        num_decoder_layers=draw.choice([None, 1, 2]), decoder_start_token_id=draw.choice([0, 3]),
        num_layers=draw.randint(1, 3), d_model=draw.choice([24, 40]), num_heads=draw.choice([1, 2, 3]),
        d_kv=draw.choice([8, 12]), d_ff=draw.choice([37, 64]), vocab_size=draw.choice([29, 101]),
        relative_attention_num_buckets=draw.choice([4, 8, 32]), relative_attention_max_distance=draw.choice([17, 20, 128]),
        feed_forward_proj=draw.choice(["relu", "gated-gelu", "gated-silu"]), tie_word_embeddings=draw.random() < 0.5)


def mt5(draw):
    return t5(draw, transformers.MT5Config)


def decoder_sizes(draw):
    kv_heads = draw.choice([1, 2, 3])
    heads = kv_heads * draw.choice([1, 2, 3])
    return {**common(draw), "num_key_value_heads": kv_heads, "num_attention_heads": heads,
            "hidden_size": heads * draw.choice([16, 20]), "head_dim": draw.choice([8, 12, 16]), "rms_norm_eps": 1e-5,
            "tie_word_embeddings": draw.random() < 0.5, "bos_token_id": 1, "eos_token_id": 2,
            "max_position_embeddings": 64}


def draw_rope(draw):
    base = draw.choice([10000.0, 500000.0])
    return draw.choice([
        {"rope_type": "default", "rope_theta": base},
        {"rope_type": "linear", "rope_theta": base, "factor": 2.5},
        {"rope_type": "yarn", "rope_theta": base, "factor": 4.0, "original_max_position_embeddings": 16},
        {"rope_type": "yarn", "rope_theta": base, "factor": 4.0, "original_max_position_embeddings": 16,
         "beta_fast": 8.0, "beta_slow": 0.5, "attention_factor": 1.25},
        {"rope_type": "llama3", "rope_theta": base, "factor": 4.0, "original_max_position_embeddings": 16,
         "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    ])


def llama(draw):
    return transformers.LlamaConfig(**decoder_sizes(draw), attention_bias=draw.random() < 0.3,
                                    mlp_bias=draw.random() < 0.3, rope_parameters=draw_rope(draw))


def mistral(draw):
    return transformers.MistralConfig(**decoder_sizes(draw), sliding_window=draw.choice([None, 1, 3, 7]),
                                      rope_parameters=draw_rope(draw))


def qwen(draw, kind=transformers.Qwen2Config):
    sizes = decoder_sizes(draw)
    if kind is transformers.Qwen2Config:
        sizes["hidden_size"] = sizes["head_dim"] * sizes["num_attention_heads"]
        del sizes["head_dim"]
    return kind(**sizes, use_sliding_window=draw.random() < 0.5, sliding_window=draw.choice([2, 5]),
                max_window_layers=draw.choice([0, 1, 2]), rope_parameters=draw_rope(draw))


def qwen3(draw):
    return qwen(draw, transformers.Qwen3Config)


def gemma2(draw):
    sizes = decoder_sizes(draw)
    types = [draw.choice(["sliding_attention", "full_attention"]) for _ in range(sizes["num_hidden_layers"])]
    return transformers.Gemma2Config(
        **sizes, query_pre_attn_scalar=draw.choice([8, 20]), sliding_window=draw.choice([2, 5]),
        attn_logit_softcapping=draw.choice([None, 2.0, 50.0]), final_logit_softcapping=draw.choice([None, 1.5, 30.0]),
        layer_types=draw.choice([None, types]), attention_bias=draw.random() < 0.3)


def gpt2(draw):
    heads = draw.choice([2, 3, 4])
    return transformers.GPT2Config(
        n_layer=draw.randint(1, 3), n_head=heads, n_embd=heads * draw.choice([8, 12]), n_positions=64,
        n_inner=draw.choice([None, 37]), vocab_size=draw.choice([29, 101]), bos_token_id=1, eos_token_id=2,
        activation_function=draw.choice(["gelu_new", "relu"]), scale_attn_weights=draw.random() < 0.7,
        tie_word_embeddings=draw.random() < 0.7, layer_norm_epsilon=1e-5)
