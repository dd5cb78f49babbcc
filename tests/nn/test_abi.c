/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of what libattn_nn's headers declare, as it is compiled into
 * programs: the offset of every field and the value of every constant. A field
 * may be added behind the others of a struct with struct_size, whose size then
 * grows, and a constant behind the others of its enum; every other difference
 * breaks programs that are not compiled anew. tests/nn/test_structs.c has what
 * the library makes of other sizes.
 *
 * The numbers are those of 64-bit systems. With --json the program prints the
 * layout, for tests/install/check_structs.py.
 */
#include "cmocka_all.h"

#include "attn/nn.h"
#include "places.h"

#include <string.h>

static const struct place places[] = {
    SIZE(attn_linear_format, 32),
    FIELD(attn_linear_format, struct_size, 0),
    FIELD(attn_linear_format, weights, 8),
    FIELD(attn_linear_format, multiply, 12),
    FIELD(attn_linear_format, group, 16),
    FIELD(attn_linear_format, isa, 24),
    SIZE(attn_linear_gradients, 56),
    FIELD(attn_linear_gradients, struct_size, 0),
    FIELD(attn_linear_gradients, x, 8),
    FIELD(attn_linear_gradients, weights, 16),
    FIELD(attn_linear_gradients, bias, 24),
    FIELD(attn_linear_gradients, accumulate, 32),
    FIELD(attn_linear_gradients, num_threads, 36),
    FIELD(attn_linear_gradients, executor, 40),
    FIELD(attn_linear_gradients, accumulate_x, 48),
    SIZE(attn_linear_options, 40),
    FIELD(attn_linear_options, struct_size, 0),
    FIELD(attn_linear_options, activation, 8),
    FIELD(attn_linear_options, residual, 16),
    FIELD(attn_linear_options, num_threads, 24),
    FIELD(attn_linear_options, executor, 32),
    SIZE(attn_lstm_gradients, 40),
    FIELD(attn_lstm_gradients, struct_size, 0),
    FIELD(attn_lstm_gradients, x, 8),
    FIELD(attn_lstm_gradients, weights, 16),
    FIELD(attn_lstm_gradients, state, 24),
    FIELD(attn_lstm_gradients, accumulate, 32),
    FIELD(attn_lstm_gradients, num_threads, 36),
    SIZE(attn_alignment_gradients, 56),
    FIELD(attn_alignment_gradients, struct_size, 0),
    FIELD(attn_alignment_gradients, q, 8),
    FIELD(attn_alignment_gradients, projected, 16),
    FIELD(attn_alignment_gradients, v, 24),
    FIELD(attn_alignment_gradients, w_q, 32),
    FIELD(attn_alignment_gradients, score_v, 40),
    FIELD(attn_alignment_gradients, accumulate, 48),
    FIELD(attn_alignment_gradients, accumulate_keys, 52),
    SIZE(attn_bahdanau_gradients, 104),
    FIELD(attn_bahdanau_gradients, struct_size, 0),
    FIELD(attn_bahdanau_gradients, state, 8),
    FIELD(attn_bahdanau_gradients, word, 16),
    FIELD(attn_bahdanau_gradients, projected, 24),
    FIELD(attn_bahdanau_gradients, annotations, 32),
    FIELD(attn_bahdanau_gradients, w_ih, 40),
    FIELD(attn_bahdanau_gradients, w_hh, 48),
    FIELD(attn_bahdanau_gradients, b_ih, 56),
    FIELD(attn_bahdanau_gradients, b_hh, 64),
    FIELD(attn_bahdanau_gradients, w_q, 72),
    FIELD(attn_bahdanau_gradients, score_v, 80),
    FIELD(attn_bahdanau_gradients, accumulate, 88),
    FIELD(attn_bahdanau_gradients, accumulate_keys, 92),
    FIELD(attn_bahdanau_gradients, num_threads, 96),
    SIZE(attn_pool_gradients, 48),
    FIELD(attn_pool_gradients, struct_size, 0),
    FIELD(attn_pool_gradients, x, 8),
    FIELD(attn_pool_gradients, w, 16),
    FIELD(attn_pool_gradients, bias, 24),
    FIELD(attn_pool_gradients, v, 32),
    FIELD(attn_pool_gradients, accumulate, 40),
    FIELD(attn_pool_gradients, num_threads, 44),
    SIZE(attn_norm_gradients, 40),
    FIELD(attn_norm_gradients, struct_size, 0),
    FIELD(attn_norm_gradients, x, 8),
    FIELD(attn_norm_gradients, gamma, 16),
    FIELD(attn_norm_gradients, beta, 24),
    FIELD(attn_norm_gradients, accumulate, 32),
    FIELD(attn_norm_gradients, num_threads, 36),
    SIZE(attn_block_gradients, 56),
    FIELD(attn_block_gradients, struct_size, 0),
    FIELD(attn_block_gradients, x, 8),
    FIELD(attn_block_gradients, memory, 16),
    FIELD(attn_block_gradients, weights, 24),
    FIELD(attn_block_gradients, self_options, 32),
    FIELD(attn_block_gradients, cross_options, 40),
    FIELD(attn_block_gradients, accumulate, 48),
    FIELD(attn_block_gradients, accumulate_memory, 52),
    SIZE(attn_bert_weights, 416),
    FIELD(attn_bert_weights, struct_size, 0),
    FIELD(attn_bert_weights, words, 8),
    FIELD(attn_bert_weights, positions, 88),
    FIELD(attn_bert_weights, types, 168),
    FIELD(attn_bert_weights, gamma, 248),
    FIELD(attn_bert_weights, beta, 328),
    FIELD(attn_bert_weights, layers, 408),
    SIZE(attn_model_options, 48),
    FIELD(attn_model_options, struct_size, 0),
    FIELD(attn_model_options, format, 8),
    FIELD(attn_model_options, activations, 16),
    FIELD(attn_model_options, pooling, 20),
    FIELD(attn_model_options, normalise, 24),
    FIELD(attn_model_options, progress, 32),
    FIELD(attn_model_options, progress_user, 40),
    SIZE(attn_model_info, 184),
    FIELD(attn_model_info, struct_size, 0),
    FIELD(attn_model_info, kind, 8),
    FIELD(attn_model_info, model_type, 16),
    FIELD(attn_model_info, architecture, 24),
    FIELD(attn_model_info, layers, 32),
    FIELD(attn_model_info, d_model, 40),
    FIELD(attn_model_info, heads, 48),
    FIELD(attn_model_info, kv_heads, 56),
    FIELD(attn_model_info, head_dim, 64),
    FIELD(attn_model_info, d_ff, 72),
    FIELD(attn_model_info, vocabulary, 80),
    FIELD(attn_model_info, max_positions, 88),
    FIELD(attn_model_info, max_tokens, 96),
    FIELD(attn_model_info, token_types, 104),
    FIELD(attn_model_info, pooler, 112),
    FIELD(attn_model_info, logits, 120),
    FIELD(attn_model_info, pooling, 128),
    FIELD(attn_model_info, normalise, 132),
    FIELD(attn_model_info, num_eos, 136),
    FIELD(attn_model_info, eos, 144),
    FIELD(attn_model_info, decoder_layers, 152),
    FIELD(attn_model_info, decoder_start, 160),
    FIELD(attn_model_info, pad, 168),
    FIELD(attn_model_info, token_logits, 176),
    SIZE(attn_model_batch, 56),
    FIELD(attn_model_batch, struct_size, 0),
    FIELD(attn_model_batch, num_sequences, 8),
    FIELD(attn_model_batch, offsets, 16),
    FIELD(attn_model_batch, ids, 24),
    FIELD(attn_model_batch, token_types, 32),
    FIELD(attn_model_batch, num_threads, 40),
    FIELD(attn_model_batch, executor, 48),
    SIZE(attn_model_outputs, 64),
    FIELD(attn_model_outputs, struct_size, 0),
    FIELD(attn_model_outputs, hidden, 8),
    FIELD(attn_model_outputs, states, 16),
    FIELD(attn_model_outputs, weights, 24),
    FIELD(attn_model_outputs, pooled, 32),
    FIELD(attn_model_outputs, embeddings, 40),
    FIELD(attn_model_outputs, logits, 48),
    FIELD(attn_model_outputs, token_logits, 56),
    SIZE(attn_model_tokens, 72),
    FIELD(attn_model_tokens, struct_size, 0),
    FIELD(attn_model_tokens, ids, 8),
    FIELD(attn_model_tokens, tree, 16),
    FIELD(attn_model_tokens, num_rows, 24),
    FIELD(attn_model_tokens, rows, 32),
    FIELD(attn_model_tokens, num_threads, 40),
    FIELD(attn_model_tokens, executor, 48),
    FIELD(attn_model_tokens, memory, 56),
    FIELD(attn_model_tokens, sources, 64),
    SIZE(attn_model_pass, 80),
    FIELD(attn_model_pass, struct_size, 0),
    FIELD(attn_model_pass, dropout, 8),
    FIELD(attn_model_pass, attention_dropout, 12),
    FIELD(attn_model_pass, hidden_dropout, 16),
    FIELD(attn_model_pass, seed, 24),
    FIELD(attn_model_pass, step, 32),
    FIELD(attn_model_pass, keep, 40),
    FIELD(attn_model_pass, kept, 48),
    FIELD(attn_model_pass, kept_size, 56),
    FIELD(attn_model_pass, num_threads, 64),
    FIELD(attn_model_pass, executor, 72),
    SIZE(attn_transformer_pairs, 48),
    FIELD(attn_transformer_pairs, struct_size, 0),
    FIELD(attn_transformer_pairs, num_pairs, 8),
    FIELD(attn_transformer_pairs, source_offsets, 16),
    FIELD(attn_transformer_pairs, source_ids, 24),
    FIELD(attn_transformer_pairs, target_offsets, 32),
    FIELD(attn_transformer_pairs, target_ids, 40),
    SIZE(attn_transformer_weights, 664),
    FIELD(attn_transformer_weights, struct_size, 0),
    FIELD(attn_transformer_weights, source_embedding, 8),
    FIELD(attn_transformer_weights, target_embedding, 88),
    FIELD(attn_transformer_weights, encoder, 168),
    FIELD(attn_transformer_weights, encoder_gamma, 176),
    FIELD(attn_transformer_weights, encoder_beta, 256),
    FIELD(attn_transformer_weights, decoder, 336),
    FIELD(attn_transformer_weights, decoder_gamma, 344),
    FIELD(attn_transformer_weights, decoder_beta, 424),
    FIELD(attn_transformer_weights, generator, 504),
    FIELD(attn_transformer_weights, generator_bias, 584),
    SIZE(attn_block_pass, 80),
    FIELD(attn_block_pass, struct_size, 0),
    FIELD(attn_block_pass, self, 8),
    FIELD(attn_block_pass, cross, 16),
    FIELD(attn_block_pass, memory, 24),
    FIELD(attn_block_pass, dropout, 32),
    FIELD(attn_block_pass, hidden_dropout, 40),
    FIELD(attn_block_pass, kept, 48),
    FIELD(attn_block_pass, kept_size, 56),
    FIELD(attn_block_pass, num_threads, 64),
    FIELD(attn_block_pass, executor, 72),
    SIZE(attn_block_weights, 984),
    FIELD(attn_block_weights, struct_size, 0),
    FIELD(attn_block_weights, self, 8),
    FIELD(attn_block_weights, cross, 16),
    FIELD(attn_block_weights, w_gate, 24),
    FIELD(attn_block_weights, b_gate, 104),
    FIELD(attn_block_weights, w_up, 184),
    FIELD(attn_block_weights, b_up, 264),
    FIELD(attn_block_weights, w_down, 344),
    FIELD(attn_block_weights, b_down, 424),
    FIELD(attn_block_weights, self_gamma, 504),
    FIELD(attn_block_weights, self_beta, 584),
    FIELD(attn_block_weights, cross_gamma, 664),
    FIELD(attn_block_weights, cross_beta, 744),
    FIELD(attn_block_weights, network_gamma, 824),
    FIELD(attn_block_weights, network_beta, 904),
    SIZE(attn_mha_config, 72),
    FIELD(attn_mha_config, struct_size, 0),
    FIELD(attn_mha_config, d_model, 8),
    FIELD(attn_mha_config, heads, 16),
    FIELD(attn_mha_config, kv_heads, 24),
    FIELD(attn_mha_config, head_dim, 32),
    FIELD(attn_mha_config, value_dim, 40),
    FIELD(attn_mha_config, d_memory, 48),
    FIELD(attn_mha_config, d_out, 56),
    FIELD(attn_mha_config, format, 64),
    SIZE(attn_mha_gradients, 64),
    FIELD(attn_mha_gradients, struct_size, 0),
    FIELD(attn_mha_gradients, x, 8),
    FIELD(attn_mha_gradients, memory, 16),
    FIELD(attn_mha_gradients, weights, 24),
    FIELD(attn_mha_gradients, options, 32),
    FIELD(attn_mha_gradients, accumulate, 40),
    FIELD(attn_mha_gradients, kept, 48),
    FIELD(attn_mha_gradients, kept_size, 56),
    SIZE(attn_mha_weights, 648),
    FIELD(attn_mha_weights, struct_size, 0),
    FIELD(attn_mha_weights, w_q, 8),
    FIELD(attn_mha_weights, b_q, 88),
    FIELD(attn_mha_weights, w_k, 168),
    FIELD(attn_mha_weights, b_k, 248),
    FIELD(attn_mha_weights, w_v, 328),
    FIELD(attn_mha_weights, b_v, 408),
    FIELD(attn_mha_weights, w_o, 488),
    FIELD(attn_mha_weights, b_o, 568),
    SIZE(attn_block_config, 80),
    FIELD(attn_block_config, struct_size, 0),
    FIELD(attn_block_config, attention, 8),
    FIELD(attn_block_config, d_ff, 16),
    FIELD(attn_block_config, activation, 24),
    FIELD(attn_block_config, gated, 28),
    FIELD(attn_block_config, norm, 32),
    FIELD(attn_block_config, eps, 36),
    FIELD(attn_block_config, norm_first, 40),
    FIELD(attn_block_config, cross, 44),
    FIELD(attn_block_config, d_memory, 48),
    FIELD(attn_block_config, format, 56),
    FIELD(attn_block_config, qk_norm, 64),
    FIELD(attn_block_config, post_norms, 68),
    FIELD(attn_block_config, norm_plus_one, 72),
    SIZE(attn_block_inputs, 96),
    FIELD(attn_block_inputs, struct_size, 0),
    FIELD(attn_block_inputs, self, 8),
    FIELD(attn_block_inputs, cross, 16),
    FIELD(attn_block_inputs, memory, 24),
    FIELD(attn_block_inputs, cross_kv, 32),
    FIELD(attn_block_inputs, cache, 40),
    FIELD(attn_block_inputs, cached, 48),
    FIELD(attn_block_inputs, rotation, 56),
    FIELD(attn_block_inputs, rope, 64),
    FIELD(attn_block_inputs, num_threads, 68),
    FIELD(attn_block_inputs, executor, 72),
    FIELD(attn_block_inputs, kv_cache, 80),
    FIELD(attn_block_inputs, kv_layer, 88),
    SIZE(attn_alignment_config, 368),
    FIELD(attn_alignment_config, struct_size, 0),
    FIELD(attn_alignment_config, score, 8),
    FIELD(attn_alignment_config, d_query, 16),
    FIELD(attn_alignment_config, d_key, 24),
    FIELD(attn_alignment_config, d_attention, 32),
    FIELD(attn_alignment_config, temperature, 40),
    FIELD(attn_alignment_config, w_q, 48),
    FIELD(attn_alignment_config, w_k, 128),
    FIELD(attn_alignment_config, bias, 208),
    FIELD(attn_alignment_config, v, 288),
    SIZE(attn_lstm_config, 48),
    FIELD(attn_lstm_config, struct_size, 0),
    FIELD(attn_lstm_config, input, 8),
    FIELD(attn_lstm_config, hidden, 16),
    FIELD(attn_lstm_config, layers, 24),
    FIELD(attn_lstm_config, bidirectional, 32),
    FIELD(attn_lstm_config, format, 40),
    SIZE(attn_lstm_weights, 320),
    FIELD(attn_lstm_weights, w_ih, 0),
    FIELD(attn_lstm_weights, w_hh, 80),
    FIELD(attn_lstm_weights, b_ih, 160),
    FIELD(attn_lstm_weights, b_hh, 240),
    SIZE(attn_bahdanau_config, 360),
    FIELD(attn_bahdanau_config, struct_size, 0),
    FIELD(attn_bahdanau_config, alignment, 8),
    FIELD(attn_bahdanau_config, embedding, 16),
    FIELD(attn_bahdanau_config, annotation, 24),
    FIELD(attn_bahdanau_config, hidden, 32),
    FIELD(attn_bahdanau_config, w_ih, 40),
    FIELD(attn_bahdanau_config, w_hh, 120),
    FIELD(attn_bahdanau_config, b_ih, 200),
    FIELD(attn_bahdanau_config, b_hh, 280),
    SIZE(attn_bert_config, 96),
    FIELD(attn_bert_config, struct_size, 0),
    FIELD(attn_bert_config, layers, 8),
    FIELD(attn_bert_config, d_model, 16),
    FIELD(attn_bert_config, heads, 24),
    FIELD(attn_bert_config, d_ff, 32),
    FIELD(attn_bert_config, vocabulary, 40),
    FIELD(attn_bert_config, positions, 48),
    FIELD(attn_bert_config, activation, 56),
    FIELD(attn_bert_config, eps, 60),
    FIELD(attn_bert_config, token_types, 64),
    FIELD(attn_bert_config, first_position, 72),
    FIELD(attn_bert_config, format, 80),
    FIELD(attn_bert_config, activations, 88),
    SIZE(attn_bert_outputs, 16),
    FIELD(attn_bert_outputs, struct_size, 0),
    FIELD(attn_bert_outputs, weights, 8),
    SIZE(attn_llama_config, 104),
    FIELD(attn_llama_config, struct_size, 0),
    FIELD(attn_llama_config, layers, 8),
    FIELD(attn_llama_config, d_model, 16),
    FIELD(attn_llama_config, heads, 24),
    FIELD(attn_llama_config, kv_heads, 32),
    FIELD(attn_llama_config, head_dim, 40),
    FIELD(attn_llama_config, d_ff, 48),
    FIELD(attn_llama_config, vocabulary, 56),
    FIELD(attn_llama_config, eps, 64),
    FIELD(attn_llama_config, rope, 72),
    FIELD(attn_llama_config, tied, 80),
    FIELD(attn_llama_config, format, 88),
    FIELD(attn_llama_config, activations, 96),
    SIZE(attn_transformer_config, 112),
    FIELD(attn_transformer_config, struct_size, 0),
    FIELD(attn_transformer_config, encoder_layers, 8),
    FIELD(attn_transformer_config, decoder_layers, 16),
    FIELD(attn_transformer_config, d_model, 24),
    FIELD(attn_transformer_config, heads, 32),
    FIELD(attn_transformer_config, d_ff, 40),
    FIELD(attn_transformer_config, source_vocabulary, 48),
    FIELD(attn_transformer_config, target_vocabulary, 56),
    FIELD(attn_transformer_config, positions, 64),
    FIELD(attn_transformer_config, activation, 72),
    FIELD(attn_transformer_config, eps, 76),
    FIELD(attn_transformer_config, norm_first, 80),
    FIELD(attn_transformer_config, final_norms, 84),
    FIELD(attn_transformer_config, bos, 88),
    FIELD(attn_transformer_config, eos, 92),
    FIELD(attn_transformer_config, format, 96),
    FIELD(attn_transformer_config, activations, 104),
    SIZE(attn_hypothesis, 24),
    FIELD(attn_hypothesis, length, 0),
    FIELD(attn_hypothesis, ids, 8),
    FIELD(attn_hypothesis, log_prob, 16),
    SIZE(attn_decoding, 40),
    FIELD(attn_decoding, struct_size, 0),
    FIELD(attn_decoding, beams, 8),
    FIELD(attn_decoding, max_length, 16),
    FIELD(attn_decoding, length_penalty, 24),
    FIELD(attn_decoding, num_threads, 28),
    FIELD(attn_decoding, executor, 32),
    SIZE(attn_parameter, 48),
    FIELD(attn_parameter, values, 0),
    FIELD(attn_parameter, gradients, 8),
    FIELD(attn_parameter, mean, 16),
    FIELD(attn_parameter, square, 24),
    FIELD(attn_parameter, count, 32),
    FIELD(attn_parameter, decays, 40),
    SIZE(attn_adamw_options, 32),
    FIELD(attn_adamw_options, struct_size, 0),
    FIELD(attn_adamw_options, learning_rate, 8),
    FIELD(attn_adamw_options, beta1, 12),
    FIELD(attn_adamw_options, beta2, 16),
    FIELD(attn_adamw_options, eps, 20),
    FIELD(attn_adamw_options, weight_decay, 24),
    FIELD(attn_adamw_options, num_threads, 28),
    SIZE(attn_schedule, 48),
    FIELD(attn_schedule, struct_size, 0),
    FIELD(attn_schedule, kind, 8),
    FIELD(attn_schedule, peak, 16),
    FIELD(attn_schedule, final, 24),
    FIELD(attn_schedule, warmup, 32),
    FIELD(attn_schedule, steps, 40),
};

static const struct {
    const char *name;
    int64_t is, expected;
} values[] = {
    {"ATTN_ACTIVATION_NONE", ATTN_ACTIVATION_NONE, 0},
    {"ATTN_ACTIVATION_RELU", ATTN_ACTIVATION_RELU, 1},
    {"ATTN_ACTIVATION_GELU", ATTN_ACTIVATION_GELU, 2},
    {"ATTN_ACTIVATION_GELU_TANH", ATTN_ACTIVATION_GELU_TANH, 3},
    {"ATTN_ACTIVATION_SILU", ATTN_ACTIVATION_SILU, 4},
    {"ATTN_ACTIVATION_TANH", ATTN_ACTIVATION_TANH, 5},
    {"ATTN_ACTIVATION_SIGMOID", ATTN_ACTIVATION_SIGMOID, 6},
    {"ATTN_WEIGHTS_AS_GIVEN", ATTN_WEIGHTS_AS_GIVEN, 0},
    {"ATTN_WEIGHTS_F32", ATTN_WEIGHTS_F32, 1},
    {"ATTN_WEIGHTS_BF16", ATTN_WEIGHTS_BF16, 2},
    {"ATTN_WEIGHTS_INT8", ATTN_WEIGHTS_INT8, 3},
    {"ATTN_WEIGHTS_INT4", ATTN_WEIGHTS_INT4, 4},
    {"ATTN_MULTIPLY_F32", ATTN_MULTIPLY_F32, 0},
    {"ATTN_MULTIPLY_BF16", ATTN_MULTIPLY_BF16, 1},
    {"ATTN_MULTIPLY_INT8", ATTN_MULTIPLY_INT8, 2},
    {"ATTN_MULTIPLY_INT8_INPUTS", ATTN_MULTIPLY_INT8_INPUTS, 131072},
    {"ATTN_NORM_LAYER", ATTN_NORM_LAYER, 0},
    {"ATTN_NORM_RMS", ATTN_NORM_RMS, 1},
    {"ATTN_NAMING_TORCH", ATTN_NAMING_TORCH, 0},
    {"ATTN_NAMING_BERT", ATTN_NAMING_BERT, 1},
    {"ATTN_NAMING_LLAMA", ATTN_NAMING_LLAMA, 2},
    {"ATTN_NAMING_DISTILBERT", ATTN_NAMING_DISTILBERT, 3},
    {"ATTN_NAMING_GPT2", ATTN_NAMING_GPT2, 4},
    {"ATTN_NAMING_T5", ATTN_NAMING_T5, 5},
    {"ATTN_MODEL_ENCODER", ATTN_MODEL_ENCODER, 0},
    {"ATTN_MODEL_DECODER", ATTN_MODEL_DECODER, 1},
    {"ATTN_MODEL_ENCODER_DECODER", ATTN_MODEL_ENCODER_DECODER, 2},
    {"ATTN_POOLING_NONE", ATTN_POOLING_NONE, 0},
    {"ATTN_POOLING_MEAN", ATTN_POOLING_MEAN, 1},
    {"ATTN_POOLING_FIRST", ATTN_POOLING_FIRST, 2},
    {"ATTN_POOLING_LAST", ATTN_POOLING_LAST, 3},
    {"ATTN_POOLING_MAX", ATTN_POOLING_MAX, 4},
    {"ATTN_SCORE_SCALED_DOT", ATTN_SCORE_SCALED_DOT, 0},
    {"ATTN_SCORE_DOT", ATTN_SCORE_DOT, 1},
    {"ATTN_SCORE_GENERAL", ATTN_SCORE_GENERAL, 2},
    {"ATTN_SCORE_ADDITIVE", ATTN_SCORE_ADDITIVE, 3},
    {"ATTN_ANY", ATTN_ANY, -1},
    {"ATTN_SCHEDULE_CONSTANT", ATTN_SCHEDULE_CONSTANT, 0},
    {"ATTN_SCHEDULE_LINEAR", ATTN_SCHEDULE_LINEAR, 1},
    {"ATTN_SCHEDULE_COSINE", ATTN_SCHEDULE_COSINE, 2},
    {"ATTN_SCHEDULE_INVERSE_SQRT", ATTN_SCHEDULE_INVERSE_SQRT, 3},
};

static void test_places(void **state)
{
    (void)state;
    assert_int_equal(places_wrong(places, sizeof places / sizeof *places), 0);
}

static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i].is != values[i].expected)
            fail_msg("%s is %lld; expected %lld", values[i].name, (long long)values[i].is,
                     (long long)values[i].expected);
}

/** Every struct that begins with struct_size has a function that sets it, and zero in every other field. */
static void check_default(const char *prefix, const void *by_default, size_t size)
{
    int fields = 0;
    assert_int_equal(*(const size_t *)by_default, size);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (strncmp(places[i].name, prefix, strlen(prefix)) != 0)
            continue;
        const unsigned char *field = (const unsigned char *)by_default + places[i].is;
        for (size_t at = 0; at < places[i].size && places[i].is > 0; at++)
            if (field[at])
                fail_msg("%s is not zero by default", places[i].name);
        fields++;
    }
    assert_true(fields > 1);
}

#define DEFAULT_IS_ZERO(type)                                                                                          \
    do {                                                                                                               \
        const type by_default = type##_default();                                                                      \
        check_default(#type ".", &by_default, sizeof by_default);                                                      \
    } while (0)

static void test_defaults(void **state)
{
    (void)state;
    DEFAULT_IS_ZERO(attn_linear_format);
    DEFAULT_IS_ZERO(attn_linear_options);
    DEFAULT_IS_ZERO(attn_norm_gradients);
    DEFAULT_IS_ZERO(attn_lstm_gradients);
    DEFAULT_IS_ZERO(attn_block_gradients);
    DEFAULT_IS_ZERO(attn_block_pass);
    DEFAULT_IS_ZERO(attn_block_weights);
    DEFAULT_IS_ZERO(attn_bert_weights);
    DEFAULT_IS_ZERO(attn_model_options);
    DEFAULT_IS_ZERO(attn_model_info);
    DEFAULT_IS_ZERO(attn_model_batch);
    DEFAULT_IS_ZERO(attn_model_outputs);
    DEFAULT_IS_ZERO(attn_model_tokens);
    DEFAULT_IS_ZERO(attn_model_pass);
    DEFAULT_IS_ZERO(attn_transformer_pairs);
    DEFAULT_IS_ZERO(attn_transformer_weights);
    DEFAULT_IS_ZERO(attn_mha_gradients);
    DEFAULT_IS_ZERO(attn_alignment_gradients);
    DEFAULT_IS_ZERO(attn_bahdanau_gradients);
    DEFAULT_IS_ZERO(attn_pool_gradients);
    DEFAULT_IS_ZERO(attn_mha_config);
    DEFAULT_IS_ZERO(attn_mha_weights);
    DEFAULT_IS_ZERO(attn_block_config);
    DEFAULT_IS_ZERO(attn_block_inputs);
    DEFAULT_IS_ZERO(attn_alignment_config);
    DEFAULT_IS_ZERO(attn_lstm_config);
    DEFAULT_IS_ZERO(attn_bahdanau_config);
    DEFAULT_IS_ZERO(attn_bert_config);
    DEFAULT_IS_ZERO(attn_bert_outputs);
    DEFAULT_IS_ZERO(attn_llama_config);
    DEFAULT_IS_ZERO(attn_transformer_config);
    DEFAULT_IS_ZERO(attn_decoding);
    DEFAULT_IS_ZERO(attn_adamw_options);
    DEFAULT_IS_ZERO(attn_schedule);
}

int main(int argc, char **argv)
{
    if (places_print_on_request(argc, argv, places, sizeof places / sizeof *places))
        return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_places), cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_defaults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
