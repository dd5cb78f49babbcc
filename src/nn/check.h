/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks that the layers share, on top of the core's (api/check.h). Each returns
 * ATTN_OK or keeps a sentence that names the argument and returns its status.
 */
#ifndef ATTN_NN_CHECK_H
#define ATTN_NN_CHECK_H

#include "api/check.h"
#include "api/check_internal.h"
#include "api/error.h"
#include "attn/nn.h"

/**
 * Sizes of structs in their first versions, for attn_take_struct(). None ever changes: the fields named are the last of
 * those versions. A later field begins behind sizeof of the version before it, not in its padding, which callers leave
 * unset.
 */
enum nn_first_size {
    NN_ADAMW_OPTIONS_FIRST = ATTN_FIRST_SIZE(attn_adamw_options, num_threads),
    NN_ALIGNMENT_CONFIG_FIRST = ATTN_FIRST_SIZE(attn_alignment_config, v),
    NN_ALIGNMENT_GRADIENTS_FIRST = ATTN_FIRST_SIZE(attn_alignment_gradients, accumulate_keys),
    NN_BAHDANAU_CONFIG_FIRST = ATTN_FIRST_SIZE(attn_bahdanau_config, b_hh),
    NN_BAHDANAU_GRADIENTS_FIRST = ATTN_FIRST_SIZE(attn_bahdanau_gradients, num_threads),
    NN_BERT_CONFIG_FIRST = ATTN_FIRST_SIZE(attn_bert_config, first_position),
    NN_BERT_OUTPUTS_FIRST = ATTN_FIRST_SIZE(attn_bert_outputs, weights),
    NN_BERT_WEIGHTS_FIRST = ATTN_FIRST_SIZE(attn_bert_weights, layers),
    NN_BLOCK_CONFIG_FIRST = ATTN_FIRST_SIZE(attn_block_config, d_memory),
    NN_BLOCK_GRADIENTS_FIRST = ATTN_FIRST_SIZE(attn_block_gradients, accumulate_memory),
    NN_BLOCK_INPUTS_FIRST = ATTN_FIRST_SIZE(attn_block_inputs, num_threads),
    NN_BLOCK_PASS_FIRST = ATTN_FIRST_SIZE(attn_block_pass, executor),
    NN_BLOCK_WEIGHTS_FIRST = ATTN_FIRST_SIZE(attn_block_weights, network_beta),
    NN_DECODING_FIRST = ATTN_FIRST_SIZE(attn_decoding, num_threads),
    NN_LINEAR_FORMAT_FIRST = ATTN_FIRST_SIZE(attn_linear_format, isa),
    NN_LINEAR_GRADIENTS_FIRST = ATTN_FIRST_SIZE(attn_linear_gradients, executor),
    NN_LINEAR_OPTIONS_FIRST = ATTN_FIRST_SIZE(attn_linear_options, num_threads),
    NN_LLAMA_CONFIG_FIRST = ATTN_FIRST_SIZE(attn_llama_config, tied),
    NN_LSTM_CONFIG_FIRST = ATTN_FIRST_SIZE(attn_lstm_config, bidirectional),
    NN_LSTM_GRADIENTS_FIRST = ATTN_FIRST_SIZE(attn_lstm_gradients, num_threads),
    NN_MHA_CONFIG_FIRST = ATTN_FIRST_SIZE(attn_mha_config, d_out),
    NN_MHA_GRADIENTS_FIRST = ATTN_FIRST_SIZE(attn_mha_gradients, accumulate),
    NN_MHA_WEIGHTS_FIRST = ATTN_FIRST_SIZE(attn_mha_weights, b_o),
    NN_MODEL_BATCH_FIRST = ATTN_FIRST_SIZE(attn_model_batch, executor),
    NN_MODEL_INFO_FIRST = ATTN_FIRST_SIZE(attn_model_info, eos),
    NN_MODEL_OPTIONS_FIRST = ATTN_FIRST_SIZE(attn_model_options, normalise),
    NN_MODEL_OUTPUTS_FIRST = ATTN_FIRST_SIZE(attn_model_outputs, logits),
    NN_MODEL_PASS_FIRST = ATTN_FIRST_SIZE(attn_model_pass, executor),
    NN_MODEL_TOKENS_FIRST = ATTN_FIRST_SIZE(attn_model_tokens, executor),
    NN_NORM_GRADIENTS_FIRST = ATTN_FIRST_SIZE(attn_norm_gradients, num_threads),
    NN_POOL_GRADIENTS_FIRST = ATTN_FIRST_SIZE(attn_pool_gradients, num_threads),
    NN_ROPE_CONFIG_FIRST = ATTN_FIRST_SIZE(attn_rope_config, high_freq_factor),
    NN_SCHEDULE_FIRST = ATTN_FIRST_SIZE(attn_schedule, steps),
    NN_TRANSFORMER_CONFIG_FIRST = ATTN_FIRST_SIZE(attn_transformer_config, eos),
    NN_TRANSFORMER_PAIRS_FIRST = ATTN_FIRST_SIZE(attn_transformer_pairs, target_ids),
    NN_TRANSFORMER_WEIGHTS_FIRST = ATTN_FIRST_SIZE(attn_transformer_weights, generator_bias)
};

/** An expected length that may be anything. */
#define NN_ANY ((int64_t)-1)

/** f32 activations (batch, 1, tokens, channels) with contiguous channels; any of the lengths may be NN_ANY. */
attn_status nn_check_activations(const char *name, const attn_tensor *t, int64_t batch, int64_t tokens,
                                 int64_t channels);
/** The same in f32, bf16 or f16. */
attn_status nn_check_typed_activations(const char *name, const attn_tensor *t, int64_t batch, int64_t tokens,
                                       int64_t channels);
/** nn_check_typed_activations() for something that is written: no element is stored twice. */
attn_status nn_check_typed_output(const char *name, const attn_tensor *t, int64_t batch, int64_t tokens,
                                  int64_t channels);
/** nn_check_activations() for something that is written. */
attn_status nn_check_output(const char *name, const attn_tensor *t, int64_t batch, int64_t tokens, int64_t channels);
/** A type that a layer may be told to run in. */
attn_status nn_check_layer_type(const char *name, attn_dtype dtype);
/** A matrix of weights (1, 1, rows, columns): f32, bf16 or f16, any strides. */
attn_status nn_check_matrix(const char *name, const attn_tensor *t, int64_t rows, int64_t columns);
/** A vector of weights (1, 1, 1, n), any stride. */
attn_status nn_check_vector(const char *name, const attn_tensor *t, int64_t n);
/** A gradient of weights (1, 1, rows, columns), which all rows of activations add to: f32 and contiguous. */
attn_status nn_check_sums(const char *name, const attn_tensor *t, int64_t rows, int64_t columns);

/** A tensor of a call, under the name that sentences have for it; tensor NULL: not there. */
struct nn_argument {
    const char *name;
    const attn_tensor *tensor;
};
/** A tensor that a struct holds by value, NULL if it has no data. */
static inline const attn_tensor *nn_wanted(const attn_tensor *t)
{
    return t->data ? t : NULL;
}
/** That no output overlaps an input or another output. */
attn_status nn_check_apart(const struct nn_argument *outputs, int num_outputs, const struct nn_argument *inputs,
                           int num_inputs);
/** That num_threads is not negative. */
attn_status nn_check_threads(int num_threads);
/** That a length is at least least. */
attn_status nn_check_length(const char *name, int64_t value, int64_t least);
/** That each of count lengths, or NULL, is from 0 to most, which is what meaning says. */
attn_status nn_check_lengths(const char *name, const int64_t *lengths, int64_t count, int64_t most,
                             const char *meaning);
/** That the epsilon of a normalisation is finite and not negative. */
attn_status nn_check_eps(const char *name, float eps);
/** That activation is one. */
attn_status nn_check_activation(const char *name, attn_activation activation);

/** offsets[num_sequences + 1] of a ragged batch: from 0, not descending. */
attn_status nn_check_offsets(const char *name, int64_t num_sequences, const int64_t *offsets);

/** That no sequence of such offsets has more than most tokens. */
attn_status nn_check_sequences(const char *name, int64_t num_sequences, const int64_t *offsets, int64_t most);

/** That ids[first] to ids[end - 1] are 0 to vocabulary - 1. */
attn_status nn_check_ids(const char *name, const int32_t *ids, int64_t first, int64_t end, int64_t vocabulary);

/** That each of count ids is the number of one of a table's rows. */
attn_status nn_check_row_numbers(const char *table, int64_t rows, const int32_t *ids, int64_t count);

/** The factor of a lookup: finite. */
attn_status nn_check_scale(const char *name, float scale);

/** The threads that a call with num_threads may use. */
int nn_all_threads(int num_threads);

/** The threads that a call with num_threads may use for so many elementary operations. */
int nn_threads(int num_threads, double operations);

/** Where element (row, column) of checked weights lies. */
const void *nn_weight_address(const attn_tensor *t, int64_t row, int64_t column);

/** An element of a matrix of weights, of any type and strides. */
float nn_weight_at(const attn_tensor *t, int64_t row, int64_t column);

/** n elements of a row from the first on. */
void nn_read_weights(const attn_tensor *t, int64_t row, int64_t first, int64_t n, float *to);

/** A config with its defaults filled in, or what is wrong with it. name stands for the struct in sentences. */
attn_status nn_complete_mha_config(attn_mha_config *completed, const char *name, const attn_mha_config *config);

/** "weights[3]" and the like. */
struct nn_name {
    char text[96];
};
/** array[i], or array[i].member unless member is NULL. */
struct nn_name nn_name_of(const char *array, int64_t i, const char *member);

#endif
