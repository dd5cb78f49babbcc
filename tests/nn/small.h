/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One small model of each kind, for tests of what loaders and calls make of what
 * they do not know: configs, and random weights under their names.
 */
#ifndef TEST_NN_SMALL_H
#define TEST_NN_SMALL_H

#include "named.h"

enum { D = 8, HEADS = 2, FF = 12, WORDS = 9, PLACES = 6, HIDDEN = 3, KV = 2 * D };

/** A good config of each kind; those that point to others point into this struct. */
extern struct small {
    attn_mha_config mha;
    attn_mha_weights mha_weights;
    attn_block_config block;
    attn_block_inputs inputs;
    attn_bert_config bert;
    attn_bert_outputs outputs;
    attn_rope_config rope;
    attn_llama_config llama;
    attn_transformer_config transformer;
    attn_decoding decoding;
    attn_lstm_config lstm;
    attn_alignment_config alignment;
    attn_bahdanau_config bahdanau;
    attn_linear_options linear;
    attn_linear_gradients linear_gradients; /**< of the bias alone */
    attn_linear_format format;
    attn_adamw_options adamw;
    attn_schedule schedule;
    attn_norm_gradients norm;
    attn_lstm_gradients lstm_gradients; /**< of a bias alone */
    attn_pool_gradients pool;
    attn_alignment_gradients alignment_gradients; /**< of the vector of the score alone */
    attn_bahdanau_gradients bahdanau_gradients;   /**< of the state alone */
    attn_mha_gradients mha_gradients;             /**< of x alone */
    attn_block_weights block_weights;
    attn_block_pass block_pass;
    attn_block_gradients block_gradients; /**< of x alone */
    attn_model_options model_options;
    attn_model_info info;
    attn_model_batch batch;           /**< of three tokens */
    attn_model_outputs model_outputs; /**< their hidden states */
    attn_model_tokens tokens;         /**< one */
    attn_model_pass model_pass;
    attn_bert_weights bert_weights;
    attn_transformer_weights transformer_weights;
    attn_transformer_pairs pairs;
} good;

/** A matrix of weights, for those that have no names. */
extern float square[D * D];

/** Fills in good and square. */
void make_configs(void);

/** Adds the weights of an LSTM's layer; direction is "" or "_reverse". */
void add_lstm(struct named *n, struct memory *m, const char *prefix, int64_t layer, const char *direction);
/** Adds those of a BERT with so many token types. */
void add_bert(struct named *n, struct memory *m, const char *prefix, int64_t types);
/** Adds those of a llama, whose names have no prefix. */
void add_llama(struct named *n, struct memory *m);
/** Adds those of a T5 of two layers in its encoder and one in its decoder; head: with an output matrix. */
void add_t5(struct named *n, struct memory *m, int head);
/** Adds those of a model of each kind, each behind a prefix of its own: block., bert., transformer., lstm. */
void add_all(struct named *n, struct memory *m);

#endif
