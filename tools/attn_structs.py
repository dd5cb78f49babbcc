# SPDX-License-Identifier: Apache-2.0
"""
The structs of the public headers for ctypes, for the programs here that call the libraries from Python.

LIBATTN and LIBATTN_NN have them by their names in C. tests/install/check_structs.py compares each field with the headers
as the compiler has them.
"""

import ctypes
from ctypes import c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p


class Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int), ("shape", c_int64 * 4), ("stride", c_int64 * 4)]


class Sized(ctypes.Structure):
    """A struct that begins with its own size: made with the fields that are not zero."""

    def __init__(self, /, **fields):
        super().__init__()
        self.struct_size = ctypes.sizeof(self)
        for name, value in fields.items():
            if name not in self._names:
                raise AttributeError(f"{type(self).__name__} has no field {name}")
            setattr(self, name, value)

    def __init_subclass__(cls):
        super().__init_subclass__()
        cls._names = {name for name, _ in cls._fields_}


def _size():
    return [("struct_size", c_size_t)]


def _pointers(*names):
    return [(name, c_void_p) for name in names]


def _lengths(*names):
    return [(name, c_int64) for name in names]


def _ints(*names):
    return [(name, c_int) for name in names]


def _doubles(*names):
    return [(name, c_double) for name in names]


def _tensors(*names):
    return [(name, Tensor) for name in names]


# -------------------------------------------------------------------- libattn --


class Params(Sized):
    _fields_ = (
        _size()
        + [("scale", c_float), ("temperature", c_float), ("head_scale", c_void_p), ("softcap", c_float)]
        + _pointers("sinks", "alibi_slopes", "relative_bias", "disentangled", "rope", "callback", "callback_user")
        + _ints("causal")
        + _pointers("query_offset", "kv_len", "kv_start", "prefix_len", "window", "block_mask", "segments", "tree")
        + _pointers("mask", "ragged", "dropout", "weight_callback", "weight_callback_user")
        + _pointers("lse", "weights", "weight_rows")
        + _lengths("num_weight_rows")
        + _pointers("key_sums", "scores")
        + _ints("score_stage", "qk", "num_threads")
        + [("isa", c_char_p)]
        + _pointers("executor", "block_table")
        + _lengths("block_table_stride", "page_size")
        + _pointers("q_scale", "k_scale", "v_scale")
        + _ints("inputs", "sums")
    )


class Gradients(Sized):
    _fields_ = _size() + _pointers(
        "out", "lse", "q", "k", "v", "head_scale", "sinks", "alibi_slopes", "relative_bias", "mask",
        "callback", "callback_user", "rel_k", "rel_q"
    )


class LinearAttentionParams(Sized):
    _fields_ = (
        _size()
        + _pointers("decay", "beta")
        + [("scale", c_float)]
        + _pointers("state_in", "state_out", "resets", "cu_seqlens")
        + _lengths("num_sequences")
        + _pointers("lengths")
        + _ints("map")
        + _pointers("projection")
        + _ints("normalise", "bidirectional", "num_threads")
        + [("isa", c_char_p)]
        + _pointers("executor")
    )


class LinearAttentionGradients(Sized):
    _fields_ = _size() + _pointers("out", "state_out", "q", "k", "v", "decay", "state_in")


class RopeConfig(Sized):
    _fields_ = (
        _size()
        + _lengths("pairs")
        + _doubles("base")
        + _ints("scaling")
        + _doubles("factor")
        + _lengths("original_length")
        + _doubles("beta_fast", "beta_slow", "attention_factor", "low_freq_factor", "high_freq_factor")
        + _ints("no_truncation")
        + _pointers("short_factor", "long_factor")
        + _lengths("length")
    )


class CacheConfig(Sized):
    _fields_ = (
        _size()
        + _lengths("layers", "kv_heads", "dk", "dv")
        + _ints("dtype")
        + _lengths("max_tokens", "max_sequences", "page_size", "num_pages", "window", "first_tokens")
        + _pointers("rope")
        + _ints("rope_layout", "v_in_k")
    )


class CacheUsage(Sized):
    _fields_ = _size() + _lengths(
        "num_pages", "pages_in_use", "page_size", "page_bytes", "num_sequences", "tokens", "bytes"
    )


LIBATTN = {
    "attn_tensor": Tensor,
    "attn_params": Params,
    "attn_gradients": Gradients,
    "attn_linear_attention_params": LinearAttentionParams,
    "attn_linear_attention_gradients": LinearAttentionGradients,
    "attn_rope_config": RopeConfig,
    "attn_cache_config": CacheConfig,
    "attn_cache_usage": CacheUsage,
}

# ----------------------------------------------------------------- libattn_nn --


class LinearFormat(Sized):
    _fields_ = _size() + _ints("weights", "multiply") + _lengths("group") + _pointers("isa")


class LinearGradients(Sized):
    _fields_ = (
        _size()
        + _pointers("x", "weights", "bias")
        + _ints("accumulate", "num_threads")
        + _pointers("executor")
        + _ints("accumulate_x")
    )


class LinearOptions(Sized):
    _fields_ = _size() + _ints("activation") + _pointers("residual") + _ints("num_threads") + _pointers("executor")


class NormGradients(Sized):
    _fields_ = _size() + _pointers("x", "gamma", "beta") + _ints("accumulate", "num_threads")


class PoolGradients(Sized):
    _fields_ = _size() + _pointers("x", "w", "bias", "v") + _ints("accumulate", "num_threads")


class MhaConfig(Sized):
    _fields_ = (
        _size()
        + _lengths("d_model", "heads", "kv_heads", "head_dim", "value_dim", "d_memory", "d_out")
        + _pointers("format")
    )


class MhaWeights(Sized):
    _fields_ = _size() + _tensors("w_q", "b_q", "w_k", "b_k", "w_v", "b_v", "w_o", "b_o")


class MhaGradients(Sized):
    _fields_ = _size() + _pointers("x", "memory", "weights", "options") + _ints("accumulate")


class BlockConfig(Sized):
    _fields_ = (
        _size()
        + _pointers("attention")
        + _lengths("d_ff")
        + _ints("activation", "gated", "norm")
        + [("eps", c_float)]
        + _ints("norm_first", "cross")
        + _lengths("d_memory")
        + _pointers("format")
        + _ints("qk_norm", "post_norms", "norm_plus_one")
    )


class BlockWeights(Sized):
    _fields_ = (
        _size()
        + _pointers("self", "cross")
        + _tensors("w_gate", "b_gate", "w_up", "b_up", "w_down", "b_down")
        + _tensors("self_gamma", "self_beta", "cross_gamma", "cross_beta", "network_gamma", "network_beta")
    )


class BlockPass(Sized):
    _fields_ = (
        _size()
        + _pointers("self", "cross", "memory", "dropout", "hidden_dropout", "kept")
        + [("kept_size", c_size_t)]
        + _ints("num_threads")
        + _pointers("executor")
    )


class BlockGradients(Sized):
    _fields_ = (
        _size()
        + _pointers("x", "memory", "weights", "self_options", "cross_options")
        + _ints("accumulate", "accumulate_memory")
    )


class BlockInputs(Sized):
    _fields_ = (
        _size()
        + _pointers("self", "cross", "memory", "cross_kv", "cache")
        + _lengths("cached")
        + _pointers("rotation")
        + _ints("rope", "num_threads")
        + _pointers("executor", "kv_cache")
        + _lengths("kv_layer")
    )


class AlignmentConfig(Sized):
    _fields_ = (
        _size()
        + _ints("score")
        + _lengths("d_query", "d_key", "d_attention")
        + [("temperature", c_float)]
        + _tensors("w_q", "w_k", "bias", "v")
    )


class AlignmentGradients(Sized):
    _fields_ = _size() + _pointers("q", "projected", "v", "w_q", "score_v") + _ints("accumulate", "accumulate_keys")


class LstmConfig(Sized):
    _fields_ = _size() + _lengths("input", "hidden", "layers") + _ints("bidirectional") + _pointers("format")


class LstmWeights(ctypes.Structure):
    _fields_ = _tensors("w_ih", "w_hh", "b_ih", "b_hh")


class LstmGradients(Sized):
    _fields_ = _size() + _pointers("x", "weights", "state") + _ints("accumulate", "num_threads")


class BahdanauConfig(Sized):
    _fields_ = (
        _size()
        + _pointers("alignment")
        + _lengths("embedding", "annotation", "hidden")
        + _tensors("w_ih", "w_hh", "b_ih", "b_hh")
    )


class BahdanauGradients(Sized):
    _fields_ = (
        _size()
        + _pointers("state", "word", "projected", "annotations", "w_ih", "w_hh", "b_ih", "b_hh", "w_q", "score_v")
        + _ints("accumulate", "accumulate_keys", "num_threads")
    )


class BertConfig(Sized):
    _fields_ = (
        _size()
        + _lengths("layers", "d_model", "heads", "d_ff", "vocabulary", "positions")
        + _ints("activation")
        + [("eps", c_float)]
        + _lengths("token_types", "first_position")
        + _pointers("format")
        + _ints("activations")
    )


class LlamaConfig(Sized):
    _fields_ = (
        _size()
        + _lengths("layers", "d_model", "heads", "kv_heads", "head_dim", "d_ff", "vocabulary")
        + [("eps", c_float)]
        + _pointers("rope")
        + _ints("tied")
        + _pointers("format")
        + _ints("activations")
    )


class TransformerConfig(Sized):
    _fields_ = (
        _size()
        + _lengths("encoder_layers", "decoder_layers", "d_model", "heads", "d_ff")
        + _lengths("source_vocabulary", "target_vocabulary", "positions")
        + _ints("activation")
        + [("eps", c_float)]
        + _ints("norm_first", "final_norms")
        + [("bos", c_int32), ("eos", c_int32)]
        + _pointers("format")
        + _ints("activations")
    )


class ModelOptions(Sized):
    _fields_ = (
        _size()
        + _pointers("format")
        + _ints("activations", "pooling", "normalise")
        + _pointers("progress", "progress_user")
    )


class ModelInfo(Sized):
    _fields_ = (
        _size()
        + _ints("kind")
        + [("model_type", c_char_p), ("architecture", c_char_p)]
        + _lengths("layers", "d_model", "heads", "kv_heads", "head_dim", "d_ff", "vocabulary")
        + _lengths("max_positions", "max_tokens", "token_types")
        + _ints("pooler")
        + _lengths("logits")
        + _ints("pooling", "normalise")
        + _lengths("num_eos")
        + _pointers("eos")
        + _lengths("decoder_layers", "decoder_start", "pad", "token_logits")
    )


class ModelBatch(Sized):
    _fields_ = (
        _size()
        + _lengths("num_sequences")
        + _pointers("offsets", "ids", "token_types")
        + _ints("num_threads")
        + _pointers("executor")
    )


class ModelOutputs(Sized):
    _fields_ = _size() + _pointers("hidden", "states", "weights", "pooled", "embeddings", "logits", "token_logits")


class ModelTokens(Sized):
    _fields_ = (
        _size()
        + _pointers("ids", "tree")
        + _lengths("num_rows")
        + _pointers("rows")
        + _ints("num_threads")
        + _pointers("executor", "memory", "sources")
    )


class ModelPass(Sized):
    _fields_ = (
        _size()
        + [(name, c_float) for name in ("dropout", "attention_dropout", "hidden_dropout")]
        + [("seed", c_uint64), ("step", c_uint64)]
        + _ints("keep")
        + _pointers("kept")
        + [("kept_size", c_size_t)]
        + _ints("num_threads")
        + _pointers("executor")
    )


class BertWeights(Sized):
    _fields_ = _size() + _tensors("words", "positions", "types", "gamma", "beta") + _pointers("layers")


class TransformerWeights(Sized):
    _fields_ = (
        _size()
        + _tensors("source_embedding", "target_embedding")
        + _pointers("encoder")
        + _tensors("encoder_gamma", "encoder_beta")
        + _pointers("decoder")
        + _tensors("decoder_gamma", "decoder_beta", "generator", "generator_bias")
    )


class TransformerPairs(Sized):
    _fields_ = (
        _size()
        + _lengths("num_pairs")
        + _pointers("source_offsets", "source_ids", "target_offsets", "target_ids")
    )


class Parameter(ctypes.Structure):
    _fields_ = _pointers("values", "gradients", "mean", "square") + _lengths("count") + _ints("decays")


class AdamwOptions(Sized):
    _fields_ = (
        _size()
        + [(name, c_float) for name in ("learning_rate", "beta1", "beta2", "eps", "weight_decay")]
        + _ints("num_threads")
    )


class Schedule(Sized):
    _fields_ = _size() + _ints("kind") + _doubles("peak", "final") + _lengths("warmup", "steps")


LIBATTN_NN = {
    "attn_linear_format": LinearFormat,
    "attn_linear_gradients": LinearGradients,
    "attn_linear_options": LinearOptions,
    "attn_norm_gradients": NormGradients,
    "attn_mha_config": MhaConfig,
    "attn_mha_weights": MhaWeights,
    "attn_block_config": BlockConfig,
    "attn_block_inputs": BlockInputs,
    "attn_block_weights": BlockWeights,
    "attn_block_pass": BlockPass,
    "attn_block_gradients": BlockGradients,
    "attn_alignment_config": AlignmentConfig,
    "attn_alignment_gradients": AlignmentGradients,
    "attn_lstm_config": LstmConfig,
    "attn_bahdanau_config": BahdanauConfig,
    "attn_bahdanau_gradients": BahdanauGradients,
    "attn_bert_config": BertConfig,
    "attn_llama_config": LlamaConfig,
    "attn_transformer_config": TransformerConfig,
    "attn_model_options": ModelOptions,
    "attn_model_info": ModelInfo,
    "attn_model_batch": ModelBatch,
    "attn_model_outputs": ModelOutputs,
    "attn_model_tokens": ModelTokens,
    "attn_model_pass": ModelPass,
    "attn_bert_weights": BertWeights,
    "attn_transformer_weights": TransformerWeights,
    "attn_transformer_pairs": TransformerPairs,
    "attn_parameter": Parameter,
    "attn_adamw_options": AdamwOptions,
    "attn_schedule": Schedule,
}
